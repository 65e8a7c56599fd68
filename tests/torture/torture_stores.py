"""Damaged results files, and rows made to do harm: no wrong row comes out, none is lost quietly, nothing is run."""

import logging
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torture_frame import Result, Setting

from numerate.results import Provenance, Row, Store, StoreError, canonical, rescue
from numerate.results.schema import PAGE_SIZE


def _rows(count: int) -> list[Row]:
    """Rows as a trainer would store them; some are so long that SQLite spreads them over several pages."""
    made = []
    for number in range(count):
        draw = np.random.default_rng(number)
        points = 2500 if number % 7 == 0 else 5
        config = {"unit": f"unit {number % 9}", "steps": 2000, "range": [1, 2]}
        made.append(
            Row(
                f"paper/table{number % 3}",
                config,
                number,
                labels={"unit": f"unit {number % 9}", "range": [1, 2]},
                curves={name: draw.random(points) for name in ("steps", "validation", "test", "sparsity")},
                scores={"threshold": 1e-7, "best_test": float(draw.random())},
                weights={"best": {"weight": draw.random((2, 3), np.float32)}},
                provenance=Provenance("stacked", {"torch": "2"}, {"cores": 2}, {"seconds": 0.5}, "2026-01-01"),
            )
        )
    return made


# ------------------------------------------------------------ damage


def damaged_stores(setting: Setting) -> Result:
    """Flipped bits, destroyed pages, files cut off: rows come out as they went in, or are named, or the file is."""
    rows = {row.key: row for row in _rows(120)}
    whole = setting.folder / "whole.sqlite"
    with Store(whole) as store:
        store.add(rows.values())
        store.share("mine", {key: {"unit": "shared"} for key in list(rows)[::10]})
    counts: Counter[str] = Counter()
    failures = []
    tried = setting.times(15, 800)
    for number in range(tried):
        path = Path(shutil.copy(whole, setting.folder / "damaged.sqlite"))
        what = _damage(path, setting)
        try:
            for word in (_read(path, rows), _rescued(path, setting, rows)):
                counts[word] += 1
        except Exception as error:
            failures.append(f"attempt {number}, {what}: {type(error).__name__}: {error}")
        for leftover in setting.folder.glob("damaged.sqlite-*"):
            leftover.unlink()
    return Result(tried, dict(sorted(counts.items())), tuple(failures))


