"""``python tests/torture [ATTACK ...] [--size full] [--seed N]``: run attacks, print their counts."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from torture_frame import Setting, attacks


def main() -> int:
    known = attacks()
    parser = argparse.ArgumentParser(prog="python tests/torture", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"by default all: {', '.join(known)}")
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other attempts")
    asked = parser.parse_args()
    if unknown := [name for name in asked.attacks if name not in known]:
        parser.error(f"there is no attack {unknown[0]!r}; there are {', '.join(known)}")
    failed = 0
    for name in asked.attacks or known:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            setting = Setting(Path(folder), random.Random(f"{asked.seed} {name}"), asked.size)
            result = known[name](setting)
        print(f"{name}: {result} ({time.monotonic() - started:.0f} s)", flush=True)
        for failure in result.failures:
            print(f"  {failure}", flush=True)
        failed += len(result.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
