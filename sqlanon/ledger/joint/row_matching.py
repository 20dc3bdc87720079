"""Match groups of rows of two releases of one table: groups that can contain the same rows.

Groups match if their shared values are equal (NULL equals NULL) and the labels of each shared quasi-identifier match.
An attribute with one known level in each release is compared at the coarser of the two: a hash join. Attributes with
several levels are compared by tables of label pairs (`label_pairs`), one after the other: the cost is that of the
matching *prefixes*, while a join with all tables of pairs at once costs their product.

Columns: ``label_0`` is the label of attribute 0 as text, ``key_0`` its label at the coarser level, ``shared_0`` the
value of shared column 0, ``finest_0`` the finest label of attribute 0 in two groups. ``prefix_0`` numbers the shared
values and keys of a group, ``prefix_1`` these and the label of the first attribute of several levels, and so on;
``finer_0`` is the finer label of attribute 0, or a number for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.ledger.joint.label_pairs import FIRST, SECOND, LinkedAttribute, label_pair_parts, label_pairs_name
from sqlanon.support.expressions import (
    all_of,
    as_column,
    cast,
    col,
    cols,
    count_rows,
    fragment,
    null_safe_equal,
    number,
    prepend_ctes,
    same_values,
    select,
    subquery,
    table,
    template,
)

_MATCHING_PREFIXES = template("""
    SELECT a.prefix AS first_prefix, b.prefix AS second_prefix, :finer
    FROM :shorter_matches AS m
    JOIN (SELECT DISTINCT :shorter AS shorter, :label AS label, :prefix AS prefix FROM "sqlanon first") AS a
        ON a.shorter = m.first_prefix
    JOIN :pairs AS c ON a.label IS NOT DISTINCT FROM c.first_label
    JOIN (SELECT DISTINCT :shorter AS shorter, :label AS label, :prefix AS prefix FROM "sqlanon second") AS b
        ON b.shorter = m.second_prefix AND b.label IS NOT DISTINCT FROM c.second_label
