"""Compare columns with noise: each released value is an interval for the true one.

Noise has the scale b = Δ/ε, where Δ is the range of the class, which the catalog keeps. The true value is within
b ln(1 / (1 - β)) of the released one, moved into that range, with probability β, `CONFIDENCE`, plus what rounding adds.
In the other release the column may be unchanged (an interval of width 0), generalized, or have noise, too.

A row of one release can be a row of the other if their labels and shared values match (`row_matching`), and their
intervals overlap. It is distinguished if intervals exclude some of its possible rows and leave fewer than k; or if they
exclude all of them, and it is one of fewer than k such rows of its class, which are then new, or gone. Up to
`NEVER_EXCLUDES`, an interval contains its whole class. Columns are compared one by one: several together exclude more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from sqlglot import exp

from sqlanon.errors import NotComparedError
from sqlanon.hierarchies.bounds import label_bounds
from sqlanon.ledger import catalog
from sqlanon.ledger.joint.label_pairs import FIRST, SECOND
from sqlanon.ledger.joint.pair_audit import MAX_MATCHING_PAIRS
from sqlanon.ledger.joint.release_links import ComparedHierarchies, ComparedRelease
from sqlanon.ledger.joint.row_matching import ReleaseLink, finest_values, join_groups
from sqlanon.noise.columns import EPOCH
from sqlanon.noise.statements import STEPS, as_number, can_be_noisy
from sqlanon.policy import Policy
from sqlanon.release.manifest import ReleasedColumn
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.expressions import (
    aliased,
    all_of,
    anonymous,
    as_column,
    cast,
    col,
    cols,
    create_table,
    drop_table,
    fragment,
    is_not_null,
    null_safe_equal,
    number,
    row_count,
    subquery,
    table,
    template,
    text,
    union_all,
)

CONFIDENCE = 0.99
"""The probability that the interval of a released value contains the true one."""

NEVER_EXCLUDES = -math.log(1 - CONFIDENCE)
"""The greatest ε at which the interval of a value contains all values of its class: 4.6."""

EVERYTHING = 1e300
"""The end of an open interval."""

LOWER_EPSILON = (
    f"give the noise an epsilon of at most {NEVER_EXCLUDES:.1f}: it excludes no row of a class then, though the "
    "nearest value still finds some"
)
"""The remedy where values with noise cannot be compared."""

WITHOUT_NOISE_LINKS = (
    f"leave the column out, or generalize it further; up to an epsilon of {NEVER_EXCLUDES:.1f} noise in this release "
    "excludes no row of a class, though the nearest value still finds some"
)
"""The remedy where values with noise link two releases."""

# Classes of a local strategy can have equal labels.
_RANGES = template("""
    WITH classes AS MATERIALIZED (:classes), ranges AS (:ranges)
    SELECT attribute, labels, min(low)::DOUBLE AS low, max(high)::DOUBLE AS high, max(step)::DOUBLE AS step
    FROM ranges
    GROUP BY attribute, labels
""")
_PAIR_COUNT = template("""
    SELECT coalesce(sum(a.records * b.records), 0)::BIGINT
    FROM :matches AS m
    JOIN (SELECT group_id, count(*) AS records FROM :first AS f GROUP BY group_id) AS a ON a.group_id = m.first_group
    JOIN (SELECT group_id, count(*) AS records FROM :second AS s GROUP BY group_id) AS b ON b.group_id = m.second_group
""")
_PAIRS = template("""
    SELECT
        m.combination,
        a.group_id AS first_group, a.record AS first_record, a.row_count AS first_rows,
        b.group_id AS second_group, b.record AS second_record, b.row_count AS second_rows,
        :overlap AS overlaps
    FROM (SELECT *, dense_rank() OVER (ORDER BY :values) AS combination FROM :matches AS m) AS m
    JOIN :first AS a ON a.group_id = m.first_group
    JOIN :second AS b ON b.group_id = m.second_group
