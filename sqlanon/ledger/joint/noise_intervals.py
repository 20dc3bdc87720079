"""Columns with noise beside another release that has the column: each released value as an interval for the true one.

Noise has the scale b = Δ/ε, Δ the range of the class. A released value y is moved into that range, and then the true
value is within b ln(1 / (1 - β)) of it with probability β, `CONFIDENCE`; what rounding adds is added. The range of a
class is not public: the catalog keeps it (``released_noise``). In the other release the column may be unchanged (an
interval of no width), generalized (from the least to the greatest value of its label), or have noise, too.

A row of one release can be a row of the other if their labels and shared values go together (`row_matching`), and their
intervals overlap. It is told apart if intervals exclude some of the rows that it could be, and fewer than k are left;
or all, and it is one of fewer than k such rows of its class: then these are new, or gone. So is a combination of the
finest labels of both, if fewer than k rows of its classes are left.

Up to ε = ln(1 / (1 - β)), `NEVER_EXCLUDES`, an interval holds all of its class, so no row is excluded; the nearest
value still is the true one more often than any other. Columns are compared each by itself: what several make likely
together is more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

from sqlglot import exp

from sqlanon.errors import NotComparedError
from sqlanon.hierarchies.bounds import bounds
from sqlanon.ledger import catalog
from sqlanon.ledger.joint.label_pairs import FIRST, SECOND
from sqlanon.ledger.joint.pair_audit import MOST_MEETING
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
    cast,
    col,
    create_table,
    drop_table,
    fragment,
    named,
    number,
    same,
    subquery,
    table,
    template,
    text,
    union_all,
)

CONFIDENCE = 0.99
"""The probability that the interval of a released value holds the true one."""

NEVER_EXCLUDES = -math.log(1 - CONFIDENCE)
"""Up to this ε the interval of a value holds all values of its class: 4.6."""

EVERYTHING = 1e300
"""The ends of an interval that is open."""

LOWER_EPSILON = (
    f"give the noise an epsilon of at most {NEVER_EXCLUDES:.1f}: it excludes no row of a class then, though the "
    "nearest value still finds some"
)
"""What makes noise comparable with anything."""

WITHOUT_NOISE_LINKS = (
    f"leave the column out, or generalize it further; up to an epsilon of {NEVER_EXCLUDES:.1f} noise in this release "
    "excludes no row of a class, though the nearest value still finds some"
)
"""What makes releases safe that values with noise link."""

_RANGES_OF_CLASSES = template("""
    SELECT
        :attribute AS attribute,
        list_value(:labels) AS labels,
        struct_extract(:range, 'low') AS low,
        struct_extract(:range, 'high') AS high,
        struct_extract(:range, 'step') AS step
    FROM :classes AS c
""")
# Classes of a local strategy may read alike.
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
_RANGES_OF_ATTRIBUTE = template("SELECT labels, low, high, step FROM :ranges AS r WHERE attribute = :attribute")

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
_VALUES_AT_LEVEL = template("SELECT :label::VARCHAR AS label, :value AS value FROM :hierarchy AS h")
_VALUE_OF_TEXT = fragment("TRY_CAST(level_0::VARCHAR AS DOUBLE)")
_DAYS_OF_TEXT = fragment("(TRY_CAST(level_0::VARCHAR AS DATE) - '1970-01-01'::DATE)::DOUBLE")
_AS_DAYS = fragment("(:day - '1970-01-01'::DATE)::DOUBLE")
_WITHOUT_BOUNDS = template("SELECT count(*) FROM :intervals AS i WHERE low IS NULL OR high IS NULL")

_RECORDS = template('SELECT :columns, :count::BIGINT AS "sqlanon rows" FROM :release AS r GROUP BY ALL')
_COUNT = fragment("count(*)")
_COUNT_ROWS = template("SELECT count(*) FROM :rows")
_NUMBERED = template('SELECT *, row_number() OVER () AS "sqlanon record" FROM :records AS r')
_LABELS_OF_CLASS = fragment("list_value(:labels)")
_MOVED = fragment("least(greatest(:y, :low), :high)")
_WIDTH = fragment("(((:high - :low) * :factor) + (coalesce(:step, 0.0) / 2.0))")
# What bounds cut off may have been anything beyond them.
_LOWER_END = fragment("CASE WHEN :y <= :bound THEN least(:low, :moved - :width) ELSE :moved - :width END")
_UPPER_END = fragment("CASE WHEN :y >= :bound THEN greatest(:high, :moved + :width) ELSE :moved + :width END")
_WITHOUT_INTERVAL = template("SELECT count(*) FROM :records AS r WHERE :low IS NULL")

_PLACED = template("""
    SELECT g.i, e."sqlanon record" AS record, e."sqlanon rows" AS n, :intervals
    FROM :records AS e
    JOIN :groups AS g ON :same
