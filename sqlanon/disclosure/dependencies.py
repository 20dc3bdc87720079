"""Dependencies: released columns that narrow a generalized quasi-identifier beyond its released label.

If ZIP codes are generalized, districts are released unchanged, and a district has four ZIP codes, a reader learns more
about a ZIP code than its label says. Source: L. Sweeney, "Achieving k-anonymity privacy protection using generalization
and suppression" (2002), section 2.2. Figures and thresholds: `sqlanon.disclosure.narrowing`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from sqlglot import exp

from sqlanon.disclosure.narrowing import (
    HASH_VALUE,
    PARTS,
    PINNED,
    RANK_VALUE,
    SHARED,
    Grouping,
    has_excess,
    has_large_excess,
    measure_narrowing,
    narrowing_query,
    number_values,
    rank_part,
    smallest_group,
    values_by_chance,
)
from sqlanon.disclosure.unprotected_columns import unique_columns
from sqlanon.engines.base import Engine, WorkEngine
from sqlanon.engines.dialects.kinds import INTEGER_TYPES
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.policy import SourceSection
from sqlanon.release.sentences import join_names
from sqlanon.sources.column_figures import KEY_SHARE, exact_counts_query, sample_query
from sqlanon.sources.duckdb import parse_table_name
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.coding import CodedAttribute, Column
from sqlanon.support.expressions import (
    Namer,
    aliased,
    all_columns,
    as_column,
    col,
    ident,
    null_safe_equal,
    number,
    prepend_ctes,
    select,
    select_star,
    subquery,
    table,
    template,
    union_all,
)
from sqlanon.support.notices import Notice

SAMPLE_ROWS = 20_000
"""Approximate number of rows in the sample of a larger table."""

MAX_PAIRED_COLUMNS = 6
"""Greatest number of unchanged columns whose pairs are measured."""

MANY_VALUES = 2 * PARTS
"""Numbers and dates with more values than these are also measured in parts."""

MAX_CANDIDATES, MAX_COUNTED = 32, 1_000_000
"""Maximum number of candidates that one statement measures, and of rows that it counts for them: a wide table has
thousands of candidates, and the groups of all candidates of a statement are in memory at once."""

SPARSE, DENSE = 5, 20
"""If values of a quasi-identifier have fewer than `DENSE` rows on average, the lowest labels with `SPARSE` rows are
measured, too."""

_NUMBERS = table("sqlanon numbers")

_RunQuery: TypeAlias = "Callable[[exp.Select], Sequence[tuple[Any, ...]]]"

_LABEL_COUNT = template("""
    SELECT :column AS released, :level AS level, count(DISTINCT :code) AS labels
    FROM :values AS v
