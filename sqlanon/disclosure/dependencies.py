"""Dependencies: released columns that narrow a generalized quasi-identifier beyond its released label.

If ZIP codes are generalized, districts are released unchanged, and a district has four ZIP codes, a reader knows more
of a ZIP code than its label says. Source: L. Sweeney, "Achieving k-anonymity privacy protection using generalization
and suppression" (2002), section 2.2. `sqlanon.disclosure.narrowing` has the figures and what they are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from sqlglot import exp

from sqlanon.disclosure.narrowing import (
    PARTS,
    PINNED,
    SHARED,
    has_excess,
    is_large,
    measure_narrowing,
    narrowing_query,
    rank_part,
    smallest_group,
    values_by_chance,
)
from sqlanon.disclosure.unprotected_columns import unique_columns
from sqlanon.engines.base import Engine, WorkEngine
from sqlanon.engines.dialects.kinds import WHOLE
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.policy import SourceSection
from sqlanon.release.sentences import join_names
from sqlanon.sources.column_figures import KEY_SHARE, exact_counts_query, sample_query
from sqlanon.sources.duckdb import parse_table_name
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.coding import Coded, Column
from sqlanon.support.expressions import (
    Namer,
    aliased,
    all_columns,
    col,
    ident,
    named,
    same,
    star,
    subquery,
    table,
    template,
    union_all,
)
from sqlanon.support.notices import Notice

ENOUGH = 20_000
"""The approximate number of rows in the sample of a larger table."""

PAIRS = 6
"""The greatest number of columns whose pairs are measured."""

MANY_VALUES = 2 * PARTS
"""Numbers and dates with more values than these are measured in parts, too."""

SPARSE, DENSE = 5, 20
"""Where a value of a quasi-identifier has fewer than `DENSE` rows on average, the lowest labels with `SPARSE` rows are
measured, too."""

_TOGETHER = 16
"""The candidates that are measured in one statement: the engine takes much longer to plan one of hundreds."""

_Ask: TypeAlias = "Callable[[exp.Select], Sequence[tuple[Any, ...]]]"
"""Answers a query."""

_WITH_PARTS = template("SELECT :columns FROM :rows AS r")
_LABEL_COUNT = template(
    "SELECT :column AS released, :level AS level, count(DISTINCT :code) AS labels FROM :values AS v"
)


@dataclass(frozen=True)
class Narrowing:
    """A released column, or two, that narrow a generalized quasi-identifier.

    Attributes
    ----------
    columns, quasi:
        The column or columns, and the quasi-identifier.
    level:
        0 where its values are measured. Where hardly two people share one, labels of this level stand for them.
    in_parts:
        Those of the columns that are known to one of 20 parts only: numbers and dates of many values.
    before, after, by_chance:
        The number of ground values under a released label; of those left if the columns are known; and of those that
        columns which say nothing would leave in groups of these sizes: means over the rows.
    alike_before, alike_after:
        The probability that two people with the same label have the same ground value; and if they also agree in the
        columns.
    pinned:
        The share of the rows whose ground value the columns reveal.
    affected:
        The approximate number of persons who share their values of the columns, so that these narrow.
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
        """What ``before`` and ``after`` count."""
        return "values" if self.level == 0 else f"labels of level {self.level}"

    @property
    def message(self) -> str:
        names, is_single = join_names([*map(repr, self.columns)]), len(self.columns) == 1
        verb, are, them = ("narrows", "is", "it") if is_single else ("narrow", "are", "them")
        roughly = f" to a part of {100 // PARTS} %" if self.in_parts else ""
        smallest = ""
        if self.smallest_group is not None:
            unit = self.counts if self.smallest_group != 1 else self.counts.removesuffix("s")
            smallest = f"; with {names}, the smallest group has {self.smallest_group:,} {unit}"
        return (
            f"{names} {verb} {self.quasi!r}: a released label stands for {self.before:,.1f} {self.unit} of it on "
            f"average, and for {self.after:,.1f} if {names} {are} known{roughly}, where chance alone leaves "
            f"{self.by_chance:,.1f}{smallest}; make {them} quasi or leave {them} out. "
            f"To see the values left: {self.query}"
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"columns": list(self.columns), "in_parts": list(self.in_parts), "factor": self.factor}


