"""Check requirements on a sensitive attribute that two releases show: in the classes of their join, and in the rows
that are new, in a class or in a union of classes.

Parts are rows by their labels, ``finest_0`` .. (of the joined classes the finest), and by their shared values,
``shared_0`` ..;
requirements are checked in plain SQL, on rows. Shares of the whole table are those of the link's second release.

Of a joined class only the most rows that each value can have are known. Where fewer than l values can be there, fewer
than l are. Figures of shares are those of such a class as it could be, and no bound: entropy of two values with at most
three rows each says 2, where the table may have one row of each, or three and none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.travel import repeated
from sqlanon.ledger.joint.attacks import add_unmatched, bound_rows_of_pairs, new_rows
from sqlanon.ledger.joint.class_unions import Union, add_regions, new_rows_in_unions, union_columns
from sqlanon.ledger.joint.overlaps import group_columns
from sqlanon.ledger.joint.row_matching import (
    SECOND,
    Finest,
    ReleaseLink,
    finest_values,
    join_groups,
    with_comparison_parts,
)
from sqlanon.requirements import list_requirements
from sqlanon.requirements.base import ClassCondition, Requirement, SourceFacts
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.expressions import all_of, cast, col, ident, named, same, subquery, table, template, values_query

NewRows: TypeAlias = "Literal['new'] | Union"
"""The new rows of each class of the second release, or of each union of classes."""

Part: TypeAlias = "Literal['joined', 'joined by counts'] | NewRows"
"""The classes of the join; the same with the rows that overlapping classes share at most by the counts of both; or new
rows."""

SHARED_ROWS = "sqlanon shared rows"
"""The table of `shared_rows`, within a statement."""

_PAIR = template("SELECT :shared, a.i AS a, b.i AS b, a.n AS n_a, b.n AS n_b, least(a.n, b.n) AS n")
_WITH_SHARED_ROWS = template("""
    SELECT p.* REPLACE (coalesce(x.n, p.n) AS n)
    FROM :pairs AS p
    LEFT JOIN "sqlanon shared rows" AS x ON x.a = p.a AND x.b = p.b
""")
_LABELLED_SHARED_ROWS = template("""
    SELECT DISTINCT :labels, x.n
    FROM "sqlanon shared rows" AS x
    JOIN "sqlanon meeting" AS m ON m.a = x.a AND m.b = x.b
    JOIN "sqlanon first" AS a ON a.i = x.a
    JOIN "sqlanon second" AS b ON b.i = x.b
    SEMI JOIN :found AS f ON :same
""")
_SHARED_ROWS_BY_LABELS = template("""
    SELECT a.i AS a, b.i AS b, x.n
    FROM :rows AS x
    JOIN "sqlanon first" AS a ON :same_first
    JOIN "sqlanon second" AS b ON :same_second
""")
_NEW_ROWS = template("SELECT :columns, n FROM :rows AS r WHERE n > 0")
_WITH_ROWS = template("""
    SELECT :columns, p.n
    FROM :found AS f
    JOIN (SELECT :keys, count(*) AS n FROM :rows AS r GROUP BY :keys) AS p ON :same
