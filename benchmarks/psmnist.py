"""NRU on permuted sequential MNIST as released (Chandar et al., 2019, Table 3): ``python -m benchmarks.psmnist``.

    NUMERATE_DATA=DIR python -m benchmarks.psmnist --form factored --updates 50000 --seconds 540 --folder runs/psmnist
    NUMERATE_DATA=DIR python -m benchmarks.psmnist --form direct --updates 3000 --seconds 540 --folder runs/psmnist

``factored`` is the default unit with its compiled loop; ``direct`` makes every direction and normalises it, as the
released cell does, in plain steps. DIR, or DIR/mnist, holds the four MNIST files (``numerate data get mnist``). An
update on a GPU is one replay of a CUDA graph. The state goes to a file in ``--folder`` after every validation and at
the end; the same command continues from it, on this or another machine. Training stops after ``--seconds``, or when
the loss is not finite.

Memory 256, 4 heads, hidden size 212, batches of 100, Adam at 1e-3, gradient norm at most 1, model seed 5; the digit is
read at step 785. One ``RandomState(50)`` shuffles the 60,000 training images (50,000 to train, 10,000 to validate),
permutes the pixels, and shuffles each epoch, as the released code does.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.data import mnist
from numerate.recurrent import NRU, use_loop

BATCH, RATE, CLIP, MODEL_SEED, DATA_SEED = 100, 1e-3, 1.0, 5, 50
REPORT = 100
"""Updates between two printed lines."""

Split = tuple[Tensor, Tensor]


# ---------------------------------------------------------------- data


@dataclass(frozen=True)
class Data:
    """Three splits, images (N, 784) of bytes with permuted pixels and labels (N,), all on the device."""

    train: Split
    valid: Split
    test: Split

    def orders(self) -> Iterator[Tensor]:
        """The order of the training images, epoch after epoch, as the released code draws it."""
        random = np.random.RandomState(DATA_SEED)
        random.permutation(len(self.train[0]) + len(self.valid[0]))
        random.permutation(self.train[0].shape[1])
        while True:
            drawn = [random.permutation(len(images)) for images, _ in (self.train, self.valid, self.test)]
            yield torch.from_numpy(drawn[0])


def load(folder: Path, device: torch.device) -> Data:
    """MNIST, split and permuted."""
    images, labels, test_images, test_labels = (part.numpy() for part in mnist.load(folder))
    random = np.random.RandomState(DATA_SEED)
    shuffled = random.permutation(len(images))
    pixels = random.permutation(images[0].size)

    def split(images: np.ndarray, labels: np.ndarray) -> Split:
        flat = np.ascontiguousarray(images.reshape(len(images), -1)[:, pixels])
        return torch.from_numpy(flat).to(device), torch.from_numpy(labels.astype(np.int64)).to(device)

    cut = len(images) * 5 // 6
    train, valid = (split(images[part], labels[part]) for part in (shuffled[:cut], shuffled[cut:]))
    return Data(train, valid, split(test_images, test_labels))


# ---------------------------------------------------------------- model and training


class Classifier(nn.Module):
    """An NRU whose last hidden state is read by a linear map."""

    def __init__(self, form: str, hidden: int = 212, memory: int = 256) -> None:
        super().__init__()
        self.layer = NRU(1, hidden, memory_size=memory, heads=4, factored=False if form == "direct" else None)
        self.readout = nn.Linear(hidden, 10)
        nn.init.xavier_normal_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 784) bytes -> (B, 10); a step of zero follows the pixels."""
        pixels = F.pad(images.float() / 255, (0, 1))
        return self.readout(self.layer(pixels.T.unsqueeze(-1).contiguous())[0][-1])


