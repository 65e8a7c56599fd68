"""NSR and NAU as a node of a message-passing network: one round of Bellman–Ford learnt, whole graphs tested."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from numerate.experiments.experiment import Experiment, Options, Work
from numerate.experiments.pages import comparison_page
from numerate.experiments.primer2022.deciding import (
    ACCURACY,
    PATHS,
    RIGHT,
    ROUNDED,
    Relax,
    accuracies,
    at_least,
    kept_rounded,
    named,
    sparsity,
    validation_error,
)
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import SUCCESS, Claim, Comparison, Layout, comparison
from numerate.report.text import percent
from numerate.results import Row
from numerate.stats import wilson
from numerate.streams import Domain, uniform
from numerate.tasks import Relaxation
from numerate.tasks.task import TEST_SEED
from numerate.train import Adam, Training

STEPS = {"smoke": 500, "quick": 20_000, "paper": 100_000}
NODES = {"smoke": (5,), "quick": (5, 10, 20), "paper": (5, 10, 20, 40)}
GRAPHS = {"smoke": 2, "quick": 10, "paper": 50}
WEIGHTS = (10, 100)
"""Largest weight of an edge in the test; in training it is 10."""
FAILED = 0.1
"""The algorithm is not found if less than this share of the runs finds it."""


def recipes(steps: int) -> dict[str, Recipe]:
    return {named(p): Recipe(partial(Relax, paths=p), Adam(1e-2), sparsity(steps)) for p in PATHS}


def placed(own: Recipe) -> Recipe:
    """A unit of the user's own that folds the messages."""
    return replace(own, model=partial(Relax, unit=own.model))


def trainings(options: Options) -> list[Training]:
    steps = STEPS[options.size]
    return [
        recipe.training(
            task=Relaxation(test_neighbours=4),  # whole graphs are tested afterwards
            seeds=options.seed_range(smoke=2, quick=10, paper=50),
            steps=steps,
            evaluate_every=steps // 20,
            evaluation_size=500,
            labels={"unit": name, "task": "Bellman–Ford"},
        )
        for name, recipe in choose_recipes(options.units, recipes(options.steps or steps), placed=placed).items()
    ]


def graphs(count: int, nodes: int, most: int) -> Tensor:
    """Symmetric weights from 1 to ``most`` of complete graphs, (count, nodes, nodes); 0 from a node to itself."""
    drawn = uniform(TEST_SEED, Domain.TEST, nodes * 1000 + most, count * nodes * nodes).view(count, nodes, nodes)
    upper = torch.triu(torch.floor(drawn * most) + 1, diagonal=1)
    return upper + upper.mT


def start(weights: Tensor) -> Tensor:
    """Distances before the first round: 0 at the source, three times the largest weight elsewhere; (count, nodes)."""
    count, nodes, _ = weights.shape
    far = 3 * weights.flatten(1).amax(-1, keepdim=True).expand(count, nodes).clone()
    far[:, 0] = 0
    return far


def bellman_ford(weights: Tensor) -> Tensor:
    """Shortest distances from node 0; (count, nodes, nodes) -> (count, nodes)."""
    distance = start(weights)
    for _ in range(weights.shape[-1] - 1):
        distance = torch.minimum(distance, (distance.unsqueeze(-2) + weights).amin(-1))
    return distance


@torch.no_grad()
def imitated(model: nn.Module, weights: Tensor) -> Tensor:
    """The same with a model in place of every round at every node: x = d, then pairs (d of a neighbour, weight)."""
    distance = start(weights)
    nodes = weights.shape[-1]
    others = torch.tensor([[u for u in range(nodes) if u != v] for v in range(nodes)])  # (nodes, nodes - 1)
    edges = weights.gather(-1, others.expand(len(weights), nodes, nodes - 1))
    for _ in range(nodes - 1):
        pairs = torch.stack([distance[:, others], edges], -1).flatten(-2)
        distance = model(torch.cat((distance.unsqueeze(-1), pairs), -1)).squeeze(-1)
    return distance


def wrong_share(found: Tensor, right: Tensor) -> float:
    """Of all nodes but the source; a distance is right if it is off by less than ½; (count, nodes)."""
    return float((~((found - right).abs() < 0.5))[:, 1:].float().mean())


