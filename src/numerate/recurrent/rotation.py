"""Orthogonal and unitary matrices as products of rotations (Jing et al., 2017), and modReLU.

FFT style: :func:`rotate`, log2 d levels of d / 2 pairs. Tunable style: :func:`rotate_neighbours`, any number of levels
of neighbouring pairs, in turn (0, 1), (2, 3), ... and (1, 2), (3, 4), ...; d of them make every rotation of d units.
"""

from itertools import chain, zip_longest
from math import pi

import torch
from torch import Tensor, nn


def levels(size: int) -> int:
    """Butterfly levels for ``size`` units, a power of two from 2 on; else one clear sentence."""
    if size < 2 or size & (size - 1):
        raise ValueError(f"FFT-style rotations need a hidden_size that is a power of two, got {size}")
    return size.bit_length() - 1


def check(size: int, capacity: int | None) -> None:
    """Raise ValueError if ``size`` units cannot be rotated FFT style or, with ``capacity``, tunable style."""
    if capacity is None:
        levels(size)
    elif size < 2:
        raise ValueError(f"rotations need a hidden_size of at least 2, got {size}")


def angle_shapes(name: str, size: int, capacity: int | None) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the angles: one tensor in FFT style, those of even and odd levels in tunable style."""
    if capacity is None:
        return {name: (levels(size), size // 2)}
    return dict(zip((name, f"{name}_odd"), neighbours(size, capacity)))


def rotate(h: Tensor, angle: Tensor) -> Tensor:
    r"""Rotate pairs of units, level by level: strides d/2, d/4, ..., 1; h: (..., d), angle: (log2 d, d/2) -> (..., d).

    A pair becomes :math:`(\cos t\, a - \sin t\, b,\; \sin t\, a + \cos t\, b)`.
    """
    shape, size = h.shape, h.shape[-1]
    for cos, sin in zip(angle.cos().unbind(-2), angle.sin().unbind(-2)):
        blocks = cos.shape[-1] * 2 // size  # pairs lie size / 2 apart inside each block
        h = h.reshape(*shape[:-1], blocks, 2, size // 2)
        cos, sin = cos.reshape(blocks, size // 2), sin.reshape(blocks, size // 2)
        a, b = h.unbind(-2)
        h = torch.stack((cos * a - sin * b, sin * a + cos * b), -2)
        size //= 2
    return h.reshape(shape)


def rotate_complex(re: Tensor, im: Tensor, angle: Tensor, phase: Tensor, diagonal: Tensor) -> tuple[Tensor, Tensor]:
    r"""The unitary form: :math:`(\cos t\, a - e^{i\varphi} \sin t\, b,\; \sin t\, a + e^{i\varphi} \cos t\, b)`.

    Then a diagonal :math:`e^{i\omega}`; re, im: (..., d), angle, phase: (log2 d, d/2), diagonal: (d,).
    """
    shape, size = re.shape, re.shape[-1]
    for turn, twist in zip(angle.unbind(-2), phase.unbind(-2)):
        blocks = turn.shape[-1] * 2 // size
        turn, twist = turn.reshape(blocks, size // 2), twist.reshape(blocks, size // 2)
        cos, sin = turn.cos(), turn.sin()
        (ar, br), (ai, bi) = (part.reshape(*shape[:-1], blocks, 2, size // 2).unbind(-2) for part in (re, im))
        br, bi = twist.cos() * br - twist.sin() * bi, twist.cos() * bi + twist.sin() * br
        re = torch.stack((cos * ar - sin * br, sin * ar + cos * br), -2)
        im = torch.stack((cos * ai - sin * bi, sin * ai + cos * bi), -2)
        size //= 2
    re, im = re.reshape(shape), im.reshape(shape)
    cos, sin = diagonal.cos(), diagonal.sin()
    return cos * re - sin * im, cos * im + sin * re


def neighbours(size: int, capacity: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shapes of the angles of even and odd levels, ``capacity`` levels in all; d (d - 1) / 2 angles if it is d."""
    return ((capacity + 1) // 2, size // 2), (capacity // 2, (size - 1) // 2)


def rotate_neighbours(h: Tensor, even: Tensor, odd: Tensor) -> Tensor:
    """Rotate neighbouring units, even and odd levels in turn; h: (..., d), angles as :func:`neighbours` says."""
    for offset, angle in _in_turn(even, odd):
        a, b = _neighbouring(h, offset, angle)
        cos, sin = angle.cos(), angle.sin()
        h = _back(h, offset, cos * a - sin * b, sin * a + cos * b)
    return h


def rotate_neighbours_complex(
    re: Tensor, im: Tensor, angles: tuple[Tensor, Tensor], phases: tuple[Tensor, Tensor], diagonal: Tensor
) -> tuple[Tensor, Tensor]:
    """The unitary form of :func:`rotate_neighbours`: pairs and the diagonal as in :func:`rotate_complex`."""
    for (offset, angle), (_, phase) in zip(_in_turn(*angles), _in_turn(*phases)):
        (ar, br), (ai, bi) = (_neighbouring(part, offset, angle) for part in (re, im))
        br, bi = phase.cos() * br - phase.sin() * bi, phase.cos() * bi + phase.sin() * br
        cos, sin = angle.cos(), angle.sin()
        re = _back(re, offset, cos * ar - sin * br, sin * ar + cos * br)
        im = _back(im, offset, cos * ai - sin * bi, sin * ai + cos * bi)
    cos, sin = diagonal.cos(), diagonal.sin()
    return cos * re - sin * im, cos * im + sin * re


def _in_turn(even: Tensor, odd: Tensor) -> list[tuple[int, Tensor]]:
    """Offset of the first pair and angles of each level."""
    both = zip_longest([(0, angle) for angle in even.unbind(0)], [(1, angle) for angle in odd.unbind(0)])
    return [level for level in chain.from_iterable(both) if level is not None]


def _neighbouring(h: Tensor, offset: int, angle: Tensor) -> tuple[Tensor, Tensor]:
    a, b = h[..., offset : offset + 2 * len(angle)].unflatten(-1, (len(angle), 2)).unbind(-1)
    return a, b


def _back(h: Tensor, offset: int, a: Tensor, b: Tensor) -> Tensor:
    """The pairs between the units that have no partner."""
    pairs = torch.stack((a, b), -1).flatten(-2)
    return torch.cat((h[..., :offset], pairs, h[..., offset + pairs.shape[-1] :]), -1)


def rotate_either(h: Tensor, angle: Tensor, odd: Tensor | None = None) -> Tensor:
    """FFT style, or tunable style where there are angles of ``odd`` levels; h: (..., d)."""
    return rotate(h, angle) if odd is None else rotate_neighbours(h, angle, odd)


def rotation_matrix(angle: Tensor, odd: Tensor | None = None, size: int | None = None) -> Tensor:
    """The (d, d) matrix F: ``rotate_either(h, angle, odd) = h @ F.T``; an odd d is given as ``size``."""
    units = 2 * angle.shape[-1] if size is None else size
    return rotate_either(torch.eye(units, dtype=angle.dtype, device=angle.device), angle, odd).mT


def reset_angle_(angle: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Angles from U(-π, π)."""
    return nn.init.uniform_(angle, -pi, pi, generator=generator)


def mod_relu(v: Tensor, bias: Tensor, eps: float = 0.0) -> Tensor:
    r"""Real modReLU: :math:`\mathrm{sign}(v)\, \mathrm{relu}(|v| + \varepsilon + b)`."""
    return v.sign() * (v.abs() + eps + bias).relu()


def mod_relu_complex(re: Tensor, im: Tensor, bias: Tensor, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    r"""Complex modReLU: :math:`v\, \mathrm{relu}(|v| + \varepsilon + b) / (|v| + \varepsilon)`, 0 at v = 0.

    With b = 0 it is the identity, whatever ε; that of the real form is not, which is how the authors' code has them.
    """
    square = re * re + im * im
    present = square > 0
    size = torch.where(present, torch.where(present, square, 1).sqrt(), 0 if eps else 1) + eps
    scale = (size + bias).relu() / size
    if not eps:
        scale = torch.where(present, scale, 0)
    return scale * re, scale * im
