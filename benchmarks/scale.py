"""What one driver and one results file carry: ``python -m benchmarks.scale all`` (half an hour, 8 GB of disk).

Rows are those of the Primer's 207 configurations at the published setting, one of each trained here, copied to other
seeds: real curves, real weights, real sizes.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from numerate.cluster import Engine, Finished, LocalEngine, train_on
from numerate.cluster.messages import Order, Reply
from numerate.experiments import Options, select
from numerate.experiments.experiment import Work
from numerate.results import Key, Row, Store, config_hash, pack_rows
from numerate.tasks import SingleModule
from numerate.train import Training, train
from numerate.train.sink import InMemory
from numerate.units import NMU

EXPERIMENT = "primer2022"
CHUNK = 10_000
"""Rows that are copied in one transaction."""


def work(seeds: int | None = None) -> Work:
    return select([EXPERIMENT])[0].work(Options("paper", seeds=seeds))


def templates() -> dict[str, Row]:
    """A trained row of each configuration, by the hash of the configuration."""
    sink = InMemory()
    train(work(seeds=1).trainings, sink, experiment=EXPERIMENT)
    return {row.key.config: row for row in sink.rows}


def copied(row: Row, seed: int) -> Row:
    """The same result for another seed."""
    other = replace(row, seed=seed)
    vars(other).update(config_text=row.config_text, result=row.result, key=Key(row.key.config, seed))
    return other


def fill(path: Path, models: dict[str, Row], rows: int) -> float:
    """Add copies until the file has ``rows`` rows; seconds."""
    with Store(path) as store:
        first = len(store.keys()) // len(models)
        wanted = -(-rows // len(models))
        chunk = max(1, CHUNK // len(models))
        started = time.perf_counter()
        for seed in range(first, wanted, chunk):
            seeds = range(seed, min(seed + chunk, wanted))
            store.add(copied(row, s) for row in models.values() for s in seeds)
        return time.perf_counter() - started


# ------------------------------------------------------------ the driver


class Simulated(Engine):
    """Workers that answer at once with copied rows; the time to make those is not the driver's."""

    def __init__(self, workers: int, models: dict[str, Row], seconds_per_run: float) -> None:
        self.workers, self.models, self.seconds_per_run = workers, models, seconds_per_run
        self.waiting: dict[int, bytes] = {}
        self.spent = self.spent_cpu = 0.0
        self.replies = self.largest = 0

    def slots(self) -> int:
        return self.workers

    def submit(self, number: int, order: bytes) -> None:
        self.waiting[number] = order

    def as_completed(self, seconds: float) -> Iterator[Finished]:
        for number in list(self.waiting):
            started, used = time.perf_counter(), time.process_time()
            order = Order.from_bytes(self.waiting.pop(number))
            hashes = [config_hash(json.loads(text)["description"]) for text in order.trainings]
            rows = [copied(self.models[hashes[place]], seed) for place, seed in order.runs]
            data = Reply("rows", seconds=len(rows) * self.seconds_per_run, body=pack_rows(rows)).to_bytes()
            self.spent += time.perf_counter() - started
            self.spent_cpu += time.process_time() - used
            self.replies += 1
            self.largest = max(self.largest, len(data))
            yield Finished(number, data)

    def close(self) -> None:
        pass


def take_rows(folder: Path, models: dict[str, Row], counts: Sequence[int], seeds: int) -> None:
    """Rows per second that the driver unpacks, checks and stores."""
    print(f"\nrows of simulated workers, 0.6 s a run, {207 * seeds:,} rows in all, into an empty file")
    names = ("workers", "pieces", "rows/s", "rows/CPU s", "CPU ms/piece", "largest MB", "driver MB")
    print(" ".join(f"{name:>12}" for name in names))
    for workers in counts:
        path = folder / f"workers-{workers}.sqlite"
        engine = Simulated(workers, models, 0.6)
        with Store(path) as store:
            trainings = work(seeds).trainings
            started, used = time.perf_counter(), time.process_time()
            train_on(engine, trainings, store, experiment=EXPERIMENT)
            seconds = time.perf_counter() - started - engine.spent
            used = time.process_time() - used - engine.spent_cpu
            rows = len(store.keys())
        figures = (workers, engine.replies, rows / seconds, rows / used, 1e3 * used / engine.replies)
        print(" ".join(f"{figure:>12,.0f}" for figure in figures), end=" ")
        print(f"{engine.largest / 1e6:>12.2f} {peak():>12,.0f}", flush=True)
        path.unlink()


