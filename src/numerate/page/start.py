"""The start page: every experiment, its picture, its verdicts and how far it is."""

from typing import Any
from urllib.parse import quote

from numerate.experiments.pages import ComparisonPage, PicturePage
from numerate.labels import printable
from numerate.page.cells import Data, counted_cells, thumbnail
from numerate.page.experiment import comparison_of, pictures_of
from numerate.page.index import ALL, Index
from numerate.page.site import Query, Site
from numerate.page.sizes import best_size


def start(site: Site, query: Query, wait: bool = False) -> Data:
    """Those with runs first, the others with the command that would train them."""
    source = site.source(query)
    index, progress = source.index, site.progress(source.index)
    stored = index.experiments()
    cards, others = [], []
    for id, experiment in site.sizes.experiments.items():
        done = {size: counts for size, counts in progress.get(id, {}).items() if counts[0]}
        if done or (id not in progress and isinstance(experiment.show, PicturePage)):
            cards.append(_card(site, query, id, done, wait))
        else:
            others.append({"id": id, "title": experiment.title, "command": f"numerate run {id}"})
    cards += [_foreign(index, id, count) for id, count in stored.items() if id not in site.sizes.experiments]
    cards.sort(key=lambda card: not card["sizes"])
    return {
        "title": "Results",
        "folder": str(source.folder),
        "runs": index.total(),
        "refused": index.refused(),
        "cards": cards,
        "others": others,
        "under_way": under_way(site, index),
    }


def _card(site: Site, query: Query, id: str, done: dict[str, tuple[int, int]], wait: bool) -> Data:
    experiment, index = site.sizes.experiments[id], site.source(query).index
    size = best_size(done) or "quick"
    card = _base(id, experiment.title, size, done)
    if isinstance(experiment.show, ComparisonPage):
        computed = comparison_of(site, query, id, size, wait=wait)
        data = computed.value if computed and computed.value else counted_cells(index.groups(id, size))
        card |= {"maps": thumbnail(data), "verdicts": data["verdicts"], "headline": data["headline"]}
        card["pending"] = computed is None
        if data.get("orders"):
            card["verdicts"] = _orders(data["orders"])
        card["claims"] = len([claim for claim in data.get("claims", ()) if claim["word"] == "holds"])
    else:
        card["picture"] = True
        if wait and (drawn := pictures_of(site, query, id, size)) and drawn.value:  # those that are drawn already
            card["svg"] = f"data:image/svg+xml,{quote(drawn.value['pictures'][0]['svg'])}"
    return card


def _base(id: str, title: str, size: str, sizes: dict[str, tuple[int, int]]) -> Data:
    counts = [{"name": name, "finished": finished, "total": total} for name, (finished, total) in sizes.items()]
    return {
        "id": id, "title": title, "size": size, "sizes": counts, "maps": [], "verdicts": {}, "headline": "",
        "pending": False, "picture": False,
    }  # fmt: skip


def _foreign(index: Index, id: str, count: int) -> Data:
    """An experiment that was trained under a name of the user's own."""
    data = counted_cells(index.groups(id, ALL))
    return _base(id, printable(id), ALL, {ALL: (count, count)}) | {"maps": thumbnail(data)}


def _orders(orders: list[Data]) -> dict[str, int]:
    words = [order["word"] for order in orders]
    return {word: words.count(word) for word in dict.fromkeys(words)}


def under_way(site: Site, index: Index) -> list[dict[str, Any]]:
    """Groups of runs that are partly trained: how many, and at which step of how many."""
    groups = index.under_way()
    return [
        {
            "runs": len(keys),
            "step": step,
            "steps": site.sizes.steps.get(keys[0].config) or index.config(keys[0].config).get("steps"),
        }
        for step, keys in groups
        if keys
    ]
