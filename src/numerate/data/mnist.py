"""MNIST: handwritten digits, 28 × 28 (LeCun, Cortes & Burges, 1998)."""

from pathlib import Path

import numpy as np

from numerate.data.files import DataFile, DataSet, read
from numerate.data.images import Images, labels, tensor

_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # the mirror of the PyTorch project; the first one is closed
_SUMS = {
    "train-images-idx3-ubyte": (47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "train-labels-idx1-ubyte": (60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "t10k-images-idx3-ubyte": (7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "t10k-labels-idx1-ubyte": (10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}
MNIST = DataSet(
    "mnist",
    "MNIST",
    tuple(DataFile(name, size, digest, f"{_URL}{name}.gz") for name, (size, digest) in _SUMS.items()),
    "CC BY-SA 3.0 by custom; copyright Y. LeCun and C. Cortes",
)


def load(data: str | Path | None = None) -> Images:
    """60,000 and 10,000 images (N, 28, 28), in the published order."""
    images, digits, test, test_digits = (_idx(read(MNIST, file.name, data)) for file in MNIST.files)
    return Images(tensor(images), labels(digits), tensor(test), labels(test_digits))


def _idx(content: bytes) -> np.ndarray:
    """The array of an IDX file of bytes."""
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
