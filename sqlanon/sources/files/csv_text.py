"""Encodings of CSV files, and decoded copies for files that the engine cannot read itself.

A copy is in UTF-8, without the footer. It is written as a stream to a private directory.
"""

from __future__ import annotations

import codecs
import io
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

from sqlanon.errors import SourceError
from sqlanon.places.databases import file_name
from sqlanon.policy.sections import CsvSection
from sqlanon.sources.files import csv_lines
from sqlanon.support.encodings import UTF_8, is_mostly_utf_8, probable_encodings
from sqlanon.support.workdir import spill_directory

_CHUNK = 1 << 20


_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}  # UTF-32 first: its marks begin like those of UTF-16
_COMPRESSED = (".gz", ".zst")


def detect_encoding(path: str, csv: CsvSection) -> str:
    """The encoding given in the policy, else that of the byte order mark, else UTF-8."""
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
    """Yield paths that the engine can read, in the same order; copies have at most ``lines`` lines."""
    try:
        with ExitStack() as stack:
            folder: Path | None = None
            readable: list[str] = []
            for i, path in enumerate(paths):
                encoding = detect_encoding(path, csv)
                if encoding == UTF_8 and not csv.footer:
                    readable.append(path)
                    continue
                if not csv_lines.can_open(path):
                    raise SourceError(
                        f"source.csv: {file_name(path)}: encoding and footer apply to files on this machine, plain or "
                        "as .gz; download or unpack it first"
                    )
                folder = folder or stack.enter_context(spill_directory())
                copy = copy_path(folder, i, path)
                with copy.open("w", encoding=UTF_8, newline="") as file:
                    file.writelines(islice(_without_footer(_decoded_lines(path, encoding), csv.footer), lines))
                readable.append(str(copy))
            yield readable
    except (EOFError, zlib.error) as error:
        raise SourceError("source.files: a .gz file is damaged or incomplete") from error


def copy_path(folder: Path, number: int, path: str) -> Path:
    """The path of a copy with the same name, in a folder that is created for it."""
    name = file_name(path)
    (folder / str(number)).mkdir()
    return folder / str(number) / (name.rpartition(".")[0] if name.lower().endswith(_COMPRESSED) else name)


def _decoded_lines(path: str, encoding: str) -> Iterator[str]:
    try:
        codec = "utf-8-sig" if encoding == UTF_8 else encoding
        with io.TextIOWrapper(csv_lines.open_bytes(path), encoding=codec, newline="") as file:
            yield from file
    except UnicodeError:
        raise SourceError(f"source.files: {file_name(path)}: {describe_bad_byte(path, encoding)}") from None


def _without_footer(lines: Iterable[str], footer: int) -> Iterator[str]:
    """Yield all lines but the last ``footer`` ones; blank lines at the end do not count."""
    held: deque[str] = deque()
    text_lines = 0
    for line in lines:
        held.append(line)
        text_lines += bool(line.strip())
        while text_lines > footer or (not footer and held):
            text_lines -= bool(held[0].strip())
            yield held.popleft()
    while text_lines and not held[0].strip():  # in a file with one column, a blank line is a row
        yield held.popleft()


def describe_bad_byte(path: str, encoding: str = UTF_8) -> str | None:
    """Describe the first byte of a file that is invalid in an encoding; None without one."""
    line, above, decoder = 1, "", codecs.getincrementaldecoder(encoding)()
    with csv_lines.open_bytes(path) as file:
        while True:
            chunk = file.read(_CHUNK)
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                if encoding == UTF_8 and csv_lines.may_be_utf_16(path):
                    return csv_lines.describe_null_byte(path)
                line += csv_lines.count_line_ends(error.object[: error.start].decode(encoding, "ignore"), above)
                return _describe_byte(line, error, encoding, file.read(_CHUNK))
            except UnicodeError:  # how some decoders report UTF-16 without a byte order mark
                return (
                    f"line {line:,} has bytes that are not valid {encoding}; give another encoding under [source.csv]"
                )
            if not chunk:
                return None
            line += csv_lines.count_line_ends(text, above)
            above = text


def _describe_byte(line: int, error: UnicodeDecodeError, encoding: str, below: bytes) -> str:
    where = f"line {line:,} has the byte 0x{error.object[error.start]:02X}"
    if encoding != UTF_8:
        return f"{where}, which is not valid {encoding}; give another encoding under [source.csv]"
    if is_mostly_utf_8(error.object + below):
        return f"{where}, which is not valid UTF-8, unlike the other letters: correct the line"
    sample = error.object[error.object.rfind(b"\n", 0, error.start) + 1 :] + below
    if len(below) == _CHUNK:  # its last line may be cut
        sample = sample[: 1 + max(sample.rfind(b"\n"), sample.rfind(b"\r"))] or sample
    likely, *alternatives = probable_encodings(sample)
    return (
        f"{where}, which is not valid UTF-8; set the encoding of the file under [source.csv]: probably encoding = "
        f'"{likely}" (or {", ".join(alternatives)})'
    )
