"""Whether a DuckDB file has no bytes beside its blocks: what the engine does not read, a reader of the file does.

The layout is that of DuckDB's storage: three headers of 4,096 bytes (the file's, and two of which the one with the
greater iteration counts), then the blocks. All headers are little-endian and begin with a checksum of 8 bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

_HEADER = 4096
_WRITER = re.compile(rb"v\d+\.\d+\.\d+(-[a-z0-9.]+)?\0*[0-9a-f]*\0*")
_NO_BLOCK = 2**64 - 1
_MAGIC, _FLAGS, _VERSION, _REST = 8, 20, 52, 116
"""Where the parts of the first header begin: magic bytes and version, flags, the writer's version and commit, zeros."""


def strange_blocks(path: Path) -> Iterator[str]:
    """What is in a DuckDB file, or beside it, and in none of its blocks; in words."""
    if path.with_name(f"{path.name}.wal").exists():
        yield f"{path.name}.wal stands beside it, with changes that are not in the file"
    with path.open("rb") as file:
        first, *headers = (file.read(_HEADER) for _ in range(3))
    if any(first[_REST:]) or not _WRITER.fullmatch(first[_VERSION:_REST]):
        yield "the header of the file has more than the version of its writer"
    read = [struct.unpack_from("<7Q", header, 8) for header in headers]
    _, _, _, blocks, size, *_ = max(read)
    if not all(_is_blank(header, first) for header in headers) or not all(_is_plain(one, blocks, size) for one in read):
        yield "a header of the blocks has more than their numbers"
    if path.stat().st_size != 3 * _HEADER + blocks * size:
        yield f"it has {path.stat().st_size:,} bytes, and its blocks {3 * _HEADER + blocks * size:,}"


def _is_blank(header: bytes, first: bytes) -> bool:
    """Whether there is nothing behind the numbers of a header, or what the writer's buffer had: the first header."""
    return all(own in (0, before) for own, before in zip(header[64:], first[64:], strict=True))


def _is_plain(header: tuple[int, ...], blocks: int, size: int) -> bool:
    """Whether the numbers of a header, that of the state before, too, are small or those of the one that counts."""
    iteration, meta, free, count, own_size, vector, version = header
    pointers = all(one == _NO_BLOCK or (one >> 56 < 64 and one & (2**56 - 1) <= blocks + 1024) for one in (meta, free))
    return pointers and iteration < 2**32 and count <= blocks + 1024 and own_size == size and vector <= 2**16 > version
