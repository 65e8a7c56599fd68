"""WikiText-2: articles of Wikipedia, tokenised, rare words as ``<unk>`` (Merity et al., 2016)."""

from pathlib import Path

from numerate.data.files import DataFile, DataSet, read
from numerate.data.text import Text, encode, words

_URL = "https://wikitext.smerity.com/wikitext-2-v1.zip"
_SUMS = {
    "wiki.train.tokens": (10797148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
    "wiki.valid.tokens": (1121681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
    "wiki.test.tokens": (1256449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
}
WIKITEXT2 = DataSet(
    "wikitext-2",
    "WikiText-2",
    tuple(DataFile(name, size, digest, _URL, f"wikitext-2/{name}") for name, (size, digest) in _SUMS.items()),
    "CC BY-SA 3.0 and GFDL, as Wikipedia's text",
)


def load(data: str | Path | None = None) -> Text:
    """2,088,628 / 217,646 / 245,569 words with ``<eos>`` after each line; 33,278 different ones."""
    parts = [words(read(WIKITEXT2, file.name, data)) for file in WIKITEXT2.files]
    return encode(parts, dict.fromkeys(word for part in parts for word in part))
