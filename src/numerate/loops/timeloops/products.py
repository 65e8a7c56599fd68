"""Matrix products of small layers as native code: the input of a time loop, and the gradients of its weights.

A product with a few columns, or with many more rows than either, is where a BLAS loses most of its speed. Each number
of a result is summed in a fixed order, whatever threads or models there are beside it.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from numerate.loops.timeloops import tuning
from numerate.loops.toolchain import native
from numerate.torch_internals import is_batch_of_gradients, is_mapped, under_transform

_PRELUDES = {
    torch.float32: '#include "prelude.hpp"\ntypedef float R;',
    torch.float64: "typedef double R;\n" + Path(__file__).with_name("prelude64.hpp").read_text(),
}


def source_file(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


def preamble(dtype: torch.dtype) -> str:
    """What all sources for numbers of a type start with."""
    return f"{_PRELUDES[dtype]}\n{source_file('rows.hpp')}"


def multiplies(tensor: Tensor) -> bool:
    """Whether there are products for a tensor of this type and device."""
    return tensor.device.type == "cpu" and tensor.dtype in _PRELUDES


@cache
def products(dtype: torch.dtype) -> ctypes.CDLL:
    """``pack``, ``multiply`` and their like for numbers of a type."""
    library = native.library(f"{preamble(dtype)}\n{source_file('product.cpp')}")
    library.packed_size.restype = library.correlate_room.restype = ctypes.c_int64
    return library


def packed(matrix: Tensor) -> Tensor:
    """A matrix (K, N) as ``multiply`` wants its right factor."""
    library, (depth, columns) = products(matrix.dtype), matrix.shape
    result = matrix.new_empty(library.packed_size(*_numbers(depth, columns)))
    library.pack(_address(matrix), *_numbers(*matrix.stride(), depth, columns), native.pointer(result))
    return result


def correlated(left: Tensor, right: Tensor) -> Tensor:
    """``left.mT @ right``; (..., n, M), (..., n, N) -> (..., M, N), with or without a dimension of models."""
    *lead, rows, wide = left.shape
    columns, library = right.shape[-1], products(left.dtype)
    result = left.new_empty(*lead, wide, columns) if rows else left.new_zeros(*lead, wide, columns)
    left, right = _rows(left), _rows(right)
    room = library.correlate_room(*_numbers(columns))
    models, threads, parts = _shares(lead, rows * wide * columns, wide)

    def work(start: int, end: int) -> None:
        space = left.new_empty(room)
        for place in range(start, end):
            (a, b, c), part = _of_model(place, parts, left, right, result)
            first, last = wide * part // parts, wide * (part + 1) // parts
            a, c = a.narrow(1, first, last - first), c.narrow(0, first, last - first)
            sizes = _numbers(rows, last - first, columns)
            arguments = _address(a), *_numbers(a.stride(0)), _address(b), *_numbers(b.stride(0))
            library.correlate(*sizes, *arguments, _address(c), *_numbers(columns), False, native.pointer(space))

    native.over_parts(work, models * parts, threads)
    return result


def _multiplied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ weight + bias``; (..., n, K), (..., K, N), (..., N) -> (..., n, N), with or without models."""
    *lead, rows, depth = x.shape
    columns, library = weight.shape[-1], products(x.dtype)
    result = x.new_empty(*lead, rows, columns)
    x, bias = _rows(x), None if bias is None else bias.contiguous()
    rights = [packed(w) for w in (weight if lead else (weight,))]
    models, threads, parts = _shares(lead, rows * depth * columns, rows)

    def work(start: int, end: int) -> None:
        for place in range(start, end):
            (a, c, b), part = _of_model(place, parts, x, result, bias)
            first, last = rows * part // parts, rows * (part + 1) // parts
            sizes, stride = _numbers(last - first, depth, columns), ctypes.c_int64(a.stride(0))
            right = native.pointer(rights[place // parts])
            library.affine(*sizes, _address(a[first:last]), stride, right, _address(b), _address(c[first:last]))

    native.over_parts(work, models * parts, threads)
    return result


def _of_model(place: int, parts: int, *tensors: Tensor | None) -> tuple[list[Any], int]:
    """What a place in the work stands for: the tensors of its model, and which part of it."""
    model, part = divmod(place, parts)
    stacked = tensors[0] is not None and tensors[0].dim() == 3
    return [t[model] if stacked and t is not None else t for t in tensors], part


def _shares(lead: Sequence[int], work: int, most: int) -> tuple[int, int, int]:
    """Models, threads for all of them, and pieces of each: threads share models, then the ``work`` of each."""
    models = prod(lead)
    threads = max(1, min(torch.get_num_threads(), models * work // tuning.WORK_EACH))
    return models, threads, max(1, min(-(-threads // max(models, 1)), most))


def _rows(tensor: Tensor) -> Tensor:
    """The same with numbers of a row side by side."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _numbers(*values: int) -> list[ctypes.c_int64]:
    return [ctypes.c_int64(value) for value in values]


def _address(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


# ---------------------------------------------------------------- a linear map as a differentiable function


class NativeProducts(TorchFunctionMode):
    """Answers ``torch.nn.functional.linear`` on a CPU by :func:`linear`, for numbers of one type, if it has these."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and not kwargs:
            tensors = [t for t in args if t is not None]
            if all(t.dtype == self.dtype and multiplies(t) for t in tensors):
                return linear(*args)
        return func(*args, **(kwargs or {}))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As ``torch.nn.functional.linear``; (..., I), (O, I), (O,) -> (..., O).

    Under one level of ``vmap``, gradients must be taken outside of it.
    """
    rows, tensors = x.reshape(-1, x.shape[-1]), (weight,) if bias is None else (weight, bias)
    mapped = any(map(is_mapped, (x, *tensors)))
    if not mapped and under_transform():  # a vmap over other tensors, such as the initial state
        return F.linear(x, weight, bias)
    function = _LinearOfModels if mapped else _Linear
    return function.apply(rows, *tensors).unflatten(0, x.shape[:-1])  # type: ignore[union-attr]


class _Linear(torch.autograd.Function):
    """(n, I), (O, I), (O,) -> (n, O), or all with a dimension of models in front."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiplied(x, weight.mT, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (above,), (x, weight) = gradients, ctx.saved_tensors
        plain = torch.is_grad_enabled() or is_batch_of_gradients(above)  # as timeloop.by_plain_steps
        needs_x, needs_weight, *needs_bias = ctx.needs_input_grad
        dx = dweight = None
        if needs_x:
            dx = above @ weight if plain else _multiplied(above, weight, None)
        if needs_weight:
            dweight = above.mT @ x if plain else correlated(above, x)
        return dx, dweight, *(above.sum(-2) if needed else None for needed in needs_bias)


class _LinearOfModels(torch.autograd.Function):
    """The same under ``vmap``."""

    @staticmethod
    def forward(*tensors: Tensor) -> Tensor:
        raise NotImplementedError("only called with tensors that vmap maps over")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError("only called with tensors that vmap maps over")

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], *tensors: Tensor) -> tuple[Tensor, int]:  # type: ignore[override]
        return _Linear.apply(*models_in_front(info.batch_size, in_dims, tensors)), 0  # type: ignore[return-value]


def models_in_front(models: int, dims: Sequence[int | None], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of one level of ``vmap`` with the mapped dimension first; those without one, once for each model."""
    return [
        tensor.expand(models, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, dims)
    ]
