"""The formula search on known problems: how many exactly, how fast, and beside other programs.

python -m benchmarks.formula                                   every suite at its noises, one seed
python -m benchmarks.formula feynman --noise 0.01 --seeds 3    one suite with one noise
python -m benchmarks.formula feynman --who numerate pyoperon   peers in the same run
python -m benchmarks.formula --jobs 14 --limit 500             on many cores; what is not done in time is left out
python -m benchmarks.formula --seeds 10 --out rows.jsonl       can be interrupted; the same command goes on
"""

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.formula_judge import judge, standard_scores
from benchmarks.formula_peers import PEERS
from benchmarks.formula_problems import SUITES, Problem

PEER_TOLERANCE = 1e-6  # their constants are printed with fewer digits
NOISES = {"feynman": [0.0, 0.001, 0.01, 0.1], "strogatz": [0.0, 0.01], "constants": [0.01, 0.05]}  # the others: none


@dataclass(frozen=True)
class Task:
    """One problem of a suite, for one program."""

    suite: str
    label: str  # of the suite in the tables
    seed: int
    name: str
    noise: float
    who: str
    seconds: float


def main() -> None:
    options = _options()
    if options.show:
        print(table([json.loads(line) for file in options.show for line in file.read_text().splitlines()]))
        return
    tasks = _tasks(options)
    rows = _finished(options.out, tasks)
    done = {_of_row(row) for row in rows}
    out = options.out.open("a") if options.out else None
    for row in _rows([task for task in tasks if _of_task(task) not in done], options.jobs, options.limit):
        rows.append(row)
        if out:
            print(json.dumps(row), file=out, flush=True)
        if not options.quiet:
            _show(row)
    print(table(rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", help=f"of {', '.join(SUITES)}; all unless named")
    parser.add_argument("--noise", type=float, nargs="+", help="times the root mean square of y")
    parser.add_argument("--seconds", type=float, default=10.0, help="of CPU time for each problem")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="only each so-manyth problem")
    parser.add_argument("--offset", type=int, default=0, help="where to start with --every")
    parser.add_argument("--only", nargs="+", help="names of problems")
    parser.add_argument("--who", nargs="+", default=["numerate"], choices=["numerate", *PEERS])
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--limit", type=float, default=np.inf, help="seconds of wall time for the whole run")
    parser.add_argument("--out", type=Path, help="one JSON line for each problem; what the file has is not run again")
    parser.add_argument("--show", type=Path, nargs="+", help="only the table of results written with --out")
    parser.add_argument("--quiet", action="store_true", help="the table alone")
    options = parser.parse_args()
    options.suites = options.suites or list(SUITES)
    if unknown := set(options.suites) - set(SUITES):
        parser.error(f"no suite {unknown.pop()!r}; there are {', '.join(SUITES)}")
    return options


def _tasks(options: argparse.Namespace) -> list[Task]:
    """Seed by seed, so that a run cut short has all problems of the first seeds."""
    return [
        Task(suite, problem.suite, seed, problem.name, noise, who, options.seconds)
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for suite in options.suites
        for number, problem in enumerate(_problems(suite, 0))
        if number % options.every == options.offset and (not options.only or problem.name in options.only)
        for noise in options.noise or NOISES.get(suite, [0.0])
        for who in options.who
    ]


def _of_task(task: Task) -> tuple:
    return task.label, task.seed, task.name, task.noise, task.who


def _of_row(row: dict) -> tuple:
    return tuple(row[key] for key in ("suite", "seed", "name", "noise", "who"))


def _finished(out: Path | None, tasks: list[Task]) -> list[dict]:
    """The rows of these tasks that ``out`` has, from an earlier run."""
    if out is None or not out.exists():
        return []
    wanted = {_of_task(task) for task in tasks}
    return [row for line in out.read_text().splitlines() if _of_row(row := json.loads(line)) in wanted]


@lru_cache(maxsize=24)
def _problems(suite: str, seed: int) -> list[Problem]:
    return list(SUITES[suite](seed))


def _rows(tasks: list[Task], jobs: int, limit: float) -> Iterator[dict]:
    """The results as they come."""
    end = time.monotonic() + limit
    if jobs == 1:
        for task in tasks:
            if time.monotonic() > end:
                return
            yield _run(task)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # each process has one core
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        results = pool.imap_unordered(_run, tasks)
        for _ in tasks:
            try:
                yield results.next(max(0.0, end - time.monotonic()) if np.isfinite(limit) else None)
            except multiprocessing.TimeoutError:
                return


def _run(task: Task) -> dict:
    problem = next(p for p in _problems(task.suite, task.seed) if p.name == task.name)
    try:
        return solve(problem, task.who, task.noise, task.seconds, task.seed)
    except Exception as error:  # a program that fails has not found the formula; the others go on
        none = dict.fromkeys(("exact", "structure", "symbolic", "claimed"), False)
        row = {"suite": problem.suite, "seconds": task.seconds, "formula": repr(error), "truth": str(problem.truth)}
        return asdict(task) | row | none


def solve(problem: Problem, who: str, noise: float, seconds: float, seed: int) -> dict:
    """One problem by one program: a row of results."""
    y = problem.noisy(noise, seed)
    if who == "numerate":  # imported late, so that peers can run where numerate is not installed
        from numerate.discover import search
    extra, start = {"claimed": False}, time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if who == "numerate":
            names = [f"x{i}" for i in range(problem.X.shape[1])]
            found = search(problem.X, y, names=names, seconds=seconds, seed=seed)
            formulas, tolerance = [found.best.expression], 1e-9
            extra = {"claimed": found.exact, "noise_found": found.noise / float(np.sqrt(np.mean(y**2)))}
        else:
            formulas, tolerance = PEERS[who](problem.X, y, seconds, seed + 1), PEER_TOLERANCE
        used = time.process_time() - start
        verdicts = [judge(f, problem, tolerance) for f in formulas]
        if who == "numerate" and noise and verdicts[0].structure:
            extra["scores"] = standard_scores(found.best, problem)
    best = max(range(len(verdicts)), key=lambda i: (verdicts[i].exact, verdicts[i].structure))
    return {
        "who": who, "suite": problem.suite, "name": problem.name, "noise": noise, "seed": seed, "seconds": used,
        "exact": verdicts[best].exact, "structure": verdicts[best].structure, "symbolic": verdicts[best].symbolic,
        "formula": str(formulas[best])[:1000], "truth": str(problem.truth), **extra,
    }  # fmt: skip


def _show(row: dict) -> None:
    mark = "exact" if row["exact"] else "form " if row["structure"] else "  -  "
    false = "  CALLED EXACT" if row["claimed"] and not row["exact"] else ""
    line = f"{mark} {row['who']:9s} {row['name']:18s} {row['seconds']:6.2f} s  {row['formula'][:120]}"
    print(line + ("" if row["exact"] else f"   TRUE {row['truth']}") + false, flush=True)


def _share(hits: list[bool]) -> str:
    return f"{sum(hits)} ({100 * np.mean(hits):.1f} %)"


def table(rows: list[dict]) -> str:
    """Markdown: one line for each suite, noise and program."""
    by = defaultdict(list)
    for row in rows:
        by[row["suite"], row["noise"], row["who"]].append(row)
    order = {suite: i for i, suite in enumerate(dict.fromkeys(row["suite"] for row in rows))}
    lines = [
        "| suite | noise | program | exact | sympy | form | of | called exact and wrong | median s | seeds |",
        "|---" * 10 + "|",
    ]
    for (suite, noise, who), got in sorted(by.items(), key=lambda item: (order[item[0][0]], *item[0][1:])):
        wrong = sum(r["claimed"] and not r["exact"] for r in got)
        seeds = len({r["seed"] for r in got})
        cells = [
            suite,
            f"{100 * noise:g} %",
            who,
            *[_share([r[key] for r in got]) for key in ("exact", "symbolic", "structure")],
            len(got),
        ]
        lines.append(
            "| " + " | ".join(map(str, [*cells, wrong, f"{median(r['seconds'] for r in got):.2f}", seeds])) + " |"
        )
    return "\n".join([*lines, *_error_bars(rows)])


def _error_bars(rows: list[dict]) -> list[str]:
    """How often the standard errors of free constants hold, where noise was added and the form is right."""
    scores = np.abs([z for row in rows for z in row.get("scores", [])])
    if not len(scores):
        return []
    within = [f"{100 * np.mean(scores < z):.0f} % within {z}" for z in (1, 2)]
    rms = np.sqrt(np.mean(np.minimum(scores, 10) ** 2))
    return [f"\n{len(scores)} free constants: {', '.join(within)} standard errors (normal: 68, 95), rms {rms:.2f}"]


if __name__ == "__main__":
    main()