class _Measured(NamedTuple):
    """A released column by its number, the column of the measured rows that has its values or their parts."""

    column: int
    name: str
    in_parts: bool = False


class _Quasi(NamedTuple):
    """A quasi-identifier by its number, and the columns of its label (empty: all rows have one) and of its ground
    value; or of its label of a lower ``level``, where its values are sparse."""

    quasi: int
    label: str
    ground: str
    level: int = 0


class _Candidate(NamedTuple):
    """Some columns, and a quasi-identifier that they may narrow."""

    columns: tuple[_Measured, ...]
    quasi: int
    label: str
    ground: str
    level: int = 0


@dataclass(frozen=True)
class _Rows:
    """The measured rows, what answers queries about them, the column of persons, if any, the number of rows of the
    table, and the share of it that is measured."""

    ask: _Ask
    relation: exp.Table
    person: str | None
    rows: int
    share: float = 1.0

    def query(self, build: Callable[..., exp.Select], candidate: _Candidate) -> exp.Select:
        label = col(candidate.label) if candidate.label else exp.null()
        columns = [col(column.name) for column in candidate.columns]
        person: exp.Expr | None = None if self.person is None else col(self.person)
        if person is None and any(column.in_parts for column in candidate.columns):
            # Rows with the same values and ground value count once in a part: they may be of one household.
            person = exp.Tuple(expressions=[col(f"r{column.column}") for column in candidate.columns])
        shared = max(2.0, SHARED * self.share)  # in a sample, fewer persons share a value
        return build(self.relation.copy(), label, col(candidate.ground), columns, person, shared)

    def count_persons(self) -> int:
        """The approximate number of persons in the table: its rows, where each row is a person."""
        if self.person is None:
            return self.rows
        measured = int(self.ask(exact_counts_query(self.relation.copy(), [self.person]))[0][0])
        return min(round(measured / self.share), self.rows)


@dataclass(frozen=True)
class Dependencies:
    """The narrowing columns, why the policy refuses them, and warnings."""

    narrowing: tuple[Narrowing, ...]
    refusals: tuple[str, ...]
    warnings: tuple[Notice, ...]


def measure_dependencies(
    engine: WorkEngine,
    steps: StatementRunner,
    prepared: SearchInput,
    recoding: ClassRecoding,
    levels: Mapping[str, int | None],
) -> Dependencies:
    """The stage dependencies: whether unchanged columns reveal generalized values."""
    narrowing, warnings = find_narrowing_columns(engine, steps, prepared, recoding, levels)
    return Dependencies(narrowing, refuse_narrowing(steps, prepared, levels, narrowing), warnings)