""")
# The rows of two classes that can be rows of the other class: no more than the smaller number are in both.
_FEW_COMBINATIONS = template("""
    WITH
        first_records AS (
            SELECT
                combination, first_group, second_group,
                any_value(first_rows) AS row_count, bool_or(overlaps) AS overlaps
            FROM :pairs AS p
            GROUP BY combination, first_group, second_group, first_record
        ),
        second_records AS (
            SELECT first_group, second_group, any_value(second_rows) AS row_count, bool_or(overlaps) AS overlaps
            FROM :pairs AS p
            GROUP BY first_group, second_group, second_record
        ),
        firsts AS (
            SELECT
                combination, first_group, second_group,
                sum(row_count) AS all_rows, coalesce(sum(row_count) FILTER (WHERE overlaps), 0) AS remaining_rows
            FROM first_records
            GROUP BY combination, first_group, second_group
        ),
        seconds AS (
            SELECT
                first_group, second_group,
                sum(row_count) AS all_rows, coalesce(sum(row_count) FILTER (WHERE overlaps), 0) AS remaining_rows
            FROM second_records
            GROUP BY first_group, second_group
        ),
        combinations AS (
            SELECT
                sum(least(a.all_rows, b.all_rows)) AS all_rows,
                sum(least(a.remaining_rows, b.remaining_rows)) AS remaining_rows
            FROM firsts AS a
            JOIN seconds AS b ON a.first_group = b.first_group AND a.second_group = b.second_group
            GROUP BY a.combination
        )
    SELECT count(*) FROM combinations WHERE remaining_rows > 0 AND remaining_rows < least(:k, all_rows)
