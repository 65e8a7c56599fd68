"""Any arithmetic unit as a recurrent cell, on [x_t, h_{t-1}] (Trask et al., 2018)."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor, nn

from numerate.checks import one_of
from numerate.recurrent.cell import Cell, Parts, State, empty_parameters
from numerate.recurrent.layer import CellLayer
from numerate.units.base import Unit


@dataclass(frozen=True, repr=False)
class UnitCell(Cell):
    """h' = unit([x; h]); state (h,).

    The unit is a sub-module of its owner (``unit_l0``), so its bounds, penalty and formula are found there. A module
    that takes no generator, such as ``nn.Linear``, draws from torch's own, seeded from the one that is given. The state
    enters a unit that is ``stepwise``, such as NATU, without its gradient.

    Args:
        input_size, hidden_size: Features of x and of h.
        unit: A class or callable (in_features, out_features, device=, dtype=).
        initial: h before the first step: a number; or ``"learnt"``, a parameter ``initial`` (H,); or None, what the
            unit gives of no input: 1 where it multiplies, as from 0 a product never leaves 0, else 0; of a NATU, 1 - g.
            There the parameter starts.
    """

    unit: Callable[..., nn.Module] = nn.Linear
    initial: float | Literal["learnt"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.initial, str):
            one_of("initial", self.initial, ("learnt",))

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.hidden_size,),)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        size = self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"initial": (size,)} if self.initial == "learnt" else {}
        unit = self.unit(self.input_size + size, size, device=device, dtype=dtype)
        return {"unit": unit, **empty_parameters(shapes, device, dtype)}

    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        draw = p["unit"].reset_parameters
        if generator is None:
            draw()
        elif "generator" in signature(draw).parameters:
            draw(generator)
        else:
            _draw_from(generator, p["unit"], draw)
        if "initial" in p:
            with torch.no_grad():
                p["initial"].copy_(torch.as_tensor(self.neutral(p)))

    def neutral(self, p: Parts) -> float | Tensor:
        """What the unit gives of no input; a module that is no unit may have a number ``neutral``, else 0."""
        unit = p["unit"]
        return unit.empty() if isinstance(unit, Unit) else getattr(unit, "neutral", 0.0)

    def initial_state(self, batch: int, like: Tensor, p: Parts) -> State:
        if isinstance(self.initial, str):
            return (p["initial"].to(like).expand(batch, -1),)
        start = self.neutral(p) if self.initial is None else self.initial
        if isinstance(start, Tensor):
            return (start.to(like).expand(batch, -1),)
        return (like.new_full((batch, self.hidden_size), start),)

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        before = state[0].detach() if getattr(p["unit"], "stepwise", False) else state[0]
        h = p["unit"](torch.cat((gx, before), -1))
        if h.shape[-1] != self.hidden_size:
            name, wanted, got = type(p["unit"]).__name__, self.hidden_size, h.shape[-1]
            raise ValueError(f"the unit's output is the next state: it must have {wanted} features, {name} gives {got}")
        return h, (h,)


def _draw_from(generator: torch.Generator, module: nn.Module, draw: Callable[[], Any]) -> None:
    """``draw`` the parameters of a module from torch's own generators, seeded for it and then as they were."""
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    gpus = {value.device.index for value in module.parameters() if value.is_cuda}
    with torch.random.fork_rng(gpus):
        for source in (torch.default_generator, *(torch.cuda.default_generators[gpu] for gpu in gpus)):
            source.manual_seed(seed)
        draw()


class UnitRNN(CellLayer):
    """An arithmetic unit along time, ``UnitRNN(10, 2, unit=NALU)``; see :class:`UnitCell`."""

    cell_type = UnitCell
