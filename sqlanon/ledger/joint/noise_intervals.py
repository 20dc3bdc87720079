"""Compare columns with noise: each released value is an interval for the true one.

Noise has the scale b = Δ/ε, where Δ is the range of the class. A released value y is moved into that range; then the
true value is within b ln(1 / (1 - β)) of it with probability β, `CONFIDENCE`, plus what rounding adds. The range of a
class is not public: the catalog keeps it (``released_noise``). In the other release the column may be unchanged (an
interval of width 0), generalized (from the least to the greatest value of its label), or have noise, too.

A row of one release can be a row of the other if their labels and shared values match (`row_matching`), and their
intervals overlap. It is distinguished if intervals exclude some of its possible rows and leave fewer than k; or if they
exclude all of them, and it is one of fewer than k such rows of its class, which are then new, or gone. A combination of
the finest labels of both is distinguished if fewer than k rows of its classes are left.

Up to ε = ln(1 / (1 - β)), `NEVER_EXCLUDES`, an interval contains its whole class, so no row is excluded; the nearest
value is still the true one more often than any other. Columns are compared one by one: several columns together make
more likely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

from sqlglot import exp

from sqlanon.errors import NotComparedError
from sqlanon.hierarchies.bounds import label_bounds
from sqlanon.ledger import catalog
from sqlanon.ledger.joint.label_pairs import FIRST, SECOND
from sqlanon.ledger.joint.pair_audit import MOST_MATCHING_PAIRS
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
    create_table,
    drop_table,
    fragment,
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

_RANGES_OF_CLASSES = template("""
    SELECT
        :attribute AS attribute,
        list_value(:labels) AS labels,
        struct_extract(:range, 'low') AS low,
        struct_extract(:range, 'high') AS high,
        struct_extract(:range, 'step') AS step
    FROM :classes AS c
""")
# Classes of a local strategy can have equal labels.
_RANGES = template("""
    SELECT attribute, labels, min(low)::DOUBLE AS low, max(high)::DOUBLE AS high, max(step)::DOUBLE AS step
    FROM :classes AS c
    GROUP BY attribute, labels
""")
_STORED_RANGES = template("""
    SELECT attribute, labels, low, high, step
    FROM sqlanon_catalog.sqlanon.released_noise
    WHERE run_id = :run_id
""")

_INTERVALS_OF_LABELS = template("""
    SELECT
        l.label,
        coalesce(n.low, l.first, CASE WHEN NOT l.last IS NULL THEN :least END) AS low,
        coalesce(n.high, l.last, CASE WHEN NOT l.first IS NULL THEN :most END) AS high
    FROM (
        SELECT label, :first AS first, :last AS last
        FROM (SELECT DISTINCT :label::VARCHAR AS label FROM :release AS r WHERE NOT :label IS NULL) AS d
    ) AS l
    LEFT JOIN :nodes AS n ON l.label = n.label
""")
_NODES = template("""
    SELECT label, min(value) AS low, max(value) AS high
    FROM :levels AS e
    WHERE NOT label IS NULL
    GROUP BY label
""")
_VALUE_OF_TEXT = fragment("TRY_CAST(level_0::VARCHAR AS DOUBLE)")
_DAYS_OF_TEXT = fragment("(TRY_CAST(level_0::VARCHAR AS DATE) - '1970-01-01'::DATE)::DOUBLE")
_WITHOUT_BOUNDS = template("SELECT count(*) FROM :intervals AS i WHERE low IS NULL OR high IS NULL")

_NUMBERED = template('SELECT *, row_number() OVER () AS "sqlanon record" FROM :records AS r')
_MOVED = fragment("least(greatest(:y, :low), :high)")
# A value at a bound may have been anything beyond it.
_LOWER_END = fragment("CASE WHEN :y <= :bound THEN least(:low, :moved - :width) ELSE :moved - :width END")
_WITHOUT_INTERVAL = template("SELECT count(*) FROM :records AS r WHERE :low IS NULL")

_PLACED = template("""
    SELECT g.i, e."sqlanon record" AS record, e."sqlanon rows" AS n, :intervals
    FROM :records AS e
    JOIN :groups AS g ON :same
""")
_COMBINATIONS = template("SELECT a, b, dense_rank() OVER (ORDER BY :values) AS combination FROM :matches AS m")
_PAIR_COUNT = template("""
    SELECT coalesce(sum(a.records * b.records), 0)::BIGINT
    FROM :matches AS m
    JOIN (SELECT i, count(*) AS records FROM :first AS f GROUP BY i) AS a ON a.i = m.a
    JOIN (SELECT i, count(*) AS records FROM :second AS s GROUP BY i) AS b ON b.i = m.b
