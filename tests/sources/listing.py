"""A source of another kind, in one file outside the package: a list of dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.sources import Binding, Source, SourceKind, register_source
from sqlanon.sources.bind import bind_relation


@dataclass
class Listing:
    """Rows, as Python has them."""

    rows: Sequence[Mapping[str, Any]]


class ListingKind(SourceKind):
    name = "a listing"

    def takes(self, given: object) -> bool:
        return isinstance(given, Listing)

    def bind(self, binding: Binding) -> tuple[DuckDBEngine, Source]:
        rows = pa.Table.from_pylist([dict(one) for one in binding.given.rows])
        binding.engine.copy_arrow(binding.place.table.copy(), rows)
        return binding.engine, bind_relation(binding.engine, binding.place.table, binding.place, True, home="listing")


register_source(ListingKind())
