"""What torch remembers of every traced graph, kept within a bound.

A traced step leaves about half a megabyte behind: entries of the cache of fake tensors, and the text of its graphs,
which tracebacks show. Tried with torch 2.11 to 2.13; where a later torch has other names, nothing is trimmed.
"""

import linecache
from contextlib import suppress

FAKE_TENSORS = 5000
"""Entries in torch's cache of fake tensors; tracing one step makes about 70."""
TEXTS = 200
"""Texts of graphs."""


def trim() -> None:
    """Forget the oldest texts and, above its bound, the cache of fake tensors; neither changes a result."""
    with suppress(ImportError, AttributeError):
        _trim_fake_tensors()
    with suppress(ImportError, AttributeError):
        _trim_texts()


def _trim_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    if len(FakeTensorMode.cache) > FAKE_TENSORS:
        FakeTensorMode.cache_clear()


def _trim_texts() -> None:
    from torch.fx.graph_module import _loader

    texts = _loader.eval_cache
    for key in list(texts)[: max(0, len(texts) - TEXTS)]:
        texts.pop(key, None)
        linecache.cache.pop(key, None)
