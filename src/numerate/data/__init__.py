"""Data sets: where they lie, what their files are, and loaders that check every file before they read it."""

from numerate.data import cifar10, mnist, ptb, wikitext2
from numerate.data.files import DataError, DataFile, DataSet, folder, read, status

SETS: dict[str, DataSet] = {s.name: s for s in (mnist.MNIST, cifar10.CIFAR10, ptb.PTB, wikitext2.WIKITEXT2)}
"""The data sets by name."""

__all__ = [
    "SETS",
    "DataError",
    "DataFile",
    "DataSet",
    "cifar10",
    "folder",
    "mnist",
    "ptb",
    "read",
    "status",
    "wikitext2",
]
