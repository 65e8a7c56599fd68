"""Uniform numbers of a stream by one kernel: :func:`numerate.streams.uniform` on a GPU, equal bit for bit."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from numerate.loops.toolchain import nvrtc

_THREADS = 128
_SOURCE = r"""
typedef unsigned int word; typedef long long int64;
extern "C" __global__ void draw(const int64 *seeds, const int64 *step, float *out,
                                int64 rows, int64 count, int64 first, int64 domain) {
  const int64 blocks = (count + 3) / 4, at = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (at >= rows * blocks) return;
  const int64 row = at / blocks, block = at % blocks;
  word c0 = (word)(first / 4 + block), c1 = (word)*step, c2 = (word)(*step >> 32), c3 = 0;
  word k0 = (word)seeds[row], k1 = (word)domain;
  for (int round = 0; round < 10; ++round) {
    const word high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const word high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0; c1 = low1; c2 = high0 ^ c3 ^ k1; c3 = low0;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  const word drawn[4] = {c0, c1, c2, c3};
  for (int k = 0; k < 4; ++k)
    if (4 * block + k < count) out[row * count + 4 * block + k] = (drawn[k] >> 8) * 5.9604644775390625e-8f;
}
"""


@cache
def _kernel(device: torch.device) -> nvrtc.Kernel:
    return nvrtc.kernel(_SOURCE, "draw", device, _THREADS)


@torch.library.custom_op("numerate::uniform", mutates_args=())
def _uniform(seeds: Tensor, domain: int, step: Tensor, count: int, first: int) -> Tensor:
    rows = seeds.numel()
    out = torch.empty(*seeds.shape, count, device=seeds.device)
    blocks = -(-rows * -(-count // 4) // _THREADS)
    if rows * count:
        _kernel(seeds.device).launch(blocks, seeds.contiguous(), step, out, rows, count, first, domain)
    return out


@_uniform.register_fake
def _shape(seeds: Tensor, domain: int, step: Tensor, count: int, first: int) -> Tensor:
    return torch.empty(*seeds.shape, count, device=seeds.device)


def _over_members(
    info: Any, dims: tuple[Any, ...], seeds: Tensor, domain: int, step: Tensor, count: int, first: int
) -> tuple[Tensor, int]:
    if dims[2] is not None:
        raise NotImplementedError("all members draw for the same step")
    if dims[0] is None:
        return _uniform(seeds, domain, step, count, first), None  # type: ignore[return-value]
    return _uniform(seeds.movedim(dims[0], 0), domain, step, count, first), 0


_uniform.register_vmap(_over_members)


def uniform(seed: Tensor, domain: int, step: Tensor, count: int, first: int = 0) -> Tensor:
    """As :func:`numerate.streams.uniform`, for seeds and a step that lie on a GPU; also inside ``vmap``."""
    return _uniform(seed, domain, step, count, first)
