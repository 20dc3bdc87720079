"""The files in a project of ARX, which is a zip that somebody else may have made.

Nothing is unpacked under a name of the zip, no serialized object is read, and XML with a document type, which can
define entities, is refused. Files that expand to far more than the zip are refused before they are read.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from sqlanon.errors import SourceError

_LARGEST_XML = 16_000_000  # bytes
_LARGEST_HIERARCHY = 256_000_000
_HARMLESS = 100_000_000  # bytes that a zip of any size may expand to
_RATIO = 200  # to which multiple of its own size a zip may expand beyond that
_DEEPEST = 50  # elements within elements
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError)
"""Errors of zips that are broken, encrypted, or compressed in a way that Python does not know."""


@dataclass
class Element:
    """An element of XML: its name, its text and the elements in it."""

    name: str
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def value(self, name: str) -> str | None:
        """The text of the element of this name in it."""
        return next((child.text.strip() for child in self.children if child.name == name), None)

    def all(self, name: str) -> Iterator[Element]:
        """The elements of this name in it, at any depth."""
        for child in self.children:
            if child.name == name:
                yield child
            yield from child.all(name)


class Archive:
    """A zip that is open for reading; texts are in UTF-8, or else in ``encoding``."""

    def __init__(self, path: Path, file: zipfile.ZipFile, encoding: str | None) -> None:
        self.path, self._zip, self._encoding = path, file, encoding
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in file.infolist():
            if _leaves_folder(entry.filename):
                raise SourceError(f"{path.name}: the zip has a file with the path {entry.filename!r}: it is not read")
            if entry.filename in self._entries:
                raise SourceError(f"{path.name}: the zip has two files of the name {entry.filename!r}: it is not read")
            self._entries[entry.filename] = entry

    def has(self, name: str) -> bool:
        return name in self._entries

    def refuse_bomb(self, names: Sequence[str]) -> None:
        """Refuse files that expand to far more than the zip."""
        size = sum(self._entries[name].file_size for name in names if name in self._entries)
        if size > max(_HARMLESS, _RATIO * self.path.stat().st_size):
            raise SourceError(f"{self.path.name}: its files expand to {size:,} bytes, far more than the zip: not read")

    def content(self, name: str, largest: int = _LARGEST_HIERARCHY) -> bytes:
        entry = self._entry(name)
        if entry.file_size > largest:
            raise SourceError(f"{self.path.name}: {name} has {entry.file_size:,} bytes, and {largest:,} are the most")
        with self._reading(name):
            return self._zip.read(entry)

    def text(self, name: str) -> str:
        return self._decoded(name, self.content(name))

    def xml(self, name: str) -> Element:
        content = self.content(name, _LARGEST_XML)
        if not content.startswith(b"<?xml"):
            content = self._decoded(name, content).encode()  # ARX declares no encoding
        return _parsed(content, f"{self.path.name}: {name}")

    @contextmanager
    def stream(self, name: str) -> Iterator[io.TextIOWrapper]:
        """A file as text, to be read line by line."""
        entry = self._entry(name)
        encoding = "utf-8-sig" if self._is_utf8(entry) else self._other_encoding(name)
        try:
            with self._zip.open(entry) as binary:
                yield io.TextIOWrapper(binary, encoding=encoding, newline="")
        except _BROKEN as error:
            raise SourceError(f"{self.path.name}: {name} cannot be read: {error}") from None
        except UnicodeDecodeError:
            raise SourceError(f"{self.path.name}: {name} is not in {encoding}: give another --encoding") from None

    def _is_utf8(self, entry: zipfile.ZipInfo) -> bool:
        with self._reading(entry.filename), self._zip.open(entry) as binary:
            text = io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")
            try:
                while text.read(1 << 20):
                    pass
            except UnicodeDecodeError:
                return False
        return True

    def _entry(self, name: str) -> zipfile.ZipInfo:
        if name not in self._entries:
            raise SourceError(f"{self.path.name} has no {name}: it is no project of ARX, or it was saved without data")
        return self._entries[name]

    def _decoded(self, name: str, content: bytes) -> str:
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
        try:
            return content.decode(self._other_encoding(name))
        except UnicodeDecodeError:
            raise SourceError(f"{self.path.name}: {name} is not in {self._encoding}: give another --encoding") from None

    def _other_encoding(self, name: str) -> str:
        if self._encoding is None:
            raise SourceError(
                f"{self.path.name}: {name} is not in UTF-8: ARX writes texts in the encoding of its machine; give it, "
                "for example --encoding windows-1252"
            )
        return self._encoding

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except (*_BROKEN, OSError) as error:
            raise SourceError(f"{self.path.name}: {name} cannot be read: {error}") from None


@contextmanager
def open_archive(path: Path, encoding: str | None = None) -> Iterator[Archive]:
    """Open a project."""
    try:
        "".encode(encoding or "utf-8")
    except LookupError:
        raise SourceError(f"--encoding: {encoding!r} is no encoding that Python knows, such as windows-1252") from None
    try:
        file = zipfile.ZipFile(path)
    except FileNotFoundError:
        raise SourceError(f"{path}: there is no such file") from None
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise SourceError(f"{path.name} is no project of ARX, which is a zip: {error}") from None
    with file:
        yield Archive(path, file, encoding)


def _leaves_folder(name: str) -> bool:
    parts = re.split(r"[/\\]", name)
    return ".." in parts or parts[0] == "" or re.match(r"[A-Za-z]:", name) is not None


def _parsed(content: bytes, what: str) -> Element:
    """The root of a document without a document type."""
    parser = expat.ParserCreate()
    root = Element("")
    path = [root]

    def start(name: str, _: object) -> None:
        if len(path) > _DEEPEST:
            raise SourceError(f"{what}: elements lie more than {_DEEPEST} deep")
        path[-1].children.append(element := Element(name))
        path.append(element)

    def end(_: str) -> None:
        path.pop()

    def text(data: str) -> None:
        path[-1].text += data

    def refuse(*_: object) -> None:
        raise SourceError(f"{what} has a document type, and a project of ARX has none: it is not read")

    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise SourceError(f"{what} is no XML: {error}") from None
    return root.children[0]