""")


@dataclass(frozen=True)
class ReleaseLink:
    """The link of two releases."""

    first: exp.Expr  # the rows of the first release
    second: exp.Expr
    shared: tuple[str, ...]  # the columns that both show unchanged
    attributes: tuple[LinkedAttribute, ...]  # the quasi-identifiers of both
    missing: tuple[str, ...] = ()  # quasi-identifiers that cannot be compared without a hierarchy
    count: str | None = None  # the column that counts rows, where rows are grouped

    @property
    def columns(self) -> tuple[list[str], list[str]]:
        """The compared columns of each release."""
        first = [attribute.first for attribute in self.attributes if attribute.first is not None]
        second = [attribute.second for attribute in self.attributes if attribute.second is not None]
        return [*dict.fromkeys([*first, *self.shared])], [*dict.fromkeys([*second, *self.shared])]

    @property
    def titles(self) -> list[str]:
        return [attribute.name for attribute in self.attributes]

    @property
    def shared_attributes(self) -> list[tuple[int, LinkedAttribute]]:
        """The attributes that both releases have, with their numbers."""
        return [(i, attribute) for i, attribute in enumerate(self.attributes) if attribute.is_shared]

    @property
    def multilevel_attributes(self) -> list[tuple[int, LinkedAttribute]]:
        """The shared attributes whose labels match by a table of pairs, in the order in which they are compared."""
        multilevel = [(i, attribute) for i, attribute in self.shared_attributes if attribute.levels is None]
        return sorted(multilevel, key=lambda numbered: numbered[1].pairs)

    @property
    def key(self) -> list[str]:
        """The columns in which matching groups are equal."""
        by_level = [
            i for i, attribute in self.shared_attributes if attribute.levels is not None and not attribute.is_at_top
        ]
        return [*self.shared_columns, *(f"key_{i}" for i in by_level)]

    @property
    def values(self) -> list[exp.Expr]:
        """The columns of the finest labels of two groups: ``finest_0`` .."""
        return [col(f"finest_{i}") for i in range(len(self.attributes))]

    @property
    def shared_columns(self) -> list[str]:
        return [f"shared_{j}" for j in range(len(self.shared))]

    @property
    def in_reverse(self) -> ReleaseLink:
        """The link of the releases in reverse order."""
        attributes = tuple(attribute.in_reverse for attribute in self.attributes)
        return replace(self, first=self.second, second=self.first, attributes=attributes)

    def side(self, is_first: bool) -> tuple[exp.Expr, list[tuple[int, str]]]:
        """The rows of a release, and the columns of its attributes with their numbers."""
        columns = [attribute.first if is_first else attribute.second for attribute in self.attributes]
        numbered = [(i, column) for i, column in enumerate(columns) if column is not None]
        return (self.first if is_first else self.second), numbered

    def group_columns(self, is_first: bool) -> list[str]:
        """The columns that distinguish the groups of a release."""
        return [*(f"label_{i}" for i, _ in self.side(is_first)[1]), *self.shared_columns]

    @property
    def all_group_columns(self) -> list[str]:
        """The columns that distinguish the groups of either release."""
        return [*dict.fromkeys([*self.group_columns(is_first=True), *self.group_columns(is_first=False)])]


def group_rows(link: ReleaseLink, is_first: bool) -> exp.Select:
    """The groups of equal rows of a release: ``label_0`` .. as text, ``shared_0`` .., and ``row_count``."""
    (release, numbered), shared = link.side(is_first), link.shared
    row_count = count_rows() if link.count is None else fragment("sum(:count)::BIGINT")(count=col(link.count, "r"))
    by = cols(dict.fromkeys([*(column for _, column in numbered), *shared]), "r")
    if not by:  # a release without rows has no group
        return template("""
            SELECT row_count
            FROM (SELECT :row_count AS row_count FROM :release AS r HAVING count(*) > 0) AS c
        """)(row_count=row_count, release=release)
    grouped_by = link.columns[0 if is_first else 1]
    if link.count is not None and isinstance(release, exp.Table) and {key.name for key in by} == {*grouped_by}:
        # The table is grouped by these columns already, as no column was cast.
        row_count, by = fragment(":count::BIGINT")(count=col(link.count, "r")), []
    return template("""
        SELECT :labels, :shared, row_count
        FROM (SELECT :columns, :row_count AS row_count FROM :release AS r GROUP BY :by) AS c
    """)(
        labels=[as_column(cast(col(f"label_{i}"), "VARCHAR"), f"label_{i}") for i, _ in numbered],
        shared=cols(link.shared_columns),
        columns=[
            *(as_column(col(column, "r"), f"label_{i}") for i, column in numbered),
            *(as_column(col(column, "r"), f"shared_{j}") for j, column in enumerate(shared)),
        ],
        row_count=row_count,
        release=release,
        by=by,
    )


def add_keys(groups: exp.Select, link: ReleaseLink, is_first: bool) -> exp.Select:
    """Add ``key_0`` .. to the groups of a release: labels at the coarser level, where both levels are known.

    Labels that the hierarchy lacks are keys themselves.
    """
    keys: list[exp.Expr] = []
    joins: list[tuple[exp.Subquery, exp.Expr]] = []
    for i, attribute in link.shared_attributes:
        if attribute.levels is None or attribute.is_at_top:
            continue
        level, other_level = attribute.levels if is_first else reversed(attribute.levels)
        label, alias = col(f"label_{i}", "g"), f"h{i}"
        key: exp.Expr = label
        if level < other_level and attribute.hierarchy is not None:
            coarser_labels = template("""
                SELECT DISTINCT :level::VARCHAR AS label, :coarser_level::VARCHAR AS coarser
                FROM :hierarchy
            """)(level=col(f"level_{level}"), coarser_level=col(f"level_{other_level}"), hierarchy=attribute.hierarchy)
            joins.append((subquery(coarser_labels, alias), label.eq(col("label", alias))))
            key = fragment("CASE WHEN NOT :known IS NULL THEN :coarser ELSE :label END")(
                known=col("label", alias), coarser=col("coarser", alias), label=label
            )
        keys.append(as_column(key, f"key_{i}"))
    query = template("SELECT :columns, :keys FROM :groups AS g")(
        columns=cols(groups.named_selects, "g"), keys=keys, groups=groups
    )
    for coarser, on in joins:
        query = query.join(coarser, on=on, join_type="left", copy=False)
    return query


def same_texts(names: Iterable[str], groups: str, texts: str, prefix: str = "") -> exp.Expr:
    """Whether groups have the labels and shared values that another relation gives as texts."""
    pairs = ((cast(col(name, groups), "VARCHAR"), col(f"{prefix}{name}", texts)) for name in names)
    return all_of(null_safe_equal(value, value_text) for value, value_text in pairs)


def keys_match(link: ReleaseLink) -> exp.Expr:
    """Whether groups of the two releases, ``a`` and ``b``, can be the same rows by shared values and known levels."""
    return same_values(link.key, "a", "b")


def comparison_parts(link: ReleaseLink, as_numbers: bool = False) -> dict[str, exp.Query]:
    """The tables that queries of both releases read, by name; each reads those before it.

    They are `FIRST` and `SECOND`, the numbered groups of each release, and, where labels have several levels, the
    tables of label pairs and of matching prefixes. Finest labels are texts, or numbers: these are enough to count.
    """
    multilevel, parts = link.multilevel_attributes, dict[str, exp.Query]()
    labels = [f"label_{i}" for i, _ in multilevel]
    prefixes: list[exp.Expr] = []
    for length in range(len(labels) + 1) if multilevel else ():
        columns = cols([*link.key, *labels[:length]])
        prefix = fragment("dense_rank() OVER (ORDER BY :columns)")(columns=columns) if columns else number(1)
        prefixes.append(as_column(prefix, f"prefix_{length}"))
    for name, is_first in ((FIRST, True), (SECOND, False)):
        groups = add_keys(group_rows(link, is_first), link, is_first)
        parts[name] = template("SELECT *, row_number() OVER () AS group_id, :prefixes FROM :groups AS g")(
            prefixes=prefixes, groups=groups
        )
    for i, attribute in multilevel:
        parts |= label_pair_parts(attribute, i, as_numbers)
    if multilevel:
        parts[matching_prefixes_name(0)] = template("""
            SELECT a.prefix_0 AS first_prefix, b.prefix_0 AS second_prefix
            FROM (SELECT DISTINCT :key, prefix_0 FROM "sqlanon first") AS a
            JOIN (SELECT DISTINCT :key, prefix_0 FROM "sqlanon second") AS b ON :keys_match
        """)(key=cols(link.key), keys_match=keys_match(link))
    finer: list[exp.Expr] = []
    for length, (i, _) in enumerate(multilevel, 1):
        parts[matching_prefixes_name(length)] = _MATCHING_PREFIXES(
            finer=[*finer, as_column(col("finer", "c"), f"finer_{i}")],
            shorter_matches=table(matching_prefixes_name(length - 1)),
            shorter=col(f"prefix_{length - 1}"),
            label=col(f"label_{i}"),
            prefix=col(f"prefix_{length}"),
            pairs=table(label_pairs_name(i)),
        )
        finer.append(col(f"finer_{i}", "m"))
    return parts


def with_comparison_parts(query: exp.Select, link: ReleaseLink, as_numbers: bool = False) -> exp.Select:
    """A query of both releases as one statement, with its `comparison_parts`."""
    return prepend_ctes(query, comparison_parts(link, as_numbers), materialized=True)


_PREFIXES = "sqlanon matching prefixes "


def matching_prefixes_name(length: int) -> str:
    """The table of the matching prefixes of a length, within a statement."""
    return f"{_PREFIXES}{length}"


def is_matching_prefixes(name: str) -> bool:
    return name.startswith(_PREFIXES)


def join_groups(output: Sequence[exp.Expr], link: ReleaseLink) -> exp.Select:
    """An output of the matching groups of both releases, ``a`` and ``b``."""
    length = len(link.multilevel_attributes)
    if not length:
        query = select([*output], table(FIRST, alias="a"))
        return query.join(table(SECOND, alias="b"), on=keys_match(link), copy=False)
    query = select([*output], table(matching_prefixes_name(length), alias="m"))
    for name, side, prefix in ((FIRST, "a", "first_prefix"), (SECOND, "b", "second_prefix")):
        query = query.join(table(name, alias=side), on=col(f"prefix_{length}", side).eq(col(prefix, "m")), copy=False)
    return query


def finest_values(link: ReleaseLink) -> list[exp.Expr]:
    """The finest label of each attribute for two groups, or a number for it: ``finest_0`` .."""
    values: list[exp.Expr] = []
    for i, attribute in enumerate(link.attributes):
        if attribute.is_shared and attribute.levels is None:
            value = col(f"finer_{i}", "m")
        else:
            levels = attribute.levels or (0, 0)
            is_first = attribute.second is None or (attribute.first is not None and levels[0] <= levels[1])
            value = col(f"label_{i}", "a" if is_first else "b")
        values.append(as_column(value, f"finest_{i}"))
    return values


def add_titles(query: exp.Select, titles: Iterable[str]) -> exp.Select:
    """A query with readable column names: ``rows`` for ``row_count``, attributes for ``finest_0`` .. and ``label_0`` ..

    Figures keep their names.
    """
    names = {f"{kind}_{i}": title for i, title in enumerate(titles) for kind in ("finest", "label")}
    figures = [name for name in query.named_selects if name not in names]
    figures.sort(key=lambda name: name != "row_count")
    return template("SELECT :figures, :values FROM :rows AS combinations")(
        figures=[as_column(col(name), "rows") if name == "row_count" else col(name) for name in figures],
        values=[as_column(col(name), names[name]) for name in query.named_selects if name in names],
        rows=query,
    )
