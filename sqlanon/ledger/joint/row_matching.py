"""Match groups of rows of two releases of one table: groups that can contain the same rows.

A row of one release can be a row of the other if the columns that both show unchanged have equal values (NULL equals
NULL), and the labels of each shared quasi-identifier match (`label_pairs`).

Rows are grouped before anything is joined. Where an attribute has one known level in each release, groups match by
their labels at the coarser of the two: a hash join. Where labels have several levels (local recoding, masked rows),
they match by a table of label pairs. These attributes are compared one after the other: groups that differ in one are
not compared in the next. So the cost is that of the matching *prefixes*, which are few more than the matching groups; a
join with all tables of pairs at once costs their product.

Columns of the tables: ``label_0`` is the label of attribute 0 as text, ``key_0`` its label at the coarser level,
``shared_0`` the value of shared column 0, ``n`` the number of rows, ``i`` the number of a group, ``finest_0`` the
finest label of attribute 0. ``prefix_0`` numbers the shared values and keys of a group, ``prefix_1`` these and the
label of the first attribute of several levels, and so on; ``finer_0`` numbers the finer labels of attribute 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.ledger.joint.label_pairs import (
    FIRST,
    SECOND,
    FinestForm,
    LinkedAttribute,
    label_pair_parts,
    label_pairs_name,
)
from sqlanon.support.expressions import (
    all_of,
    as_column,
    cast,
    col,
    fragment,
    ident,
    null_safe_equal,
    number,
    select,
    subquery,
    table,
    template,
)

_GROUPS = template("""
    SELECT :labels, :shared, n
    FROM (
        SELECT :columns, :rows AS n
        FROM :release AS r
        GROUP BY :by
    ) AS c
""")
_GROUPED_TABLE = template("""
    SELECT :labels, :shared, n
    FROM (SELECT :columns, :count::BIGINT AS n FROM :release AS r) AS c
""")
# A release without rows has no group.
_ONE_GROUP = template("SELECT n FROM (SELECT :rows AS n FROM :release AS r HAVING count(*) > 0) AS c")
_NUMBERED = template("SELECT *, row_number() OVER () AS i FROM :groups AS g")

_COARSER_LABELS = template("""
    SELECT DISTINCT :level::VARCHAR AS label, :coarser_level::VARCHAR AS coarser
    FROM :hierarchy
""")

_PREFIX = fragment("dense_rank() OVER (ORDER BY :columns)")

_MATCHING_KEYS = template("""
    SELECT a.prefix_0 AS a, b.prefix_0 AS b
    FROM (SELECT DISTINCT :key, prefix_0 FROM "sqlanon first") AS a
    JOIN (SELECT DISTINCT :key, prefix_0 FROM "sqlanon second") AS b ON :keys_match
""")
_MATCHING_PREFIXES = template("""
    SELECT a.prefix AS a, b.prefix AS b, :finer
    FROM :shorter_matches AS m
    JOIN (SELECT DISTINCT :shorter AS shorter, :label AS label, :prefix AS prefix FROM "sqlanon first") AS a
        ON a.shorter = m.a
    JOIN :pairs AS c ON a.label IS NOT DISTINCT FROM c.first_label
    JOIN (SELECT DISTINCT :shorter AS shorter, :label AS label, :prefix AS prefix FROM "sqlanon second") AS b
        ON b.shorter = m.b AND b.label IS NOT DISTINCT FROM c.second_label
