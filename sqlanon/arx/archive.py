"""The files in a project of ARX, which is an untrusted zip.

Nothing is unpacked under a name of the zip, serialized objects are not read, and XML with a document type, which can
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

_MAX_XML_BYTES = 16_000_000  # bytes
_MAX_HIERARCHY_BYTES = 256_000_000
_HARMLESS = 100_000_000  # bytes that a zip of any size may expand to
_RATIO = 200  # a larger zip may expand to this multiple of its size
_DEEPEST = 50  # nested elements
_UNREADABLE: tuple[type[Exception], ...] = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError)
"""Errors of zips that are broken, encrypted, or compressed in a way that Python does not support."""


@dataclass
class Element:
    """An XML element: its name, its text and its child elements."""

    name: str
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def value(self, name: str) -> str | None:
        return next((child.text.strip() for child in self.children if child.name == name), None)

    def find_all(self, name: str) -> Iterator[Element]:
        for child in self.children:
            if child.name == name:
                yield child
            yield from child.find_all(name)


class Archive:
    """An open zip; texts are in UTF-8, or else in ``encoding``."""

    def __init__(self, path: Path, file: zipfile.ZipFile, encoding: str | None) -> None:
        self.path, self._zip, self._encoding = path, file, encoding
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in file.infolist():
            parts = re.split(r"[/\\]", entry.filename)
            if ".." in parts or parts[0] == "" or re.match(r"[A-Za-z]:", entry.filename):
                raise self.error(f"the path {entry.filename!r} leads out of the zip; save the project again with ARX")
            if entry.filename in self._entries:
                raise self.error(f"the zip has two files named {entry.filename!r}; save the project again with ARX")
            self._entries[entry.filename] = entry

    def error(self, message: str) -> SourceError:
        return SourceError(f"{self.path.name}: {message}")

    def has(self, name: str) -> bool:
        return name in self._entries

    def refuse_bomb(self, names: Sequence[str]) -> None:
        """Refuse files that expand to far more than the zip."""
        size = sum(self._entries[name].file_size for name in names if name in self._entries)
        if size > max(_HARMLESS, _RATIO * self.path.stat().st_size):
            raise self.error(f"its files expand to {size:,} bytes, far more than the zip; it is not read")

    def text(self, name: str) -> str:
        return self._decode(name, self._read(name, _MAX_HIERARCHY_BYTES))

    def xml(self, name: str) -> Element:
        content = self._read(name, _MAX_XML_BYTES)
        if not content.startswith(b"<?xml"):
            content = self._decode(name, content).encode()  # ARX declares no encoding
        return self._parse(name, content)

    @contextmanager
    def stream(self, name: str) -> Iterator[io.TextIOWrapper]:
        """A file as text, to be read line by line."""
        entry = self._entry(name)
        with self._refuse_unreadable(name, OSError):
            encoding = "utf-8-sig" if self._is_utf8(entry) else self._fallback_encoding(name)
        with self._refuse_unreadable(name):
            try:
                with self._zip.open(entry) as binary:
                    yield io.TextIOWrapper(binary, encoding=encoding, newline="")
            except UnicodeDecodeError:
                raise self.error(f"{name} is not in {encoding}; give another --encoding") from None

    def _read(self, name: str, largest: int) -> bytes:
        entry = self._entry(name)
        if entry.file_size > largest:
            raise self.error(f"{name} has {entry.file_size:,} bytes, but at most {largest:,} are allowed")
        with self._refuse_unreadable(name, OSError):
            return self._zip.read(entry)

    def _entry(self, name: str) -> zipfile.ZipInfo:
        if name not in self._entries:
            raise SourceError(f"{self.path.name} has no {name}: it is not an ARX project, or it was saved without data")
        return self._entries[name]

    def _is_utf8(self, entry: zipfile.ZipInfo) -> bool:
        with self._zip.open(entry) as binary:
            text = io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")
            try:
                while text.read(1 << 20):
                    pass
            except UnicodeDecodeError:
                return False
        return True

    def _decode(self, name: str, content: bytes) -> str:
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            encoding = self._fallback_encoding(name)
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            raise self.error(f"{name} is not in {encoding}; give another --encoding") from None

    def _fallback_encoding(self, name: str) -> str:
        if self._encoding is None:
            raise self.error(
                f"{name} is not in UTF-8: ARX writes texts in the encoding of its machine; give it, for example "
                "--encoding windows-1252"
            )
        return self._encoding

    @contextmanager
    def _refuse_unreadable(self, name: str, *more: type[Exception]) -> Iterator[None]:
        try:
            yield
        except (*_UNREADABLE, *more) as error:
            raise self.error(f"{name} cannot be read: {error}") from None

    def _parse(self, name: str, content: bytes) -> Element:
        """The root element of a document without a document type."""
        parser = expat.ParserCreate()
        root = Element("")
        path = [root]

        def start(tag: str, _: object) -> None:
            if len(path) > _DEEPEST:
                raise self.error(f"{name}: elements are more than {_DEEPEST} deep; save the project again with ARX")
            path[-1].children.append(element := Element(tag))
            path.append(element)

        def add_text(text: str) -> None:
            path[-1].text += text

        def refuse_doctype(*_: object) -> None:
            raise self.error(f"{name} has a document type, which ARX does not write; save the project again with ARX")

        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = start, lambda _: path.pop()
        parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = add_text, refuse_doctype
        try:
            parser.Parse(content, True)
        except expat.ExpatError as error:
            raise self.error(f"{name} is not XML: {error}") from None
        return root.children[0]


@contextmanager
def open_archive(path: Path, encoding: str | None = None) -> Iterator[Archive]:
    try:
        "".encode(encoding or "utf-8")
    except LookupError:
        raise SourceError(f"--encoding: {encoding!r} is unknown to Python; give one such as windows-1252") from None
    try:
        file = zipfile.ZipFile(path)
    except FileNotFoundError:
        raise SourceError(f"{path}: the file does not exist; give the path of a project") from None
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise SourceError(f"{path.name} is not an ARX project, which is a zip: {error}") from None
    with file:
        yield Archive(path, file, encoding)