""")
_MET = template("SELECT a.i AS a, b.i AS b")
_COMBINATIONS = template("SELECT a, b, dense_rank() OVER (ORDER BY :values) AS combination FROM :met AS m")
_PAIR_COUNT = template("""
    SELECT coalesce(sum(a.records * b.records), 0)::BIGINT
    FROM :met AS m
    JOIN (SELECT i, count(*) AS records FROM :first AS f GROUP BY i) AS a ON a.i = m.a
    JOIN (SELECT i, count(*) AS records FROM :second AS s GROUP BY i) AS b ON b.i = m.b
""")
_PAIRS = template("""
    SELECT
        m.combination,
        a.i AS class_a, a.record AS a, a.n AS n_a,
        b.i AS class_b, b.record AS b, b.n AS n_b,
        :overlap AS overlaps
    FROM :met AS m
    JOIN :first AS a ON a.i = m.a
    JOIN :second AS b ON b.i = m.b
""")
_OVERLAP = fragment("(:low_a <= :high_b AND :low_b <= :high_a)")
_TOLD_APART = template("""
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
                sum(:others) AS candidates,
                coalesce(sum(:others) FILTER (WHERE overlaps), 0) AS left_over
            FROM :pairs AS p
            GROUP BY :group, :record
        ) AS r
    ) AS t