""")
_SUMMED = template("SELECT :columns, sum(n)::BIGINT AS n FROM :rows AS r GROUP BY :columns")


@dataclass(frozen=True)
class SharedRequirement:
    """A requirement on a sensitive attribute that both releases show, and the number of its shared column; and those of
    all ``sensitive`` ones, in which joint diversity looks at values together."""

    requirement: Requirement
    column: int
    sensitive: Sequence[int]

    @property
    def name(self) -> str:
        """What people call it."""
        return self.requirement.name

    def violations(self, rows: exp.Table, whole: exp.Table, keys: Sequence[str]) -> exp.Select | None:
        """The parts of some rows that break it."""
        (attribute,) = self.requirement.sensitive_attributes
        sensitive = [f"shared_{j}" for j in self.sensitive]
        return self.requirement.violations(
            WarehouseRelease(rows, whole, keys, sensitive, {attribute: f"shared_{self.column}"})
        )


def shared_requirements(privacy: Any, sensitive: Collection[str], linked: ReleaseLink) -> Iterator[SharedRequirement]:
    """The requirements of a policy's ``[privacy]`` that each class must meet, on attributes that both releases show;
    ``sensitive`` are those of the policy.

    Only those in plain SQL: t-closeness of ordered values, or by a hierarchy, is not.
    """
    columns = {name.lower(): j for j, name in enumerate(linked.shared)}
    numbers = [columns[name.lower()] for name in sensitive if name.lower() in columns]
    for one in list_requirements(privacy):
        column = columns.get(one.sensitive_attributes[0].lower()) if one.sensitive_attributes else None
        if column is None or not isinstance(one.bind(SourceFacts()), ClassCondition):
            continue
        wanted = SharedRequirement(one, column, numbers)
        if wanted.violations(table("rows"), table("whole"), []) is not None:
            yield wanted


def shared_rows(bounds: Mapping[tuple[int, int], int]) -> exp.Select:
    """Pairs of groups, ``a`` and ``b``, that share fewer rows, ``n``, than the smaller of the two has."""
    return values_query(dict.fromkeys("abn", "BIGINT"), [(a, b, most) for (a, b), most in bounds.items()])


def rows_name(part: Part) -> str:
    """The table of the rows of parts, within a statement."""
    return f"sqlanon rows {part}"


def find_violating_parts(
    linked: ReleaseLink,
    wanted: SharedRequirement,
    part: Part,
    numbers: bool = False,
) -> exp.Select:
    """The parts that break a requirement: ``finest_0`` .., the figure that does, and ``n``, their rows.

    The query reads `comparison_parts`, for a region the table of regions, and `SHARED_ROWS` for what is joined by
    counts.

    Parameters
    ----------
    numbers:
        Numbers stand for the finest labels of joined classes: they are enough to count.
    """
    rows, whole = table(rows_name(part)), table("sqlanon whole")
    shared = [f"shared_{j}" for j in range(len(linked.shared))]
    counted, keys = _rows_of(linked, part, shared, numbers)
    query = wanted.violations(rows, whole, keys)
    assert query is not None  # one of `shared_requirements`
    ctes = exp.Select()
    whole_rows = _SUMMED(columns=[col(name) for name in shared], rows=table(SECOND))
    ctes.with_(ident(whole.name), as_=repeated(subquery(whole_rows, "w"), shared, "n"), copy=False)
    ctes.with_(ident(rows.name), as_=repeated(subquery(counted, "c"), [*keys, *shared], "n"), copy=False)
    is_part = all_of(same(col(name, "f"), col(name, "p")) for name in keys)
    columns = [col(name, "f") for name in query.named_selects]
    by = [col(name) for name in keys]
    counted_parts = _WITH_ROWS(columns=columns, found=subquery(query), keys=by, rows=rows, same=is_part)
    counted_parts.set("with_", ctes.args["with_"])
    return counted_parts


def labelled_shared_rows(linked: ReleaseLink, wanted: SharedRequirement, most_parts: int) -> exp.Select:
    """The rows of `SHARED_ROWS` in joined classes that break a requirement by counts: the labels and shared values of
    either group, as texts, and ``n``. Of at most so many classes; the query reads the numbers of `joined` groups, too.
    """
    broken = find_violating_parts(linked, wanted, "joined by counts", numbers=True)
    with_ = broken.args.pop("with_")
    labels: list[exp.Expr] = [
        named(cast(col(name, side), "VARCHAR"), f"{side}_{name}") for side, name in _labels_of_groups(linked)
    ]
    same_class = all_of(same(col(f"finest_{i}", "m"), col(f"finest_{i}", "f")) for i in range(len(linked.attributes)))
    query = _LABELLED_SHARED_ROWS(labels=labels, found=subquery(broken.limit(most_parts)), same=same_class)
    query.set("with_", with_)
    return query


def _labels_of_groups(linked: ReleaseLink) -> list[tuple[str, str]]:
    """The columns that tell groups of either release apart: ``a`` and ``b``."""
    return [(side, name) for side in "ab" for name in group_columns(linked, is_first=side == "a")]


def readable_violations(
    linked: ReleaseLink,
    k: int,
    wanted: SharedRequirement,
    part: Part,
    shared: Sequence[Sequence[Any]] = (),
    unmatched: Sequence[Sequence[Any]] = (),
) -> exp.Select:
    """`find_violating_parts` as one statement.

    Parameters
    ----------
    shared:
        What `labelled_shared_rows` lists, for what is joined by counts: only classes with such rows are shown.
    unmatched:
        What `labelled_unmatched` lists, for new rows where labels are of several levels.
    """
    finer: Finest = "texts" if part.startswith("joined") else None
    query = find_violating_parts(linked, wanted, part)
    if part == "joined by counts":
        parts = exp.Select().with_(ident(SHARED_ROWS), as_=_shared_rows_by_labels(linked, shared), copy=False)
        own = query.args["with_"].expressions
        query.set("with_", exp.With(expressions=[*parts.args["with_"].expressions, *own]))
    if part == "region" or (part == "new" and linked.multilevel_attributes):
        query = add_unmatched(query, linked, unmatched)
    found = with_comparison_parts(query, linked, finer)
    return add_regions(found, linked) if part == "region" else found


def _shared_rows_by_labels(linked: ReleaseLink, shared: Sequence[Sequence[Any]]) -> exp.Select:
    """The table of `SHARED_ROWS`, made of labels."""
    labels = _labels_of_groups(linked)
    columns = dict.fromkeys((f"{side}_{name}" for side, name in labels), "VARCHAR")
    same_groups = [
        all_of(
            same(cast(col(name, side), "VARCHAR"), col(f"{side}_{name}", "x")) for side, name in labels if side == which
        )
        for which in "ab"
    ]
    return _SHARED_ROWS_BY_LABELS(
        rows=subquery(values_query({**columns, "n": "BIGINT"}, shared)),
        same_first=same_groups[0],
        same_second=same_groups[1],
    )


def _rows_of(linked: ReleaseLink, part: Part, shared: list[str], numbers: bool) -> tuple[exp.Select, list[str]]:
    """The rows of parts, counted by their labels and shared values; and the names of the labels."""
    values = [col(name) for name in shared]
    match part:
        case "joined" | "joined by counts":
            pair = _PAIR(shared=[col(name, "a") for name in shared])
            pairs = join_groups([*finest_values(linked, numbers), *pair.expressions], linked, numbers)
            if part == "joined by counts":
                pairs = _WITH_SHARED_ROWS(pairs=subquery(pairs))
            keys = [f"finest_{i}" for i in range(len(linked.attributes))]
            return bound_rows_of_pairs(subquery(pairs), [*map(col, keys), *values]), keys
        case "new":
            labels = [i for i, _ in linked.side(is_first=False)[1]]
            columns = [
                *(named(col(f"label_{i}", "b"), f"finest_{i}") for i in labels),
                *(col(name, "b") for name in shared),
            ]
            keys = [f"finest_{i}" for i in labels]
            return _SUMMED(columns=[*map(col, keys), *values], rows=subquery(new_rows(linked, columns))), keys
        case _:
            keys = union_columns(linked, part)
            shown = {name: re.sub(r"^label_", "finest_", name) for name in keys}
            columns = [*(named(col(own), name) for own, name in shown.items()), *values]
            return _NEW_ROWS(columns=columns, rows=subquery(new_rows_in_unions(linked, part))), [*shown.values()]
