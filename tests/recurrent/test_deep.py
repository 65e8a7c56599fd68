"""Blocks of recurrent layers: what a block computes, what a stack of them reads, and that seeds stack."""

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from numerate.recurrent import LRU, LSTM, Block, DeepModel, MinGRU


def test_a_block_adds_a_gated_map_of_its_layer():
    block, x = Block(LSTM(4, 6)), torch.randn(5, 3, 4)
    normed = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    y, _ = block.layer(normed)
    y = 0.5 * y * (1 + torch.erf(y / 2**0.5))
    value, gate = (y @ block.mix.weight.T + block.mix.bias).chunk(2, -1)
    torch.testing.assert_close(block(x), x + value / (1 + torch.exp(-gate)))


def test_all_steps_the_last_or_their_mean_are_read():
    torch.manual_seed(0)
    models = {read: DeepModel(LRU, 2, 6, 3, blocks=2, read=read) for read in ("all", "last", "mean")}  # type: ignore[arg-type]
    for model in models.values():
        model.load_state_dict(models["all"].state_dict())
    x = torch.randn(7, 4, 2)
    every = models["all"](x)
    assert every.shape == (7, 4, 3)
    torch.testing.assert_close(models["last"](x), every[-1])
    torch.testing.assert_close(models["mean"](x), every.mean(0))
    with pytest.raises(ValueError, match="read must be one of 'all', 'last', 'mean', got 'first'"):
        DeepModel(LRU, 2, 6, 3, read="first")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="time first"):
        Block(LSTM(4, 6, batch_first=True))


def test_stacked_models_are_single_ones():
    models = [DeepModel(MinGRU, 2, 6, 3, blocks=2, read="mean") for _ in range(3)]
    parameters, _ = stack_module_state(models)  # type: ignore[arg-type]
    x = torch.randn(3, 7, 4, 2)
    together = vmap(lambda p, x: functional_call(models[0], p, (x,)))(parameters, x)
    for k, model in enumerate(models):
        torch.testing.assert_close(together[k], model(x[k]))
