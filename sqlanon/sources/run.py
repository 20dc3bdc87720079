"""One run: where it works, and what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import duckdb

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.policy import Policy
from sqlanon.sources.bad_lines import count_dropped_lines, warn_of_dropped_lines
from sqlanon.sources.bind import unbind_source
from sqlanon.sources.bound import Population, Source, WorkNames
from sqlanon.sources.copies import Copies
from sqlanon.support.expressions import Namer, drop_schema
from sqlanon.support.notices import Notice
from sqlanon.support.resources import CHECKS, macro_scripts


@dataclass(frozen=True)
class Run:
    """One run: its engine, its names, its source. Leaving its context drops all that it made.

    ``identity`` says for the ledger of what table it is: JSON, the same for the same table.
    """

    engine: DuckDBEngine
    work: Namer
    place: WorkNames
    source: Source
    population: Population | None = None
    identity: str = ""
    copies: Copies | None = None

    @property
    def engines(self) -> tuple[DuckDBEngine, ...]:
        """Its engine, and that of its population."""
        return self.engine, *(() if self.population is None else (self.population.engine,))

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Warnings of what was left out of the files that were read."""
        population = () if self.population is None else self.population.source.dropped
        return (*warn_of_dropped_lines(self.source.dropped), *warn_of_dropped_lines(population, "population"))

    def dropped_lines(self, policy: Policy) -> int | None:
        """The bad lines that were left out of the source; None unless the policy drops them."""
        csv = policy.source.csv
        return count_dropped_lines(self.source.dropped) if csv is not None and csv.on_bad_line == "drop" else None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.drop()

    def install_macros(self, files: Sequence[str] = CHECKS) -> str:
        """Install the macros that requirements are checked by in the work database; its name."""
        name = self.work("any").catalog
        with self.engine.using(name):
            self.engine.script(*macro_scripts(files))
        return name

    def drop(self) -> None:
        any_name = self.work("any")
        self.source.drop()
        with suppress(duckdb.Error):  # the connection may be closed, or be in a transaction of its user
            unbind_source(self.engine, self.place)
            if self.population is not None:
                unbind_source(self.population.engine, self.population.place)
            if self.copies is not None:
                self.copies.drop()
            if self.place.views[1] == any_name.catalog:
                self.engine.look_up_as_holder()  # its path may have the schema, and could not be set again
                self.engine.execute(drop_schema(*self.place.views))
            self.engine.execute(drop_schema(any_name.db, any_name.catalog))
