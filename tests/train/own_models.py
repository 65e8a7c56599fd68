"""What the tests of users' own models have in common."""

from typing import Any

from torch import nn

from numerate.results import Store
from numerate.tasks import SingleModule
from numerate.train import Training, train

SHORT: dict[str, Any] = {"seeds": (0, 1, 2), "steps": 40, "evaluate_every": 20, "evaluation_size": 100}
TASK = SingleModule("mul")


def trained(folder, *models, name="a", backend="auto", **settings):
    """Rows of all models, trained in one call."""
    settings = SHORT | settings
    task = settings.pop("task", TASK)
    with Store(folder / f"{name}.sqlite") as store:
        train([Training(model, task, **settings) for model in models], store, backend=backend)
        return store.rows()


class Own(nn.Linear):
    """A base for the models below."""