def find_narrowing_columns(
    engine: WorkEngine,
    steps: StatementRunner,
    prepared: SearchInput,
    recoding: ClassRecoding,
    levels: Mapping[str, int | None],
) -> tuple[tuple[Narrowing, ...], tuple[Notice, ...]]:
    """The released columns that narrow the quasi-identifiers of a version of a source, and what to warn of.

    A source in PostgreSQL is measured there. Other sources need ``narrowing_sample`` and ``narrowing_rows`` in the work
    schema, which are dropped. A dry run shows the query for the first column and quasi-identifier.
    """
    rows, source = prepared.marginals.rows, prepared.source
    unchanged, quasi = _measurable(prepared, recoding.columns, levels)
    if not unchanged or not quasi:
        return (), ()
    if steps.dry:
        _show_measurement(steps, prepared, recoding, unchanged, quasi)
        return (), ()
    if (why := source.measuring_obstacle()) is not None:
        message = f"whether released columns narrow generalized quasi-identifiers was not measured: {why}"
        if prepared.policy.privacy.dependencies == "error":
            raise SourceError(f'{message}; privacy.dependencies = "error" requires it')
        return (), (Notice(f"{message}; docs/explanation/dependencies.md has a query that shows it"),)
    is_sampled = rows > 2 * ENOUGH
    share = ENOUGH / rows if is_sampled else 1.0
    sparse = _sparse_levels(engine, prepared, recoding.columns, quasi, levels)
    plan = _Plan(prepared, recoding, unchanged, quasi, sparse)
    if source.access == "rows":
        work = steps.on(engine)
        sampled = recoding
        if is_sampled:
            needed = [*(column.name for column in recoding.columns), *prepared.columns.generalized]
            needed += [*prepared.columns.key, *filter(None, [prepared.columns.person])]
            sample = sample_query(source.relation, list(dict.fromkeys(needed)), rows // ENOUGH)
            sampled = recoding.with_source(work.make(prepared.work("narrowing_sample"), sample))
        relation = work.make(prepared.work("narrowing_rows"), plan.rows(sampled))
        measured = _Rows(work.engine.rows, relation, plan.person, rows, share)
        every_row = subquery(plan.rows(recoding), "every_row") if is_sampled else relation
        narrowing = _measure_columns(measured, plan, every_row)
        work.drop_all_but(())
    else:
        with source.temporary_rows(engine, plan.rows(recoding), share if is_sampled else None) as (ask, relation):
            measured = _Rows(ask, relation, plan.person, rows, share)
            narrowing = _measure_columns(measured, plan, None if is_sampled else relation)
    return narrowing, tuple(Notice(each.message, each.affected) for each in narrowing)


class _Plan:
    """What is measured of a version of a source: its unchanged columns, and its generalized quasi-identifiers."""

    def __init__(
        self,
        prepared: SearchInput,
        recoding: ClassRecoding,
        unchanged: Sequence[int],
        quasi: Sequence[int],
        sparse: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._prepared, self.columns, self._sparse = prepared, recoding.columns, sparse
        self._quasi, self.unchanged = quasi, unchanged
        self.labels = [f"r{j}" for j, column in enumerate(self.columns) if column.quasi is not None]
        self._count = len(self.columns) + len(quasi)
        self.person = None if prepared.columns.person is None else f"r{self._count}"
        types = prepared.source.columns
        self.ordered = [j for j in unchanged if _is_ordered(types[self.columns[j].name])]
        sensitive = {name.lower() for name in prepared.policy.attributes_with_role("sensitive")}
        by_column = {column: name for name, column in prepared.columns.by_attribute.items()}
        self.sensitive = {j for j in unchanged if by_column[self.columns[j].name].lower() in sensitive}

    @property
    def section(self) -> SourceSection:
        return self._prepared.policy.source

    def rows(self, recoding: ClassRecoding) -> exp.Select:
        """The rows of a version, ``r0`` and so on; behind them the values of the quasi-identifiers in the source, and
        the person; the parts of numbers and dates, ``part0`` and so on; and the labels of sparse quasi-identifiers,
        ``lower0`` and so on."""
        extra = [self.columns[j].name for j in self._quasi]
        extra += filter(None, [self._prepared.columns.person])
        for name in extra:
            recoding = recoding.with_column(Column(name))
        relation = number_columns(recoding.select(shuffled=False), len(self.columns) + len(extra))
        lower = [named(col(f"label_{level}", f"h{j}"), f"lower{j}") for j, level in self._sparse.items()]
        query = _with_parts(relation, self.ordered, lower)
        for j in self._sparse:
            coded = _coded(self._prepared, self.columns[j])
            on = same(col(self._ground(j), "r"), col("value", f"h{j}"), coded.nullable)
            query = query.join(aliased(coded.table, f"h{j}"), on=on, join_type="left", copy=False)
        return query

    def _ground(self, j: int) -> str:
        return f"r{len(self.columns) + self._quasi.index(j)}"

    @property
    def quasi(self) -> list[_Quasi]:
        """Quasi-identifiers with the columns of their values, then sparse ones with those of their labels."""
        values = [_Quasi(j, f"r{j}", self._ground(j)) for j in self._quasi]
        return values + [_Quasi(j, f"r{j}", f"lower{j}", level) for j, level in self._sparse.items()]


def _measure_columns(measured: _Rows, plan: _Plan, every_row: exp.Expr | None) -> tuple[Narrowing, ...]:
    candidates = _candidates(plan.unchanged, _many_valued(measured, plan.ordered), plan.quasi)
    narrowing = []
    for candidate, figures in _find_narrowing(measured, candidates):
        smallest = None
        if every_row is not None and not plan.sensitive.intersection(each.column for each in candidate.columns):
            keys = [col(name) for name in (*plan.labels, *(column.name for column in candidate.columns))]
            person = None if plan.person is None else col(plan.person)
            smallest = measured.ask(smallest_group(every_row.copy(), keys, person))[0][0]
        names = [column.name for column in plan.columns]
        narrowing.append(_narrowing(measured, candidate, names, figures, smallest, plan.section))
    return tuple(narrowing)


def _show_measurement(
    steps: StatementRunner,
    prepared: SearchInput,
    recoding: ClassRecoding,
    unchanged: Sequence[int],
    quasi: Sequence[int],
) -> None:
    source, plan = prepared.source, _Plan(prepared, recoding, unchanged, quasi)
    candidate, rows = _candidates(unchanged, (), plan.quasi)[0], plan.rows(recoding)
    if not source.can_measure:
        return
    if source.access == "rows":
        relation = steps.make(prepared.work("narrowing_rows"), rows)
        steps.show(
            _Rows(steps.engine.rows, relation, plan.person, prepared.marginals.rows).query(measure_narrowing, candidate)
        )
    else:
        relation, making = source.render_temporary_rows(steps.engine, rows)
        query = _Rows(steps.engine.rows, relation, plan.person, prepared.marginals.rows).query(
            measure_narrowing, candidate
        )
        steps.show_text(*making, source.render_statement(steps.engine, query))
    each = "a query like this for each generalized attribute and each unchanged column, and for pairs of columns "
    each += f"if there are at most {PAIRS}; more than {2 * ENOUGH:,} rows are sampled"
    steps.finish("dependencies", each)


def refuse_narrowing(
    steps: StatementRunner, prepared: SearchInput, levels: Mapping[str, int | None], narrowing: Sequence[Narrowing]
) -> tuple[str, ...]:
    """Why the policy refuses a version of the source: columns that narrow, and those that are keys.

    Where the policy says nothing of dependencies, it refuses columns that narrow and leave one person alone: these
    are quasi-identifiers that no class counts.

    A column with many unique values is a key: another table with it and a quasi-identifier reveals the value of each
    such row. Unique values have no pairs of rows, so their dependence cannot be measured.
    """
    _, quasi = _measurable(prepared, prepared.released_columns, levels)
    chosen = prepared.policy.privacy.dependencies
    if chosen == "warn" or not quasi or steps.dry:
        return ()
    if chosen is None:
        return tuple(f"dependencies: {_singled_out(each)}" for each in narrowing if each.smallest_group == 1)
    names = join_names([repr(prepared.released_columns[j].name) for j in quasi])
    keys = (
        f"{name!r} is nearly a key: it has at least half as many distinct values as rows. Another table with it and "
        f"{names} reveals their values, and whether it depends on them cannot be measured. Make it identifying or "
        "quasi, round it, or leave it out"
        for name in unique_columns(steps.engine, prepared.source, prepared.columns, KEY_SHARE)
    )
    return tuple(f"dependencies: {reason}" for reason in (*(each.message for each in narrowing), *keys))


def _singled_out(narrowing: Narrowing) -> str:
    names = join_names([*map(repr, narrowing.columns)])
    return (
        f"{narrowing.message}\n"
        '    To publish it all the same, set dependencies = "warn" in [privacy]: somebody who knows '
        f"{names} of a person can then find this person's row"
    )


def _measurable(
    prepared: SearchInput, released: Sequence[Column], levels: Mapping[str, int | None]
) -> tuple[list[int], list[int]]:
    """The numbers of the released columns that may narrow, and of the quasi-identifiers that are generalized."""
    columns, attributes = prepared.columns, prepared.attributes
    names = {column: name for name, column in columns.by_attribute.items()}
    known = {name.lower(): level for name, level in levels.items()}

    def is_generalized(column: Column) -> bool:
        if column.quasi is None:
            return False
        return known.get(names[column.name].lower()) != 0 or attributes[column.quasi].open_ends

    unchanged = [j for j, column in enumerate(released) if column.quasi is None and column.name not in columns.noisy]
    return unchanged, [j for j, column in enumerate(released) if is_generalized(column)]


def number_columns(query: exp.Query, count: int) -> exp.Subquery:
    """A query's rows with columns ``r0``, ``r1``, ...: names of columns may be there twice."""
    columns = [ident(f"r{i}") for i in range(count)]
    part = subquery(query)
    part.set("alias", exp.TableAlias(this=ident("r"), columns=columns))
    return part


def _with_parts(relation: exp.Subquery, ordered: Sequence[int], lower: Sequence[exp.Expr] = ()) -> exp.Select:
    """Rows, with the part that each number or date is in, and lower labels."""
    if not ordered and not lower:
        return star(relation)
    parts = [named(rank_part(col(f"r{j}", "r")), f"part{j}") for j in ordered]
    return _WITH_PARTS(columns=[all_columns("r"), *parts, *lower], rows=star(relation))


def _coded(prepared: SearchInput, column: Column) -> Coded:
    assert column.quasi is not None
    return prepared.attributes[column.quasi]


def _sparse_levels(
    engine: Engine,
    prepared: SearchInput,
    released: Sequence[Column],
    quasi: Sequence[int],
    levels: Mapping[str, int | None],
) -> dict[int, int]:
    """The quasi-identifiers whose values are too sparse to measure, and the level whose labels stand for them.

    Hardly two people share a day of birth: that a column is the year of birth shows only in years. The level is the
    lowest whose labels have enough rows, else the highest below the released one.
    """
    names = {column: name.lower() for name, column in prepared.columns.by_attribute.items()}
    known = {name.lower(): level for name, level in levels.items()}
    queries = []
    for j in quasi:
        coded, level = _coded(prepared, released[j]), known.get(names[released[j].name])
        for lower in range(coded.height if level is None else level):
            queries.append(_LABEL_COUNT(column=j, level=lower, code=col(f"code_{lower}"), values=coded.table))
    counts: dict[int, dict[int, int]] = {j: {} for j in quasi}
    for j, level, labels in engine.rows(union_all(*queries)) if queries else ():
        counts[j][level] = labels
    rows, sparse = min(prepared.marginals.rows, ENOUGH), {}
    for j, by_level in counts.items():
        if len(by_level) > 1 and rows < DENSE * by_level.pop(0):
            sparse[j] = min((level for level, n in by_level.items() if rows >= SPARSE * n), default=max(by_level))
    return sparse


def _is_ordered(type_: str) -> bool:
    """Whether values of a type of DuckDB's that are near each other can be taken together."""
    return type_ in WHOLE or type_.startswith(("DECIMAL", "FLOAT", "DOUBLE", "DATE", "TIME"))


def find_narrowing_in_source(
    steps: StatementRunner,
    work: Namer,
    relation: exp.Table,
    rows: int,
    columns: Sequence[str],
    quasi: Sequence[str],
    types: Mapping[str, str],
    section: SourceSection,
    person: str | None = None,
) -> tuple[Narrowing, ...]:
    """What narrows the quasi-identifiers of a source as it stands, if nothing else is known of them.

    Makes ``narrowing_rows`` in the work schema.
    """
    if not columns or not quasi:
        return ()
    step = rows // ENOUGH if rows > 2 * ENOUGH else 1
    names = [*columns, *quasi, *filter(None, [person])]
    ordered = [j for j, name in enumerate(columns) if _is_ordered(types[name])]
    rows_in_place = _with_parts(number_columns(sample_query(relation, names, step), len(names)), ordered)
    sample = steps.make(work("narrowing_rows"), rows_in_place)
    measured = _Rows(
        lambda query: steps.ask(query, []), sample, None if person is None else f"r{len(names) - 1}", rows, 1 / step
    )
    places = [_Quasi(j, "", f"r{j}") for j in range(len(columns), len(columns) + len(quasi))]
    candidates = _candidates(range(len(columns)), _many_valued(measured, ordered), places)
    return tuple(
        _narrowing(measured, candidate, names, figures, None, section)
        for candidate, figures in _find_narrowing(measured, candidates)
    )


def _many_valued(measured: _Rows, ordered: Sequence[int]) -> list[int]:
    """The columns of numbers and dates with many values."""
    counts = measured.ask(exact_counts_query(measured.relation.copy(), [f"r{j}" for j in ordered])) if ordered else []
    return [j for j, count in zip(ordered, counts[0], strict=True) if count > MANY_VALUES] if counts else []


def _candidates(unchanged: Sequence[int], many_valued: Sequence[int], quasi: Sequence[_Quasi]) -> list[_Candidate]:
    """Each column and part with each quasi-identifier, and pairs of columns with its values."""
    values = [_Measured(j, f"r{j}") for j in unchanged]
    parts = [_Measured(j, f"part{j}", in_parts=True) for j in unchanged if j in many_valued]
    paired = [*(column for column in values if column.column not in many_valued), *parts]
    sets: list[tuple[_Measured, ...]] = [(column,) for column in (*values, *parts)]
    pairs = [*combinations(sorted(paired), 2)] if len(unchanged) <= PAIRS else []
    return [_Candidate(columns, *place) for place in quasi for columns in (*sets, *(pairs if place.level == 0 else ()))]


def _find_narrowing(
    measured: _Rows, candidates: Sequence[_Candidate]
) -> Iterator[tuple[_Candidate, Mapping[str, Any]]]:
    """The columns that narrow a quasi-identifier, with their figures.

    Two are reported where they say clearly more than the better of them alone; the parts of a column, where its values
    do not narrow; and what narrows labels, where it does not narrow values.
    """
    queries = [measured.query(measure_narrowing, candidate) for candidate in candidates]
    names = queries[0].named_selects
    answers = list[dict[str, Any]]()
    for first in range(0, len(queries), _TOGETHER):
        together = (star(subquery(query, "q")) for query in queries[first : first + _TOGETHER])
        rows = measured.ask(star(subquery(union_all(*together), "u")))
        answers += [dict(zip(names, row, strict=True)) for row in rows]
    alone: dict[tuple[str, int], float] = {}
    reported = set[tuple[int, int]]()
    for candidate, figures in zip(candidates, answers, strict=False):  # a dry run has no answers
        columns, quasi = candidate.columns, candidate.quasi
        baseline = figures["alike_before"] or 0.0
        if len(columns) == 1 and has_excess(figures, baseline):
            alone[columns[0].name, quasi] = figures["alike_after"]
        elif len(columns) > 1:
            baseline = max(baseline, *(alone.get((column.name, quasi), 0.0) for column in columns))
        gives_away = len(columns) == 1 and figures["pinned"] >= PINNED * figures["rows"]
        if not has_excess(figures, baseline) or not (is_large(figures, baseline) or gives_away):
            continue
        if len(columns) == 1 and (columns[0].column, quasi) in reported:
            continue
        reported |= {(columns[0].column, quasi)} if len(columns) == 1 else set()
        yield candidate, figures


def _narrowing(
    measured: _Rows,
    candidate: _Candidate,
    names: Sequence[str],
    figures: Mapping[str, Any],
    smallest: int | None,
    section: SourceSection,
) -> Narrowing:
    columns = {names[column.column]: column.in_parts for column in candidate.columns}
    quasi, rows = names[candidate.quasi], figures["rows"]
    return Narrowing(
        columns=tuple(columns),
        quasi=quasi,
        level=candidate.level,
        in_parts=tuple(name for name, in_parts in columns.items() if in_parts),
        before=figures["before"],
        after=figures["after"],
        by_chance=measured.ask(measured.query(values_by_chance, candidate))[0][0],
        alike_before=figures["alike_before"],
        alike_after=figures["alike_after"],
        pinned=figures["pinned"] / rows,
        affected=round(measured.count_persons() * rows / figures["all_rows"]),
        smallest_group=smallest,
        counts="rows" if measured.person is None else "persons",
        query=narrowing_query(_source(section), quasi, columns).sql("duckdb"),
    )


def _source(section: SourceSection) -> exp.Expr:
    if section.files:
        return table(section.files[0])
    return parse_table_name(section.table or "source")
