"""The nine gate mechanisms of Gu et al. (2020): pieces that turn maps into an effective pair (forget, input).

A cell then does ``state' = F * state + I * candidate``. A gate is data (four choices), so the nine of them combine with
any cell that has a forget gate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from numerate.checks import positive
from numerate.recurrent import init

Timescale = float | Literal["unknown"] | None


def cumax(x: Tensor) -> Tensor:
    """Cumulative sum of the softmax over the last axis: values that rise from near 0 to 1."""
    return x.softmax(-1).cumsum(-1)


def refine(forget: Tensor, refinement: Tensor) -> Tensor:
    r"""Effective gate :math:`g = r (1 - (1 - f)^2) + (1 - r) f^2 = f (f + 2 r (1 - f))` (eq. 10); any shape."""
    return forget * (forget + 2 * refinement * (1 - forget))


def timescale(forget: Tensor) -> Tensor:
    """Characteristic number of steps a forget activation remembers: 1 / (1 - f)."""
    return 1 / (1 - forget).clamp_min(0)  # rounding may carry a cumulative sum beyond 1


@dataclass(frozen=True)
class Gate:
    """What one mechanism does; the nine of the paper are in :data:`GATES`.

    ``squash`` turns the forget map into f. The partner map is an input gate, or with ``refined`` a refine gate (then
    I = 1 - F); it is absent where the cell ties I = 1 - f. ``master`` adds a pair of coarse gates, each entry shared by
    ``downsize`` neighbouring units. ``bias`` is a trainable vector, added to the forget (or master forget) map and
    subtracted from its partner, and how it starts. ``forget_bias`` is where the forget map's ordinary bias starts.
    """

    name: str
    squash: Literal["sigmoid", "cumax"] = "sigmoid"
    refined: bool = False
    master: Literal["sigmoid", "cumax"] | None = None
    bias: Literal["chrono", "uniform"] | None = None
    forget_bias: float = 0.0
    tied: bool = False
    downsize: int = 16

    def __post_init__(self) -> None:
        object.__setattr__(self, "downsize", positive("downsize", self.downsize))

    @property
    def has_partner(self) -> bool:
        """Whether the cell must give a second map beside the forget map."""
        return not self.tied

    @property
    def elementwise(self) -> bool:
        """Whether each unit's gate depends on that unit's maps alone."""
        return self.squash == "sigmoid" and self.master is None

    @property
    def takes_timescale(self) -> bool:
        """Whether ``timescale`` says where its own vector, or else the forget map's bias, starts."""
        return self.bias == "chrono" or (self.bias is None and self.elementwise)

    def master_size(self, size: int) -> int:
        """Columns of one master gate for ``size`` units; 0 without masters."""
        return size // self.downsize if self.master else 0

    def bias_size(self, size: int) -> int:
        """Entries of the gate's own bias vector; 0 without one."""
        if self.bias is None:
            return 0
        return self.master_size(size) if self.master else size

    def check(self, size: int, timescale: Timescale, forget_bias: float | None = None) -> None:
        """Raises ValueError if the gate cannot serve ``size`` units, or cannot start as asked."""
        if self.master and size % self.downsize:
            raise ValueError(
                f"gate {self.name!r} shares each master gate among downsize={self.downsize} units, "
                f"which must divide the hidden size {size}"
            )
        if self.tied and (self.refined or self.master):
            raise ValueError(f"gate {self.name!r} cannot be tied: it needs its second map")
        if self.bias == "chrono" and timescale is None:
            raise ValueError(f"gate {self.name!r} needs timescale, the longest dependency of the task in steps")
        if timescale is not None and not self.takes_timescale:
            raise ValueError(f"gate {self.name!r} does not start from a timescale: leave out timescale={timescale!r}")
        if self.squash == "cumax" and (self.forget_bias or forget_bias is not None):
            given = self.forget_bias if forget_bias is None else forget_bias
            raise ValueError(
                f"a constant does not change the softmax of gate {self.name!r}: leave out forget_bias={given!r}"
            )

    def reset_bias_(
        self, bias: Tensor, timescale: Timescale, units: int, generator: torch.Generator | None = None
    ) -> None:
        """Draw the gate's own vector for a cell of ``units`` hidden units, in place."""
        if self.bias == "chrono":
            assert timescale is not None
            init.chrono_(bias, timescale, generator=generator)
        else:
            init.uniform_gate_(bias, generator, units)

    def shift(self, bias: Tensor, blocks: Mapping[str, int]) -> Tensor:
        """Its own vector as a bias of all columns: + on the (master) forget map, - on its partner; (sum of blocks,)."""
        plus, minus = ("master_forget", "master_input") if self.master else ("forget", "partner")
        shifts = {plus: bias, minus: -bias}
        return torch.cat([shifts.get(name, bias.new_zeros(width)) for name, width in blocks.items()])

    def __call__(
        self,
        forget: Tensor,
        partner: Tensor | None = None,
        master_forget: Tensor | None = None,
        master_input: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Maps (..., H), those of masters (..., H / downsize) -> effective forget and input gate, (..., H)."""
        f = self.squashed(forget)
        if self.refined:
            assert partner is not None
            g = refine(f, partner.sigmoid())
            return g, 1 - g
        if partner is None:
            i = 1 - f
        elif self.squash == "cumax":
            i = 1 - cumax(partner)
        else:
            i = partner.sigmoid()
        if self.master is None:
            return f, i
        assert master_forget is not None
        assert master_input is not None
        master_f, master_i = map(self.spread, self.masters(master_forget, master_input))
        overlap = master_f * master_i
        return f * overlap + (master_f - overlap), i * overlap + (master_i - overlap)

    def squashed(self, forget: Tensor) -> Tensor:
        """The forget map in (0, 1), before refinement and masters; any shape."""
        return cumax(forget) if self.squash == "cumax" else forget.sigmoid()

    def masters(self, forget: Tensor, inlet: Tensor) -> tuple[Tensor, Tensor]:
        """The pair of master gates from their maps; each (..., H / downsize)."""
        if self.master == "cumax":
            return cumax(forget), 1 - cumax(inlet)
        return forget.sigmoid(), inlet.sigmoid()

    def observe(
        self,
        forget: Tensor,
        partner: Tensor | None = None,
        master_forget: Tensor | None = None,
        master_input: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The effective pair by name, and what it is made of: ``f`` and ``r``, or the coarse master gates."""
        f, i = self(forget, partner, master_forget, master_input)
        seen = {"forget": f, "input": i}
        if self.refined and partner is not None:
            seen |= {"f": self.squashed(forget), "r": partner.sigmoid()}
        if self.master and master_forget is not None and master_input is not None:
            f, i = self.masters(master_forget, master_input)
            seen |= {"master_forget": f, "master_input": i}
        return seen

    def spread(self, coarse: Tensor) -> Tensor:
        """Each entry repeated for its ``downsize`` neighbouring units; (..., n) -> (..., n * downsize)."""
        return coarse.unsqueeze(-1).expand(*coarse.shape, self.downsize).flatten(-2)


GATES: dict[str, Gate] = {
    gate.name: gate
    for gate in (
        Gate("-", forget_bias=1.0),
        Gate("C", bias="chrono"),
        Gate("O", squash="cumax"),
        Gate("U", bias="uniform"),
        Gate("R", refined=True, forget_bias=1.0),
        Gate("OM", master="cumax"),
        Gate("OR", squash="cumax", refined=True),
        Gate("UM", master="sigmoid", bias="uniform"),
        Gate("UR", refined=True, bias="uniform"),
    )
}
"""The paper's names without the dash: ``-`` standard, C chrono, O ordered (cumax), U uniform, R refine, M master."""


def gate(kind: str | Gate, *, tied: bool | None = None, downsize: int | None = None) -> Gate:
    """The gate of that name, with the cell's choices filled in; a :class:`Gate` of one's own passes through."""
    if isinstance(kind, str):
        kind = GATES.get(kind, kind)
    if not isinstance(kind, Gate):
        raise ValueError(f"gate must be one of {', '.join(map(repr, GATES))} or a Gate, got {kind!r}")
    if downsize is not None and kind.master is None:
        raise ValueError(f"gate {kind.name!r} has no master gates to share: leave out downsize={downsize!r}")
    changes = {"tied": tied, "downsize": downsize}
    return replace(kind, **{name: value for name, value in changes.items() if value is not None})


def check_start(bias: bool, forget_bias: float | None, timescale: Timescale = None) -> None:
    """One clear sentence unless at most one option says where the forget map's bias starts, and there is that bias."""
    given = [f"{n}={v!r}" for n, v in (("forget_bias", forget_bias), ("timescale", timescale)) if v is not None]
    if given and not bias:
        raise ValueError(f"{given[0]} says where the forget gate's bias starts: it needs bias=True")
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} both say where the forget gate's bias starts: leave out one of them")
