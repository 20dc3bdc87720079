"""Bind a frequency set instead of rows: combinations of values counted by a warehouse, as Parquet files.

sqlanon has no access to the rows in the warehouse. As for a source in PostgreSQL, the relation is a view that repeats
each combination by its count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlglot import exp

from sqlanon.engines.base import Engine, WorkEngine
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.travel import repeat_rows
from sqlanon.errors import SourceError
from sqlanon.places.databases import file_kind
from sqlanon.policy import SourceSection
from sqlanon.sources.column_figures import approximate_counts_query
from sqlanon.sources.columns import quote_names
from sqlanon.sources.files.binding import bind_files
from sqlanon.sources.kinds import Binding, SourceKind
from sqlanon.sources.relation import source_errors
from sqlanon.sources.source import UNKNOWN_TYPE, CountedCombinations, RecodingStatement, Source
from sqlanon.support.expressions import (
    as_column,
    col,
    create_table,
    create_temporary_view,
    select,
    template,
    total,
    unused_name,
)

COUNT_COLUMN = "n"
"""The column of counts in a frequency set; with an underscore if an attribute has this name."""

_INTEGER_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_NUMBER_TYPES = frozenset((*_INTEGER_TYPES, *(f"U{type_}" for type_ in _INTEGER_TYPES), "FLOAT", "DOUBLE"))


class FrequencySetSource(Source):
    """A source in a warehouse, with local combinations only."""

    access = "counts"
    can_recode = False
    can_measure = False

    @property
    def location(self) -> str:
        return "a warehouse"

    def release_note(self, to: str, note: str) -> str:
        return f"in the warehouse, see sqlanon plan --dialect; shown as DuckDB would run it ({note})"

    @contextmanager
    def release_rows(
        self, engine: WorkEngine, recoding: RecodingStatement, types: Mapping[str, str], shuffled: bool = True
    ) -> Iterator[exp.Select]:
        raise SourceError(
            "this needs rows, and the source is a frequency set: its rows are in the warehouse; to make the release "
            "there, use sqlanon anonymize POLICY.toml --export FOLDER --dialect ..., or Result.export()"
        )
        yield

    def count_distinct_values(self, engine: Engine, names: Sequence[str]) -> Sequence[int]:
        assert self.combinations is not None
        return engine.rows(approximate_counts_query(self.combinations.table, names, self.combinations.count))[0]

    def sampling_relation(self, engine: Engine) -> None:
        """None: its rows are in the warehouse."""

    def all_columns(self, engine: Engine) -> None:
        """None: its rows are in the warehouse."""


class _FrequencySet(SourceKind):
    name = "frequency_set"
    without_rows = "a frequency set, whose rows are in the warehouse; this command reads rows"
    verbs = "anonymize, compare and plan"

    def bind(self, binding: Binding) -> tuple[DuckDBEngine, FrequencySetSource]:
        return binding.engine, _bind(binding)


KIND = _FrequencySet()


def _bind(binding: Binding) -> FrequencySetSource:
    engine, section, work_names = binding.engine, binding.section, binding.work_names
    attributes, counted_names = tuple(binding.policy.attributes), binding.counted_attributes
    for pattern in section.frequency_set:
        if file_kind(pattern) != "parquet":
            raise SourceError(
                f"source.frequency_set: {pattern} must be a Parquet file, with a name that ends in .parquet"
            )
    count = unused_name(COUNT_COLUMN, attributes)
    try:
        files = bind_files(engine, SourceSection(files=section.frequency_set), work_names)
    except SourceError as error:  # its message names source.files
        raise SourceError(str(error).replace("source.files", "source.frequency_set")) from error
    matched = _match_columns(files, attributes, counted_names, count)
    names, count = [matched[name.lower()] for name in counted_names], matched[count]
    # Each combination once: several files may repeat a combination.
    keys: list[exp.Expr] = [col(name) for name in names]
    total_count = as_column(total(col(count)), count)
    query = select([*keys, total_count], files.relation.copy(), [key.copy() for key in keys])
    with source_errors():
        if work_names.reads_rows:
            _refuse_counts(engine, files.relation, count)
        else:
            query = query.limit(0, copy=False)
        engine.execute(create_table(work_names.table, query))
    rows = work_names.view("rows")
    engine.execute(create_temporary_view(rows, repeat_rows(work_names.table, names, count)))
    columns = {
        matched.get(name.lower(), name): files.columns[matched[name.lower()]] if name in counted_names else UNKNOWN_TYPE
        for name in attributes
    }
    combinations = CountedCombinations(work_names.table, count)
    return FrequencySetSource(rows, columns, files.files, in_place=False, combinations=combinations)


def _match_columns(
    files: Source, attributes: Sequence[str], counted_names: Sequence[str], count: str
) -> dict[str, str]:
    """Match the required columns, by name in lower case. Counts are summed over other attributes."""
    by_lower = {name.lower(): name for name in files.columns}
    missing = [name for name in (*counted_names, count) if name.lower() not in by_lower]
    declared = {name.lower() for name in (*attributes, count)}
    unknown = [name for lower, name in by_lower.items() if lower not in declared]
    flaws = []
    if missing:
        flaws.append(f"it has no column {quote_names(missing)}")
    if unknown:
        flaws.append(f"it has {quote_names(unknown)}, which the policy does not declare: count without")
    if not flaws and not ((type_ := files.columns[by_lower[count]]) in _NUMBER_TYPES or type_.startswith("DECIMAL(")):
        flaws.append(f"its column {by_lower[count]!r} counts rows, and is {type_}, not a number")
    if flaws:
        raise SourceError(
            f"source.frequency_set: {'; '.join(flaws)}. It needs the quasi-identifiers, the sensitive attributes of "
            f"requirements, and {count!r}, the number of rows. sqlanon plan POLICY.toml --dialect NAME prints the query"
        )
    return {name.lower(): by_lower[name.lower()] for name in (*counted_names, count)}


def _refuse_counts(engine: DuckDBEngine, relation: exp.Table, count: str) -> None:
    query = template("""
        SELECT
            count(*) FILTER (WHERE :n IS NULL),
            count(*) FILTER (WHERE :n < 1),
            count(*) FILTER (WHERE NOT (:n >= :most) AND floor(:n) <> :n),
            count(*) FILTER (WHERE :n >= :most),
            coalesce(sum(CAST(:n AS DOUBLE)) FILTER (WHERE NOT (:n >= :most)), 0.0)
        FROM :relation
    """)(n=col(count), most=2**53, relation=relation)  # NaN is the greatest number
    null, few, fractional, large, total_count = engine.rows(query)[0]
    counts = {"no count (NULL)": null, "a count below 1": few, "a count that is not whole": fractional}
    flaws = [f"{rows} with {flaw}" for flaw, rows in counts.items() if rows]
    if large or total_count >= 2**53:
        flaws.append("more than 2^53 counted rows")
    if flaws:
        raise SourceError(
            f"source.frequency_set: these rows do not fit: {', '.join(flaws)}; {count!r} must be COUNT(*) of each "
            "combination"
        )