""")


@dataclass(frozen=True)
class Narrowing:
    """A released column, or two, that narrow a generalized quasi-identifier.

    Attributes
    ----------
    columns, quasi:
        The column or columns, and the quasi-identifier.
    level:
        0 where ground values are measured. Where hardly two persons share a value, labels of this level are measured.
    in_parts:
        The columns that are known to one of 20 parts only: numbers and dates with many values.
    before, after, by_chance:
        The number of ground values under a released label; of those left if the columns are known; and of those that
        unrelated columns would leave in groups of these sizes: means over the rows.
    alike_before, alike_after:
        The probability that two persons with the same label have the same ground value; and if they also agree in the
        columns.
    pinned:
        The share of the rows whose ground value the columns reveal.
    affected:
        The approximate number of persons who share their values of the columns with others, so that these narrow.
    smallest_group:
        The size of the smallest group that agrees in all released quasi-identifiers and the columns. None for a source
        that is not generalized, for a sample in PostgreSQL, and for sensitive columns, which others should not know.
    counts:
        ``rows``, or ``persons`` where persons are counted.
    query:
        A query on the source that shows the values left, the fewest first.
    """

    columns: tuple[str, ...]
    quasi: str
    level: int
    in_parts: tuple[str, ...]
    before: float
    after: float
    by_chance: float
    alike_before: float
    alike_after: float
    pinned: float
    affected: int
    smallest_group: int | None
    counts: str
    query: str

    @property
    def factor(self) -> float:
        """``alike_after / alike_before``."""
        return self.alike_after / self.alike_before

    @property
    def unit(self) -> str:
        """The unit of ``before`` and ``after``."""
        return "values" if self.level == 0 else f"labels of level {self.level}"

    @property
    def message(self) -> str:
        names, is_single = join_names([*map(repr, self.columns)]), len(self.columns) == 1
        verb, are, them = ("narrows", "is", "it") if is_single else ("narrow", "are", "them")
        precision = f" to a part of {100 // PARTS} %" if self.in_parts else ""
        smallest = ""
        if self.smallest_group is not None:
            unit = self.counts if self.smallest_group != 1 else self.counts.removesuffix("s")
            smallest = f"; with {names}, the smallest group has {self.smallest_group:,} {unit}"
        return (
            f"{names} {verb} {self.quasi!r}: a released label stands for {self.before:,.1f} {self.unit} of it on "
            f"average, and for {self.after:,.1f} if {names} {are} known{precision}, where chance alone leaves "
            f"{self.by_chance:,.1f}{smallest}; make {them} quasi or leave {them} out. "
            f"To see the values left: {self.query}"
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"columns": list(self.columns), "in_parts": list(self.in_parts), "factor": self.factor}


class _MeasuredColumn(NamedTuple):
    """A released column by its number, with the name of the measured column that has its values or parts."""

    column: int
    name: str
    in_parts: bool = False


class _QuasiIdentifier(NamedTuple):
    """A quasi-identifier: the number of its column, and the columns with its label (empty if all rows share one) and
    its ground value. Where values are sparse, the label of a lower ``level`` takes the place of the ground value."""

    column: int
    label: str
    ground: str
    level: int = 0


class _Candidate(NamedTuple):
    """Columns, and a quasi-identifier that they may narrow."""

    columns: tuple[_MeasuredColumn, ...]
    quasi: _QuasiIdentifier


@dataclass(frozen=True)
class _Layout:
    """The columns of the measured rows, by their numbers.

    Column 3 is ``r3`` in these rows, its part ``part3``, and its label of a lower level ``lower3``. ``unchanged``
    columns may narrow; neighbouring values of ``ordered`` ones form parts. ``labels`` are all released labels.
    """

    names: Sequence[str]
    unchanged: Sequence[int]
    ordered: Sequence[int]
    quasi_identifiers: Sequence[_QuasiIdentifier]
    person: str | None
    section: SourceSection
    labels: Sequence[str] = ()
    sensitive: Collection[int] = ()

    def candidates(self, many_valued: Sequence[int]) -> list[_Candidate]:
        """Each column and part with each quasi-identifier, and pairs of columns with its values."""
        values = [_MeasuredColumn(j, f"r{j}") for j in self.unchanged]
        parts = [_MeasuredColumn(j, f"part{j}", in_parts=True) for j in self.unchanged if j in many_valued]
        singles: list[tuple[_MeasuredColumn, ...]] = [(column,) for column in (*values, *parts)]
        paired = sorted([*(column for column in values if column.column not in many_valued), *parts])
        pairs = [*combinations(paired, 2)] if len(self.unchanged) <= MAX_PAIRED_COLUMNS else []
        return [
            _Candidate(columns, quasi)
            for quasi in self.quasi_identifiers
            for columns in (*singles, *(pairs if quasi.level == 0 else ()))
        ]

    def add_parts(self, rows: exp.Subquery, lower: Sequence[exp.Expr] = ()) -> exp.Select:
        """Add the part of each number or date to rows, and lower labels."""
        if not self.ordered and not lower:
            return select_star(rows)
        parts = [as_column(rank_part(col(f"r{j}", "r")), f"part{j}") for j in self.ordered]
        return select([all_columns("r"), *parts, *lower], subquery(select_star(rows), "r"))


@dataclass(frozen=True)
class _Measurement:
    """The measured rows: how to query them, the number of rows of the table, the share of it that is measured, and how
    the engine numbers values."""

    layout: _Layout
    run: _RunQuery
    relation: exp.Table
    rows: int
    share: float = 1.0
    number_value: Callable[..., exp.Expr] = HASH_VALUE

    @property
    def min_sharing(self) -> float:
        """The number of persons with a value from which it counts as shared: in a sample, fewer have it."""
        return max(2.0, SHARED * self.share)

    def grouping(self, candidate: _Candidate) -> Grouping:
        person: exp.Expr | None = None if self.layout.person is None else col(self.layout.person)
        if person is None and any(column.in_parts for column in candidate.columns):
            # Rows with the same values and ground value count once in a part: they may be of one household.
            person = exp.Tuple(expressions=[col(f"r{column.column}") for column in candidate.columns])
        label = col(candidate.quasi.label) if candidate.quasi.label else number(0)
        return Grouping(label, col(candidate.quasi.ground), [col(column.name) for column in candidate.columns], person)

    def query(self, candidates: Sequence[_Candidate]) -> exp.Select:
        """The figures of candidates, one row for each."""
        names = dict[str, None]()
        for columns, quasi in candidates:
            measured = [quasi.label, quasi.ground, *(column.name for column in columns)]
            names |= dict.fromkeys([*measured, *(f"r{column.column}" for column in columns)])
        person = [*filter(None, [self.layout.person])]
        numbers = number_values(self.relation.copy(), [*filter(None, names)], person, self.number_value)
        query = measure_narrowing(_NUMBERS.copy(), [*map(self.grouping, candidates)], self.min_sharing)
        return prepend_ctes(query, {_NUMBERS.name: numbers}, materialized=True)

    def _measure(self, candidates: Sequence[_Candidate]) -> dict[int, Mapping[str, Any]]:
        """The figures of candidates by their numbers, without those that have no rows."""
        size = max(min(MAX_CANDIDATES, MAX_COUNTED // max(min(self.rows, 2 * SAMPLE_ROWS), 1)), 1)
        figures_of: dict[int, Mapping[str, Any]] = {}
        for first in range(0, len(candidates), size):
            query = self.query(candidates[first : first + size])
            for row in self.run(query):
                figures = dict(zip(query.named_selects, row, strict=True))
                figures_of[first + figures["candidate"]] = figures
        return figures_of

    def find_narrowing(self, every_row: exp.Expr | None = None) -> tuple[Narrowing, ...]:
        """Find the columns that narrow; the smallest group is counted in ``every_row`` of the release, if given."""
        ordered = self.layout.ordered
        many_valued = list[int]()
        for batch in (ordered[first : first + MAX_CANDIDATES] for first in range(0, len(ordered), MAX_CANDIDATES)):
            for counts in self.run(exact_counts_query(self.relation.copy(), [f"r{j}" for j in batch])):
                many_valued += [j for j, count in zip(batch, counts, strict=True) if count > MANY_VALUES]
        candidates = self._find_narrowing_candidates(self.layout.candidates(many_valued))
        return tuple(self._describe(candidate, figures, every_row) for candidate, figures in candidates)

    def _find_narrowing_candidates(
        self, candidates: Sequence[_Candidate]
    ) -> Iterator[tuple[_Candidate, Mapping[str, Any]]]:
        """Find the candidates that narrow, with their figures.

        A pair is reported if it narrows clearly more than the better of its columns alone; the parts of a column, if
        its values do not narrow; labels of a quasi-identifier, if its values are not narrowed.
        """
        figures_of = self._measure(candidates)
        alone: dict[tuple[str, int], float] = {}
        reported = set[tuple[int, int]]()
        for i, candidate in enumerate(candidates):
            if (figures := figures_of.get(i)) is None:  # no rows were measured
                continue
            columns, quasi = candidate.columns, candidate.quasi.column
            baseline, is_single = figures["alike_before"] or 0.0, len(columns) == 1
            if not is_single:
                baseline = max(baseline, *(alone.get((column.name, quasi), 0.0) for column in columns))
            if not has_excess(figures, baseline):
                continue
            if is_single:
                alone[columns[0].name, quasi] = figures["alike_after"]
            pins_values = is_single and figures["pinned"] >= PINNED * figures["rows"]
            is_repeated = is_single and (columns[0].column, quasi) in reported
            if (has_large_excess(figures, baseline) or pins_values) and not is_repeated:
                if is_single:
                    reported.add((columns[0].column, quasi))
                yield candidate, figures

    def _describe(self, candidate: _Candidate, figures: Mapping[str, Any], every_row: exp.Expr | None) -> Narrowing:
        layout, section, rows = self.layout, self.layout.section, figures["rows"]
        columns = {layout.names[column.column]: column.in_parts for column in candidate.columns}
        quasi, smallest = layout.names[candidate.quasi.column], None
        person = None if layout.person is None else col(layout.person)
        if every_row is not None and not any(column.column in layout.sensitive for column in candidate.columns):
            keys = [col(name) for name in (*layout.labels, *(column.name for column in candidate.columns))]
            smallest = self.run(smallest_group(every_row.copy(), keys, person))[0][0]
        persons = self.rows  # without persons, each row is a person
        if person is not None:
            measured = int(self.run(exact_counts_query(self.relation.copy(), [person.name]))[0][0])
            persons = min(round(measured / self.share), self.rows)
        by_chance = self.run(values_by_chance(self.relation.copy(), self.grouping(candidate), self.min_sharing))[0][0]
        source = table(section.files[0]) if section.files else parse_table_name(section.table or "source")
        return Narrowing(
            columns=tuple(columns),
            quasi=quasi,
            level=candidate.quasi.level,
            in_parts=tuple(name for name, in_parts in columns.items() if in_parts),
            before=figures["before"],
            after=figures["after"],
            by_chance=by_chance,
            alike_before=figures["alike_before"],
            alike_after=figures["alike_after"],
            pinned=figures["pinned"] / rows,
            affected=round(persons * rows / figures["all_rows"]),
            smallest_group=smallest,
            counts="rows" if person is None else "persons",
            query=narrowing_query(source, quasi, columns).sql("duckdb"),
        )


@dataclass(frozen=True)
class Dependencies:
    """The narrowing columns, why the policy refuses them, and warnings."""

    narrowing: tuple[Narrowing, ...]
    refusals: tuple[str, ...]
    warnings: tuple[Notice, ...]


def measure_dependencies(
    engine: WorkEngine,
    runner: StatementRunner,
    search_input: SearchInput,
    recoding: ClassRecoding,
    levels: Mapping[str, int | None],
) -> Dependencies:
    """Measure whether unchanged columns reveal generalized values (the stage *dependencies*).

    A source in PostgreSQL is measured on its server. For other sources, ``narrowing_sample`` and ``narrowing_rows`` are
    created in the work schema and dropped. A dry run shows the query for the first column and quasi-identifier.
    """
    rows, source, section = search_input.marginals.rows, search_input.source, search_input.policy.privacy
    unchanged, quasi = _measurable_columns(search_input, recoding.columns, levels)
    if not unchanged or not quasi:
        return Dependencies((), (), ())
    if runner.dry:
        _show_measurement(runner, search_input, recoding, _released_layout(search_input, recoding, unchanged, quasi))
        return Dependencies((), (), ())
    if (reason := source.measuring_obstacle()) is not None:
        message = f"whether released columns narrow generalized quasi-identifiers was not measured: {reason}"
        if section.dependencies == "error":
            raise SourceError(f'{message}; privacy.dependencies = "error" requires it')
        message += "; docs/explanation/dependencies.md has a query that shows it"
        return Dependencies((), (), (Notice(message),))
    is_sampled = rows > 2 * SAMPLE_ROWS
    share = SAMPLE_ROWS / rows if is_sampled else 1.0
    sparse = _sparse_levels(engine, search_input, recoding.columns, quasi, levels)
    layout = _released_layout(search_input, recoding, unchanged, quasi, sparse)
    if source.access == "rows":
        work, sampled = runner.on(engine), recoding
        if is_sampled:
            needed = [*(column.name for column in recoding.columns), *search_input.columns.generalized]
            needed += [*search_input.columns.key, *filter(None, [search_input.columns.person])]
            sample = sample_query(source.relation, list(dict.fromkeys(needed)), rows // SAMPLE_ROWS)
            sampled = recoding.with_source(work.create_table(search_input.work("narrowing_sample"), sample))
        query = _rows_to_measure(search_input, layout, sampled)
        relation = work.create_table(search_input.work("narrowing_rows"), query)
        every_row = subquery(_rows_to_measure(search_input, layout, recoding), "every_row") if is_sampled else relation
        narrowing = _Measurement(layout, work.engine.rows, relation, rows, share).find_narrowing(every_row)
        work.drop_all_except(())
    else:
        query = _rows_to_measure(search_input, layout, recoding)
        with source.temporary_rows(engine, query, share if is_sampled else None) as (run, relation):
            measurement = _Measurement(layout, run, relation, rows, share, RANK_VALUE)
            narrowing = measurement.find_narrowing(None if is_sampled else relation)
    refusals = refuse_narrowing(runner, search_input, [layout.names[j] for j in quasi], narrowing)
    warnings = tuple(Notice(dependency.message, dependency.affected) for dependency in narrowing)
    return Dependencies(narrowing, refusals, warnings)


def _released_layout(
    search_input: SearchInput,
    recoding: ClassRecoding,
    unchanged: Sequence[int],
    quasi: Sequence[int],
    sparse: Mapping[int, int] = MappingProxyType({}),
) -> _Layout:
    """The released columns; after them the source values of the quasi-identifiers, and the person."""
    policy, types, columns = search_input.policy, search_input.source.columns, recoding.columns
    attributes = {column: name.lower() for name, column in search_input.columns.by_attribute.items()}
    sensitive = {name.lower() for name in policy.attributes_with_role("sensitive")}
    values = [_QuasiIdentifier(j, f"r{j}", f"r{len(columns) + i}") for i, j in enumerate(quasi)]
    lower = [_QuasiIdentifier(j, f"r{j}", f"lower{j}", level) for j, level in sparse.items()]
    return _Layout(
        names=[column.name for column in columns],
        unchanged=unchanged,
        ordered=[j for j in unchanged if _is_ordered(types[columns[j].name])],
        quasi_identifiers=[*values, *lower],
        person=None if search_input.columns.person is None else f"r{len(columns) + len(quasi)}",
        section=policy.source,
        labels=[f"r{j}" for j, column in enumerate(columns) if column.quasi is not None],
        sensitive={j for j in unchanged if attributes[columns[j].name] in sensitive},
    )


def _rows_to_measure(search_input: SearchInput, layout: _Layout, recoding: ClassRecoding) -> exp.Select:
    released, values = recoding.columns, {q.column: q.ground for q in layout.quasi_identifiers if q.level == 0}
    source_columns = [layout.names[j] for j in values]
    source_columns += filter(None, [search_input.columns.person])
    for name in source_columns:
        recoding = recoding.with_column(Column(name))
    relation = number_columns(recoding.select(shuffled=False), len(released) + len(source_columns))
    sparse = [quasi for quasi in layout.quasi_identifiers if quasi.level]
    lower = [as_column(col(f"label_{quasi.level}", f"h{quasi.column}"), quasi.ground) for quasi in sparse]
    query = layout.add_parts(relation, lower)
    for j in (quasi.column for quasi in sparse):
        coded = _coded_values(search_input, released[j])
        on = null_safe_equal(col(values[j], "r"), col("value", f"h{j}"), coded.nullable)
        query = query.join(aliased(coded.table, f"h{j}"), on=on, join_type="left", copy=False)
    return query


def _show_measurement(
    runner: StatementRunner, search_input: SearchInput, recoding: ClassRecoding, layout: _Layout
) -> None:
    source, rows = search_input.source, _rows_to_measure(search_input, layout, recoding)
    if not source.can_measure:
        return
    relation, statements = search_input.work("narrowing_rows"), list[str]()
    if source.access != "rows":
        relation, statements = source.render_temporary_rows(runner.engine, rows)
    number_value = HASH_VALUE if source.access == "rows" else RANK_VALUE
    measurement = _Measurement(
        layout, runner.engine.rows, relation, search_input.marginals.rows, number_value=number_value
    )
    query = measurement.query(layout.candidates(())[:1])
    if source.access == "rows":
        runner.create_table(relation, rows)
        runner.record(query)
    else:
        runner.record_text(*statements, source.render_statement(runner.engine, query))
    note = "a query like this for each generalized attribute and each unchanged column, and for pairs of columns "
    note += f"if there are at most {MAX_PAIRED_COLUMNS}; more than {2 * SAMPLE_ROWS:,} rows are sampled"
    runner.finish_stage("dependencies", note)


def refuse_narrowing(
    runner: StatementRunner, search_input: SearchInput, quasi_identifiers: Sequence[str], narrowing: Sequence[Narrowing]
) -> tuple[str, ...]:
    """Explain why the policy refuses a generalization: columns that narrow, and columns that are keys.

    If the policy does not set ``dependencies``, it refuses columns that narrow and leave one person alone: these are
    quasi-identifiers that no class counts.

    A column with many unique values is a key: another table with it and a quasi-identifier reveals the value of each
    such row. Unique values have no pairs of rows, so their dependence cannot be measured.
    """
    mode, reasons = search_input.policy.privacy.dependencies, list[str]()
    if mode is None:
        reasons = [_explain_single_person(dependency) for dependency in narrowing if dependency.smallest_group == 1]
    elif mode == "error":
        names = join_names([*map(repr, quasi_identifiers)])
        reasons = [dependency.message for dependency in narrowing]
        reasons += [
            f"{name!r} is nearly a key: it has at least half as many distinct values as rows. Another table with it "
            f"and {names} reveals their values, and whether it depends on them cannot be measured. Make it identifying "
            "or quasi, round it, or leave it out"
            for name in unique_columns(runner.engine, search_input.source, search_input.columns, KEY_SHARE)
        ]
    return tuple(f"dependencies: {reason}" for reason in reasons)


def _explain_single_person(narrowing: Narrowing) -> str:
    names = join_names([*map(repr, narrowing.columns)])
    return (
        f"{narrowing.message}\n"
        '    To publish it all the same, set dependencies = "warn" in [privacy]: somebody who knows '
        f"{names} of a person can then find this person's row"
    )


def _measurable_columns(
    search_input: SearchInput, released: Sequence[Column], levels: Mapping[str, int | None]
) -> tuple[list[int], list[int]]:
    """The positions of the released columns that may narrow, and of the generalized quasi-identifiers."""
    columns, attributes = search_input.columns, search_input.attributes
    names = {column: name for name, column in columns.by_attribute.items()}
    levels = {name.lower(): level for name, level in levels.items()}

    def is_generalized(column: Column) -> bool:
        if column.quasi is None:
            return False
        return levels.get(names[column.name].lower()) != 0 or attributes[column.quasi].open_ends

    unchanged = [j for j, column in enumerate(released) if column.quasi is None and column.name not in columns.noisy]
    return unchanged, [j for j, column in enumerate(released) if is_generalized(column)]


def number_columns(query: exp.Query, count: int) -> exp.Subquery:
    """The rows of a query with its columns renamed to ``r0``, ``r1``, ...: two columns may have one name."""
    columns = [ident(f"r{i}") for i in range(count)]
    numbered = subquery(query)
    numbered.set("alias", exp.TableAlias(this=ident("r"), columns=columns))
    return numbered


def _coded_values(search_input: SearchInput, column: Column) -> CodedAttribute:
    assert column.quasi is not None
    return search_input.attributes[column.quasi]


def _sparse_levels(
    engine: Engine,
    search_input: SearchInput,
    released: Sequence[Column],
    quasi: Sequence[int],
    levels: Mapping[str, int | None],
) -> dict[int, int]:
    """The quasi-identifiers whose values are too sparse to measure, with the level that is measured instead.

    Hardly two persons share a day of birth: that a column is the year of birth shows only in years. The level is the
    lowest whose labels have enough rows, else the highest below the released one.
    """
    names = {column: name.lower() for name, column in search_input.columns.by_attribute.items()}
    levels = {name.lower(): level for name, level in levels.items()}
    queries = []
    for j in quasi:
        coded, level = _coded_values(search_input, released[j]), levels.get(names[released[j].name])
        for lower in range(coded.height if level is None else level):
            queries.append(_LABEL_COUNT(column=j, level=lower, code=col(f"code_{lower}"), values=coded.table))
    counts: dict[int, dict[int, int]] = {j: {} for j in quasi}
    for j, level, labels in engine.rows(union_all(*queries)) if queries else ():
        counts[j][level] = labels
    rows, sparse = min(search_input.marginals.rows, SAMPLE_ROWS), {}
    for j, by_level in counts.items():
        if len(by_level) > 1 and rows < DENSE * by_level.pop(0):
            sparse[j] = min(
                (level for level, labels in by_level.items() if rows >= SPARSE * labels), default=max(by_level)
            )
    return sparse


def _is_ordered(type_: str) -> bool:
    """Whether neighbouring values of a DuckDB type can form parts."""
    return type_ in INTEGER_TYPES or type_.startswith(("DECIMAL", "FLOAT", "DOUBLE", "DATE", "TIME"))


def find_narrowing_in_source(
    runner: StatementRunner,
    work: Namer,
    relation: exp.Table,
    rows: int,
    columns: Sequence[str],
    quasi: Sequence[str],
    types: Mapping[str, str],
    section: SourceSection,
    person: str | None = None,
) -> tuple[Narrowing, ...]:
    """Find columns that narrow the quasi-identifiers of a source as it stands, if nothing else is known of them.

    Creates ``narrowing_rows`` in the work schema.
    """
    if not columns or not quasi:
        return ()
    step = rows // SAMPLE_ROWS if rows > 2 * SAMPLE_ROWS else 1
    names = [*columns, *quasi, *filter(None, [person])]
    layout = _Layout(
        names=names,
        unchanged=range(len(columns)),
        ordered=[j for j, name in enumerate(columns) if _is_ordered(types[name])],
        quasi_identifiers=[_QuasiIdentifier(j, "", f"r{j}") for j in range(len(columns), len(columns) + len(quasi))],
        person=None if person is None else f"r{len(names) - 1}",
        section=section,
    )
    query = layout.add_parts(number_columns(sample_query(relation, names, step), len(names)))
    sample = runner.create_table(work("narrowing_rows"), query)
    return _Measurement(layout, lambda query: runner.fetch_rows(query, []), sample, rows, 1 / step).find_narrowing()
