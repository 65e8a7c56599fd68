"""Orthogonal and unitary matrices as products of FFT-style rotations (Jing et al., 2017), and modReLU."""

from math import pi

import torch
from torch import Tensor, nn


def levels(size: int) -> int:
    """Butterfly levels for ``size`` units, a power of two from 2 on; else one clear sentence."""
    if size < 2 or size & (size - 1):
        raise ValueError(f"FFT-style rotations need a hidden_size that is a power of two, got {size}")
    return size.bit_length() - 1


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


def rotation_matrix(angle: Tensor) -> Tensor:
    """The (d, d) matrix F of :func:`rotate`: ``rotate(h, angle) = h @ F.T``."""
    size = 2 * angle.shape[-1]
    return rotate(torch.eye(size, dtype=angle.dtype, device=angle.device), angle).mT


def unitary_matrix(angle: Tensor, phase: Tensor, diagonal: Tensor) -> Tensor:
    """The (2 d, 2 d) real matrix of :func:`rotate_complex` on [re; im]."""
    size = diagonal.shape[-1]
    eye = torch.eye(2 * size, dtype=angle.dtype, device=angle.device)
    re, im = eye.chunk(2, -1)
    return torch.cat(rotate_complex(re, im, angle, phase, diagonal), -1).mT


def reset_angle_(angle: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Angles from U(-π, π)."""
    return nn.init.uniform_(angle, -pi, pi, generator=generator)


def mod_relu(v: Tensor, bias: Tensor, eps: float = 0.0) -> Tensor:
    r"""Real modReLU: :math:`\mathrm{sign}(v)\, \mathrm{relu}(|v| + \varepsilon + b)`."""
    return v.sign() * (v.abs() + eps + bias).relu()


def mod_relu_complex(re: Tensor, im: Tensor, bias: Tensor, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    r"""Complex modReLU: :math:`v\, \mathrm{relu}(|v| + \varepsilon + b) / |v|`, 0 at v = 0."""
    square = re * re + im * im
    size = torch.where(square > 0, square, 1).sqrt()
    scale = torch.where(square > 0, (size + eps + bias).relu() / size, 0)
    return scale * re, scale * im
