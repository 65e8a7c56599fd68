"""The formula search on known problems: how many exactly, how fast, and beside other programs.

python -m benchmarks.formula                                   every suite, noise-free, one seed
python -m benchmarks.formula feynman --noise 0.01 --seeds 3    one suite with noise
python -m benchmarks.formula feynman --who numerate pyoperon   peers in the same run
"""

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.formula_judge import judge
from benchmarks.formula_peers import PEERS
from benchmarks.formula_problems import SUITES, Problem

PEER_TOLERANCE = 1e-6  # their constants are printed with fewer digits


def main() -> None:
    options = _options()
    rows = []
    out = options.out.open("a") if options.out else None
    for row in _rows(options):
        rows.append(row)
        if out:
            print(json.dumps(row), file=out, flush=True)
        if not options.quiet:
            _show(row)
    print(table(rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", default=list(SUITES), choices=[*SUITES, []])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0], help="times the root mean square of y")
    parser.add_argument("--seconds", type=float, default=10.0, help="of CPU time for each problem")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="only each so-manyth problem")
    parser.add_argument("--offset", type=int, default=0, help="where to start with --every")
    parser.add_argument("--only", nargs="+", help="names of problems")
    parser.add_argument("--who", nargs="+", default=["numerate"], choices=["numerate", *PEERS])
    parser.add_argument("--out", type=Path, help="append one JSON line for each problem")
    parser.add_argument("--quiet", action="store_true", help="the table alone")
    return parser.parse_args()


def _rows(options: argparse.Namespace) -> Iterator[dict]:
    for suite in options.suites:
        for seed in range(options.seeds):
            for number, problem in enumerate(SUITES[suite](seed)):
                if number % options.every != options.offset or (options.only and problem.name not in options.only):
                    continue
                for noise in options.noise:
                    for who in options.who:
                        yield solve(problem, who, noise, options.seconds, seed)


def solve(problem: Problem, who: str, noise: float, seconds: float, seed: int) -> dict:
    """One problem by one program: a row of results."""
    y = problem.noisy(noise, seed)
    if who == "numerate":  # imported late, so that peers can run where numerate is not installed
        from numerate.discover import search
    claimed, start = False, time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if who == "numerate":
            names = [f"x{i}" for i in range(problem.X.shape[1])]
            found = search(problem.X, y, names=names, seconds=seconds, seed=seed)
            formulas, claimed, tolerance = [found.best.expression], found.exact, 1e-9
        else:
            formulas, tolerance = PEERS[who](problem.X, y, seconds, seed + 1), PEER_TOLERANCE
        used = time.process_time() - start
        verdicts = [judge(f, problem, tolerance) for f in formulas]
    best = max(range(len(verdicts)), key=lambda i: (verdicts[i].exact, verdicts[i].structure))
    return {
        "who": who, "suite": problem.suite, "name": problem.name, "noise": noise, "seed": seed, "seconds": used,
        "exact": verdicts[best].exact, "structure": verdicts[best].structure, "symbolic": verdicts[best].symbolic,
        "claimed": claimed, "formula": str(formulas[best])[:1000], "truth": str(problem.truth),
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
    lines = [
        "| suite | noise | program | exact | sympy | form | of | called exact and wrong | median s | seeds |",
        "|---" * 10 + "|",
    ]
    for (suite, noise, who), got in by.items():
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
    return "\n".join(lines)


if __name__ == "__main__":
    main()
