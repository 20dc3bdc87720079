"""Check requirements on a sensitive attribute that two releases show: in the classes of their join, and in new rows.

New rows are checked in a class or in a union of classes. Parts are rows by their labels, ``finest_0`` .. (of joined
classes the finest labels), and by their shared values, ``shared_0`` ..; requirements are checked in plain SQL, on rows.
Shares of the whole table are those of the link's second release.

Only the most rows of each value in a joined class are known. Where fewer than l values are possible, the class has
fewer than l. Figures of shares describe one possible class, and do not bound others: the entropy of two values with at
most three rows each is that of 2 values, but the table may have one row of each, or three and none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.travel import repeat_rows
from sqlanon.ledger.joint.attacks import add_unmatched, bound_rows_of_pairs, new_rows
from sqlanon.ledger.joint.class_unions import Union, add_regions, new_rows_in_unions, union_columns
from sqlanon.ledger.joint.label_pairs import SECOND, FinestForm
from sqlanon.ledger.joint.overlaps import group_columns
from sqlanon.ledger.joint.row_matching import ReleaseLink, finest_values, join_groups, with_comparison_parts
from sqlanon.requirements import list_requirements
from sqlanon.requirements.base import ClassCondition, Requirement, SourceDomains
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.expressions import (
    all_of,
    as_column,
    cast,
    col,
    ident,
    null_safe_equal,
    subquery,
    table,
    template,
    values_query,
)

NewRows: TypeAlias = "Literal['new'] | Union"
"""The new rows of each class of the second release, or of each union of classes."""

Part: TypeAlias = "Literal['joined', 'joined by counts'] | NewRows"
"""The classes of the join; these with the most rows that overlapping classes share by the counts of both releases; or
new rows."""

SHARED_ROWS = "sqlanon shared rows"
"""The table of `shared_rows`, within a statement."""

_WITH_SHARED_ROWS = template("""
    SELECT p.* REPLACE (coalesce(x.n, p.n) AS n)
    FROM :pairs AS p
    LEFT JOIN "sqlanon shared rows" AS x ON x.a = p.a AND x.b = p.b
""")
_LABELLED_SHARED_ROWS = template("""
    SELECT DISTINCT :labels, x.n
    FROM "sqlanon shared rows" AS x
    JOIN "sqlanon matching groups" AS m ON m.a = x.a AND m.b = x.b
    JOIN "sqlanon first" AS a ON a.i = x.a
    JOIN "sqlanon second" AS b ON b.i = x.b
    SEMI JOIN :violating_parts AS f ON :same_class
""")
_SHARED_ROWS_BY_LABELS = template("""
    SELECT a.i AS a, b.i AS b, x.n
    FROM :rows AS x
    JOIN "sqlanon first" AS a ON :same_first
    JOIN "sqlanon second" AS b ON :same_second
""")
_WITH_ROWS = template("""
    SELECT :columns, p.n
    FROM :violating_parts AS f
    JOIN (SELECT :keys, count(*) AS n FROM :rows AS r GROUP BY :keys) AS p ON :same_part