""")


def make_noise_ranges(run: Run, classes: exp.Query, search_input: SearchInput) -> exp.Table:
    """Make the table of the ranges of classes with noise, as the catalog keeps them."""
    quasi = [column.name for column in search_input.released_columns if column.quasi is not None]
    labels = [cast(col(name, "c"), "VARCHAR") for name in quasi]
    column_ranges = template("""
        SELECT
            :attribute AS attribute,
            list_value(:labels) AS labels,
            struct_extract(:range, 'low') AS low,
            struct_extract(:range, 'high') AS high,
            struct_extract(:range, 'step') AS step
        FROM classes AS c
    """)
    ranges = [
        column_ranges(attribute=text(name.lower()), labels=labels, range=col(name, "c"))
        for name in search_input.columns.noisy
    ]
    target = run.work("noise_ranges")
    catalog.replace_table(run.engine, target.copy(), _RANGES(classes=classes, ranges=union_all(*ranges)))
    return target


def copy_noise_ranges(run: Run, policy: Policy, run_id: str) -> exp.Table:
    """Copy the ranges of the classes of an earlier release from the catalog to the work schema."""
    query = template("""
        SELECT attribute, labels, low, high, step
        FROM sqlanon_catalog.sqlanon.released_noise
        WHERE run_id = :run_id
    """)(run_id=run_id)
    return catalog.copy_rows(run, policy, "noise_ranges_before", query)


def epsilons_by_column(release: ComparedRelease) -> dict[str, float]:
    """The ε of each column with noise, by name in lower case."""
    return {name.lower(): float(noise["epsilon"]) for name, noise in (release.manifest.noise or {}).items()}


def find_weak_noise(first: ComparedRelease, second: ComparedRelease) -> list[str]:
    """The columns of both releases, in lower case, whose noise is weak enough in one of them to distinguish rows."""
    epsilons = [*epsilons_by_column(first).items(), *epsilons_by_column(second).items()]
    common = _column_names(first) & _column_names(second)
    strong = {name for name, epsilon in epsilons if epsilon <= NEVER_EXCLUDES}
    return sorted({name for name, _ in epsilons if name in common and name not in strong})


def describe_uncompared_noise(first: ComparedRelease, second: ComparedRelease) -> str | None:
    """The warning about columns with weak noise of the first release that may determine numbers of the second."""
    first_names, second_names = _column_names(first), _column_names(second)
    noisy = [
        name
        for name, epsilon in epsilons_by_column(first).items()
        if epsilon > NEVER_EXCLUDES and name not in second_names
    ]
    numbers = [
        column.name
        for column in second.manifest.columns
        if column.name.lower() not in first_names and can_be_noisy(column.type)
    ]
    if not noisy or not numbers:
        return None
    return (
        f"not compared: {', '.join(noisy)} of {first.path.name} with an epsilon above {NEVER_EXCLUDES:.1f}, and "
        f"{', '.join(numbers)} of {second.path.name}. If one follows from the other, as pounds do from kilograms, a "
        "reader can join the two releases by the nearest value: lower the epsilon, or publish the same column in both, "
        "so that it is compared"
    )


def _column_names(release: ComparedRelease) -> set[str]:
    return {column.name.lower() for column in release.manifest.columns}


@dataclass(frozen=True)
class DistinguishedRows:
    """The rows of two releases that intervals distinguish.

    Linked rows of a release can be few rows of the other. Rows alone cannot be any: they are gone, or new.
    """

    columns: Sequence[str]
    first_linked: int
    first_alone: int
    second_linked: int
    second_alone: int
    combinations: int  # the combinations of labels of both releases that have few rows

    @property
    def any(self) -> bool:
        rows = self.first_linked + self.first_alone + self.second_linked + self.second_alone
        return rows > 0 or self.combinations > 0


@dataclass(frozen=True)
class NoiseSide:
    """One of two releases."""

    release: ComparedRelease
    relation: exp.Expr
    columns: Sequence[str]  # its columns in the link
    ranges: exp.Table | None  # the ranges of its classes; None where it has no noise, or where they are unknown


@dataclass(frozen=True)
class IntervalAudit:
    """Compares the rows of two releases by the intervals of some columns."""

    run: Run
    link: ReleaseLink
    with_tables: Callable[[exp.Select], exp.Select]  # makes a query read tables in place of `comparison_parts`
    hierarchies: ComparedHierarchies
    names: Sequence[str]  # the columns, in lower case
    _tables: list[exp.Table] = field(default_factory=list)

    def count_distinguished_rows(self, first: NoiseSide, second: NoiseSide, k: int) -> DistinguishedRows:
        engine = self.run.engine
        try:
            sides = {
                "first": self._make_side("first", first, second),
                "second": self._make_side("second", second, first),
            }
            groups = template("SELECT a.group_id AS first_group, b.group_id AS second_group")().expressions
            query = join_groups([*groups, *finest_values(self.link)], self.link)
            matches = self._make_table("matches", self.with_tables(query).limit(MAX_MATCHING_PAIRS + 1, copy=False))
            self._refuse_too_many(engine.rows(row_count(rows=matches))[0][0])
            self._refuse_too_many(engine.rows(_PAIR_COUNT(matches=matches, **sides))[0][0])
            overlap = all_of(
                fragment("(:first_low <= :second_high AND :second_low <= :first_high)")(
                    first_low=col(_low(j), "a"),
                    first_high=col(_high(j), "a"),
                    second_low=col(_low(j), "b"),
                    second_high=col(_high(j), "b"),
                )
                for j in range(len(self.names))
            )
            values = self.link.values or [number(1)]
            pairs = self._make_table("pairs", _PAIRS(overlap=overlap, values=values, matches=matches, **sides))
            first_linked, gone = engine.rows(_count_distinguished(pairs, "first", "second", k))[0]
            second_linked, new = engine.rows(_count_distinguished(pairs, "second", "first", k))[0]
            combinations = int(engine.rows(_FEW_COMBINATIONS(pairs=pairs, k=k))[0][0])
        finally:
            while self._tables:
                engine.execute(drop_table(self._tables.pop(), exists=True))
        return DistinguishedRows(tuple(self.names), first_linked, gone, second_linked, new, combinations)

    def _make_table(self, name: str, query: exp.Query) -> exp.Table:
        target = self.run.work(f"joint noise {name}")
        self.run.engine.execute(create_table(target.copy(), query))
        self._tables.append(target)
        return target

    def _refuse_too_many(self, pairs: int) -> None:
        if pairs > MAX_MATCHING_PAIRS:
            raise NotComparedError(
                f"more than {MAX_MATCHING_PAIRS:,} pairs of their rows can be the same, too many to compare the "
                f"values with noise of {', '.join(self.names)}",
                LOWER_EPSILON,
            )

    def _make_side(self, name: str, side: NoiseSide, other_side: NoiseSide) -> exp.Table:
        """Make the table of the rows of a release: the number of their group, their intervals, and ``row_count``."""
        records = self._make_table(f"{name} records", self._records(name, side, other_side))
        for j, column in enumerate(self.names):
            if column in epsilons_by_column(side.release) and self._has_null(records, _low(j)):
                raise _unknown_ranges(side.release, column)
        is_first = name == "first"
        same_group = [
            null_safe_equal(col(f"label_{i}", "g"), cast(col(label, "e"), "VARCHAR"))
            for i, label in self.link.side(is_first)[1]
        ]
        same_group += [
            null_safe_equal(col(f"shared_{j}", "g"), col(shared, "e")) for j, shared in enumerate(self.link.shared)
        ]
        query = template("""
            SELECT g.group_id, e."sqlanon record" AS record, e."sqlanon rows" AS row_count, :intervals
            FROM :records AS e
            JOIN :groups AS g ON :same
        """)(
            intervals=cols((end(j) for j in range(len(self.names)) for end in (_low, _high)), "e"),
            records=records,
            groups=table(FIRST if is_first else SECOND),
            same=all_of(same_group),
        )
        return self._make_table(f"{name} intervals", self.with_tables(query))

    def _has_null(self, relation: exp.Table, *columns: str) -> bool:
        query = template("SELECT count(*) > 0 FROM :rows AS r WHERE NOT :complete")
        complete = all_of(is_not_null(col(name, "r")) for name in columns)
        return bool(self.run.engine.rows(query(rows=relation, complete=complete))[0][0])

    def _records(self, name: str, side: NoiseSide, other_side: NoiseSide) -> exp.Query:
        """The distinct rows of a release by the columns of the link and by intervals, with their number and count."""
        release, columns = side.release, cols(side.columns, "r")
        joins: list[tuple[exp.Table | exp.Subquery, exp.Expr]] = []
        for j, column in enumerate(self.names):
            released = _find_column(release, column)
            if column in epsilons_by_column(release):
                if side.ranges is None:
                    raise _unknown_ranges(release, column)
                ranges = template("SELECT labels, low, high, step FROM :ranges AS r WHERE attribute = :attribute")(
                    ranges=side.ranges.copy(), attribute=column
                )
                labels = [cast(col(quasi, "r"), "VARCHAR") for quasi in release.manifest.quasi_identifiers]
                same_labels = null_safe_equal(col("labels", f"c{j}"), anonymous("list_value", *labels))
                joins.append((subquery(ranges, f"c{j}"), same_labels))
                low, high = _interval_of_noise(release, released, f"c{j}")
            elif release.is_quasi(column):
                is_date = _find_column(other_side.release, column).type == "DATE"
                intervals = self._make_table(f"{name} labels {j}", self._intervals_of_labels(side, released, is_date))
                if self._has_null(intervals, "low", "high"):
                    raise NotComparedError(
                        f"{release.path.name} has labels of {released.name} that cannot be read as ranges, and "
                        "values with noise",
                        LOWER_EPSILON,
                    )
                label = cast(col(released.name, "r"), "VARCHAR")
                joins.append((aliased(intervals, f"c{j}"), col("label", f"c{j}").eq(label)))
                low, high = col("low", f"c{j}"), col("high", f"c{j}")
            else:
                low = _exact_value(release, released)
                high = low.copy()
            columns += [as_column(low, _low(j)), as_column(high, _high(j))]
        query = template('SELECT :columns, count(*)::BIGINT AS "sqlanon rows" FROM :release AS r GROUP BY ALL')(
            columns=columns, release=side.relation
        )
        for relation, on in joins:
            query = query.join(relation, on=on, join_type="left", copy=False)
        return template('SELECT *, row_number() OVER () AS "sqlanon record" FROM :records AS r')(records=query)

    def _intervals_of_labels(self, side: NoiseSide, column: ReleasedColumn, is_date: bool) -> exp.Select:
        """The labels of a generalized column: ``label``, ``low`` and ``high``, NULL where a label cannot be read."""
        hierarchy = self.hierarchies.hierarchies.get(column.name.lower())
        if hierarchy is None:
            raise NotComparedError(f"the catalog no longer has the hierarchies of {column.name}")
        days, value = "(:day - '1970-01-01'::DATE)::DOUBLE", "TRY_CAST(level_0::VARCHAR AS DOUBLE)"
        first, last = label_bounds(col("label", "d"), "date" if is_date else "number")
        if is_date:
            first, last = fragment(days)(day=first), fragment(days)(day=last)
            value = "(TRY_CAST(level_0::VARCHAR AS DATE) - '1970-01-01'::DATE)::DOUBLE"
        return template("""
            WITH
                labels AS (SELECT DISTINCT :label::VARCHAR AS label FROM :release AS r WHERE NOT :label IS NULL),
                bounds AS (SELECT label, :first AS first, :last AS last FROM labels AS d),
                nodes AS (
                    SELECT label, min(value) AS low, max(value) AS high
                    FROM (SELECT unnest(list_value(:levels)) AS label, :value AS value FROM :hierarchy AS h) AS e
                    WHERE NOT label IS NULL
                    GROUP BY label
                )
            SELECT
                l.label,
                coalesce(n.low, l.first, CASE WHEN NOT l.last IS NULL THEN :least END) AS low,
                coalesce(n.high, l.last, CASE WHEN NOT l.first IS NULL THEN :most END) AS high
            FROM bounds AS l
            LEFT JOIN nodes AS n ON l.label = n.label
        """)(
            least=number(-EVERYTHING),
            most=number(EVERYTHING),
            first=first,
            last=last,
            label=col(column.name, "r"),
            release=side.relation.copy(),
            value=fragment(value)(),
            levels=[cast(col(f"level_{level}"), "VARCHAR") for level in range(hierarchy.height + 1)],
            hierarchy=hierarchy.table.copy(),
        )


def _count_distinguished(pairs: exp.Table, side: str, other_side: str, k: int) -> exp.Select:
    return template("""
        WITH
            records AS (
                SELECT
                    :group AS class_id,
                    any_value(:rows) AS row_count,
                    sum(:other_rows) AS candidates,
                    coalesce(sum(:other_rows) FILTER (WHERE overlaps), 0) AS remaining_rows
                FROM :pairs AS p
                GROUP BY :group, :record
            ),
            counted AS (
                SELECT *, sum(row_count) FILTER (WHERE remaining_rows = 0) OVER (PARTITION BY class_id) AS alone
                FROM records
            )
        SELECT
            coalesce(
                sum(row_count) FILTER (WHERE remaining_rows > 0 AND remaining_rows < least(:k, candidates)), 0
            )::BIGINT,
            coalesce(sum(row_count) FILTER (WHERE remaining_rows = 0 AND alone < :k), 0)::BIGINT
        FROM counted
    """)(
        k=k,
        group=col(f"{side}_group"),
        record=col(f"{side}_record"),
        rows=col(f"{side}_rows"),
        other_rows=col(f"{other_side}_rows"),
        pairs=pairs,
    )


def _unknown_ranges(release: ComparedRelease, column: str) -> NotComparedError:
    return NotComparedError(
        f"the catalog does not have the ranges of all classes of {release.path.name}, by which values of {column} with "
        "noise are compared",
        LOWER_EPSILON,
    )


def _find_column(release: ComparedRelease, name: str) -> ReleasedColumn:
    return next(column for column in release.manifest.columns if column.name.lower() == name)


def _exact_value(release: ComparedRelease, column: ReleasedColumn) -> exp.Expr:
    if not can_be_noisy(column.type):
        raise NotComparedError(
            f"{column.name} is {column.type} in {release.path.name}, and has noise in the other release", LOWER_EPSILON
        )
    return as_number(col(column.name, "r"), column.type)


def _interval_of_noise(release: ComparedRelease, column: ReleasedColumn, ranges: str) -> tuple[exp.Expr, exp.Expr]:
    """The ends of the interval of a released value, by the range of its class."""
    noise = next(noise for name, noise in (release.manifest.noise or {}).items() if name.lower() == column.name.lower())
    low, high, step = (col(name, ranges) for name in ("low", "high", "step"))
    released = as_number(col(column.name, "r"), column.type)
    moved = fragment("least(greatest(:released, :low), :high)")(released=released, low=low, high=high)
    factor = NEVER_EXCLUDES / float(noise["epsilon"]) + 0.5 / STEPS  # a value is at most half a step of the grid away
    width = fragment("(((:high - :low) * :factor) + (coalesce(:step, 0.0) / 2.0))")(
        low=low, high=high, factor=factor, step=step
    )
    # A value at a bound may have been anything beyond it.
    lower_end = "CASE WHEN :released <= :bound THEN least(:low, :moved - :width) ELSE :moved - :width END"
    upper_end = "CASE WHEN :released >= :bound THEN greatest(:high, :moved + :width) ELSE :moved + :width END"
    lower_bound, upper_bound = map(_as_double, noise.get("bounds") or (-EVERYTHING, EVERYTHING))
    ends = {"released": released, "moved": moved, "width": width}
    return (
        fragment(lower_end)(bound=number(lower_bound), low=low, **ends),
        fragment(upper_end)(bound=number(upper_bound), high=high, **ends),
    )


def _as_double(bound: Any) -> float:
    """A bound of a manifest as a number: dates, which are texts there, as days."""
    return float((date.fromisoformat(bound) - EPOCH).days) if isinstance(bound, str) else float(bound)


def _low(j: int) -> str:
    return f"sqlanon low {j}"


def _high(j: int) -> str:
    return f"sqlanon high {j}"
