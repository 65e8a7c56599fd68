"""Neural Arithmetic Target Unit: a sum and a signed power, each fitted to the target that the gradient tells."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from numerate.checks import one_of
from numerate.units import symbolic
from numerate.units.base import Unit

LEVELS = (-1.0, 0.0, 1.0)
CATCH = 0.05
"""A weight nearer than this to a whole number counts as that number."""
LARGEST = 80.0
"""Of a product's logarithm; e^80 is finite in float32."""
SMALLEST = 1e-35
"""Of a number whose logarithm is taken, and of what is divided by."""
WIDEST = 1e6
"""Of the factors by which a layer below is asked to change."""
FARTHEST = 2.0
"""That a weight from -1 to 1 can be from where it should be: steeper slopes tell of an input that hardly varies."""
UNRESOLVED = 100.0
"""A target smaller than this many roundings of the answer, or a spread of so few, is lost to them."""


def caught(weight: Tensor) -> Tensor:
    """``weight``, or the nearest whole number where that is nearer than 0.05; any shape."""
    whole = torch.round(weight)
    return torch.where((whole - weight).abs() < CATCH, whole, weight)


def logarithm(x: Tensor) -> Tensor:
    """log |x|; finite at 0."""
    return x.abs().clamp(min=SMALLEST).log()


def paths(x: Tensor, sum_weight: Tensor, power_weight: Tensor) -> tuple[Tensor, Tensor]:
    """The sum and the power; x: (..., I) -> (..., O) each."""
    total = x @ caught(sum_weight).transpose(-1, -2)
    size = (logarithm(x) @ caught(power_weight).transpose(-1, -2)).clamp(-LARGEST, LARGEST)
    odd = torch.round(power_weight).abs()
    sign = (1 - 2 * odd * (x < 0).to(x.dtype).unsqueeze(-2)).prod(-1)
    return total, sign * torch.exp(size)


def natu(x: Tensor, sum_weight: Tensor, power_weight: Tensor, gate: Tensor) -> Tensor:
    r"""A sum or a signed power: :math:`z_o = g_o \sum_i A_{oi} x_i + (1 - g_o) \prod_i x_i^{P_{oi}}`.

    Non-whole powers are those of :math:`|x_i|`, with the sign of the nearest whole power. A weight nearer than 0.05 to
    a whole number counts as that number. x: (..., I), weights (O, I), gate (O,) -> (..., O)
    """
    total, power = paths(x, sum_weight, power_weight)
    return gate * total + (1 - gate) * power


def slopes(error: Tensor, x: Tensor, share: Tensor) -> Tensor:
    """How ``error`` grows with each input, as in a regression on that input alone, with an offset.

    error, share: (n, O), x: (n, I) -> (O, I). Adding a number to an input, or to the error, changes nothing; a scale
    of an input divides its slopes. An input that is constant but for rounding, as a first state is, has none.
    ``share``: the weight of each example.
    """
    size = x.abs().mean(0)
    x = x - x.mean(0)
    scale = x.abs().mean(0) + SMALLEST
    varies = (scale > UNRESOLVED * torch.finfo(x.dtype).eps * size).to(x.dtype)
    x, share = x / scale, (share / (share.sum(0) + 1e-6)).transpose(0, 1)
    mean = share @ x
    covariance = (share * error.transpose(0, 1)) @ x - mean * (share * error.transpose(0, 1)).sum(1, keepdim=True)
    return varies * covariance / (share @ (x * x) - mean * mean + 1e-12) / scale


def relative_error(value: Tensor, target: Tensor) -> Tensor:
    """(value - target)² / (value² + target²), from 0 to 2; no number is squared that could overflow."""
    scale = torch.maximum(value.abs(), target.abs()) + SMALLEST
    value, target = value / scale, target / scale
    return (value - target) ** 2 / (value * value + target * target + 1e-12)


