"""The rows on disk: one row per finished run, in an SQLite file; torch is not needed, numpy alone is."""

from numerate.results.arrays import pack, unpack
from numerate.results.checkpoint import Checkpoint
from numerate.results.frames import records
from numerate.results.row import Circumstances, Key, Row, canonical, config_hash
from numerate.results.store import Added, Store, StoreError

__all__ = [
    "Added",
    "Checkpoint",
    "Circumstances",
    "Key",
    "Row",
    "Store",
    "StoreError",
    "canonical",
    "config_hash",
    "pack",
    "records",
    "unpack",
]
