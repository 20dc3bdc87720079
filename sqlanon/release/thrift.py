"""Reading Thrift's compact protocol, in which Parquet has its metadata, field by field: nothing is passed over.

Libraries of Parquet skip fields that they do not know; a reader of the file sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Fields: TypeAlias = Mapping[int, Any]
"""The fields of a struct by their numbers: numbers, bytes, lists, and structs."""

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_LISTS = (9, 10)
_DEEPEST = 32


def read_struct(data: bytes, start: int = 0, depth: int = 0) -> tuple[Fields, int]:
    """The struct that begins at a place, and where it ends.

    Raises
    ------
    ValueError
        There is none.

    >>> read_struct(bytes([0x15, 0x02, 0x18, 0x02, 0x68, 0x69, 0x00]))
    ({1: 1, 2: b'hi'}, 7)
    """
    if depth > _DEEPEST:
        raise ValueError("structs stand in structs without end")
    found: dict[int, Any] = {}
    place, field = start, 0
    while (head := _byte(data, place)) != 0:
        place += 1
        kind, step = head & 15, head >> 4
        if step:
            field += step
        else:
            field, place = _signed(data, place)
        if field in found:
            raise ValueError(f"field {field} is there twice")
        if kind in (_TRUE, _FALSE):
            found[field] = kind == _TRUE
        else:
            found[field], place = _value(data, place, kind, depth)
    return found, place + 1


def _value(data: bytes, place: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in _INTEGERS:
        return _signed(data, place)
    if kind in (_TRUE, _FALSE, _BYTE):
        return _byte(data, place), place + 1
    if kind == _DOUBLE:
        return _bytes(data, place, 8)
    if kind == _BINARY:
        length, place = _unsigned(data, place)
        return _bytes(data, place, length)
    if kind == _STRUCT:
        return read_struct(data, place, depth + 1)
    if kind in _LISTS:
        head = _byte(data, place)
        count, place = (head >> 4, place + 1) if head >> 4 < 15 else _unsigned(data, place + 1)
        values = []
        for _ in range(count):
            value, place = _value(data, place, head & 15, depth + 1)
            values.append(value)
        return values, place
    raise ValueError(f"there is no type {kind}")


def _byte(data: bytes, place: int) -> int:
    if place >= len(data):
        raise ValueError("it ends in the middle")
    return data[place]


def _bytes(data: bytes, place: int, length: int) -> tuple[bytes, int]:
    if place + length > len(data):
        raise ValueError("it ends in the middle")
    return data[place : place + length], place + length


def _unsigned(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        part = _byte(data, place)
        place += 1
        value |= (part & 127) << shift
        shift += 7
        if part < 128:
            return value, place
        if shift > 63:
            raise ValueError("a number has no end")


def _signed(data: bytes, place: int) -> tuple[int, int]:
    value, place = _unsigned(data, place)
    return value >> 1 ^ -(value & 1), place
