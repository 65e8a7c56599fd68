"""Scale-out: pieces of work on the GPUs of one machine, on Ray or on Slurm; only the driver writes the results file.

Reading order: ``plain`` (a configuration as data), ``messages`` (order and reply), ``worker``; ``engine`` (what runs
orders: two methods), ``local_engine``, ``ray_engine``, ``slurm_engine``; ``pieces`` (which runs go together, and what
becomes of lost ones), ``driver``, ``places`` (what ``--on`` and ``--device`` name).
"""

from numerate.cluster.driver import How, Refused, train_on
from numerate.cluster.engine import Engine, Finished, NoEngine
from numerate.cluster.local_engine import LocalEngine
from numerate.cluster.places import open_engine

__all__ = ["Engine", "Finished", "How", "LocalEngine", "NoEngine", "Refused", "open_engine", "train_on"]
