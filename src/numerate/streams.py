"""Random numbers that depend on (seed, purpose, step, position) and on nothing else.

Philox4x32-10 (Salmon et al., 2011): a counter goes in, four random words come out. There is no state to carry, so a run
does not depend on its neighbours, on the order of evaluation or on where it was resumed. The same definition is emitted
as C++ and CUDA by :mod:`numerate.loops`, equal bit for bit.
"""

from enum import IntEnum

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


class Domain(IntEnum):
    """What a stream is for; the second word of the Philox key."""

    INIT = 0
    TRAIN = 1
    VALIDATION = 2
    TEST = 3
    NOISE = 4  # randomness inside a module
    TASK = 5  # what a task draws once per run, such as the offset of its subsets


def _mulhilo(factor: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """High and low word of a 32x32-bit product; int64 wraps around, which leaves the bits right."""
    product = factor * x
    return (product >> 32) & _MASK, product & _MASK


def philox4x32(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Ten rounds of Philox4x32. All words are int64 tensors that hold unsigned 32-bit values and broadcast together."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _mulhilo(0xD2511F53, c0)
        high1, low1 = _mulhilo(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return c0, c1, c2, c3


def words(seed: Tensor, domain: Tensor | int, step: Tensor | int, count: int, first: int = 0) -> Tensor:
    """``count`` random 32-bit words per seed, from position ``first`` on, a multiple of 4; (...) -> (..., count)."""
    seed = torch.as_tensor(seed, dtype=torch.int64)
    k0 = (seed & _MASK).unsqueeze(-1)
    k1 = _scalar(domain, seed.device).expand(seed.shape).unsqueeze(-1)
    step = _scalar(step, seed.device)
    block = torch.arange(first // 4, first // 4 + (count + 3) // 4, dtype=torch.int64, device=seed.device)
    zero = torch.zeros_like(block)
    out = philox4x32((block, zero + (step & _MASK), zero + (step >> 32), zero), (k0, k1))
    return torch.stack(torch.broadcast_tensors(*out), -1).flatten(-2)[..., :count]


def _scalar(value: Tensor | int, device: torch.device) -> Tensor:
    """A whole number on a device; one of Python's is written there by the device, which a CUDA graph can record."""
    if isinstance(value, Tensor):
        return value.to(device, torch.int64)
    return torch.full((), int(value), dtype=torch.int64, device=device)


def uniform(seed: Tensor | int, domain: Domain | int, step: Tensor | int, count: int, first: int = 0) -> Tensor:
    """``count`` float32 numbers in [0, 1) per seed, multiples of 2**-24; as :func:`words`."""
    return (words(torch.as_tensor(seed), int(domain), step, count, first) >> 8).to(torch.float32) * 2.0**-24


def first_words(seed: int, domain: Domain, step: int = 0) -> tuple[int, int, int, int]:
    """The first four words of a stream as plain numbers, without tensors; equal to :func:`words`."""
    return philox4x32((0, step & _MASK, step >> 32, 0), (seed & _MASK, int(domain)))  # type: ignore[arg-type, return-value]


def derived_seed(seed: int, domain: Domain, step: int = 0) -> int:
    """A 63-bit seed for a library generator (``torch.manual_seed``) that belongs to (seed, domain, step)."""
    high, low, *_ = first_words(seed, domain, step)
    return ((high << 32) | low) & (2**63 - 1)
