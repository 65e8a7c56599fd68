"""What acts on the core of the reconstructive memory agent (Hung et al., 2019): policy, value, and its read penalty."""

from typing import Any

import torch
from torch import Tensor, nn

from numerate.checks import positive
from numerate.recurrent import init


def read_strength_loss(strengths: Tensor, tolerance: float = 2.0) -> Tensor:
    """Sum over time and heads of max(strength, tolerance), mean over the batch; (T, B, R) -> ().

    The agent adds 5e-5 of it to its loss. The strengths are those of ``rma.inspect(x).activations[0]["strength"]``,
    which carry gradients.
    """
    return strengths.clamp_min(tolerance).sum((0, -1)).mean()


class RMAHeads(nn.Module):
    r"""Policy and value from the output y of :class:`numerate.recurrent.RMA`: ``RMAHeads(rma.output_size, 200, 6)``.

    :math:`\pi = \mathrm{MLP}(y)`, :math:`v = \mathrm{MLP}([z; \pi \text{ without its gradient}])`, z the first
    ``latents`` features of y; each MLP has one layer of ``hidden`` tanh units. y (..., inputs) -> logits
    (..., actions), values (...). Weights: truncated normal of deviation 1/√fan_in, biases 0. An agent encodes what it
    sees before the core, and has its losses after these heads.
    """

    def __init__(
        self, inputs: int, latents: int, actions: int, *, hidden: int = 200, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.latents = positive("latents", latents)
        kind = {"device": device, "dtype": dtype}

        def mlp(width: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(width, hidden, **kind), nn.Tanh(), nn.Linear(hidden, outputs, **kind))

        self.policy, self.value = mlp(inputs, actions), mlp(latents + actions, 1)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Redraw all parameters."""
        for name, value in self.named_parameters():
            if name.endswith("weight"):
                init.weight_(value, "truncated_normal", generator=generator)
            else:
                nn.init.zeros_(value)

    def forward(self, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.policy(y)
        return logits, self.value(torch.cat((y[..., : self.latents], logits.detach()), -1)).squeeze(-1)
