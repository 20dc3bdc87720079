"""Changing a Parquet file byte by byte: its footer as a tree of Thrift's compact protocol, read, changed and written.

It shares nothing with what is tested, and keeps every field with its type.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12

Struct = dict[int, tuple[int, Any]]
"""Fields by number: type and value. A list is (type of its elements, elements)."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            part = self.data[self.at]
            self.at += 1
            value |= (part & 127) << shift
            shift += 7
            if part < 128:
                return value

    def zigzag(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def struct(self) -> Struct:
        fields: Struct = {}
        field = 0
        while True:
            head = self.data[self.at]
            self.at += 1
            if not head:
                return fields
            field = field + (head >> 4) if head >> 4 else self.zigzag()
            fields[field] = (head & 15, self.value(head & 15))

    def value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return None
        if kind == BYTE:
            self.at += 1
            return self.data[self.at - 1]
        if kind in (I16, I32, I64):
            return self.zigzag()
        if kind in (DOUBLE, BINARY):
            length = 8 if kind == DOUBLE else self.varint()
            self.at += length
            return self.data[self.at - length : self.at]
        if kind == STRUCT:
            return self.struct()
        head = self.data[self.at]
        self.at += 1
        count = self.varint() if head >> 4 == 15 else head >> 4
        if head & 15 in (TRUE, FALSE):
            self.at += count
            return head & 15, list(self.data[self.at - count : self.at])
        return head & 15, [self.value(head & 15) for _ in range(count)]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _encode_struct(struct: Struct) -> bytes:
    out, last = b"", 0
    for field, (kind, value) in sorted(struct.items()):
        step = field - last
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _varint(field << 1)
        out, last = out + _value(kind, value), field
    return out + b"\0"


def _value(kind: int, value: Any) -> bytes:
    if kind in (TRUE, FALSE):
        return b""
    if kind == BYTE:
        return bytes([value])
    if kind in (I16, I32, I64):
        return _varint(value << 1 if value >= 0 else (-value << 1) - 1)
    if kind == DOUBLE:
        return bytes(value)
    if kind == BINARY:
        return _varint(len(value)) + value
    if kind == STRUCT:
        return _encode_struct(value)
    element_type, values = value
    head = (
        bytes([len(values) << 4 | element_type])
        if len(values) < 15
        else bytes([240 | element_type]) + _varint(len(values))
    )
    return head + (
        bytes(values)
        if element_type in (TRUE, FALSE)
        else b"".join(_value(element_type, element) for element in values)
    )


def parts(path: Path) -> tuple[bytes, bytes]:
    """The bytes before the footer, and the footer."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - length], data[-8 - length : -8]


def put(path: Path, body: bytes, footer: bytes) -> None:
    """Write a file of these."""
    path.write_bytes(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def footer_changed(path: Path, change: Callable[[Struct], object]) -> None:
    """Change the footer as a tree."""
    body, footer = parts(path)
    tree = _Reader(footer).struct()
    assert _encode_struct(tree) == footer  # the codec changes nothing by itself
    change(tree)
    put(path, body, _encode_struct(tree))


def column(footer: Struct, place: int, group: int = 0) -> Struct:
    """The metadata of a column of a row group."""
    chunk: Struct = footer[4][1][1][group][1][1][1][place]
    metadata: Struct = chunk[3][1]
    return metadata
