"""Which tasks an experiment trains on, by their titles."""

from collections.abc import Collection, Sequence

from numerate.experiments.unit_choice import split_names
from numerate.train import NetworkTraining, Training

LABEL = "task"


class UnknownTask(ValueError):
    """A task that an experiment does not have at a size; another size may."""


def titles(trainings: Sequence[Training | NetworkTraining]) -> list[str]:
    """The tasks of an experiment, in its order; none if it has but one."""
    found = list(dict.fromkeys(str(t.labels[LABEL]) for t in trainings if LABEL in t.labels))
    return found if len(found) > 1 else []


def resolve_tasks(asked: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """The titles that a user asks for. Raises UnknownTask for a text that is none.

    ``copying`` is short for every title that has it before its first comma, ``copying, T = 100`` and ``copying, T =
    500``. A text may hold several, separated by commas or semicolons.
    """
    wanted: list[str] = []
    for text in asked:
        for name in split_names(text, lambda part: _named(part, known)):
            if not (named := _named(name, known)):
                allowed = "; ".join(known)
                raise UnknownTask(f"task {name!r} is not part of this experiment at this size; allowed are {allowed}")
            wanted += named
    return tuple(title for title in known if title in wanted)


def on_tasks(
    trainings: Sequence[Training | NetworkTraining], tasks: Collection[str]
) -> list[Training | NetworkTraining]:
    return [training for training in trainings if str(training.labels.get(LABEL)) in tasks]


def _named(text: str, known: Collection[str]) -> list[str]:
    exact = [title for title in known if _simple(title) == _simple(text)]
    return exact or [title for title in known if _simple(title.partition(",")[0]) == _simple(text)]


def _simple(text: str) -> str:
    return "".join(text.lower().split())
