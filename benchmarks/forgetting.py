"""Adding behind saturated gates (Gu et al., 2020, E.1), one open point at a time: ``python -m benchmarks.forgetting``.

    python -m benchmarks.forgetting --gate R --rate 1e-3
    python -m benchmarks.forgetting --gate - --partner -6 --rate 1e-3
    python -m benchmarks.forgetting --gate R --forget 3.52 --partner 3.52 --batch 256

``--forget`` and ``--partner`` are where the biases of the two gate maps start; the partner of ``-`` is the input gate,
of ``R`` the refine gate. ``--vector`` is where the own vector of UR starts: plus in the forget map, minus in its
partner; the biases are then 0. A line holds the updates so far, the training loss since the last line, the squared
error on 500 test sequences, and the shortest, the median and the longest timescale of the 64 units, from their mean
forget activations. Guessing has an error of 1/6. Training ends where the test error is below 0.005. ``--gradients``
prints instead how far the gradient of a batch is from noise before the first update, with the readout's bias such that
answers are right on average: of the weights from value and mark to each block, the mean over 30 batches by the
deviation between them, the median of the 64 units. Noise alone has about 0.12.
"""

import argparse

import torch
from torch import Tensor

from numerate.recurrent import LSTM, SequenceModel

HIDDEN, TEST_SIZE, SHOWN, SOLVED, CLIP = 64, 500, 50, 0.005, 1.0
BATCHES, CENTRED = 30, 256
BLOCKS = ("partner", "forget", "candidate", "output")


def draw(length: int, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Numbers and marks, one in each half; x: (T, size, 2), y: (size, 1)"""
    numbers, half = torch.rand(length, size, generator=generator), length // 2
    spans = (0, half), (half, length)
    places = torch.stack([torch.randint(*span, (size,), generator=generator) for span in spans])
    marks = torch.zeros(length, size).scatter_(0, places, 1.0)
    return torch.stack((numbers, marks), -1), (numbers * marks).sum(0).unsqueeze(-1)


def build(args: argparse.Namespace) -> SequenceModel:
    forget, partner = (args.forget, args.partner) if args.vector is None else (0.0, 0.0)
    layer = LSTM(
        2, hidden_size=HIDDEN, gate=args.gate, forget_bias=forget, recurrent_bias=False, weight_init=args.weights
    )
    with torch.no_grad():
        layer.parts()["bias_ih"][:HIDDEN] = partner  # the first block of columns
        if args.vector is not None:
            layer.parts()["gate_bias"].fill_(args.vector)
    return SequenceModel(layer, 1, read="last")


def descend(model: SequenceModel, x: Tensor, y: Tensor, rows: int) -> float:
    """The mean squared error, its gradient added up over ``rows`` sequences at a time."""
    total = 0.0
    for some, wanted in zip(x.split(rows, 1), y.split(rows)):
        loss = (model(some) - wanted).square().sum() / len(y)
        loss.backward()
        total += loss.item()
    return total


@torch.no_grad()
def examine(model: SequenceModel, x: Tensor, y: Tensor) -> tuple[float, list[float]]:
    """Test error, and the shortest, the median and the longest timescale."""
    forget = model.layer.inspect(x[:, :SHOWN]).activations[-1]["forget"].mean((0, 1))
    scales = 1 / (1 - forget)
    return (model(x) - y).square().mean().item(), [s.item() for s in (scales.min(), scales.median(), scales.max())]


def gradients(model: SequenceModel, args: argparse.Namespace, generator: torch.Generator) -> None:
    with torch.no_grad():
        x, y = draw(args.length, CENTRED, generator)
        model.readout.bias += (y - model(x)).mean()
    weight, found = model.layer.parts()["weight_ih"], []
    for _ in range(BATCHES):
        model.zero_grad()
        descend(model, *draw(args.length, args.batch, generator), args.rows or args.batch)
        assert weight.grad is not None
        found.append(weight.grad.clone())
    drawn = torch.stack(found)
    clear = (drawn.mean(0).abs() / drawn.std(0)).view(len(BLOCKS), HIDDEN, 2).median(1).values
    for name, (value, mark) in zip(BLOCKS, clear.tolist()):
        print(f"{name:10s}  value {value:.2f}  mark {mark:.2f}")


def train(model: SequenceModel, args: argparse.Namespace, generator: torch.Generator) -> None:
    test = draw(args.length, TEST_SIZE, torch.Generator().manual_seed(7))
    adam, losses = torch.optim.Adam(model.parameters(), lr=args.rate), []
    for update in range(1, args.updates + 1):
        adam.zero_grad()
        losses.append(descend(model, *draw(args.length, args.batch, generator), args.rows or args.batch))
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        adam.step()
        if update % args.every == 0:
            error, (low, middle, high) = examine(model, *test)
            loss, losses = sum(losses) / len(losses), []
            print(f"{update:6,}  {loss:.4f}  {error:.4f}  {low:5.0f} {middle:5.0f} {high:5.0f}", flush=True)
            if error < SOLVED:
                return


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="benchmarks.forgetting", description=(__doc__ or "").split(":")[0])
    options.add_argument("--gate", default="R", choices=("-", "R", "UR"))
    options.add_argument("--forget", type=float, default=6.0)
    options.add_argument("--partner", type=float, default=0.0)
    options.add_argument("--vector", type=float)
    options.add_argument("--weights", default="uniform", choices=("uniform", "truncated_normal"))
    options.add_argument("--length", type=int, default=500)
    options.add_argument("--batch", type=int, default=10)
    options.add_argument("--rows", type=int, help="sequences at a time; all of a batch without it")
    options.add_argument("--rate", type=float, default=1e-4)
    options.add_argument("--updates", type=int, default=10_000)
    options.add_argument("--every", type=int, default=1_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--gradients", action="store_true")
    return options


def main() -> None:
    options = parser()
    args = options.parse_args()
    if (args.gate == "UR") != (args.vector is not None):
        options.error("--vector is of UR, and UR needs it")
    torch.manual_seed(args.seed)
    model, generator = build(args), torch.Generator().manual_seed(1_000 + args.seed)
    (gradients if args.gradients else train)(model, args, generator)


if __name__ == "__main__":
    main()
