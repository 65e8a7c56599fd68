"""The state of a partly trained group, as it is written and read: what was altered is never continued."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numerate.results.arrays import Array, pack, unpack
from numerate.results.row import canonical, decode_mapping, digest_of


@dataclass(frozen=True)
class Checkpoint:
    """The state of a partly trained group."""

    arrays: dict[str, Array]
    meta: dict[str, Any]


def packed(name: str, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> tuple[bytes, str]:
    """Arrays, and meta data with the digest of all."""
    if "digest" in meta:
        raise ValueError("the meta data of a checkpoint must not have a 'digest': that name is the store's own")
    block, own = pack(arrays), dict(meta)
    return block, canonical(own | {"digest": digest_of((name, block, canonical(own)))})


def unpacked(name: str, block: bytes, text: bytes) -> Checkpoint | None:
    """What :func:`packed` was given; None if it is not as it was written, or has no digest."""
    try:
        meta = decode_mapping(text)
        if meta.pop("digest", None) == digest_of((name, block, canonical(meta))):
            return Checkpoint(unpack(block), meta)
    except (ValueError, TypeError):
        pass  # no JSON, or a name or number in it that we never write
    return None
