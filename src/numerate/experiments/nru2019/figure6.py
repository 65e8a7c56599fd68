"""Figure 6: how NRU's memory changes along a sequence of the copying task."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from numerate.experiments.experiment import Experiment, Options, Work
from numerate.experiments.nru2019.runs import chosen, left, sized, title, training, updates
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.recurrent import SequenceModel
from numerate.report import Claim, Page, Picture
from numerate.report.figures import lay_out, style
from numerate.results import Row
from numerate.results.outcome import judge
from numerate.tasks import Copying
from numerate.train import NetworkTraining

TASK = Copying(100)
QUICK_UPDATES = 20_000
CHANGES = LinearSegmentedColormap.from_list("changes", ["#0072b2", "#f3f5f8", "#d55e00"])
"""Blue down, orange up."""
QUIET = 0.5
"""A memory is at rest if it changes by less than this share of what it does while writing."""


def memory_trainings(options: Options) -> list[NetworkTraining]:
    (task,) = sized([TASK], options)
    steps = QUICK_UPDATES if options.size == "quick" else updates("NRU", options.size)
    recipe = chosen(options, task)["NRU"]
    return [training(recipe, task, options, {"unit": "NRU", "task": title(task)}, steps)]


def memory_changes(model: SequenceModel, task: Copying) -> tuple[np.ndarray, np.ndarray]:
    """m_t - m_{t-1}, (M, T), of the first test sequence; the mean of its size over cells and sequences, (T,)."""
    batch = task.evaluation("test", 0, {})
    state, memory = model.initial_state(batch.x), []
    with torch.no_grad():
        memory.append(state[1][0])
        for x in batch.x:
            _, state = model.layer(x.unsqueeze(0), state)
            memory.append(state[1][0])
    change = torch.stack(memory).diff(dim=0)  # (T, B, M)
    return change[:, 0].T.numpy(), change.abs().mean((1, 2)).numpy()


def phases(task: Copying) -> dict[str, slice]:
    """The steps that show symbols, those before the marker, and those from the marker on."""
    marker = task.length + 9
    return {"symbols": slice(0, 10), "gap": slice(10, marker), "marker and recall": slice(marker, None)}


def shown_run(work: Work, rows: Sequence[Row]) -> tuple[Row, SequenceModel, Copying]:
    """The run with the lowest last loss, its network and its task."""
    row = min(rows, key=lambda row: (left([row])[0], row.seed))
    (asked,) = work.trainings
    assert isinstance(asked.task, Copying)
    model = asked.build(row.seed)
    assert isinstance(model, SequenceModel)
    model.load_state_dict({name: torch.from_numpy(np.array(w)) for name, w in row.stored_weights("best").items()})
    return row, model.eval(), asked.task


def memory_picture(change: np.ndarray, size: np.ndarray, task: Copying) -> Picture:
    with style():
        fig = Figure(figsize=(8.6, 4.4))
        top, below = fig.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        most = float(np.quantile(np.abs(change), 0.995)) or 1.0
        rows = np.argsort(change[:, :10].sum(1))
        top.imshow(
            change[rows], cmap=CHANGES, vmin=-most, vmax=most, aspect="auto", interpolation="nearest",
            extent=(0, change.shape[1], len(change), 0),
        )  # fmt: skip
        top.grid(False)
        top.set_yticks([])
        top.set_ylabel(f"the {len(change)} cells of memory")
        below.fill_between(np.arange(len(size) + 1), [*size, size[-1]], step="post", color="#0072b2", alpha=0.5, lw=0)
        below.set_ylabel("mean size")
        below.set_xlabel("step of the sequence")
        for name, place in phases(task).items():
            for ax in (top, below):
                ax.axvline(place.start, color="#1b1f24", lw=0.8, alpha=0.5)
            top.text(place.start + 0.4, -1, name, fontsize=8)
        below.set_xlim(0, change.shape[1])
        lay_out(fig)
    return Picture(
        "memory",
        fig,
        "Above: the change of each memory cell at each step of one test sequence, blue down and orange up; cells are "
        "sorted by what is written at first. Below: the mean size of the change over a batch.",
    )


@dataclass(frozen=True)
class Memory:
    """A run, its task, and how its memory changes along a sequence; see :func:`memory_changes`."""

    row: Row
    task: Copying
    change: np.ndarray
    size: np.ndarray

    @classmethod
    def of(cls, work: Work, rows: Sequence[Row]) -> "Memory":
        row, model, task = shown_run(work, rows)
        return cls(row, task, *memory_changes(model, task))

    @property
    def solved(self) -> bool:
        return judge(self.row).solved


def draw(memory: Memory, options: Options) -> Page:
    row = memory.row
    state = "solved" if memory.solved else f"not solved, {left([row])[0]:.0%} of the loss of guessing left"
    says = f"The run with the lowest loss: seed {row.seed}, {state}."
    picture = memory_picture(memory.change, memory.size, memory.task)
    return Page("NRU, Figure 6: the memory along a sequence", says, [picture])


def claims(memory: Memory, options: Options) -> list[Claim]:
    mean = {name: float(memory.size[place].mean()) for name, place in phases(memory.task).items()}
    numbers = ", ".join(f"{name} {value:.2g}" for name, value in mean.items())
    ours = f"mean change per cell and step: {numbers}."
    return [
        Claim(
            "The network has learnt to use the memory in the first 10 time steps to store the sequence; then it "
            f"does not access it until the marker (our test: the gap changes it by less than {QUIET:.0%} as much).",
            ours,
            mean["gap"] < QUIET * mean["symbols"] if memory.solved else None,
        ),
        Claim(
            "Then it starts accessing the memory to generate the sequence (our test: more change than in the gap).",
            ours,
            mean["marker and recall"] > mean["gap"] if memory.solved else None,
        ),
    ]


EXPERIMENTS = [
    Experiment(
        id="nru2019/figure6",
        title="Figure 6: how NRU's memory changes along a sequence",
        trainings=memory_trainings,
        show=picture_page(draw, claims, prepare=Memory.of),
        about=about("nru2019", "figure6"),
        reasons=reasons("nru2019", "memory"),
    )
]
