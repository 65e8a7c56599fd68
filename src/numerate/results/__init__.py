"""The rows on disk: one row per finished run, in an SQLite file; torch is not needed, numpy alone is.

Reading order: ``row`` (what a run is), ``provenance``; ``arrays`` and ``encoding`` (values as bytes and text),
``record`` (a run as a file holds it), ``schema``; ``opening``, ``file`` (the open file), ``health``, ``folders``
and ``errors``; ``runs``, ``checkpoint`` and ``failures`` (what is done with it); ``store`` (all of it under one name);
``frames``, ``parcel`` (rows as bytes), ``exporting``, ``shards``, ``recovery``.
"""

from numerate.results.arrays import pack, unpack
from numerate.results.checkpoint import Checkpoint
from numerate.results.encoding import canonical, config_hash
from numerate.results.errors import StoreError
from numerate.results.frames import records
from numerate.results.parcel import pack_rows, unpack_rows
from numerate.results.provenance import Provenance
from numerate.results.recovery import Rescued, rescue
from numerate.results.row import Key, Row
from numerate.results.runs import Added
from numerate.results.store import Store

Circumstances = Provenance
"""The former name of :class:`Provenance`."""

__all__ = [
    "Added",
    "Checkpoint",
    "Circumstances",
    "Key",
    "Provenance",
    "Rescued",
    "Row",
    "Store",
    "StoreError",
    "canonical",
    "config_hash",
    "pack",
    "pack_rows",
    "records",
    "rescue",
    "unpack",
    "unpack_rows",
]