""")
_FINER_LABELS = template("SELECT DISTINCT f, finer FROM :pairs")
_TITLED = template("SELECT :figures, :values FROM :rows AS found")


@dataclass(frozen=True)
class ReleaseLink:
    """How two releases are linked.

    Attributes
    ----------
    first, second:
        The rows of each release.
    shared:
        The columns that both show unchanged.
    attributes:
        The quasi-identifiers of both.
    missing:
        Quasi-identifiers that cannot be compared without a hierarchy.
    count:
        The column that counts rows, where rows are grouped.
    """

    first: exp.Expr
    second: exp.Expr
    shared: tuple[str, ...]
    attributes: tuple[LinkedAttribute, ...]
    missing: tuple[str, ...] = ()
    count: str | None = None

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
        return [*(f"shared_{j}" for j in range(len(self.shared))), *(f"key_{i}" for i in by_level)]

    @property
    def values(self) -> list[exp.Expr]:
        """The columns of the finest labels of two groups: ``finest_0`` .."""
        return [col(f"finest_{i}") for i in range(len(self.attributes))]

    @property
    def swapped(self) -> ReleaseLink:
        """The link of the releases in reverse order."""
        attributes = tuple(attribute.swapped for attribute in self.attributes)
        return replace(self, first=self.second, second=self.first, attributes=attributes)

    def side(self, is_first: bool) -> tuple[exp.Expr, list[tuple[int, str]]]:
        """The rows of a release, and the columns of its attributes with their numbers."""
        columns = [attribute.first if is_first else attribute.second for attribute in self.attributes]
        numbered = [(i, column) for i, column in enumerate(columns) if column is not None]
        return (self.first if is_first else self.second), numbered


def group_rows(linked: ReleaseLink, is_first: bool) -> exp.Select:
    """The groups of equal rows of a release: ``label_0`` .. as text, ``shared_0`` .., and ``n``."""
    (release, numbered), shared = linked.side(is_first), linked.shared
    if linked.count is None:
        rows: exp.Expr = exp.Count(this=exp.Star())
    else:
        rows = cast(exp.Sum(this=col(linked.count, "r")), "BIGINT")
    by = [col(column, "r") for column in dict.fromkeys([*(column for _, column in numbered), *shared])]
    if not by:
        return _ONE_GROUP(rows=rows, release=release)
    labels = [as_column(cast(col(f"label_{i}"), "VARCHAR"), f"label_{i}") for i, _ in numbered]
    values = [col(f"shared_{j}") for j in range(len(shared))]
    columns = [
        *(as_column(col(column, "r"), f"label_{i}") for i, column in numbered),
        *(as_column(col(column, "r"), f"shared_{j}") for j, column in enumerate(shared)),
    ]
    grouped_by = linked.columns[0 if is_first else 1]
    if linked.count is not None and isinstance(release, exp.Table) and {key.name for key in by} == {*grouped_by}:
        # The table is grouped by these columns already, as no column was cast.
        count = col(linked.count, "r")
        return _GROUPED_TABLE(labels=labels, shared=values, columns=columns, count=count, release=release)
    return _GROUPS(labels=labels, shared=values, columns=columns, rows=rows, release=release, by=by)


def add_keys(groups: exp.Select, linked: ReleaseLink, is_first: bool) -> exp.Select:
    """Add ``key_0`` .. to the groups of a release: labels at the coarser level, where both levels are known.

    Labels that the hierarchy lacks are keys themselves.
    """
    labels: list[exp.Expr] = []
    joins: list[tuple[exp.Select, str, exp.Expr]] = []
    for i, _ in linked.side(is_first)[1]:
        attribute, label = linked.attributes[i], col(f"label_{i}", "g")
        labels.append(label)
        if not attribute.is_shared or attribute.levels is None or attribute.is_at_top:
            continue
        level, other_level = attribute.levels if is_first else reversed(attribute.levels)
        if level >= other_level or attribute.hierarchy is None:
            labels.append(as_column(label, f"key_{i}"))
            continue
        alias = f"h{i}"
        coarser_labels = _COARSER_LABELS(
            level=col(f"level_{level}"), coarser_level=col(f"level_{other_level}"), hierarchy=attribute.hierarchy
        )
        joins.append((coarser_labels, alias, label.eq(col("label", alias))))
        key = fragment("CASE WHEN NOT :known IS NULL THEN :coarser ELSE :label END")(
            known=col("label", alias), coarser=col("coarser", alias), label=label
        )
        labels.append(as_column(key, f"key_{i}"))
    shared = [col(f"shared_{j}", "g") for j in range(len(linked.shared))]
    query = template("SELECT :labels, :shared, g.n FROM :groups AS g")(labels=labels, shared=shared, groups=groups)
    for coarser_labels, alias, on in joins:
        query = query.join(subquery(coarser_labels, alias), on=on, join_type="left", copy=False)
    return query


def keys_match(linked: ReleaseLink) -> exp.Expr:
    """Whether groups of the two releases, ``a`` and ``b``, can be the same rows by shared values and known levels."""
    return all_of(null_safe_equal(col(name, "a"), col(name, "b")) for name in linked.key)


def comparison_parts(linked: ReleaseLink, finest: FinestForm) -> dict[str, exp.Query]:
    """The tables that queries of both releases read, by name; each reads those before it.

    They are `FIRST` and `SECOND`, the numbered groups of each release, and, where labels have several levels, the
    tables of label pairs and of matching prefixes: these with the finest labels, or without.
    """
    multilevel, parts = linked.multilevel_attributes, dict[str, exp.Query]()
    for name, is_first in ((FIRST, True), (SECOND, False)):
        groups = _NUMBERED(groups=add_keys(group_rows(linked, is_first), linked, is_first))
        parts[name] = _add_prefixes(groups, linked) if multilevel else groups
    for i, attribute in multilevel:
        parts |= label_pair_parts(attribute, i, finest)
    for length in range(len(multilevel) + 1) if multilevel else ():
        parts[matching_prefixes_name(length)] = _match_prefixes(linked, length, finest)
    return parts


def with_comparison_parts(query: exp.Select, linked: ReleaseLink, finest: FinestForm = "texts") -> exp.Select:
    """A query of both releases as one statement, with its `comparison_parts`."""
    existing = query.args["with_"].expressions if query.args.get("with_") else []
    ctes = exp.Select()
    for name, part in comparison_parts(linked, finest).items():
        ctes.with_(ident(name), as_=part, materialized=True, copy=False)
    query.set("with_", exp.With(expressions=[*ctes.args["with_"].expressions, *existing]))
    return query


def _add_prefixes(groups: exp.Select, linked: ReleaseLink) -> exp.Select:
    """Add the numbers of their prefixes to groups: ``prefix_0`` .."""
    labels = [f"label_{i}" for i, _ in linked.multilevel_attributes]
    prefixes: list[exp.Expr] = []
    for length in range(len(labels) + 1):
        columns = [col(name) for name in (*linked.key, *labels[:length])]
        prefixes.append(as_column(_PREFIX(columns=columns) if columns else number(1), f"prefix_{length}"))
    return template("SELECT *, :prefixes FROM :groups AS g")(prefixes=prefixes, groups=groups)


def _match_prefixes(linked: ReleaseLink, length: int, finest: FinestForm) -> exp.Select:
    """The matching prefixes of both releases: their numbers, ``a`` and ``b``, and the finer labels, ``finer_0`` .."""
    multilevel = linked.multilevel_attributes
    if not length:
        return _MATCHING_KEYS(key=[col(name) for name in linked.key], keys_match=keys_match(linked))
    i = multilevel[length - 1][0]
    finer = [*(col(f"finer_{j}", "m") for j, _ in multilevel[: length - 1]), as_column(col("f", "c"), f"finer_{i}")]
    return _MATCHING_PREFIXES(
        finer=finer if finest else [],
        shorter_matches=table(matching_prefixes_name(length - 1)),
        shorter=col(f"prefix_{length - 1}"),
        label=col(f"label_{i}"),
        prefix=col(f"prefix_{length}"),
        pairs=table(label_pairs_name(i)),
    )


_PREFIXES = "sqlanon matching prefixes "


def matching_prefixes_name(length: int) -> str:
    """The table of the matching prefixes of a length, within a statement."""
    return f"{_PREFIXES}{length}"


def is_matching_prefixes(name: str) -> bool:
    return name.startswith(_PREFIXES)


def swap_matching_prefixes(prefixes: exp.Expr) -> exp.Select:
    """The matching prefixes of the releases in reverse order."""
    return template("SELECT b AS a, a AS b FROM :prefixes")(prefixes=prefixes)


def join_groups(output: Sequence[exp.Expr], linked: ReleaseLink, numbers: bool = False) -> exp.Select:
    """An output of the matching groups of both releases, ``a`` and ``b``.

    Finer labels are ``c0`` .., unless their ``numbers`` are enough.
    """
    multilevel = linked.multilevel_attributes
    if not multilevel:
        query = select([*output], table(FIRST, alias="a"))
        return query.join(table(SECOND, alias="b"), on=keys_match(linked), copy=False)
    longest = f"prefix_{len(multilevel)}"
    query = select([*output], table(matching_prefixes_name(len(multilevel)), alias="m"))
    for name, side in ((FIRST, "a"), (SECOND, "b")):
        query = query.join(table(name, alias=side), on=col(longest, side).eq(col(side, "m")), copy=False)
    for i, _ in () if numbers else multilevel:
        on = col("f", f"c{i}").eq(col(f"finer_{i}", "m"))
        finer_labels = subquery(_FINER_LABELS(pairs=table(label_pairs_name(i))), f"c{i}")
        query = query.join(finer_labels, on=on, copy=False)
    return query


def finest_values(linked: ReleaseLink, numbers: bool = False) -> list[exp.Expr]:
    """The finest label of each attribute for two groups, or a number for it: ``finest_0`` .."""
    values: list[exp.Expr] = []
    for i, attribute in enumerate(linked.attributes):
        if attribute.first is None:
            value: exp.Expr = col(f"label_{i}", "b")
        elif attribute.second is None:
            value = col(f"label_{i}", "a")
        elif attribute.levels is None:
            value = col(f"finer_{i}", "m") if numbers else col("finer", f"c{i}")
        else:
            first_level, second_level = attribute.levels
            value = col(f"label_{i}", "a" if first_level <= second_level else "b")
        values.append(as_column(value, f"finest_{i}"))
    return values


def add_titles(query: exp.Select, titles: Iterable[str]) -> exp.Select:
    """A query with readable column names: rows for ``n``, the names of attributes for ``finest_0`` ..

    Figures keep their names.
    """
    names = {f"finest_{i}": title for i, title in enumerate(titles)}
    figures = [name for name in query.named_selects if name not in names]
    return _TITLED(
        figures=[as_column(col("n"), "rows") if name == "n" else col(name) for name in sorted(figures, key="n".__ne__)],
        values=[as_column(col(name), names[name]) for name in query.named_selects if name in names],
        rows=query,
    )