""")
_PAIRS = template("""
    SELECT
        m.combination,
        a.i AS class_a, a.record AS a, a.n AS n_a,
        b.i AS class_b, b.record AS b, b.n AS n_b,
        :overlap AS overlaps
    FROM :matches AS m
    JOIN :first AS a ON a.i = m.a
    JOIN :second AS b ON b.i = m.b
""")
_DISTINGUISHED = template("""
    SELECT
        coalesce(sum(n) FILTER (WHERE left_over > 0 AND left_over < least(:k, candidates)), 0)::BIGINT AS linked,
        coalesce(sum(n) FILTER (WHERE left_over = 0 AND alone < :k), 0)::BIGINT AS alone
    FROM (
        SELECT *, sum(n) FILTER (WHERE left_over = 0) OVER (PARTITION BY class) AS alone
        FROM (
            SELECT
                :group AS class,
                :record AS record,
                any_value(:rows) AS n,
                sum(:other_rows) AS candidates,
                coalesce(sum(:other_rows) FILTER (WHERE overlaps), 0) AS left_over
            FROM :pairs AS p
            GROUP BY :group, :record
        ) AS r
    ) AS t
""")


# The rows of two classes that can be rows of the other class: no more than the smaller number are in both.
_FEW_COMBINATIONS = template("""
    WITH
        first_rows AS (
            SELECT
                combination,
                class_a,
                class_b,
                sum(n) AS every,
                coalesce(sum(n) FILTER (WHERE overlaps), 0) AS left_over
            FROM (
                SELECT combination, class_a, class_b, any_value(n_a) AS n, bool_or(overlaps) AS overlaps
                FROM :pairs AS p
                GROUP BY combination, class_a, class_b, a
            ) AS r
            GROUP BY combination, class_a, class_b
        ),
        second_rows AS (
            SELECT class_a, class_b, sum(n) AS every, coalesce(sum(n) FILTER (WHERE overlaps), 0) AS left_over
            FROM (
                SELECT class_a, class_b, any_value(n_b) AS n, bool_or(overlaps) AS overlaps
                FROM :pairs AS p
                GROUP BY class_a, class_b, b
            ) AS r
            GROUP BY class_a, class_b
        )
    SELECT count(*)
    FROM (
        SELECT sum(least(a.every, b.every)) AS every, sum(least(a.left_over, b.left_over)) AS left_over
        FROM first_rows AS a
        JOIN second_rows AS b ON a.class_a = b.class_a AND a.class_b = b.class_b
        GROUP BY a.combination
    ) AS c
    WHERE left_over > 0 AND left_over < least(:k, every)
""")


def make_noise_ranges(run: Run, classes: exp.Query, search_input: SearchInput) -> exp.Table:
    """Make the table of the ranges of classes with noise, as the catalog keeps them."""
    labels = [
        cast(col(column.name, "c"), "VARCHAR") for column in search_input.released_columns if column.quasi is not None
    ]
    class_labels = run.work("noise_class_labels")
    catalog.replace_table(run.engine, class_labels.copy(), classes)
    ranges = [
        _RANGES_OF_CLASSES(attribute=text(name.lower()), labels=labels, range=col(name, "c"), classes=class_labels)
        for name in search_input.columns.noisy
    ]
    target = run.work("noise_ranges")
    catalog.replace_table(run.engine, target.copy(), _RANGES(classes=subquery(union_all(*ranges))))
    run.engine.execute(drop_table(class_labels))
    return target


def copy_noise_ranges(run: Run, policy: Policy, run_id: str) -> exp.Table:
    """Copy the ranges of the classes of an earlier release from the catalog to the work schema."""
    assert policy.catalog is not None
    target = run.work("noise_ranges_before")
    with catalog.open_catalog(run.engine, policy.catalog.database):
        catalog.replace_table(run.engine, target.copy(), _STORED_RANGES(run_id=run_id))
    return target


def epsilons_by_column(release: ComparedRelease) -> dict[str, float]:
    """The ε of each column with noise, by name in lower case."""
    return {name.lower(): float(noise["epsilon"]) for name, noise in (release.manifest.noise or {}).items()}


def find_weak_noise(first: ComparedRelease, second: ComparedRelease) -> list[str]:
    """The columns of both releases, in lower case, whose noise is weak enough in one of them to distinguish rows."""
    first_epsilons, second_epsilons = epsilons_by_column(first), epsilons_by_column(second)
    common = _column_names(first) & _column_names(second)
    least = {
        name: min(first_epsilons.get(name, math.inf), second_epsilons.get(name, math.inf))
        for name in {*first_epsilons, *second_epsilons} & common
    }
    return sorted(name for name, epsilon in least.items() if epsilon > NEVER_EXCLUDES)


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

    Attributes
    ----------
    first_linked, second_linked:
        The rows of each release that can be few rows of the other.
    first_alone, second_alone:
        The rows of each release that cannot be rows of the other: they are gone, or new.
    combinations:
        The combinations of labels of both releases that have few rows.
    """

    columns: Sequence[str]
    first_linked: int
    first_alone: int
    second_linked: int
    second_alone: int
    combinations: int

    @property
    def any(self) -> bool:
        rows = self.first_linked + self.first_alone + self.second_linked + self.second_alone
        return rows > 0 or self.combinations > 0


