"""An update of Adam on a GPU by two kernels: :func:`numerate.train.networks.adam.update_` with the same arguments.

The first finds runs whose new numbers are not all finite, the second writes those of all others.
"""

from functools import cache

import torch
from torch import Tensor

from numerate.loops.toolchain import nvrtc
from numerate.train.networks.adam import State
from numerate.train.specification import Adam

_THREADS = 256
_SOURCE = r"""
typedef long long int64; typedef unsigned char byte;
struct New { float p, m, v; };
__device__ New fresh(float p, float m, float v, float g, float rate, const float *corrections, const float *low,
                     const float *high, int64 column) {
  New n;
  n.m = m + (g - m) * REST1;
  n.v = BETA2 * v + REST2 * g * g;
  n.p = p - rate / corrections[0] * (n.m / (sqrtf(n.v / corrections[1]) + EPS));
  if (low) n.p = fminf(fmaxf(n.p, low[column]), high[column]);
  return n;
}
#define ARGUMENTS float *p, float *m, float *v, const float *g, const float *rate, const float *corrections, \
  const float *low, const float *high, const byte *frozen, int *bad, int64 rows, int64 count
extern "C" __global__ void look(ARGUMENTS) {
  const int64 at = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (at >= rows * count) return;
  const int64 row = at / count;
  const New n = fresh(p[at], m[at], v[at], g[at], rate[row], corrections, low, high, at % count);
  if (!isfinite(n.p) || !isfinite(n.v)) bad[row] = 1;
}
extern "C" __global__ void write(ARGUMENTS) {
  const int64 at = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (at >= rows * count) return;
  const int64 row = at / count;
  if (frozen[row] || bad[row]) return;
  const New n = fresh(p[at], m[at], v[at], g[at], rate[row], corrections, low, high, at % count);
  p[at] = n.p; m[at] = n.m; v[at] = n.v;
}
"""


@cache
def _kernels(adam: tuple[float, float, float], device: torch.device) -> tuple[nvrtc.Kernel, nvrtc.Kernel]:
    beta1, beta2, eps = adam
    numbers = {"REST1": 1 - beta1, "BETA2": beta2, "REST2": 1 - beta2, "EPS": eps}
    source = "\n".join([*(f"#define {name} {float(value)!r}f" for name, value in numbers.items()), _SOURCE])
    look, write = (nvrtc.kernel(source, name, device, _THREADS) for name in ("look", "write"))
    return look, write


def update_(
    state: State,
    gradient: Tensor,
    step: Tensor,
    rate: Tensor,
    corrections: Tensor,
    adam: Adam,
    limits: tuple[Tensor, Tensor] | None,
) -> None:
    """As :func:`numerate.train.networks.adam.update_`."""
    rows, count = state.parameters.shape
    bad = torch.zeros(rows, dtype=torch.int32, device=gradient.device)
    low, high = limits if limits is not None else (0, 0)
    arrays = state.parameters, state.first, state.second, gradient.contiguous(), rate.contiguous(), corrections
    blocks = -(-rows * count // _THREADS)
    for kernel in _kernels((*adam.betas, adam.eps), gradient.device):
        kernel.launch(blocks, *arrays, low, high, state.frozen, bad, rows, count)
    ended = bad.bool() & ~state.frozen
    state.ended.copy_(torch.where(ended, step, state.ended))
    state.frozen.logical_or_(ended)
