"""Interfaces of torch that are not public, in one place; tried with torch 2.13.0.

Another version of torch may move them: this file is then the one to mend, and the tests of ``loops`` and ``recurrent``
say what is broken.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack, is_batchedtensor, is_legacy_batchedtensor
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._functorch.autograd_function import custom_function_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = [
    "cudnn_rnn_precision",
    "decompositions",
    "fused_gru",
    "fused_lstm",
    "is_batch_of_gradients",
    "is_mapped",
    "make_fx",
    "operation_name",
    "scan",
    "set_cudnn_rnn_precision",
    "traceable_functions",
    "tree_flatten",
    "tree_map",
    "tree_unflatten",
    "under_transform",
    "under_vmap",
]


def decompositions(*simpler: Any) -> dict[Any, Any]:
    """ATen operation -> what it is in terms of core operations; ``simpler``: core operations to be decomposed, too."""
    return {**core_aten_decompositions(), **get_decompositions(list(simpler))}


def operation_name(target: Any) -> str:
    """Name of an ATen operation without its overload: ``add`` for ``aten.add.Tensor``."""
    return getattr(target, "_opname", str(target))


@contextmanager
def traceable_functions() -> Iterator[None]:
    """A ``torch.autograd.Function`` can be made functional inside: its forward is then as any other code.

    Its own backward is called by ``torch.func.grad``, a level above. torch itself has only an error at this place.
    """

    def inline(interpreter: Any, function: Any, *operands: Any, **_: Any) -> Any:
        return function.forward(*operands)

    rules, key = custom_function_call.functorch_table, TransformType.Functionalize
    before = rules[key]
    rules[key] = inline
    try:
        yield
    finally:
        rules[key] = before


def is_batch_of_gradients(tensor: Tensor) -> bool:
    """Whether a tensor is a batch inside ``vmap`` (``is_grads_batched``), whose numbers have no address."""
    return is_batchedtensor(tensor) or is_legacy_batchedtensor(tensor)


def is_mapped(tensor: Tensor) -> bool:
    """Whether the innermost transform is a ``vmap`` that maps over a tensor."""
    return is_batchedtensor(tensor)


def scan() -> Callable[..., Any]:
    """torch's loop over an unknown number of steps, as one operation of an exported program."""
    from torch._higher_order_ops.scan import scan  # here, as it imports the compiler

    return scan


def under_transform() -> bool:
    """Whether a dispatch mode, a function transform or forward-mode differentiation is active."""
    if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        return True
    return torch.autograd.forward_ad._current_level >= 0


def under_vmap() -> bool:
    """Whether one level of ``vmap`` is active and neither another transform nor a dispatch mode."""
    if torch._C._len_torch_dispatch_stack() or torch.autograd.forward_ad._current_level >= 0:
        return False
    stack = get_interpreter_stack() or []
    return len(stack) == 1 and stack[0].key() == TransformType.Vmap


def fused_lstm(x: Tensor, state: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """torch's LSTM of one layer over a whole sequence, with biases; x: (T, B, I) -> outputs (T, B, H), h, c."""
    return torch._VF.lstm(x, state, weights, True, 1, 0.0, torch.is_grad_enabled(), False, False)


def fused_gru(x: Tensor, state: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    """torch's GRU of one layer over a whole sequence, with biases; x: (T, B, I) -> outputs (T, B, H), h."""
    return torch._VF.gru(x, state, weights, True, 1, 0.0, torch.is_grad_enabled(), False, False)


def cudnn_rnn_precision() -> str:
    """How exact cuDNN's recurrent layers are set to be; ``torch.backends.cudnn.rnn`` differs between versions."""
    return torch._C._get_fp32_precision_getter("cuda", "rnn")


def set_cudnn_rnn_precision(precision: str) -> None:
    """Set it, to ``"ieee"`` or ``"tf32"``; gradients of recurrent weights on a GPU follow it."""
    torch._C._set_fp32_precision_setter("cuda", "rnn", precision)
