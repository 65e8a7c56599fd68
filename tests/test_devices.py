"""The record of devices: names, and the sentences for those that are not there."""

import pytest
import torch

from numerate.devices import CPU, CUDA, KINDS, available_kind, find_kind, kind_of


@pytest.mark.parametrize("device", ["cuda", "cuda:3", torch.device("cuda"), torch.device("cuda", 1)], ids=str)
def test_a_kind_is_found_by_name_and_by_device(device):
    assert kind_of(device) is find_kind(device) is CUDA


def test_every_kind_is_one_of_torchs_types():
    assert [torch.device(name).type for name in KINDS] == list(KINDS)
    assert kind_of(torch.zeros(1).device) is CPU


@pytest.mark.parametrize("device", ["tpu", "", "CUDA", "cudax", torch.device("meta")], ids=str)
def test_another_kind_is_refused_in_a_sentence(device):
    assert find_kind(device) is None
    with pytest.raises(ValueError, match=r"^device must be cpu or cuda, got "):
        kind_of(device)


def test_a_missing_device_is_said_clearly(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert available_kind("cpu") is CPU
    with pytest.raises(ValueError, match="torch finds no CUDA device; use cpu"):
        available_kind("cuda:0")


def test_hardware_is_named_by_torch(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"card of {device}")
    assert CUDA.hardware("cuda:1") == "card of cuda:1"
    assert CPU.hardware("cpu") is None
