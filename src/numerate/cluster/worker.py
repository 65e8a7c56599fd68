"""A worker: takes an order, trains its runs, answers with rows. It writes no results file.

``python -m numerate.cluster.worker`` serves orders from its standard input, one after the other; the engines of Ray and
Slurm call :func:`work` in processes of their own.
"""

import logging
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numerate.cluster.messages import Order, Reply, paused, version_conflict, versions, versions_of
from numerate.processes import serve
from numerate.results import pack_rows
from numerate.train import NetworkTraining, Progress, Training, train
from numerate.train.plain import from_text
from numerate.train.sink import InMemory


class _TimeIsUp(Exception):
    pass


def work(data: bytes, node: str = "") -> bytes:
    """The reply to an order. Errors are reported in it; nothing is raised."""
    started = time.perf_counter()
    facts: dict[str, Any] = {"where": f"{platform.node()}, process {os.getpid()}", "node": node}
    if conflict := version_conflict(versions_of(data), versions()):
        return Reply("refused", sentence=conflict, **facts).to_bytes()
    order = Order.from_bytes(data)
    with _heard() as notices:
        try:
            reply = _train(order, facts)
        except Exception as error:
            sentence = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            reply = Reply("failed", sentence=sentence, **facts)
    overhead = time.perf_counter() - started - reply.seconds
    header = {name: value for name, value in vars(reply).items() if name not in ("notices", "overhead")}
    return Reply(**header, overhead=overhead, notices=tuple(notices)).to_bytes()


def _train(order: Order, facts: dict[str, Any]) -> Reply:
    sink = InMemory(dict([order.checkpoint]) if order.checkpoint else None)
    trainings, start = _trainings(order), order.checkpoint[1].meta["step"] if order.checkpoint else 0
    began = time.perf_counter()

    def pause(progress: Progress) -> None:
        if any(state.meta["step"] > start for state in sink.saved.values()):  # a worker gets on, however short its time
            raise _TimeIsUp

    try:
        train(
            trainings,
            sink,
            experiment=order.experiment,
            backend=order.backend,
            device=order.device,
            threads=order.threads,
            progress=pause,
            checkpoint_seconds=order.seconds,
        )
    except _TimeIsUp:
        ((name, state),) = sink.saved.items()
        return paused(name, state, seconds=time.perf_counter() - began, **facts)
    seconds = sum(row.provenance.seconds for row in sink.rows)
    return Reply("rows", seconds=min(seconds, time.perf_counter() - began), body=pack_rows(sink.rows), **facts)


def _trainings(order: Order) -> list[Training | NetworkTraining]:
    if order.path and os.path.isdir(order.path) and order.path not in sys.path:
        sys.path.append(order.path)
    seeds: dict[int, list[int]] = {}
    for place, seed in order.runs:
        seeds.setdefault(place, []).append(seed)
    return [from_text(order.trainings[place], tuple(some)) for place, some in seeds.items()]


@contextmanager
def _heard() -> Iterator[list[str]]:
    """What the package says meanwhile."""
    heard: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logger, listener = logging.getLogger("numerate"), Listener()
    logger.addHandler(listener)
    try:
        yield heard
    finally:
        logger.removeHandler(listener)


def main() -> None:
    serve(work)


if __name__ == "__main__":
    main()
