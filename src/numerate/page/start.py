"""The start page: every experiment, its picture, its verdicts and how far it is."""

from typing import Any
from urllib.parse import quote

from numerate.experiments.pages import ComparisonPage, PicturePage
from numerate.labels import printable
from numerate.page.cells import Data, thumbnail
from numerate.page.experiment import comparison_of, counted, picture_name
from numerate.page.index import ALL, Index
from numerate.page.site import Query, Site


def start(site: Site, query: Query, wait: bool = False) -> Data:
    """Those with runs first, the others with the command that would train them."""
    source = site.source(query)
    index, progress = source.index, site.progress(source.index)
    cards, others = [], []
    for id, experiment in site.sizes.experiments.items():
        derived = not site.sizes.totals[id, "paper"] and isinstance(experiment.show, PicturePage)
        if id in progress or derived:
            cards.append(_card(site, query, id, wait))
        else:
            others.append({"id": id, "title": experiment.title, "command": f"numerate run {id}{source.out}"})
    cards += [_foreign(site, index, id) for id in progress if id not in site.sizes.experiments]
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


def _card(site: Site, query: Query, id: str, wait: bool) -> Data:
    experiment, index = site.sizes.experiments[id], site.source(query).index
    size = site.size(index, id, "")
    card = _base(id, experiment.title, size, site.sizes_of(index, id))
    if size == ALL:
        return card | {"maps": thumbnail(counted(index, index.groups(id, ALL)))}
    if isinstance(experiment.show, ComparisonPage):
        computed = comparison_of(site, query, id, size, wait=wait)
        compared = computed and computed.value and computed.value["cells"]
        data = computed.value if computed and compared else counted(index, index.groups(id, size))
        verdicts = _orders(data["orders"]) if data.get("orders") else data["verdicts"]
        card |= {"maps": thumbnail(data), "verdicts": verdicts, "headline": data["headline"]}
        return card | {"pending": computed is None}
    card["maps"] = thumbnail(counted(index, index.groups(id, size)))  # until the picture is drawn
    if not isinstance(experiment.show, PicturePage):
        return card
    shown = size if card["sizes"] else "smoke"  # of definitions alone, what is drawn in a moment
    drawn = site.computing.latest(picture_name(index, id, shown))
    if drawn and not (drawn.value and drawn.value["pictures"]):
        return card
    if wait and drawn:  # a saved page has those that are drawn already
        card["svg"] = f"data:image/svg+xml,{quote(drawn.value['pictures'][0]['svg'])}"
    return card | {"picture": shown}


def _base(id: str, title: str, size: str, sizes: list[dict[str, str | int]]) -> Data:
    return {
        "id": id, "title": title, "size": size, "sizes": sizes, "maps": [], "verdicts": {}, "headline": "",
        "pending": False, "picture": "",
    }  # fmt: skip


def _foreign(site: Site, index: Index, id: str) -> Data:
    """An experiment that was trained under a name of the user's own."""
    maps = thumbnail(counted(index, index.groups(id, ALL)))
    return _base(id, printable(id), ALL, site.sizes_of(index, id)) | {"maps": maps}


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
