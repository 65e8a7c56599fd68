"""Named arrays survive the way to bytes and back, and equal arrays give equal bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from numerate.results import pack, unpack

types = st.sampled_from(["<f4", "<f8", ">f8", "<i8", "<i4", "<u1", "<u8", "?", "<c8", "<f2"])
arrays = types.flatmap(lambda t: hnp.arrays(t, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)))
named = st.dictionaries(st.text(max_size=8), arrays, max_size=4)


@given(named)
def test_round_trip_keeps_names_types_shapes_and_bits(case):
    back = unpack(pack(case))
    assert back.keys() == case.keys()
    for name, value in case.items():
        assert back[name].dtype == value.dtype.newbyteorder("<")
        assert back[name].shape == value.shape
        np.testing.assert_array_equal(back[name], value)


@given(named)
def test_order_of_names_does_not_matter(case):
    assert pack(case) == pack(dict(reversed(case.items())))


def test_every_nan_is_the_same_nan():
    strange = np.array([0x7FF8000000000123], np.uint64).view(np.float64)
    assert np.isnan(strange[0])
    assert pack({"x": strange}) == pack({"x": np.array([np.nan])})


def test_memory_order_does_not_matter():
    x = np.arange(6.0).reshape(2, 3)
    assert pack({"x": np.asfortranarray(x)}) == pack({"x": x}) == pack({"x": x.astype(">f8")})


def test_blocks_are_safetensors():
    safetensors = pytest.importorskip("safetensors.numpy")
    x = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(7, np.int64)}
    back = safetensors.load(pack(x))
    for name, value in x.items():
        np.testing.assert_array_equal(back[name], value)


def test_unpacked_arrays_can_be_written_to():
    x = unpack(pack({"x": np.zeros(3)}))["x"]
    x[0] = 1
    assert x[0] == 1


@pytest.mark.parametrize("value", [np.array(["text"]), np.array([object()]), np.array(["2020-01-01"], "M8[D]")])
def test_what_is_not_numbers_is_refused(value):
    with pytest.raises(TypeError, match="x must hold numbers"):
        pack({"x": value})


def test_a_cut_block_is_refused():
    with pytest.raises(ValueError, match="not a block of named arrays"):
        unpack(pack({"x": np.zeros(3)})[:12])
