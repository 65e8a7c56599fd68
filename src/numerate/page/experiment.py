"""One experiment: its cells beside the published ones, its pictures, and what to filter by."""

from collections.abc import Mapping, Sequence

from numerate.experiments import Work
from numerate.experiments.pages import ComparisonPage, PicturePage, command
from numerate.labels import printable
from numerate.page.cells import Data, counted_cells, error_title, shown
from numerate.page.computing import Computed, Name, compare, draw
from numerate.page.index import ALL, Filter, Group, Index, decoded_labels, value_text
from numerate.page.site import Query, Site, Source
from numerate.report.figures import COLOURS

MOST_CHOICES = 300


def experiment(site: Site, query: Query, wait: bool = False) -> Data:
    """The cells of an experiment at a size, with verdicts once they are computed."""
    source, id = site.source(query), query.get("experiment")
    index = source.index
    size = site.size(index, id, query.get("size"))
    known = site.sizes.experiments.get(id)
    filters = query.filters
    everything = index.groups(id, size)
    data = counted(index, index.groups(id, size, filters) if filters else everything)
    computed = None
    pending, failed = "", ""
    if known is not None and size != ALL:
        if isinstance(known.show, ComparisonPage):
            computed = _filtered(site, query, id, size, filters, wait)
            pending, failed = "comparing with the published numbers …", "No comparison of these runs can be made"
        elif isinstance(known.show, PicturePage):
            computed = pictures_of(site, query, id, size, wait=wait)
            pending, failed = "drawing …", "No picture of these runs can be drawn"
        if computed and computed.value and computed.value.get("cells") != []:
            data |= computed.value
            data["looks"] = as_drawn(data["looks"], data.pop("colours", {}))
    return data | {
        "id": id,
        "title": known.title if known else printable(id),
        "about": known.about if known else "",
        "reasons": list(known.reasons) if known else [],
        "command": _report(site.sizes.works[id, size], source) if known and size != ALL else "",
        "size": size,
        "sizes": site.sizes_of(index, id),
        "runs": sum(group.runs for group in everything),
        "choices": choices(index, id, size, everything),
        "filters": {name: list(values) for name, values in filters},
        "pending": pending if computed is None else "",
        "error": printable(f"{failed}: {computed.error}") if computed and computed.error else "",
        "folder": str(source.folder),
    }


def counted(index: Index, groups: Sequence[Group]) -> Data:
    """The cells of these groups from counts alone."""
    without_criterion = [group.config_hash for group in groups if group.error is not None]
    return counted_cells(groups, error=error_title(map(index.config, dict.fromkeys(without_criterion))))


def _report(work: Work, source: Source) -> str:
    """The command that writes this report from the runs of this folder."""
    return command(work).replace("numerate run", "numerate report", 1) + source.out


def as_drawn(looks: Mapping[str, Data], colours: Mapping[str, str]) -> dict[str, Data]:
    """Colours as the pictures of the same view have them; series that are in no picture get what is left."""
    known = {name: colours[name] for name in looks if name in colours}
    free = [colour for colour in COLOURS if colour not in known.values()] or COLOURS
    others = [name for name in looks if name not in known] if known else []
    chosen = known | {name: free[i % len(free)] for i, name in enumerate(others)}
    return {name: look | {"colour": chosen.get(name, look["colour"])} for name, look in looks.items()}


def choices(index: Index, id: str, size: str, groups: Sequence[Group]) -> list[Data]:
    """What to filter by: labels with more than one value, then status and the like."""
    values: dict[str, dict[str, str]] = {}
    for group in groups:
        for name, value in decoded_labels(group.labels).items():
            values.setdefault(name, {})[value_text(value)] = shown(value, name)
    found = [
        {"name": name, "values": [{"value": value, "text": text} for value, text in list(each.items())[:MOST_CHOICES]]}
        for name, each in values.items()
        if len(each) > 1
    ]
    fields = index.fields(id, size).items()
    return found + [{"name": name, "values": [{"value": v, "text": v} for v in each]} for name, each in fields]


NOTHING = Computed(None)
"""Of no runs."""


def comparison_of(
    site: Site, query: Query, id: str, size: str, filters: Sequence[Filter] = (), wait: bool = False
) -> Computed | None:
    """The comparison of the runs that fit, if it is computed already; else it is being computed now."""
    index = site.source(query).index
    work = site.sizes.works[id, size]
    show = work.experiment.show
    expensive = isinstance(show, ComparisonPage) and show.prepare is not None  # others do not wait for it
    name = ("retested" if expensive else "comparison", str(index.path), id, size, tuple(filters))
    if site.computing.is_current(name, index.version) and not wait:
        return site.computing.latest(name)
    records = index.records(id, size, filters)
    if not records.values:
        return NOTHING
    return site.computing.get(name, index.version, lambda: compare(work, records, index.path), wait=wait)


def _filtered(site: Site, query: Query, id: str, size: str, filters: Sequence[Filter], wait: bool) -> Computed | None:
    """A filter by what places a cell leaves cells as they are in the report; any other leaves runs out of them."""
    whole = comparison_of(site, query, id, size, wait=wait)
    if whole is None or not whole.value or not filters:
        return whole
    places = {name for cell in whole.value["cells"] for name, _ in cell["where"]}
    if any(each.name not in places for each in filters):
        return comparison_of(site, query, id, size, filters, wait=wait)
    kept = [cell for cell in whole.value["cells"] if _fits(dict(cell["where"]), filters)]
    return Computed(whole.version, whole.value | _only(whole.value, kept))


def _fits(where: dict[str, str], filters: Sequence[Filter]) -> bool:
    return all(where.get(each.name) in each.values for each in filters)


def _only(data: Data, cells: list[Data]) -> Data:
    """These cells, and of panels, series and xs those that they have."""
    names = {"panels": "panel", "series": "series", "xs": "x"}
    left = {name: [v for v in data[name] if any(c[key] == v for c in cells)] for name, key in names.items()}
    words = [cell["verdict"] for cell in cells]
    return left | {"cells": cells, "verdicts": {w: words.count(w) for w in dict.fromkeys(words)}}


def pictures_of(site: Site, query: Query, id: str, size: str, wait: bool = False) -> Computed | None:
    """Pictures and tables of an experiment that is no comparison, drawn from the runs there are."""
    index = site.source(query).index
    work = site.sizes.works[id, size]
    keys = index.records(id, size).keys
    if work.keys and not keys:
        return NOTHING
    name = picture_name(index, id, size)
    version = len(keys)  # of other experiments' runs it does not depend
    return site.computing.get(name, version, lambda: draw(work, keys, index.path), wait=wait)


def picture_name(index: Index, id: str, size: str) -> Name:
    return "pictures", str(index.path), id, size
