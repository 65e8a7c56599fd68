"""Whether a traced backward is linear in the gradient that it starts from.

It is for nearly every module: then a sum over the batch can be divided at its end, in place of every example. A hook or
a ``torch.autograd.Function`` may do anything with its gradient.
"""

from collections.abc import Iterator
from typing import Any

from torch.fx import Graph, Node

from numerate.torch_internals import operation_name

_EACH = {
    "neg", "sum", "mean", "expand", "view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "permute", "t",
    "transpose", "clone", "alias", "detach", "_to_copy", "copy", "flip", "cumsum", "slice", "select", "split",
    "split_with_sizes", "unbind", "getitem", "constant_pad_nd", "select_backward", "slice_backward", "slice_scatter",
    "select_scatter", "index_select", "gather", "add", "sub", "cat", "stack", "diagonal", "unfold",
}  # fmt: skip
"""Linear in all their tensors together."""
_ONE = {"mul", "mm", "bmm", "mv", "dot", "matmul"}
"""Linear in each of two tensors by itself."""


def is_linear(graph: Graph, start: Node, end: Node) -> bool:
    """Whether all that depends on ``start`` is linear in it, up to divisions by ``end``; False if that is not known."""
    linear, zero = {start}, set[Node]()
    for node in graph.nodes:
        given = list(node.all_input_nodes)
        if _is_zero(node, zero):
            zero.add(node)
        if not linear.intersection(given) or end in given:
            continue
        if node.op != "call_function" or not _keeps(node, linear, zero):
            return False
        linear.add(node)
    return True


def _keeps(node: Node, linear: set[Node], zero: set[Node]) -> bool:
    """Whether a node that has linear arguments is linear itself."""
    name, args = _name(node), list(node.all_input_nodes)
    if name in _EACH:
        numbers = [a for a in node.args[:2] if isinstance(a, int | float)] if name in ("add", "sub") else []
        return all(a in linear or a in zero for a in args) and not any(numbers)
    if name in _ONE:
        return sum(a in linear for a in _tensors(node)) == 1
    if name == "div":
        return node.args[1] not in linear and "rounding_mode" not in node.kwargs
    if name == "where":
        return node.args[0] not in linear and all(a in linear or a in zero for a in node.args[1:])
    if name == "masked_fill":
        return node.args[1] not in linear and node.args[2] in (0, 0.0)
    return False


def _tensors(node: Node) -> Iterator[Any]:
    """Arguments by place, each as often as it stands there."""
    return (a for a in node.args if isinstance(a, Node))


def _is_zero(node: Node, zero: set[Node]) -> bool:
    """Whether a node is known to be zero."""
    name = _name(node)
    if name in ("zeros", "zeros_like", "new_zeros"):
        return True
    if name in ("full", "full_like", "scalar_tensor"):
        return node.args[0 if name == "scalar_tensor" else 1] in (0, 0.0, False)
    return name in ("expand", "view", "reshape", "unsqueeze", "_to_copy", "clone") and node.args[0] in zero


def _name(node: Node) -> str:
    return operation_name(node.target) if hasattr(node.target, "_opname") else getattr(node.target, "__name__", "")
