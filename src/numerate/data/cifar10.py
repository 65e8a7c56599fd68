"""CIFAR-10: photographs of ten kinds of things, 32 × 32 in colour (Krizhevsky, 2009)."""

import io
from pathlib import Path

import numpy as np

from numerate.data.files import DataFile, DataSet, path, read
from numerate.data.images import Images, labels, tensor

_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_SUMS = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
_TERMS = "none stated; the authors ask for the report of 2009 to be cited"
CIFAR10 = DataSet(
    "cifar10",
    "CIFAR-10",
    tuple(DataFile(n, 30_730_000, digest, _URL, f"cifar-10-batches-bin/{n}") for n, digest in _SUMS.items()),
    _TERMS,
)
SUBSET = DataSet(
    "cifar10",
    "the 10k/2k subset of CIFAR-10",
    (
        DataFile(
            "cifar10_train_first10000.npz",
            28_225_820,
            "c6b4f6def4a90f9925de4b5f646c8f43f8789c5791ae53cdc720499453f1181d",
        ),
        DataFile(
            "cifar10_test_first2000.npz", 5_653_698, "f647316ea50512e459ff34dd41d73ad38df6bdcb727a36d824c91194561a8f31"
        ),
    ),
    _TERMS,
)
"""The first images of each part, in two NumPy files; results on it do not compare with published ones."""


def is_subset(data: str | Path | None = None) -> bool:
    """Whether the data folder has the subset and not the whole."""
    found = [path(CIFAR10, file, data) is not None for file in CIFAR10.files]
    return not any(found) and all(path(SUBSET, file, data) is not None for file in SUBSET.files)


def load(data: str | Path | None = None) -> Images:
    """50,000 and 10,000 images (N, 3, 32, 32), or of the subset 10,000 and 2,000, in the published order."""
    if is_subset(data):
        parts = [np.load(io.BytesIO(read(SUBSET, file.name, data)), allow_pickle=False) for file in SUBSET.files]
        (images, kinds), (test, test_kinds) = ((part["images"], part["labels"]) for part in parts)
    else:
        batches = [_records(read(CIFAR10, file.name, data)) for file in CIFAR10.files]
        images, kinds = (np.concatenate([batch[i] for batch in batches[:-1]]) for i in (0, 1))
        test, test_kinds = batches[-1]
    return Images(tensor(images), labels(kinds), tensor(test), labels(test_kinds))


def _records(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a binary batch: a byte of label before 3 × 32 × 32 of colours."""
    table = np.frombuffer(content, np.uint8).reshape(-1, 3073)
    return table[:, 1:].reshape(-1, 3, 32, 32), table[:, 0]