""")


# Of the rows of two classes, those that can be some of the other: no more than the lesser number are in both classes.
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


def make_noise_ranges(run: Run, classes: exp.Query, prepared: SearchInput) -> exp.Table:
    """Make the table of the ranges of classes with noise, as the catalog keeps them."""
    labels = [cast(col(one.name, "c"), "VARCHAR") for one in prepared.released_columns if one.quasi is not None]
    made = run.work("noise_class_labels")
    catalog.replace_table(run.engine, made.copy(), classes)
    each = [
        _RANGES_OF_CLASSES(attribute=text(name.lower()), labels=labels, range=col(name, "c"), classes=made)
        for name in prepared.columns.noisy
    ]
    target = run.work("noise_ranges")
    catalog.replace_table(run.engine, target.copy(), _RANGES(classes=subquery(union_all(*each))))
    run.engine.execute(drop_table(made))
    return target


def stored_ranges(run: Run, policy: Policy, run_id: str) -> exp.Table:
    """The ranges of the classes of an earlier release, as a table in the work schema."""
    assert policy.catalog is not None
    target = run.work("noise_ranges_before")
    with catalog.open_catalog(run.engine, policy.catalog.database):
        catalog.replace_table(run.engine, target.copy(), _STORED_RANGES(run_id=run_id))
    return target


def epsilons_of(release: ComparedRelease) -> dict[str, float]:
    """The ε of each column with noise, by name in lower case."""
    return {name.lower(): float(one["epsilon"]) for name, one in (release.manifest.noise or {}).items()}


def weakly_noisy(first: ComparedRelease, second: ComparedRelease) -> list[str]:
    """The columns of both releases, in lower case, with noise in one of them at least that may tell rows apart."""
    own, other = epsilons_of(first), epsilons_of(second)
    both = {one.name.lower() for one in first.manifest.columns} & {one.name.lower() for one in second.manifest.columns}
    least = {name: min(own.get(name, math.inf), other.get(name, math.inf)) for name in {*own, *other} & both}
    return sorted(name for name, epsilon in least.items() if epsilon > NEVER_EXCLUDES)


def describe_uncompared_noise(first: ComparedRelease, second: ComparedRelease) -> str | None:
    """The warning about columns with weak noise of the first release that other numbers of the second may follow
    from."""
    own, other = ({one.name.lower() for one in release.manifest.columns} for release in (first, second))
    noisy = [name for name, epsilon in epsilons_of(first).items() if epsilon > NEVER_EXCLUDES and name not in other]
    numbers = [one.name for one in second.manifest.columns if one.name.lower() not in own and can_be_noisy(one.type)]
    if not noisy or not numbers:
        return None
    return (
        f"not compared: {', '.join(noisy)} of {first.path.name} with an epsilon above {NEVER_EXCLUDES:.1f}, and "
        f"{', '.join(numbers)} of {second.path.name}. If one follows from the other, as pounds do from kilograms, a "
        "reader can join the two releases by the nearest value: lower the epsilon, or publish the same column in both, "
        "so that it is compared"
    )


@dataclass(frozen=True)
class DistinguishedRows:
    """What intervals tell apart in two releases: of each the rows that can be few rows of the other, and those that are
    new, or gone; and the combinations of labels of both that have few rows."""

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
    """One of two releases: with its rows, ``relation``, its ``columns`` in the link, and the table of the ranges of its
    classes, None where it has no noise or they are not known."""

    release: ComparedRelease
    relation: exp.Expr
    columns: Sequence[str]
    ranges: exp.Table | None


Make: TypeAlias = Callable[[str, exp.Query], exp.Table]
"""Makes a table of a query, by a name."""


@dataclass(frozen=True)
class IntervalAudit:
    """Compares the rows of two releases by the intervals of some columns, ``names`` in lower case.

    ``linked`` is their link, and ``place`` puts tables in the place of the parts of a query over its groups, as
    `row_matching.parts_of_both` names them.
    """

    run: Run
    linked: ReleaseLink
    place: Callable[[exp.Select], exp.Select]
    trees: ComparedHierarchies
    names: Sequence[str]

    def told_apart(self, first: NoiseSide, second: NoiseSide, k: int) -> DistinguishedRows:
        """Count the rows of both that are told apart."""
        engine, made = self.run.engine, list[exp.Table]()

        def make(name: str, query: exp.Query) -> exp.Table:
            target = self.run.work(f"joint noise {name}")
            engine.execute(create_table(target.copy(), query))
            made.append(target)
            return target

        try:
            a = self._make_side("first", first, second, make)
            b = self._make_side("second", second, first, make)
            query = join_groups(
                [*_MET().expressions, *finest_values(self.linked, numbers=True)], self.linked, numbers=True
            )
            met = make("met", self.place(query).limit(MOST_MEETING + 1, copy=False))
            self._refuse_too_many(engine.rows(_COUNT_ROWS(rows=met))[0][0])
            if values := self.linked.values:
                met = make("combinations", _COMBINATIONS(values=values, met=met))
            self._refuse_too_many(engine.rows(_PAIR_COUNT(met=met, first=a, second=b))[0][0])
            pairs = make("pairs", _PAIRS(overlap=self._overlap(), met=met, first=a, second=b))
            (of_first, gone), (of_second, new) = (engine.rows(_told_apart_of(pairs, own, k))[0] for own in ("a", "b"))
            combinations = int(engine.rows(_FEW_COMBINATIONS(pairs=pairs, k=k))[0][0])
        finally:
            for target in made:
                engine.execute(drop_table(target, exists=True))
        return DistinguishedRows(tuple(self.names), of_first, gone, of_second, new, combinations)

    def _refuse_too_many(self, pairs: int) -> None:
        if pairs > MOST_MEETING:
            raise NotComparedError(
                f"more than {MOST_MEETING:,} pairs of their rows can be the same, too many to compare the values with "
                f"noise of {', '.join(self.names)}",
                LOWER_EPSILON,
            )

    def _make_side(self, name: str, side: NoiseSide, other: NoiseSide, make: Make) -> exp.Table:
        """Make the table of the rows of a release: the number of their group, ``i``, their intervals, and ``n``."""
        records = make(f"{name} records", _NUMBERED(records=self._records(name, side, other, make)))
        for j, column in enumerate(self.names):
            is_noisy = column in epsilons_of(side.release)
            if is_noisy and self.run.engine.rows(_WITHOUT_INTERVAL(records=records, low=col(_low(j), "r")))[0][0]:
                raise _not_kept(side.release, column)
        is_first = name == "first"
        _, labels = self.linked.side(is_first)
        same_group = [same(col(f"label_{i}", "g"), cast(col(label, "e"), "VARCHAR")) for i, label in labels]
        same_group += [same(col(f"shared_{j}", "g"), col(shared, "e")) for j, shared in enumerate(self.linked.shared)]
        placed = _PLACED(
            intervals=[col(end(j), "e") for j in range(len(self.names)) for end in (_low, _high)],
            records=records,
            groups=table(FIRST if is_first else SECOND),
            same=all_of(same_group),
        )
        return make(f"{name} placed", self.place(placed))

    def _records(self, name: str, side: NoiseSide, other: NoiseSide, make: Make) -> exp.Query:
        """The distinct rows of a release in the columns of the link and in the intervals, with their count, ``n``."""
        release = side.release
        columns: list[exp.Expr] = [col(column, "r") for column in side.columns]
        joins: list[tuple[exp.Expr, exp.Expr]] = []
        for j, column in enumerate(self.names):
            released = _column(release, column)
            if column in epsilons_of(release):
                if side.ranges is None:
                    raise _not_kept(release, column)
                ranges = _RANGES_OF_ATTRIBUTE(ranges=side.ranges.copy(), attribute=column)
                labels = [cast(col(quasi, "r"), "VARCHAR") for quasi in release.manifest.quasi_identifiers]
                joins.append((subquery(ranges, f"c{j}"), same(col("labels", f"c{j}"), _LABELS_OF_CLASS(labels=labels))))
                low, high = _noisy_ends(release, released, f"c{j}")
            elif release.is_quasi(column):
                is_date = _column(other.release, column).type == "DATE"
                intervals = make(f"{name} labels {j}", self._intervals_of_labels(side, released, is_date))
                if self.run.engine.rows(_WITHOUT_BOUNDS(intervals=intervals))[0][0]:
                    raise NotComparedError(
                        f"{release.path.name} has labels of {released.name} that cannot be read as ranges, beside "
                        "values with noise",
                        LOWER_EPSILON,
                    )
                joins.append(
                    (aliased(intervals, f"c{j}"), col("label", f"c{j}").eq(cast(col(released.name, "r"), "VARCHAR")))
                )
                low, high = col("low", f"c{j}"), col("high", f"c{j}")
            else:
                low = _exact_value(release, released)
                high = low.copy()
            columns += [named(low, _low(j)), named(high, _high(j))]
        query = _RECORDS(columns=columns, count=_COUNT(), release=side.relation)
        for relation, on in joins:
            query = query.join(relation, on=on, join_type="left", copy=False)
        return subquery(query)

    def _intervals_of_labels(self, side: NoiseSide, column: ReleasedColumn, is_date: bool) -> exp.Select:
        """The labels of a generalized column: ``label``, ``low`` and ``high``, NULL where a label cannot be read."""
        tree = self.trees.hierarchies.get(column.name.lower())
        if tree is None:
            raise NotComparedError(f"the catalog no longer has the hierarchies of {column.name}")
        value = (_DAYS_OF_TEXT if is_date else _VALUE_OF_TEXT)()
        levels = [
            _VALUES_AT_LEVEL(label=col(f"level_{level}"), value=value.copy(), hierarchy=tree.table.copy())
            for level in range(tree.height + 1)
        ]
        ends = bounds(col("label", "d"), "date" if is_date else "number")
        first, last = (_AS_DAYS(day=end) if is_date else end for end in ends)
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
            _OVERLAP(
                low_a=col(_low(j), "a"), high_a=col(_high(j), "a"), low_b=col(_low(j), "b"), high_b=col(_high(j), "b")
            )
            for j in range(len(self.names))
        )


def _told_apart_of(pairs: exp.Table, own: str, k: int) -> exp.Select:
    other = "b" if own == "a" else "a"
    return _TOLD_APART(
        k=k, group=col(f"class_{own}"), record=col(own), rows=col(f"n_{own}"), others=col(f"n_{other}"), pairs=pairs
    )


def _not_kept(release: ComparedRelease, column: str) -> NotComparedError:
    return NotComparedError(
        f"the catalog does not have the ranges of all classes of {release.path.name}, by which values of {column} with "
        "noise are compared",
        LOWER_EPSILON,
    )


def _column(release: ComparedRelease, name: str) -> ReleasedColumn:
    return next(one for one in release.manifest.columns if one.name.lower() == name)


def _exact_value(release: ComparedRelease, column: ReleasedColumn) -> exp.Expr:
    if not can_be_noisy(column.type):
        raise NotComparedError(
            f"{column.name} is {column.type} in {release.path.name}, and has noise in the other release", LOWER_EPSILON
        )
    return as_number(col(column.name, "r"), column.type)


def _noisy_ends(release: ComparedRelease, column: ReleasedColumn, ranges: str) -> tuple[exp.Expr, exp.Expr]:
    """The ends of the interval of a released value, by the range of its class."""
    noise = next(one for name, one in (release.manifest.noise or {}).items() if name.lower() == column.name.lower())
    low, high, step = (col(name, ranges) for name in ("low", "high", "step"))
    y = as_number(col(column.name, "r"), column.type)
    factor = NEVER_EXCLUDES / float(noise["epsilon"]) + 0.5 / STEPS  # a value is half a step of the grid away at most
    moved = _MOVED(y=y, low=low, high=high)
    width = _WIDTH(low=low, high=high, factor=factor, step=step)
    least, most = noise.get("bounds") or (-EVERYTHING, EVERYTHING)
    ends = {"y": y, "moved": moved, "width": width}
    return (
        _LOWER_END(bound=number(_as_double(least)), low=low, **ends),
        _UPPER_END(bound=number(_as_double(most)), high=high, **ends),
    )


def _as_double(bound: Any) -> float:
    """A bound as manifests show it: a number, or the text of a date, as days."""
    return float((date.fromisoformat(bound) - EPOCH).days) if isinstance(bound, str) else float(bound)


def _low(j: int) -> str:
    return f"sqlanon low {j}"


def _high(j: int) -> str:
    return f"sqlanon high {j}"
