"""Which tasks an experiment trains on, by their titles."""

from collections.abc import Collection, Sequence

from numerate.experiments.unit_choice import split_names
from numerate.train import NetworkTraining, Training

LABEL = "task"


class UnknownTask(ValueError):
    """A task that an experiment does not have at a size; another size may."""


def titles(trainings: Sequence[Training | NetworkTraining]) -> list[str]:
    """The tasks of an experiment, in its order."""
    return list(dict.fromkeys(str(t.labels[LABEL]) for t in trainings if LABEL in t.labels))


def resolve_tasks(asked: Sequence[str], known: Collection[str], where: str) -> tuple[str, ...]:
    """The titles that a user asks for. Raises UnknownTask for a text that is none of those ``known`` in an experiment.

    ``copying`` is short for every title that has it before its first comma, ``copying, T = 100`` and ``copying, T =
    500``. A text may hold several, separated by commas or semicolons.
    """
    wanted: list[str] = []
    for text in asked:
        for name in split_names(text, lambda part: _named(part, known)):
            if not (named := _named(name, known)):
                if len(known) < 2:
                    raise UnknownTask(f"{where} has no choice of tasks; leave --tasks out")
                raise UnknownTask(f"task {name!r} is not part of {where}; allowed are {'; '.join(known)}")
            wanted += named
    return tuple(title for title in known if title in wanted)


def on_tasks(
    trainings: Sequence[Training | NetworkTraining], tasks: Collection[str]
) -> list[Training | NetworkTraining]:
    return [training for training in trainings if str(training.labels.get(LABEL)) in tasks]


def counterparts(
    trainings: Sequence[Training | NetworkTraining], tasks: Collection[str]
) -> list[Training | NetworkTraining]:
    """Those of another size that stand for ``tasks``: of the same title, else of the same kind, else all."""
    known = titles(trainings)
    found = {title for task in tasks for title in _named(task, known) or _named(task.partition(",")[0], known)}
    return on_tasks(trainings, found or known)


def _named(text: str, known: Collection[str]) -> list[str]:
    exact = [title for title in known if _simple(title) == _simple(text)]
    return exact or [title for title in known if _simple(title.partition(",")[0]) == _simple(text)]


def _simple(text: str) -> str:
    return "".join(text.lower().split())
