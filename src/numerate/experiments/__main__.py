"""Train without the command line: ``python -m numerate.experiments ID --size paper --device cuda --out DIR``.

For machines that have torch, numpy, scipy and matplotlib only. ``--export FILE`` writes the rows, and the state of runs
that are not finished, to a file, also if the command is interrupted; with ``.gz``, a compressed one. On another machine
``numerate rows import FILE`` adds them to the results, ``numerate report`` writes the report, and the same command goes
on.
"""

import argparse
import time
from pathlib import Path

from numerate.experiments.catalogue import select
from numerate.experiments.experiment import SIZES, Options
from numerate.results import Store, StoreError
from numerate.results.exporting import check_new, export
from numerate.train import Progress, train


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m numerate.experiments", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ids", nargs="+")
    parser.add_argument("--size", choices=SIZES, default="quick")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--steps", type=int, help="updates of every run, in place of the size's own")
    parser.add_argument("--units", action="append", help="separated by commas or semicolons, or one per --units")
    parser.add_argument("--tasks", action="append", help="likewise")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--export", type=Path)
    parser.add_argument("--no-weights", action="store_true", help="export curves and scores alone")
    parser.add_argument("--seconds", type=float, help="stop training after so long, all experiments together")
    parser.add_argument("--checkpoint-seconds", type=float, default=30.0)
    asked = parser.parse_args()
    units, tasks = (None if names is None else tuple(names) for names in (asked.units, asked.tasks))
    options = Options(asked.size, asked.seeds, units, steps=asked.steps, tasks=tasks)
    begun = told = time.monotonic()
    try:
        works = [experiment.work(options) for experiment in select(asked.ids)]
        if asked.export:
            check_new(asked.export)
    except (ValueError, StoreError) as error:
        parser.error(str(error))

    def tell(now: Progress) -> None:
        nonlocal told
        if time.monotonic() - told > 5 or now.fraction == 1:
            told = time.monotonic()
            print(f"{now.seconds:6.1f} s {now.fraction:6.1%} {now.finished}/{now.total} runs, {now.label}", flush=True)

    with Store(asked.out / "results.sqlite") as store:
        try:
            for work in works:
                start = time.monotonic()
                if asked.seconds is not None and start >= begun + asked.seconds:
                    break
                train(
                    work.trainings,
                    store,
                    experiment=work.experiment.id,
                    backend=asked.backend,
                    device=asked.device,
                    progress=tell,
                    checkpoint_seconds=asked.checkpoint_seconds,
                    seconds=None if asked.seconds is None else begun + asked.seconds - start,
                )
                print(f"{work.experiment.id}: {time.monotonic() - start:.1f} s", flush=True)
        finally:
            if asked.export:
                added = export(store, asked.export, unfinished=not asked.no_weights, weights=not asked.no_weights)
                print(f"{asked.export}: {added}", flush=True)


if __name__ == "__main__":
    main()
