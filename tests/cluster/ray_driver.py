"""A driver in a process of its own: ``python ray_driver.py ADDRESS STORE SEEDS STEPS [DEADLY]``."""

import logging
import sys

from numerate.cluster import How, train_on
from numerate.cluster.ray_engine import RayEngine
from numerate.results import Store, StoreError
from numerate.tasks import SingleModule
from numerate.train import Training
from numerate.units import NAU, NMU


def trainings(seeds: int, steps: int, deadly: bool = False) -> list[Training]:
    settings = {"steps": steps, "evaluate_every": steps // 4, "evaluation_size": 100, "seeds": tuple(range(seeds))}
    work = [
        Training(NMU, SingleModule("mul"), labels={"unit": "NMU"}, **settings),
        Training(NMU, SingleModule("mul", (2.0, 3.0)), labels={"unit": "NMU, far"}, **settings),
        Training(NAU, SingleModule("add"), labels={"unit": "NAU"}, **settings),
    ]
    if deadly:
        from deadly_units import Deadly

        settings |= {"seeds": tuple(range(min(seeds, 16)))}
        work.append(Training(Deadly, SingleModule("mul"), labels={"unit": "Deadly"}, **settings))
    return work


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    address, path, seeds, steps, *rest = sys.argv[1:]
    from numerate.cluster import pieces

    pieces.GROWTH = 1  # pieces stay small, so that there are many
    engine = RayEngine(address)
    engine.seconds = 1.0
    try:
        with Store(path) as store:
            work = trainings(int(seeds), int(steps), bool(rest))
            failed = train_on(
                engine,
                work,
                store,
                experiment="x",
                how=How(),
                progress=lambda now: print(f"{now.finished} of {now.total}, {now.busy} busy", flush=True),
            )
        print(f"done, {len(failed)} failed", flush=True)
    except (ValueError, StoreError) as error:
        sys.exit(f"numerate: {error}")
    finally:
        engine.close()


if __name__ == "__main__":
    main()