def path_errors(x: Tensor, weight: Tensor, total: Tensor, power: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Relative errors of the sum and the power; of their sizes where the sign of the power means nothing yet.

    That is where an input is negative whose power is not whole. x: (n, I), weight of the power: (O, I), total, power,
    target: (n, O) -> (n, O) each
    """
    between = (caught(weight) != torch.round(weight)).to(x.dtype)
    known = (x < 0).to(x.dtype) @ between.transpose(-1, -2) == 0
    total, power, target = (torch.where(known, value, value.abs()) for value in (total, power, target))
    return relative_error(total, target), relative_error(power, target)


def guarded(x: Tensor) -> Tensor:
    """``x``, or the smallest number in place of 0."""
    return torch.where(x.abs() < SMALLEST, torch.full_like(x, SMALLEST), x)


def power_slopes(x: Tensor, weight: Tensor, answer: Tensor, target: Tensor, known: Tensor, large: Tensor) -> Tensor:
    """Slopes of the error of the power's logarithm over the logarithms of the inputs; (O, I).

    An input of 0 counts as a mean one: where the target is not 0, it has no part in the power, and examples with a
    target of 0 beside it are left out. Where the answer is so much larger than the target that rounding has swallowed
    it, all that is known is that the power, if it is the larger path, must shrink.
    """
    there = (x != 0).to(x.dtype)
    log = logarithm(x)
    mean = (log * there).sum(0) / (there.sum(0) + 1e-6)
    log = torch.where(there > 0, log, mean)
    size = log @ caught(weight).transpose(-1, -2)
    floor = UNRESOLVED * torch.finfo(x.dtype).eps * answer.abs()
    small = (target.abs() <= floor).to(x.dtype)
    whole = there.prod(-1, keepdim=True)
    lost, share = known * large * small * whole, known * (1 - small * (1 - whole))
    shrink = lost.transpose(0, 1) @ log / ((log * log).sum(0) + SMALLEST)
    return slopes(size - logarithm(torch.maximum(target.abs(), floor)), log, share) + shrink


def comparison_of(errors: Tensor, others: Tensor) -> Tensor:
    """(a - b) / (a + b) of the mean errors a and b, from -1 to 1; (n, O), (n, O) -> (O,)"""
    a, b = errors.mean(0), others.mean(0)
    return (a - b) / (a + b + 1e-12)


def targets_below(x: Tensor, sum_weight: Tensor, power_weight: Tensor, gate: Tensor, target: Tensor) -> Tensor:
    r"""What each input would have to be for the answer to be ``target``, if it alone changed; (n, I).

    :math:`x_i + A_{oi} (t_o - z_o)` of a sum, :math:`x_i (t_o / z_o)^{P_{oi}}` of a power, for weights of -1, 0 and 1;
    the mean over the outputs that use the input. Ratios are kept from 1e-6 to 1e6. target: (n, O)
    """
    total, power = paths(x, sum_weight, power_weight)
    ratio = target / guarded(power)
    ratio = torch.where(ratio < 0, ratio.clamp(-WIDEST, -1 / WIDEST), ratio.clamp(1 / WIDEST, WIDEST))
    of_sum, of_power = torch.round(sum_weight) * gate[:, None], torch.round(power_weight) * (1 - gate)[:, None]
    uses = of_power.abs().sum(0)
    factor = ratio @ of_power.clamp(min=0) + (1 / ratio) @ (-of_power).clamp(min=0)
    change = x * (factor - uses) + (target - total) @ of_sum
    return x + change / (uses + of_sum.abs().sum(0)).clamp(min=1)


def changes_below(
    x: Tensor, sum_weight: Tensor, power_weight: Tensor, gate: Tensor, power: Tensor, error: Tensor
) -> Tensor:
    """How far each input is from where the answer would lose its error, if only the one that moves it most changed.

    Of a product or quotient that is the smallest input, so that equal factors part. Less their means over the batch: a
    linear layer below gets the slopes of a regression with an offset. power, error: (n, O) -> (n, I), summed over O
    """
    change = torch.zeros_like(x)
    for o in range(len(gate)):
        steep = gate[o] * caught(sum_weight[o]) + (1 - gate[o]) * power[:, o, None] * caught(power_weight[o]) / guarded(
            x
        )
        size = steep.abs()
        steep = steep * (size >= 0.999 * size.amax(-1, keepdim=True)).to(x.dtype)
        change = change + error[:, o, None] * steep / ((steep * steep).sum(-1, keepdim=True) + 1e-3)
    return change - change.mean(0)


class _Fitted(torch.autograd.Function):
    """:func:`natu`, and in place of its gradient the slopes of each path's own error."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, sum_weight: Tensor, power_weight: Tensor, gate: Tensor, guessed: int, below: str) -> Any:
        total, power = paths(x, sum_weight, power_weight)
        return gate * total + (1 - gate) * power, total, power

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:4], *output)
        ctx.guessed, ctx.below = inputs[4:]
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, sum_weight, power_weight, gate, answer, total, power = ctx.saved_tensors
        gradient = gradients[0]
        error = gradient * (gradient.numel() / 2)  # answer - target, of the mean squared error
        known = ((answer - error).abs() < 1 / SMALLEST).to(x.dtype)  # neither infinite nor NaN
        target = torch.where(known > 0, answer - error, torch.ones_like(error))
        to_sum = slopes(total - target, x, known)
        to_power = power_slopes(x, power_weight, answer, target, known, (power.abs() > total.abs()).to(x.dtype))
        of_sum, of_power = path_errors(x, power_weight, total, power, target)
        to_gate = comparison_of(known * of_sum, known * of_power)
        to_sum, to_power = to_sum.clamp(-FARTHEST, FARTHEST), to_power.clamp(-FARTHEST, FARTHEST)
        if ctx.guessed:
            learns = (torch.arange(len(gate), device=gate.device) >= ctx.guessed).to(x.dtype)
            to_sum, to_power, to_gate = to_sum * learns[:, None], to_power * learns[:, None], to_gate * learns
        if ctx.below == "targets":
            to_x = (x - targets_below(x, sum_weight, power_weight, gate, target)) * (2 / x.numel())
        elif ctx.below == "changes":
            to_x = changes_below(x, sum_weight, power_weight, gate, power, gradient)
        else:
            to_x = (gradient * gate) @ caught(sum_weight)
            to_x = to_x + (gradient * (1 - gate) * power) @ caught(power_weight) / guarded(x)
        return to_x, to_sum, to_power, to_gate, None, None