def judged(work: Work, rows: Sequence[Row]) -> list[Row]:
    """The runs on every size of graph and weight of edges, by their share of wrong distances."""
    trained = work.arithmetic
    models = [(row, kept_rounded(trained[row.key], row)) for row in rows if row.key in trained]
    found = []
    for most in WEIGHTS:
        for nodes in NODES[work.options.size]:
            weights = graphs(GRAPHS[work.options.size], nodes, most)
            right = bellman_ford(weights)
            for row, pair in models:
                wrong = [wrong_share(imitated(model, weights), right) for model in pair]
                scores = {**row.scores, "best_test": wrong[0], "snapped_test": wrong[1], "threshold": 1 - RIGHT + 1e-9}
                labels = {**row.labels, "weights": f"to {most}", "nodes": nodes}
                found.append(replace(row, labels=labels, scores=scores))
    return found


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    return comparison(
        rows,
        title="Primer 2022: shortest paths with NSR and NAU",
        layout=Layout(
            panel="weights",
            x="nodes",
            panels=[f"to {most}" for most in WEIGHTS],
            panel_titles={f"to {most}": f"Weights of edges from 1 to {most}" for most in WEIGHTS},
            order=list(map(named, PATHS)),
            x_title="Nodes of the graph (training: 4 neighbours)",
            joined=True,
        ),
        measure=accuracies,
        metrics=(SUCCESS, ACCURACY, ROUNDED),
    )


def claims(compared: Comparison) -> list[Claim]:
    """Sentences of 7.2, and ours on rounding, by the run with the smallest validation error."""
    ours = list(map(named, PATHS))
    rows = [row for row in compared.rows if row.labels["unit"] in ours]
    if not rows or len(compared.xs) < 2:
        return []
    best = min(rows, key=validation_error)
    mine = {(row.labels["weights"], row.labels["nodes"]): row.scores for row in rows if row.key == best.key}
    accuracy = {place: 1 - scores["best_test"] for place, scores in mine.items()}
    rounded = {place: 1 - scores["snapped_test"] for place, scores in mine.items()}
    light, heavy = (f"to {most}" for most in WEIGHTS)
    smallest, *larger = sorted({nodes for _, nodes in mine})
    gains = [accuracy[heavy, nodes] - accuracy[light, nodes] for nodes in larger]
    cells = [c for c in compared.of(light) if c.x == smallest and c.series in ours]
    shares = [f"{c.series} {c.measured.solved or 0} of {c.measured.n}" for c in cells]
    rate = wilson(sum(c.measured.solved or 0 for c in cells), sum(c.measured.n for c in cells))
    found = accuracy[light, smallest] >= RIGHT

    def listed(values: dict[tuple[str, int], float], panel: str) -> str:
        texts = [f"{percent(value)} with {nodes} nodes" for (at, nodes), value in values.items() if at == panel]
        return f"weights {panel}: {', '.join(texts)}"

    both = f"accuracy of the best run, {listed(accuracy, light)}; {listed(accuracy, heavy)}"
    return [
        Claim(
            "The recurrent NSR can learn to aggregate numbers to a minimum.",
            f"runs that are right on graphs of {smallest} nodes: {', '.join(shares)}; {both}.",
            found or (False if at_least(rate, FAILED) is False else None),
        ),
        Claim(
            "When extrapolating to larger graphs, performance improved with larger edge weights.",
            f"{both}.",
            None if not found or max(map(abs, gains)) < 0.02 else all(gain > 0 for gain in gains),
        ),
        Claim(
            "(Ours) Rounded decisions and weights are the algorithm itself.",
            f"accuracy of the best run, rounded, {listed(rounded, light)}; {listed(rounded, heavy)}.",
            min(rounded.values()) >= RIGHT if found else None,
        ),
    ]


EXPERIMENTS = [
    Experiment(
        id="primer2022/shortest-path",
        title="NSR and NAU as a message-passing network: Bellman–Ford, larger graphs, heavier edges",
        trainings=trainings,
        show=comparison_page(compare, claims, prepare=judged),
        about=about("primer2022", "shortest-path"),
        reasons=reasons("primer2022", "nsr", "shortest-path"),
        units=list(map(named, PATHS)),
        own="the cell that folds messages, on a message and what it gave before",
    )
]