""")
_ROW_COUNTS = template("SELECT :columns, sum(n)::BIGINT AS n FROM :rows AS r GROUP BY :columns")


@dataclass(frozen=True)
class SharedRequirement:
    """A requirement on a sensitive attribute that both releases show.

    Attributes
    ----------
    column:
        The number of its shared column.
    sensitive:
        The numbers of all shared sensitive columns: joint diversity counts combinations of their values.
    """

    requirement: Requirement
    column: int
    sensitive: Sequence[int]

    @property
    def name(self) -> str:
        return self.requirement.name

    def violations(self, rows: exp.Table, whole: exp.Table, keys: Sequence[str]) -> exp.Select | None:
        """The parts of rows that violate it."""
        (attribute,) = self.requirement.sensitive_attributes
        sensitive = [f"shared_{j}" for j in self.sensitive]
        return self.requirement.violations(
            WarehouseRelease(rows, whole, keys, sensitive, {attribute: f"shared_{self.column}"})
        )


def shared_requirements(privacy: Any, sensitive: Collection[str], linked: ReleaseLink) -> Iterator[SharedRequirement]:
    """The requirements of a policy's ``[privacy]`` on classes and on attributes that both releases show.

    ``sensitive`` are the sensitive attributes of the policy. Requirements without plain SQL are left out: t-closeness
    of ordered values, or by a hierarchy.
    """
    columns = {name.lower(): j for j, name in enumerate(linked.shared)}
    numbers = [columns[name.lower()] for name in sensitive if name.lower() in columns]
    for requirement in list_requirements(privacy):
        column = columns.get(requirement.sensitive_attributes[0].lower()) if requirement.sensitive_attributes else None
        if column is None or not isinstance(requirement.bind(SourceDomains()), ClassCondition):
            continue
        shared_requirement = SharedRequirement(requirement, column, numbers)
        if shared_requirement.violations(table("rows"), table("whole"), []) is not None:
            yield shared_requirement


def shared_rows(bounds: Mapping[tuple[int, int], int]) -> exp.Select:
    """Pairs of groups, ``a`` and ``b``, that share fewer rows, ``n``, than the smaller of the two has."""
    return values_query(dict.fromkeys("abn", "BIGINT"), [(a, b, most) for (a, b), most in bounds.items()])


def find_violating_parts(
    linked: ReleaseLink, requirement: SharedRequirement, part: Part, numbers: bool = False
) -> exp.Select:
    """The parts that violate a requirement: ``finest_0`` .., the figure, and ``n``, their rows.

    The query reads `comparison_parts`, the table of regions for a region, and `SHARED_ROWS` for classes joined by
    counts.

    Parameters
    ----------
    numbers:
        Whether numbers stand for the finest labels of joined classes: they are enough to count.
    """
    rows, whole = table(f"sqlanon rows {part}"), table("sqlanon whole")
    shared = [f"shared_{j}" for j in range(len(linked.shared))]
    part_rows, keys = _part_rows(linked, part, shared, numbers)
    violations = requirement.violations(rows, whole, keys)
    assert violations is not None  # one of `shared_requirements`
    whole_rows = _ROW_COUNTS(columns=[col(name) for name in shared], rows=table(SECOND))
    ctes = exp.Select()
    ctes.with_(ident(whole.name), as_=repeat_rows(subquery(whole_rows, "w"), shared, "n"), copy=False)
    ctes.with_(ident(rows.name), as_=repeat_rows(subquery(part_rows, "c"), [*keys, *shared], "n"), copy=False)
    query = _WITH_ROWS(
        columns=[col(name, "f") for name in violations.named_selects],
        violating_parts=subquery(violations),
        keys=[col(name) for name in keys],
        rows=rows,
        same_part=all_of(null_safe_equal(col(name, "f"), col(name, "p")) for name in keys),
    )
    query.set("with_", ctes.args["with_"])
    return query


def labelled_shared_rows(linked: ReleaseLink, requirement: SharedRequirement, most_parts: int) -> exp.Select:
    """The rows of `SHARED_ROWS` in at most ``most_parts`` joined classes that violate a requirement by counts.

    They have the labels and shared values of either group as texts, and ``n``. The query reads the numbers of
    `join_groups`, too.
    """
    violations = find_violating_parts(linked, requirement, "joined by counts", numbers=True)
    with_ = violations.args.pop("with_")
    labels: list[exp.Expr] = [
        as_column(cast(col(name, side), "VARCHAR"), f"{side}_{name}") for side, name in _group_labels(linked)
    ]
    same_class = all_of(
        null_safe_equal(col(f"finest_{i}", "m"), col(f"finest_{i}", "f")) for i in range(len(linked.attributes))
    )
    violating_parts = subquery(violations.limit(most_parts))
    query = _LABELLED_SHARED_ROWS(labels=labels, violating_parts=violating_parts, same_class=same_class)
    query.set("with_", with_)
    return query


def _group_labels(linked: ReleaseLink) -> list[tuple[str, str]]:
    """The columns that distinguish groups, with the side of their release: ``a`` or ``b``."""
    return [(side, name) for side in "ab" for name in group_columns(linked, is_first=side == "a")]


def readable_violations(
    linked: ReleaseLink,
    k: int,
    requirement: SharedRequirement,
    part: Part,
    shared: Sequence[Sequence[Any]] = (),
    unmatched: Sequence[Sequence[Any]] = (),
) -> exp.Select:
    """`find_violating_parts` as one statement.

    Parameters
    ----------
    shared:
        The rows of `labelled_shared_rows`, for classes joined by counts: only these classes are listed.
    unmatched:
        The rows of `labelled_unmatched`, for new rows where labels have several levels.
    """
    finest: FinestForm = "texts" if part.startswith("joined") else None
    query = find_violating_parts(linked, requirement, part)
    if part == "joined by counts":
        parts = exp.Select().with_(ident(SHARED_ROWS), as_=_shared_rows_by_labels(linked, shared), copy=False)
        existing = query.args["with_"].expressions
        query.set("with_", exp.With(expressions=[*parts.args["with_"].expressions, *existing]))
    if part == "region" or (part == "new" and linked.multilevel_attributes):
        query = add_unmatched(query, linked, unmatched)
    query = with_comparison_parts(query, linked, finest)
    return add_regions(query, linked) if part == "region" else query


def _shared_rows_by_labels(linked: ReleaseLink, shared: Sequence[Sequence[Any]]) -> exp.Select:
    """The table `SHARED_ROWS`, made of labels."""
    labels = _group_labels(linked)
    columns = dict.fromkeys((f"{side}_{name}" for side, name in labels), "VARCHAR")
    same_first, same_second = (
        all_of(
            null_safe_equal(cast(col(name, side), "VARCHAR"), col(f"{side}_{name}", "x"))
            for side, name in labels
            if side == release
        )
        for release in "ab"
    )
    return _SHARED_ROWS_BY_LABELS(
        rows=subquery(values_query({**columns, "n": "BIGINT"}, shared)), same_first=same_first, same_second=same_second
    )


def _part_rows(linked: ReleaseLink, part: Part, shared: list[str], numbers: bool) -> tuple[exp.Select, list[str]]:
    """The rows of parts, counted by their labels and shared values, and the columns of the labels."""
    values = [col(name) for name in shared]
    match part:
        case "joined" | "joined by counts":
            pair = template("SELECT :shared, a.i AS a, b.i AS b, a.n AS n_a, b.n AS n_b, least(a.n, b.n) AS n")(
                shared=[col(name, "a") for name in shared]
            )
            pairs = join_groups([*finest_values(linked, numbers), *pair.expressions], linked, numbers)
            if part == "joined by counts":
                pairs = _WITH_SHARED_ROWS(pairs=subquery(pairs))
            keys = [f"finest_{i}" for i in range(len(linked.attributes))]
            return bound_rows_of_pairs(subquery(pairs), [*map(col, keys), *values]), keys
        case "new":
            attributes = [i for i, _ in linked.side(is_first=False)[1]]
            keys = [f"finest_{i}" for i in attributes]
            columns = [
                *(as_column(col(f"label_{i}", "b"), f"finest_{i}") for i in attributes),
                *(col(name, "b") for name in shared),
            ]
            return _ROW_COUNTS(columns=[*map(col, keys), *values], rows=subquery(new_rows(linked, columns))), keys
        case _:
            renamed = {name: name.replace("label_", "finest_") for name in union_columns(linked, part)}
            columns = [*(as_column(col(name), key) for name, key in renamed.items()), *values]
            rows = subquery(new_rows_in_unions(linked, part))
            return template("SELECT :columns, n FROM :rows AS r WHERE n > 0")(columns=columns, rows=rows), [
                *renamed.values()
            ]
