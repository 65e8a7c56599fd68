"""Units down, tasks across: who solves what, with intervals; over everything in the first column."""

from numerate.page.cells import Data, counted_cells, estimate, rate
from numerate.page.experiment import choices
from numerate.page.site import Query, Site
from numerate.report.metrics import SUCCESS


def leaderboard(site: Site, query: Query, wait: bool = False) -> Data:
    """Of one experiment, the zoo if nothing else is asked for; units best first."""
    del wait
    source = site.source(query)
    index = source.index
    offered = sorted(site.progress(index))
    id = query.get("experiment") or ("zoo" if "zoo" in offered else next(iter(offered), ""))
    if not id:
        return {"title": "Leaderboard", "id": "", "offered": [], "columns": [], "units": [], "size": "", "choices": []}
    size = site.size(index, id, query.get("size"))
    data = counted_cells(index.groups(id, size, query.filters))
    data["cells"] = [cell for cell in data["cells"] if cell["criterion"]]
    columns = list(dict.fromkeys((cell["panel"], cell["x"]) for cell in _in_order(data)))
    units = []
    for name in [name for name in data["series"] if any(cell["series"] == name for cell in data["cells"])]:
        cells = {(cell["panel"], cell["x"]): cell for cell in data["cells"] if cell["series"] == name}
        solved, runs = (sum(cell[what] for cell in cells.values()) for what in ("solved", "judged"))
        units.append(
            {
                "unit": name,
                "own": any(cell["own"] for cell in cells.values()),
                "runs": runs,
                "total": estimate(rate(solved, runs), SUCCESS),
                "always": sum(cell["solved"] == cell["runs"] for cell in cells.values()),
                "cells": [_entry(cells.get(column)) for column in columns],
            }
        )
    units.sort(key=lambda unit: (-(unit["total"]["value"] if unit["total"] else 0.0), unit["unit"]))
    known = site.sizes.experiments.get(id)
    return {
        "title": "Leaderboard",
        "id": id,
        "experiment_title": known.title if known else id,
        "size": size,
        "sizes": site.sizes_of(index, id),
        "offered": offered,
        "columns": [{"panel": panel, "x": x} for panel, x in columns],
        "units": units,
        "choices": choices(index, id, size, index.groups(id, size)),
        "filters": {name: list(values) for name, values in query.filters},
    }


def _in_order(data: Data) -> list[Data]:
    panels, xs = ({name: i for i, name in enumerate(data[key])} for key in ("panels", "xs"))
    return sorted(data["cells"], key=lambda cell: (panels[cell["panel"]], xs[cell["x"]]))


def _entry(cell: Data | None) -> Data | None:
    if cell is None:
        return None
    return {"value": cell["values"][SUCCESS.name]["ours"], "where": cell["where"], "runs": cell["runs"]}
