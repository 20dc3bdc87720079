"""Check requirements on a sensitive attribute that two releases show: in the classes of their join, and in new rows.

Parts are rows by their labels, ``finest_0`` .., and shared values, ``shared_0`` ..; requirements are checked in plain
SQL, on rows. Only the most rows of each value in a joined class are known, so only a class with fewer than l possible
values is known to violate l-diversity; figures of shares describe one possible class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.travel import repeat_rows
from sqlanon.ledger.joint.attacks import (
    Union,
    add_regions,
    add_unmatched,
    bound_rows_of_pairs,
    group_pairs,
    new_rows,
    new_rows_in_unions,
    union_columns,
)
from sqlanon.ledger.joint.label_pairs import SECOND
from sqlanon.ledger.joint.row_matching import ReleaseLink, finest_values, join_groups, same_texts, with_comparison_parts
from sqlanon.requirements import list_requirements
from sqlanon.requirements.base import ClassCondition, Requirement, SourceDomains
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.expressions import (
    as_column,
    cast,
    col,
    cols,
    prepend_ctes,
    same_values,
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

_ROW_COUNTS = template("SELECT :columns, sum(row_count)::BIGINT AS row_count FROM :rows AS r GROUP BY :columns")


@dataclass(frozen=True)
class SharedRequirement:
    """A requirement on a sensitive attribute that both releases show."""

    requirement: Requirement
    column: int  # the number of its shared column
    sensitive: Sequence[int]  # the numbers of all shared sensitive columns: joint diversity counts their combinations

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


def shared_requirements(privacy: Any, sensitive: Collection[str], link: ReleaseLink) -> Iterator[SharedRequirement]:
    """The requirements of a policy's ``[privacy]`` on classes and on attributes that both releases show.

    ``sensitive`` are the sensitive attributes of the policy. Requirements without plain SQL are left out: t-closeness
    of ordered values, or by a hierarchy.
    """
    columns = {name.lower(): j for j, name in enumerate(link.shared)}
    numbers = [columns[name.lower()] for name in sensitive if name.lower() in columns]
    for requirement in list_requirements(privacy):
        column = columns.get(requirement.sensitive_attributes[0].lower()) if requirement.sensitive_attributes else None
        if column is None or not isinstance(requirement.bind(SourceDomains()), ClassCondition):
            continue
        shared_requirement = SharedRequirement(requirement, column, numbers)
        if shared_requirement.violations(table("rows"), table("whole"), []) is not None:
            yield shared_requirement


def shared_rows(bounds: Mapping[tuple[int, int], int]) -> exp.Select:
    """Pairs of groups that share fewer rows, ``row_count``, than the smaller of the two has."""
    types = dict.fromkeys(("first_group", "second_group", "row_count"), "BIGINT")
    return values_query(types, [(*edge, most) for edge, most in bounds.items()])


def find_violating_parts(link: ReleaseLink, requirement: SharedRequirement, part: Part) -> exp.Select:
    """The parts that violate a requirement: ``finest_0`` .., the figure, and ``row_count``.

    The query reads `comparison_parts`, the table of regions for a region, and `SHARED_ROWS` for classes joined by
    counts.
    """
    rows, whole = table(f"sqlanon rows {part}"), table("sqlanon whole")
    shared = link.shared_columns
    part_rows, keys = _part_rows(link, part)
    violations = requirement.violations(rows, whole, keys)
    assert violations is not None  # one of `shared_requirements`
    whole_rows = _ROW_COUNTS(columns=cols(shared), rows=table(SECOND))
    query = template("""
        SELECT :columns, p.row_count
        FROM :violating_parts AS f
        JOIN (SELECT :keys, count(*) AS row_count FROM :rows AS r GROUP BY :keys) AS p ON :same_part
    """)(
        columns=cols(violations.named_selects, "f"),
        violating_parts=violations,
        keys=cols(keys),
        rows=rows,
        same_part=same_values(keys, "f", "p"),
    )
    ctes = {
        whole.name: repeat_rows(subquery(whole_rows, "w"), shared, "row_count"),
        rows.name: repeat_rows(subquery(part_rows, "c"), [*keys, *shared], "row_count"),
    }
    return prepend_ctes(query, ctes)


def labelled_shared_rows(link: ReleaseLink, requirement: SharedRequirement, most_parts: int) -> exp.Select:
    """The rows of `SHARED_ROWS` in at most ``most_parts`` joined classes that violate a requirement by counts.

    They have the labels and shared values of either group as texts, and ``row_count``. The query reads the numbers of
    `join_groups`, too.
    """
    violations = find_violating_parts(link, requirement, "joined by counts")
    with_ = violations.args.pop("with_")
    query = template("""
        SELECT DISTINCT :labels, x.row_count
        FROM "sqlanon shared rows" AS x
        JOIN "sqlanon matching groups" AS m ON m.first_group = x.first_group AND m.second_group = x.second_group
        JOIN "sqlanon first" AS a ON a.group_id = x.first_group
        JOIN "sqlanon second" AS b ON b.group_id = x.second_group
        SEMI JOIN :violating_parts AS f ON :same_class
    """)(
        labels=[
            as_column(cast(col(name, side), "VARCHAR"), f"{side}_{name}")
            for side in "ab"
            for name in link.group_columns(is_first=side == "a")
        ],
        violating_parts=violations.limit(most_parts),
        same_class=same_values([value.name for value in link.values], "m", "f"),
    )
    query.set("with_", with_)
    return query


def readable_violations(
    link: ReleaseLink,
    requirement: SharedRequirement,
    part: Part,
    shared: Sequence[Sequence[Any]] = (),
    unmatched: Sequence[Sequence[Any]] = (),
) -> exp.Select:
    """`find_violating_parts` as one statement.

    ``shared`` are the rows of `labelled_shared_rows` for classes joined by counts: only these classes are listed.
    ``unmatched`` are the rows of `labelled_unmatched` for new rows where labels have several levels.
    """
    query = find_violating_parts(link, requirement, part)
    if part == "joined by counts":
        query = prepend_ctes(query, {SHARED_ROWS: _shared_rows_by_labels(link, shared)})
    if part == "region" or (part == "new" and link.multilevel_attributes):
        query = add_unmatched(query, link, unmatched)
    if part == "region":
        query = add_regions(query, link)
    return with_comparison_parts(query, link)


def _shared_rows_by_labels(link: ReleaseLink, shared: Sequence[Sequence[Any]]) -> exp.Select:
    """The table `SHARED_ROWS`, from the labels of its groups instead of their numbers."""
    columns = {side: link.group_columns(is_first=side == "a") for side in "ab"}
    types = {f"{side}_{name}": "VARCHAR" for side, names in columns.items() for name in names}
    return template("""
        SELECT a.group_id AS first_group, b.group_id AS second_group, x.row_count
        FROM :rows AS x
        JOIN "sqlanon first" AS a ON :same_first
        JOIN "sqlanon second" AS b ON :same_second
    """)(
        rows=values_query({**types, "row_count": "BIGINT"}, shared),
        same_first=same_texts(columns["a"], "a", "x", "a_"),
        same_second=same_texts(columns["b"], "b", "x", "b_"),
    )


def _part_rows(link: ReleaseLink, part: Part) -> tuple[exp.Select, list[str]]:
    """The rows of parts, counted by their labels and shared values, and the columns of the labels."""
    shared = link.shared_columns
    if part == "joined" or part == "joined by counts":  # noqa: PLR1714  (narrows the type)
        pairs = join_groups([*finest_values(link), *group_pairs(*cols(shared, "a"))], link)
        if part == "joined by counts":
            pairs = template("""
                SELECT p.* REPLACE (coalesce(x.row_count, p.row_count) AS row_count)
                FROM :pairs AS p
                LEFT JOIN "sqlanon shared rows" AS x
                    ON x.first_group = p.first_group AND x.second_group = p.second_group
            """)(pairs=pairs)
        keys = [value.name for value in link.values]
        return bound_rows_of_pairs(subquery(pairs), cols([*keys, *shared])), keys
    if part == "new":
        labels = [f"label_{i}" for i, _ in link.side(is_first=False)[1]]
        rows = new_rows(link, [*(as_column(col(name, "b"), _finest(name)) for name in labels), *cols(shared, "b")])
        keys = [_finest(name) for name in labels]
        return _ROW_COUNTS(columns=cols([*keys, *shared]), rows=rows), keys
    names = union_columns(link, part)
    columns = [*(as_column(col(name), _finest(name)) for name in names), *cols(shared)]
    query = template("SELECT :columns, row_count FROM :rows AS r WHERE row_count > 0")
    return query(columns=columns, rows=new_rows_in_unions(link, part)), [_finest(name) for name in names]


def _finest(name: str) -> str:
    return name.replace("label_", "finest_")