@dataclass(frozen=True)
class NoiseSide:
    """One of two releases: its rows, its columns in the link, and the table of the ranges of its classes.

    ``ranges`` is None where it has no noise, or where they are unknown.
    """

    release: ComparedRelease
    relation: exp.Expr
    columns: Sequence[str]
    ranges: exp.Table | None


MakeTable: TypeAlias = Callable[[str, exp.Query], exp.Table]
"""Makes a table of a query, under a name."""


@dataclass(frozen=True)
class IntervalAudit:
    """Compares the rows of two releases by the intervals of some columns.

    Attributes
    ----------
    linked:
        The link of the two releases.
    with_tables:
        Makes a query read tables in place of the parts that `row_matching.comparison_parts` names.
    names:
        The columns, in lower case.
    """

    run: Run
    linked: ReleaseLink
    with_tables: Callable[[exp.Select], exp.Select]
    hierarchies: ComparedHierarchies
    names: Sequence[str]

    def count_distinguished_rows(self, first: NoiseSide, second: NoiseSide, k: int) -> DistinguishedRows:
        engine, tables = self.run.engine, list[exp.Table]()

        def make_table(name: str, query: exp.Query) -> exp.Table:
            target = self.run.work(f"joint noise {name}")
            engine.execute(create_table(target.copy(), query))
            tables.append(target)
            return target

        try:
            a = self._make_side("first", first, second, make_table)
            b = self._make_side("second", second, first, make_table)
            output = [*template("SELECT a.i AS a, b.i AS b")().expressions, *finest_values(self.linked, numbers=True)]
            query = join_groups(output, self.linked, numbers=True)
            matches = make_table("met", self.with_tables(query).limit(MOST_MATCHING_PAIRS + 1, copy=False))
            self._refuse_too_many(engine.rows(row_count(rows=matches))[0][0])
            if values := self.linked.values:
                matches = make_table("combinations", _COMBINATIONS(values=values, matches=matches))
            self._refuse_too_many(engine.rows(_PAIR_COUNT(matches=matches, first=a, second=b))[0][0])
            pairs = make_table("pairs", _PAIRS(overlap=self._overlap(), matches=matches, first=a, second=b))
            first_linked, gone = engine.rows(_count_distinguished(pairs, "a", "b", k))[0]
            second_linked, new = engine.rows(_count_distinguished(pairs, "b", "a", k))[0]
            combinations = int(engine.rows(_FEW_COMBINATIONS(pairs=pairs, k=k))[0][0])
        finally:
            for target in tables:
                engine.execute(drop_table(target, exists=True))
        return DistinguishedRows(tuple(self.names), first_linked, gone, second_linked, new, combinations)

    def _refuse_too_many(self, pairs: int) -> None:
        if pairs > MOST_MATCHING_PAIRS:
            raise NotComparedError(
                f"more than {MOST_MATCHING_PAIRS:,} pairs of their rows can be the same, too many to compare the "
                f"values with noise of {', '.join(self.names)}",
                LOWER_EPSILON,
            )

    def _make_side(self, name: str, side: NoiseSide, other_side: NoiseSide, make_table: MakeTable) -> exp.Table:
        """Make the table of the rows of a release: the number of their group, ``i``, their intervals, and ``n``."""
        records = make_table(f"{name} records", _NUMBERED(records=self._records(name, side, other_side, make_table)))
        for j, column in enumerate(self.names):
            is_noisy = column in epsilons_by_column(side.release)
            if is_noisy and self.run.engine.rows(_WITHOUT_INTERVAL(records=records, low=col(_low(j), "r")))[0][0]:
                raise _unknown_ranges(side.release, column)
        is_first = name == "first"
        same_group = [
            null_safe_equal(col(f"label_{i}", "g"), cast(col(label, "e"), "VARCHAR"))
            for i, label in self.linked.side(is_first)[1]
        ]
        same_group += [
            null_safe_equal(col(f"shared_{j}", "g"), col(shared, "e")) for j, shared in enumerate(self.linked.shared)
        ]
        placed = _PLACED(
            intervals=[col(end(j), "e") for j in range(len(self.names)) for end in (_low, _high)],
            records=records,
            groups=table(FIRST if is_first else SECOND),
            same=all_of(same_group),
        )
        return make_table(f"{name} placed", self.with_tables(placed))

    def _records(self, name: str, side: NoiseSide, other_side: NoiseSide, make_table: MakeTable) -> exp.Query:
        """The distinct rows of a release in the columns of the link and in the intervals, with their count, ``n``."""
        release = side.release
        columns: list[exp.Expr] = [col(column, "r") for column in side.columns]
        joins: list[tuple[exp.Expr, exp.Expr]] = []
        for j, column in enumerate(self.names):
            released = _find_column(release, column)
            if column in epsilons_by_column(release):
                if side.ranges is None:
                    raise _unknown_ranges(release, column)
                ranges = template("SELECT labels, low, high, step FROM :ranges AS r WHERE attribute = :attribute")(
                    ranges=side.ranges.copy(), attribute=column
                )
                labels = [cast(col(quasi, "r"), "VARCHAR") for quasi in release.manifest.quasi_identifiers]
                class_labels = anonymous("list_value", *labels)
                joins.append((subquery(ranges, f"c{j}"), null_safe_equal(col("labels", f"c{j}"), class_labels)))
                low, high = _interval_of_noise(release, released, f"c{j}")
            elif release.is_quasi(column):
                is_date = _find_column(other_side.release, column).type == "DATE"
                intervals = make_table(f"{name} labels {j}", self._intervals_of_labels(side, released, is_date))
                if self.run.engine.rows(_WITHOUT_BOUNDS(intervals=intervals))[0][0]:
                    raise NotComparedError(
                        f"{release.path.name} has labels of {released.name} that cannot be read as ranges, beside "
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
        return subquery(query)

    def _intervals_of_labels(self, side: NoiseSide, column: ReleasedColumn, is_date: bool) -> exp.Select:
        """The labels of a generalized column: ``label``, ``low`` and ``high``, NULL where a label cannot be read."""
        hierarchy = self.hierarchies.hierarchies.get(column.name.lower())
        if hierarchy is None:
            raise NotComparedError(f"the catalog no longer has the hierarchies of {column.name}")
        value = (_DAYS_OF_TEXT if is_date else _VALUE_OF_TEXT)()
        levels = [
            template("SELECT :label::VARCHAR AS label, :value AS value FROM :hierarchy AS h")(
                label=col(f"level_{level}"), value=value.copy(), hierarchy=hierarchy.table.copy()
            )
            for level in range(hierarchy.height + 1)
        ]
        ends = label_bounds(col("label", "d"), "date" if is_date else "number")
        first, last = (fragment("(:day - '1970-01-01'::DATE)::DOUBLE")(day=end) if is_date else end for end in ends)
        return _INTERVALS_OF_LABELS(
            least=number(-EVERYTHING),
            most=number(EVERYTHING),
            first=first,
            last=last,
            label=col(column.name, "r"),
            release=side.relation.copy(),
            nodes=_NODES(levels=union_all(*levels)),
        )

    def _overlap(self) -> exp.Expr:
        return all_of(
            fragment("(:low_a <= :high_b AND :low_b <= :high_a)")(
                low_a=col(_low(j), "a"), high_a=col(_high(j), "a"), low_b=col(_low(j), "b"), high_b=col(_high(j), "b")
            )
            for j in range(len(self.names))
        )


def _count_distinguished(pairs: exp.Table, side: str, other_side: str, k: int) -> exp.Select:
    return _DISTINGUISHED(
        k=k,
        group=col(f"class_{side}"),
        record=col(side),
        rows=col(f"n_{side}"),
        other_rows=col(f"n_{other_side}"),
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
    y = as_number(col(column.name, "r"), column.type)
    factor = NEVER_EXCLUDES / float(noise["epsilon"]) + 0.5 / STEPS  # a value is at most half a step of the grid away
    moved = _MOVED(y=y, low=low, high=high)
    width = fragment("(((:high - :low) * :factor) + (coalesce(:step, 0.0) / 2.0))")(
        low=low, high=high, factor=factor, step=step
    )
    least, most = noise.get("bounds") or (-EVERYTHING, EVERYTHING)
    ends = {"y": y, "moved": moved, "width": width}
    return (
        _LOWER_END(bound=number(_as_double(least)), low=low, **ends),
        fragment("CASE WHEN :y >= :bound THEN greatest(:high, :moved + :width) ELSE :moved + :width END")(
            bound=number(_as_double(most)), high=high, **ends
        ),
    )


def _as_double(bound: Any) -> float:
    """A bound of a manifest as a number: dates, which are texts there, as days."""
    return float((date.fromisoformat(bound) - EPOCH).days) if isinstance(bound, str) else float(bound)


def _low(j: int) -> str:
    return f"sqlanon low {j}"


def _high(j: int) -> str:
    return f"sqlanon high {j}"