def peak() -> float:
    """Most memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


# ------------------------------------------------------------ the file


def measure_report(folder: Path, models: dict[str, Row], counts: Sequence[int]) -> None:
    """Size, report and opening of files of several sizes, each grown from the one before."""
    print("\na results file, and numerate report of the Primer's 5,175 runs in it")
    names = ("rows", "MB on disk", "rows/s added", "report s", "report CPU s", "report MB", "first open s", "keys MB")
    print(" ".join(f"{name:>13}" for name in names))
    out = folder / "out"
    path, before = out / "results.sqlite", 0
    for count in counts:
        seconds = fill(path, models, count)
        size = path.stat().st_size / 1e6
        report = timed([sys.executable, "-m", "numerate", "report", EXPERIMENT, "--size", "paper", "--out", str(out)])
        opened = time.perf_counter()
        path.with_name("results.sqlite-checked").unlink(missing_ok=True)
        with Store(path, readonly=True) as store:
            opened = time.perf_counter() - opened
            tracemalloc.start()
            keys = store.keys()
            held = tracemalloc.get_traced_memory()[0] / 1e6
            tracemalloc.stop()
        rate = (len(keys) - before) / seconds
        figures = (len(keys), size, rate, *report, opened, held)
        print(" ".join(f"{figure:>13,.1f}" if figure < 100 else f"{figure:>13,.0f}" for figure in figures), flush=True)
        before = len(keys)


def timed(command: Sequence[str]) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak memory in MB of a command. Raises if it fails."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


# ------------------------------------------------------------ overhead


class Measured(Engine):
    """Another engine, with what its workers say of their time."""

    def __init__(self, engine: Engine, seconds: float) -> None:
        self.engine, self.seconds = engine, seconds
        self.sent: dict[int, float] = {}
        self.told: list[tuple[float, float, float]] = []

    def slots(self) -> int:
        return self.engine.slots()

    def submit(self, number: int, order: bytes) -> None:
        self.sent[number] = time.perf_counter()
        self.engine.submit(number, order)

    def as_completed(self, seconds: float) -> Iterator[Finished]:
        for finished in self.engine.as_completed(seconds):
            if finished.data:
                reply = Reply.from_bytes(finished.data)
                away = time.perf_counter() - self.sent[finished.number]
                self.told.append((reply.seconds, reply.overhead, away - reply.seconds - reply.overhead))
            yield finished

    def close(self) -> None:
        self.engine.close()


def measure_overhead(folder: Path, kind: str, seconds: float, pieces: int) -> None:
    """What a piece of about ``seconds`` costs beside its training, on one worker, the first piece apart."""
    engine = LocalEngine([{}])
    if kind == "ray":
        from numerate.cluster.ray_engine import RayEngine

        engine = RayEngine(workers=1)
    measured = Measured(engine, seconds)
    training = Training(NMU, SingleModule("mul"), tuple(range(int(pieces * seconds * 120))), labels={"unit": "NMU"})
    started = time.perf_counter()
    with Store(folder / f"overhead-{kind}.sqlite") as store:
        train_on(measured, [training], store)
    wall = time.perf_counter() - started
    measured.close()
    first, *others = measured.told
    later = [sum(values) / len(others) for values in zip(*others)]
    trained = sum(told[0] for told in measured.told)
    print(
        f"{kind}: {len(measured.told)} pieces; the first {first[0]:.1f} s of training and {first[1] + first[2]:.1f} s; "
        f"then {later[0]:.1f} s of training, {later[1]:.2f} s in the worker and {later[2]:.2f} s on the way beside it; "
        f"idle or beside training {1 - trained / wall:.1%} of {wall:.0f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", choices=["all", "driver", "file", "overhead"])
    parser.add_argument("--rows", type=int, nargs="+", default=[5_175, 100_000, 1_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--seeds", type=int, default=250, help="of each configuration, for the driver")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a piece, for the overhead")
    parser.add_argument("--pieces", type=int, default=4)
    parser.add_argument("--engines", nargs="+", default=["local", "ray"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="numerate-scale-") as name:
        folder, what = Path(name), set(options.what)
        models = templates() if what & {"all", "driver", "file"} else {}
        if what & {"all", "driver"}:
            take_rows(folder, models, options.workers, options.seeds)
        if what & {"all", "file"}:
            measure_report(folder, models, options.rows)
        if what & {"all", "overhead"}:
            print("\noverhead of a piece")
            for kind in options.engines:
                measure_overhead(folder, kind, options.seconds, options.pieces)


if __name__ == "__main__":
    main()
