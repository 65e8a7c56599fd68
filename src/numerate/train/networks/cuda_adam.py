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
#define ARGUMENTS float *p, float *m, float *v, const float *g, const float *rate, const float *corrections, \
  const float *low, const float *high, const float *betas, const byte *frozen, int *bad, int64 rows, int64 count
__device__ New fresh(ARGUMENTS, int64 at) {
  const int64 row = at / count, column = at % count;
  New n;
  if (betas) {  // rates, betas and corrections for each number
    n.m = m[at] + (g[at] - m[at]) * (1.0f - betas[column]);
    n.v = betas[count + column] * v[at] + (1.0f - betas[count + column]) * g[at] * g[at];
    n.p = p[at] - rate[at] / corrections[column] * (n.m / (sqrtf(n.v / corrections[count + column]) + EPS));
  } else {
    n.m = m[at] + (g[at] - m[at]) * REST1;
    n.v = BETA2 * v[at] + REST2 * g[at] * g[at];
    n.p = p[at] - rate[row] / corrections[0] * (n.m / (sqrtf(n.v / corrections[1]) + EPS));
  }
  if (low) n.p = fminf(fmaxf(n.p, low[column]), high[column]);
  return n;
}
#define NEW fresh(p, m, v, g, rate, corrections, low, high, betas, frozen, bad, rows, count, at)
extern "C" __global__ void look(ARGUMENTS) {
  const int64 at = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (at >= rows * count) return;
  const New n = NEW;
  if (!isfinite(n.p) || !isfinite(n.v)) bad[at / count] = 1;
}
extern "C" __global__ void write(ARGUMENTS) {
  const int64 at = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (at >= rows * count) return;
  if (frozen[at / count] || bad[at / count]) return;
  const New n = NEW;
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
    betas: Tensor | None = None,
) -> None:
    """As :func:`numerate.train.networks.adam.update_`."""
    rows, count = state.parameters.shape
    bad = torch.zeros(rows, dtype=torch.int32, device=gradient.device)
    low, high = limits if limits is not None else (0, 0)
    given = gradient.contiguous(), rate.contiguous(), corrections.contiguous()
    arrays = state.parameters, state.first, state.second, *given, low, high, 0 if betas is None else betas.contiguous()
    blocks = -(-rows * count // _THREADS)
    for kernel in _kernels((*adam.betas, adam.eps), gradient.device):
        kernel.launch(blocks, *arrays, state.frozen, bad, rows, count)
    ended = bad.bool() & ~state.frozen
    state.ended.copy_(torch.where(ended, step, state.ended))
    state.frozen.logical_or_(ended)
