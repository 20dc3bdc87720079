"""The text of CSV files: their encodings, and copies that the engine reads where it cannot read the files themselves.

A copy is in UTF-8, without the lines below the data. It is written as a stream into a private directory.
"""

from __future__ import annotations

import codecs
import io
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

from sqlanon.errors import SourceError
from sqlanon.policy.databases import shown_name
from sqlanon.policy.sections import CsvSection
from sqlanon.records import dataclass
from sqlanon.sources import csv_lines
from sqlanon.workdir import spill_directory

UTF_8 = "utf-8"


@dataclass(frozen=True)
class ReadFile:
    """A CSV file that was read: the arguments of the engine's reader, and its number of columns."""

    path: str
    options: Mapping[str, str | bool | int]
    fields: int


_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}  # the first two begin like the others
_PACKED = (".gz", ".zst")


def encoding_of(path: str, csv: CsvSection) -> str:
    """The encoding that the policy names, or that of the byte order mark; else UTF-8."""
    if csv.encoding is not None:
        name = codecs.lookup(csv.encoding).name
        return UTF_8 if name in ("utf-8", "utf-8-sig", "ascii") else name
    if csv_lines.can_open(path):
        with csv_lines.open_bytes(path) as file:
            start = file.read(4)
        return next((name for mark, name in _BYTE_ORDER_MARKS.items() if start.startswith(mark)), UTF_8)
    return UTF_8


@contextmanager
def readable_files(paths: Sequence[str], csv: CsvSection, lines: int | None = None) -> Iterator[list[str]]:
    """The paths of files that the engine reads, in the same order; of copies only so many lines."""
    with ExitStack() as stack:
        stack.enter_context(_refuse_damaged_files())
        encodings = {path: encoding_of(path, csv) for path in paths}
        folder: Path | None = None
        readable: list[str] = []
        for i, path in enumerate(paths):
            if encodings[path] == UTF_8 and not csv.footer:
                readable.append(path)
                continue
            if not csv_lines.can_open(path):
                raise SourceError(
                    f"source.csv: {shown_name(path)}: only a file on this machine, plain or as .gz, is read with an "
                    "encoding or a footer; download or unpack it first"
                )
            folder = folder or stack.enter_context(spill_directory())
            copy = copy_path(folder, i, path)
            with copy.open("w", encoding=UTF_8, newline="") as file:
                file.writelines(islice(_without_footer(_decoded_lines(path, encodings[path]), csv.footer), lines))
            readable.append(str(copy))
        yield readable


def copy_path(folder: Path, number: int, path: str) -> Path:
    """Where a file is copied to: a file of the same name, in a folder of its own."""
    name = shown_name(path)
    (folder / str(number)).mkdir()
    return folder / str(number) / (name.rpartition(".")[0] if name.lower().endswith(_PACKED) else name)


@contextmanager
def _refuse_damaged_files() -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error) as error:
        raise SourceError("source.files: a .gz file is damaged, or it was not written to its end") from error


def _decoded_lines(path: str, encoding: str) -> Iterator[str]:
    try:
        codec = "utf-8-sig" if encoding == UTF_8 else encoding
        with io.TextIOWrapper(csv_lines.open_bytes(path), encoding=codec, newline="") as file:
            yield from file
    except UnicodeError:
        raise SourceError(f"source.files: {shown_name(path)}: {describe_bad_byte(path, encoding)}") from None


def _without_footer(lines: Iterable[str], footer: int) -> Iterator[str]:
    """All lines but the last ones; blank lines at the end do not count."""
    held: deque[str] = deque()
    text_lines = 0
    for line in lines:
        held.append(line)
        text_lines += bool(line.strip())
        while text_lines > footer or (not footer and held):
            text_lines -= bool(held[0].strip())
            yield held.popleft()
    while text_lines and not held[0].strip():  # a row of a file with one column
        yield held.popleft()


def describe_bad_byte(path: str, encoding: str = UTF_8) -> str | None:
    """The first byte of a file that is not of an encoding, and what to do; None where there is none."""
    line, decoder = 1, codecs.getincrementaldecoder(encoding)()
    with csv_lines.open_bytes(path) as file:
        while True:
            chunk = file.read(1 << 20)
            try:
                line += decoder.decode(chunk, final=not chunk).count("\n")
            except UnicodeDecodeError as error:
                line += error.object[: error.start].decode(encoding, "ignore").count("\n")
                return _bad_byte(line, error.object[error.start], encoding)
            except UnicodeError:  # UTF-16 without a byte order mark, in the words of some decoders
                return _bad_byte(line, None, encoding)
            if not chunk:
                return None


def _bad_byte(line: int, byte: int | None, encoding: str) -> str:
    where = f"line {line:,} has bytes" if byte is None else f"line {line:,} has the byte 0x{byte:02X}"
    if encoding != UTF_8:
        return (
            f"{where}, which {'are' if byte is None else 'is'} no {encoding}; give another encoding under [source.csv]"
        )
    return (
        f"{where}, which is no UTF-8; name the encoding of the file under [source.csv], such as "
        'encoding = "windows-1252" (others: latin-1, utf-16, shift-jis, gb18030)'
    )