class Trainer:
    """One model in training; every step is a CUDA graph on a GPU."""

    def __init__(self, model: nn.Module, data: Data, device: torch.device) -> None:
        self.model, self.data, self.device = model.to(device), data, device
        self.parameters = list(self.model.parameters())
        on_gpu = device.type == "cuda"
        self.optimizer = torch.optim.Adam(self.parameters, RATE, fused=on_gpu, capturable=on_gpu)
        self.order = torch.zeros(len(data.train[0]), dtype=torch.int64, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.span = torch.arange(BATCH, device=device)
        self.sums = torch.zeros(3, device=device)  # loss, share of right answers, largest gradient norm
        self.right = torch.zeros((), dtype=torch.int64, device=device)
        self.images, self.labels = data.valid[0][:BATCH].clone(), data.valid[1][:BATCH].clone()
        self.update, self.answer = self._update, self._answer
        self._make_optimizer_state()

    def _make_optimizer_state(self) -> None:
        """Make Adam's state, all zero, to be filled in place; a step of zero gradients changes no weight."""
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def numbers(self) -> list[Tensor]:
        """All that training changes, in a fixed order."""
        states = [self.optimizer.state[parameter] for parameter in self.parameters]
        return [*self.parameters, *(state[name] for state in states for name in sorted(state))]

    @torch.no_grad()
    def restore(self, numbers: list[Tensor]) -> None:
        for into, value in zip(self.numbers(), numbers, strict=True):
            into.copy_(value)

    def _update(self) -> None:
        """One update on the next batch."""
        chosen = self.order[self.at + self.span]
        images, labels = self.data.train[0][chosen], self.data.train[1][chosen]
        self.optimizer.zero_grad(set_to_none=True)
        answers = self.model(images)
        loss = F.cross_entropy(answers, labels)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, CLIP, foreach=True)
        self.optimizer.step()
        with torch.no_grad():
            share = (answers.argmax(-1) == labels).float().mean()
            self.sums.copy_(torch.stack((self.sums[0] + loss, self.sums[1] + share, torch.maximum(self.sums[2], norm))))
            self.at.add_(BATCH)

    @torch.no_grad()
    def _answer(self) -> None:
        """Count the right answers on one batch of ``images``."""
        self.right.add_((self.model(self.images).argmax(-1) == self.labels).sum())

    def prepare(self) -> None:
        """Replace both steps by replays of graphs; nothing that they change stays changed."""
        if self.device.type != "cuda":
            return
        kept = [number.detach().clone() for number in self.numbers()]
        self.update, self.answer = captured(self._update), captured(self._answer)
        self.restore(kept)
        self.start_counting()

    def start_counting(self) -> None:
        self.sums.zero_()

    def start_epoch(self, order: Tensor, at: int) -> None:
        self.order.copy_(order)
        self.at.fill_(at)

    def accuracy(self, split: Split) -> float:
        """In per cent, over a whole split."""
        images, labels = split
        self.right.zero_()
        for start in range(0, len(images), BATCH):
            self.images.copy_(images[start : start + BATCH])
            self.labels.copy_(labels[start : start + BATCH])
            self.answer()
        return 100 * int(self.right) / len(images)


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """A CUDA graph of a step, after three runs of it in another stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


# ---------------------------------------------------------------- runs


@dataclass
class Progress:
    """Where a run is, and its curve: update, training loss, training accuracy, gradient norm, validation accuracy."""

    path: Path
    done: int
    curve: list[tuple[int, float, float, float, float]]
    diverged: bool = False

    @classmethod
    def resume(cls, path: Path, form: str, trainer: Trainer) -> "Progress":
        """From the file if there is one, whose numbers go into the trainer."""
        if not path.exists():
            return cls(path, 0, [])
        stored = torch.load(path, map_location="cpu", weights_only=True)
        if stored["form"] != form or [n.shape for n in stored["numbers"]] != [n.shape for n in trainer.numbers()]:
            raise ValueError(f"{path} holds another model: give another --folder")
        trainer.restore(stored["numbers"])
        return cls(path, stored["done"], [tuple(line) for line in stored["curve"]], stored["diverged"])

    def save(self, form: str, trainer: Trainer) -> None:
        numbers = [number.detach().cpu() for number in trainer.numbers()]
        content = {"form": form, "done": self.done, "curve": self.curve, "diverged": self.diverged, "numbers": numbers}
        fresh = self.path.with_suffix(".new")
        torch.save(content, fresh)
        fresh.replace(self.path)


def train(form: str, model: nn.Module, data: Data, options: argparse.Namespace, device: torch.device) -> Progress:
    """Train until the updates or the seconds are spent, or the loss is not finite."""
    deadline = time.monotonic() + options.seconds
    trainer = Trainer(model, data, device)
    progress = Progress.resume(options.folder / f"psmnist-{form}.pt", form, trainer)
    with use_loop("plain" if form == "direct" else "auto"):
        trainer.prepare()
        start, first, per_epoch = time.monotonic(), progress.done, len(data.train[0]) // BATCH
        orders = data.orders()
        for _ in range(progress.done // per_epoch):
            next(orders)
        trainer.start_epoch(next(orders), progress.done % per_epoch * BATCH)
        counted = 0
        while progress.done < options.updates and time.monotonic() < deadline and not progress.diverged:
            trainer.update()
            progress.done, counted = progress.done + 1, counted + 1
            epoch_ends, last = progress.done % per_epoch == 0, progress.done == options.updates
            if counted < REPORT and progress.done > 3 and not epoch_ends and not last:
                continue
            loss, right, norm = trainer.sums.tolist()
            trainer.start_counting()
            progress.diverged = not np.isfinite([loss, norm]).all()
            valid = trainer.accuracy(data.valid) if (epoch_ends or last) and not progress.diverged else float("nan")
            line = progress.done, loss / counted, 100 * right / counted, norm, valid
            progress.curve.append(line)
            counted = 0
            print(f"{form} {time.monotonic() - start:7.1f} s: {described(line)}", flush=True)
            if epoch_ends or last:
                progress.save(form, trainer)
                if not last:
                    trainer.start_epoch(next(orders), 0)
        progress.save(form, trainer)
        report(form, progress, trainer, (time.monotonic() - start) / max(progress.done - first, 1))
    return progress


def described(line: tuple[int, float, float, float, float]) -> str:
    update, loss, right, norm, valid = line
    text = f"update {update:6d}, training loss {loss:.4f}, accuracy {right:.1f} %, largest gradient norm {norm:.3g}"
    return text if np.isnan(valid) else f"{text}; validation accuracy {valid:.2f} %"


def report(form: str, progress: Progress, trainer: Trainer, seconds: float) -> None:
    if progress.diverged:
        print(f"{form}: diverged by update {progress.done}: {described(progress.curve[-1])}")
        return
    data = trainer.data
    best = max((line[4] for line in progress.curve if line[4] == line[4]), default=float("nan"))
    print(
        f"{form}: {progress.done} updates, {1000 * seconds:.1f} ms each; best validation accuracy {best:.2f} %, "
        f"now validation {trainer.accuracy(data.valid):.2f} %, test {trainer.accuracy(data.test):.2f} % "
        "(published after 50,000 updates: test 95.38 %)"
    )


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="NRU on permuted sequential MNIST")
    parser.add_argument("--form", nargs="+", choices=("factored", "direct"), default=["factored", "direct"])
    parser.add_argument("--updates", type=int, default=500, help="in all, those of earlier runs included; 500 an epoch")
    parser.add_argument("--seconds", type=float, default=540, help="for each form, this run")
    parser.add_argument("--folder", type=Path, default=Path("runs/psmnist"), help="for the state of training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None, **sizes: Any) -> list[Progress]:
    options = parsed(arguments)
    if "NUMERATE_DATA" not in os.environ:
        raise ValueError("NUMERATE_DATA must name the folder with the four MNIST files")
    device = torch.device(options.device)
    data = load(Path(os.environ["NUMERATE_DATA"]), device)
    options.folder.mkdir(parents=True, exist_ok=True)
    runs = []
    for form in options.form:
        torch.manual_seed(MODEL_SEED)
        runs.append(train(form, Classifier(form, **sizes), data, options, device))
    return runs


if __name__ == "__main__":
    try:
        main()
    except ValueError as reason:
        print(reason, file=sys.stderr)
        sys.exit(2)
