"""Linked tables on a server: their manifests and claims, and the engine that their rows are copied to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import Limits
from sqlanon.errors import BrokenReleaseError
from sqlanon.linked.publish.targets.base import open_engine
from sqlanon.linked.release.manifest import LINKED_FORMAT, TableClaims
from sqlanon.places.addresses import format_location
from sqlanon.release.contents import ATTACHED
from sqlanon.release.manifest import ReleasedColumn, types_in


@dataclass(frozen=True)
class CatalogTable:
    """The claims about one table, as the checks of the catalog read them."""

    claims: TableClaims
    version: int

    @property
    def table_name(self) -> str:
        """The view that readers use."""
        return self.claims.name

    @property
    def columns(self) -> Sequence[ReleasedColumn]:
        """The released columns."""
        return self.claims.columns

    @property
    def types(self) -> Mapping[str, str]:
        """DuckDB's types of the columns, by name."""
        return types_in(self.claims.columns)


def is_linked_manifest(text: str) -> bool:
    """Whether a text is the manifest of linked tables."""
    with suppress(ValueError, TypeError):
        claims = json.loads(text)
        return isinstance(claims, dict) and claims.get("format") == LINKED_FORMAT
    return False


@contextmanager
def open_copied_rows(limits: Limits) -> Iterator[DuckDBEngine]:
    """Open a separate engine with a database for the rows of a release."""
    with open_engine(limits) as (engine, spill):
        engine.attach(spill / "rows.duckdb", ATTACHED, read_write=True)
        yield engine
        engine.detach(ATTACHED)


@contextmanager
def translate_copy_errors(path: Path, claims: TableClaims) -> Iterator[None]:
    """Name the table of a value that does not fit its type."""
    try:
        yield
    except duckdb.ConversionException as error:
        message = f"a value of {claims.name!r} does not fit its type"
        raise BrokenReleaseError(f"{format_location(path)} cannot be read: {message}") from error