def _damage(path: Path, setting: Setting) -> str:
    draw, data = setting.draw, bytearray(path.read_bytes())
    kind = draw.choice(["bits", "bits", "bytes", "page", "zeros", "header", "cut", "swap"])
    if kind == "bits":
        for _ in range(draw.choice([1, 1, 3, 20])):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del data[draw.randrange(len(data)) :]
    elif kind == "header":
        length = draw.choice([1, 16, 100])
        start = draw.randrange(100)
        data[start : start + length] = draw.randbytes(length)
    elif kind == "swap":
        first, second = (PAGE_SIZE * draw.randrange(1, len(data) // PAGE_SIZE) for _ in range(2))
        one, other = data[first : first + PAGE_SIZE], data[second : second + PAGE_SIZE]
        data[first : first + PAGE_SIZE], data[second : second + PAGE_SIZE] = other, one
    else:
        length = draw.randrange(1, 64) if kind == "bytes" else PAGE_SIZE
        start = (
            draw.randrange(len(data)) // (1 if kind == "bytes" else PAGE_SIZE) * (1 if kind == "bytes" else PAGE_SIZE)
        )
        fill = bytes(length) if kind == "zeros" else draw.randbytes(length)
        data[start : start + length] = fill[: len(data) - start]
    path.write_bytes(data)
    return kind


def _read(path: Path, rows: dict[Any, Row]) -> str:
    """What becomes of reading: refused, all there, or some named and left out. Raises if a run is wrong or lost."""
    with _notices() as notices:
        try:
            with Store(path, readonly=True) as store:
                found = store.rows(lenient=True)
                by_experiment = [row for name in store.experiments() for row in store.rows(name, lenient=True)]
        except StoreError:
            return "refused"
    for row in [*found, *by_experiment]:
        assert row.digest == rows[row.key].digest, f"the run {row.key.name} came out changed"
    stored = [row for row in by_experiment if row.experiment != "mine"]
    if len(found) < len(rows) or len(stored) < len(rows):
        assert notices, f"{len(rows) - len(found)} runs are gone without a word"
        return "read in part, with notices"
    return "read whole"


def _rescued(path: Path, setting: Setting, rows: dict[Any, Row]) -> str:
    into = setting.folder / "rescued.sqlite"
    into.unlink(missing_ok=True)
    with Store(into) as store:
        rescue(path, store)
        found = store.rows()
    for row in found:
        assert row == rows[row.key], f"the run {row.key.name} was rescued changed"
    return "rescued whole" if len(found) == len(rows) else "rescued in part" if found else "nothing to rescue"


@contextmanager
def _notices() -> Iterator[list[str]]:
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logger = logging.getLogger("numerate")
    handlers, propagate = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield told
    finally:
        logger.handlers, logger.propagate = handlers, propagate


# ------------------------------------------------------------ hostile rows

PATHS = [
    *("numerate.loops.native:library", "numerate.loops.cpp:Cpp", "numerate.cli:main", "numerate.results:Store"),
    *("os:system", "posix:system", "subprocess:run", "builtins:exec", "builtins:eval", "torch:load", "pickle:loads"),
    *("ctypes:CDLL", "socket:create_connection", "shutil:rmtree", "numerate.units.nmu:NMU", "numerate.units.mlp:MLP"),
    *("numerate.tasks.single_module:SingleModule", "numerate.experiments.models:two_layers", ":", "", "a:b:c"),
]
NAMES = [
    *("call", "arguments", "path", "source", "with", "hidden", "activation", "operation", "inputs", "first", "second"),
    *("device", "dtype", "self", "__class__", "\x1b[2J", "[/b]", "", "a" * 300),
]
SCALARS = [
    *(None, True, 0, 1, -1, 2, 10**9, 10**30, 1e308, -0.0, 0.1, "relu", "mul", "touch evil", "\x1b]0;x\x07", "\u202e"),
    *("x" * 5000, "[bold]", "../../../evil", "=cmd()", "\ud800"),
]
HARM = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "ctypes.dlopen", "socket.connect")
HARM += ("os.remove", "os.rename", "os.rmdir", "shutil.rmtree", "pickle.find_class", "cpython.run_command")
_watched: list[str] | None = None
_hooked: list[bool] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is None:
        return
    written = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if event in HARM or (written and arguments[0] != "/dev/null"):
        _watched.append(f"{event} {arguments!r:.200}")


@contextmanager
def _harm() -> Iterator[list[str]]:
    """What was run, loaded, deleted or written in the meantime, as Python's own audit tells it."""
    global _watched
    if not _hooked:
        sys.addaudithook(_watch)
        _hooked.append(True)
    _watched = []
    try:
        yield _watched
    finally:
        _watched = None


def hostile_rows(setting: Setting) -> Result:
    """Rows whose configuration, labels and numbers are made to do harm: shown as data, and nothing is run."""
    from numerate.experiments.kinds import shown_kinds
    from numerate.report.single import facts, label_text, outcome_text, show_run
    from numerate.train.kinds import Maker

    maker = Maker(shown_kinds())
    counts: Counter[str] = Counter()
    failures = []
    tried = setting.times(60, 3000)
    path = setting.folder / "hostile.sqlite"
    for number in range(tried):
        row = _hostile_row(setting, number)
        if row is None:
            counts["refused as a row"] += 1
            continue
        try:
            with Store(path) as store:
                store.add([row])
                (back,) = store.rows(keys=[row.key])
            with _harm() as harm:
                shown = dict(facts(back, maker))
                show_run(back, maker)
                f"{outcome_text(back)} {[label_text(value) for value in back.labels.values()]}"
            if harm:
                failures.append(f"attempt {number}: {harm[0]}; the model is {back.config.get('model')!r:.300}")
            counts["shown with a formula" if not shown["formula"].startswith("(") else "shown as data"] += 1
        except Exception as error:
            failures.append(f"attempt {number}: {type(error).__name__}: {error!s:.300}")
    return Result(tried, dict(sorted(counts.items())), tuple(failures))


def _hostile_row(setting: Setting, number: int) -> Row | None:
    draw = setting.draw
    task: Any = {"call": "numerate.tasks.single_module:SingleModule", "operation": "mul"}
    config = {
        "model": draw.choice([_value(setting, 4), draw.choice(PATHS), "numerate.units.nmu:NMU"]),
        "task": draw.choice([task, task, _value(setting, 3)]),
        "steps": draw.choice(SCALARS),
        "batch": draw.choice(SCALARS),
        "optimiser": _value(setting, 3),
        "number": number,
    }
    points = draw.choice([0, 1, 5])
    names = draw.sample(("steps", "validation", "test", "sparsity"), draw.randint(0, 4))
    kinds = ("f4", "f8", "i8", "?", "c8", "f2")
    name, shape = draw.choice([("weight", (1, 2)), ("weight", (1, 2)), ("\x1b[2J", (0,)), ("a.b", (2, 2, 2))])
    weights = {name: np.ones(shape, "f4")}
    deep: Any = "bottom"
    for _ in range(draw.choice([0, 3, 60])):
        deep = [deep]
    try:
        row = Row(
            draw.choice(["primer2022/table9", "", "\x1b[31m", "../../evil"]),
            config | {"deep": deep},
            draw.choice([number, -1, 2**62]),
            labels={draw.choice(NAMES): _value(setting, 2) for _ in range(3)},
            curves={name: np.zeros(points, draw.choice(kinds)) for name in names},
            scores={name: draw.choice([0.0, 1e308, float("nan")]) for name in ("threshold", "best_test", "solved_at")},
            weights={"best": weights},
        )
        (row.digest + row.experiment + canonical(row.labels)).encode()  # what no file can hold is refused
        return row
    except (ValueError, TypeError):
        return None


def _value(setting: Setting, depth: int) -> Any:
    draw = setting.draw
    kind = draw.random()
    if depth == 0 or kind < 0.3:
        return draw.choice(SCALARS)
    if kind < 0.5:
        return draw.choice(PATHS)
    if kind < 0.65:
        return [_value(setting, depth - 1) for _ in range(draw.randint(0, 3))]
    names = ["call"] if draw.random() < 0.8 else []
    named = {name: draw.choice(PATHS) for name in names}
    return named | {draw.choice(NAMES): _value(setting, depth - 1) for _ in range(draw.randint(0, 3))}


ATTACKS = {"damaged stores": damaged_stores, "hostile rows": hostile_rows}