class NATU(Unit):
    r"""A sum or a signed power, not told which: :math:`z_o = g_o \sum_i A_{oi} x_i + (1 - g_o) \prod_i x_i^{P_{oi}}`.

    ``sum_weight`` A and ``power_weight`` P: (out_features, in_features), drawn from U(-r, r), r = 1 / (2 I), clamped to
    [-1, 1]; ``gate`` g: (out_features,), drawn from U(1/4, 3/4), clamped to [0, 1]. A weight nearer than 0.05 to a
    whole number counts as that number, so that a fit that comes near is exact. Non-whole powers are those of \|x\|
    with the sign of the nearest whole power: signs are never learnt apart from powers.

    In training the answer is the same and the gradient another. That of the mean squared error tells the target,
    :math:`t = z - \tfrac{nO}{2} \partial L / \partial z`, and so each path is fitted to the target as if the other were
    not there:

    - A by the slopes of :math:`\sum_i A_i x_i - t` over each input,
    - P by the slopes of :math:`\sum_i P_i \log|x_i| - \log|t|` over the logarithm of each input,
    - g by which path is nearer: :math:`(a - b) / (a + b)` of both paths' mean relative errors, which are
      :math:`(z - t)^2 / (z^2 + t^2)` of each example. Where an input is negative whose power is not whole, the
      sign of the power means nothing yet, and sizes are compared.

    Slopes are those of a regression with an offset, so neither the scale of the inputs nor their distance from 0
    matters. The layer below gets the ordinary gradient. A batch of several examples is needed, and a loss that is a
    mean of squared errors; with another one the target lies in the same direction, nearer or farther.

    As a recurrent cell it learns each step from that step's own target, so a loss over all steps must be a sum over
    time of means over the batch, ``len(y) * mse_loss(outputs, y)``. The state starts at 1 - g, what the unit gives of
    no input.

    Behind another layer it learns by guesses, see ``numerate.experiments.one_unit.behind``. The first ``guessed``
    outputs begin with two weights of 1 or -1, the rest 0, and a gate of 0 or 1, and do not learn; they are drawn anew
    with the rest, by a ``Plateau`` of the training. A NATU below a guessed one that sends it targets learns exactly, if
    all its outputs but one are guessed, and guessed right.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        guessed: number of outputs that are guesses.
        below: what the layer below gets: the ordinary gradient; ``"targets"``, the gradient of a mean squared error to
            :func:`targets_below`, for a NATU; ``"changes"``, :func:`changes_below`, for a linear layer.
        device, dtype: as in ``torch.nn.Linear``.

    Example:
        >>> from numerate.units import bound_after_step
        >>> unit = NATU(2, 1)
        >>> optimiser = torch.optim.Adam(unit.parameters(), 5e-2)
        >>> handle = bound_after_step(optimiser, unit)
        >>> for _ in range(200):
        ...     x = 300 - 500 * torch.rand(128, 2)
        ...     torch.nn.functional.mse_loss(unit(x), x[:, :1] / x[:, 1:]).backward()
        ...     optimiser.step()
        ...     optimiser.zero_grad()
        >>> unit.formula("ab")
        a/b
    """

    bounds = {"sum_weight": (-1.0, 1.0), "power_weight": (-1.0, 1.0), "gate": (0.0, 1.0)}
    levels = {"sum_weight": LEVELS, "power_weight": LEVELS, "gate": (0.0, 1.0)}
    stepwise = True
    sum_weight: nn.Parameter
    power_weight: nn.Parameter
    gate: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        guessed: int = 0,
        below: Literal["gradient", "targets", "changes"] = "gradient",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        if not isinstance(guessed, int) or not 0 <= guessed <= out_features:
            raise ValueError(f"guessed must be a whole number from 0 to out_features, {out_features}, got {guessed!r}")
        self.guessed, self.below = guessed, one_of("below", below, ("gradient", "targets", "changes"))
        shape = (out_features, in_features)
        self.sum_weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.power_weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.gate = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        radius = 0.5 / self.in_features
        nn.init.uniform_(self.sum_weight, -radius, radius, generator=generator)
        nn.init.uniform_(self.power_weight, -radius, radius, generator=generator)
        nn.init.uniform_(self.gate, 0.25, 0.75, generator=generator)
        if self.guessed:
            self._guess(generator)

    @torch.no_grad()
    def _guess(self, generator: torch.Generator | None) -> None:
        """The first ``guessed`` rows: two weights of 1 or -1, the same of both matrices, and a gate of 0 or 1."""
        rows = torch.empty_like(self.sum_weight[: self.guessed]).uniform_(-1, 1, generator=generator)
        whole = torch.where(rows.abs() >= rows.abs().topk(min(2, self.in_features)).values[:, -1:], rows.sign(), 0.0)
        self.sum_weight[: self.guessed] = whole
        self.power_weight[: self.guessed] = whole
        self.gate[: self.guessed] = self.gate[: self.guessed].round()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, guessed={self.guessed}, below={self.below!r}"

    def forward(self, x: Tensor) -> Tensor:
        self.check_input(x)
        if not self.training:
            return natu(x, self.sum_weight, self.power_weight, self.gate)
        rows = x.reshape(-1, self.in_features)
        answer = _Fitted.apply(rows, self.sum_weight, self.power_weight, self.gate, self.guessed, self.below)[0]
        return answer.reshape(*x.shape[:-1], self.out_features)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"sum_weight": caught(self.sum_weight), "power_weight": caught(self.power_weight)}

    def empty(self) -> Tensor:
        """1 - g: 0, the empty sum, or 1, the empty product, by the gate; without a gradient. (O,)"""
        return (1 - self.gate).detach()

    def coefficients(self) -> dict[str, Tensor]:
        return {"gate": self.gate}

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        import sympy

        def factor(x: Any, w: Any) -> Any:
            if w.is_integer:
                return x**w
            return sympy.Abs(x) ** w * (sympy.sign(x) if abs(float(w.doit())) > 0.5 else 1)

        def output(o: int) -> Any:
            gate, powers = weights["gate"][0, o], weights["power_weight"].row(o)
            power = sympy.prod([factor(x, w) for x, w in zip(inputs, powers)])
            return gate * symbolic.linear(inputs, weights["sum_weight"].row(o)) + (1 - gate) * power

        return [output(o) for o in range(self.out_features)]
