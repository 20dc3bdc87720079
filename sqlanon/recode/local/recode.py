"""Recode below the full domain: each combination of the source's values is released as nodes of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.coding import KNOWN, Coded
from sqlanon.expressions import aliased, all_of, cast, col, is_null, named, number, same, select, subquery, text
from sqlanon.recode.local.nodes import Tree
from sqlanon.recode.recoding import MASKED, Column, in_order


@dataclass(frozen=True)
class LocalRecoding:
    """How a release is made from the source, where each combination has released values of its own.

    Attributes
    ----------
    source, columns:
        The private table, and what is released of it.
    attributes, tops, trees:
        The quasi-identifiers, with the labels of their top levels, and their nodes.
    kept:
        The combinations that are released, by their ground nodes ``ground_i``, with the codes of their labels,
        ``code_i``. All others are suppressed.
    labels:
        By attribute, the labels of its codes: ``code`` and ``label``; NULL is a label of its own.
    ground:
        The attributes of which nothing above level 0 is released: their values are the source's own.
    types:
        By attribute, the type to which its labels are cast; None: they are VARCHAR.
    mask:
        Whether suppressed rows stay, with every quasi-identifier at its top.
    """

    source: exp.Table
    columns: tuple[Column, ...]
    attributes: tuple[Coded, ...]
    tops: tuple[str | None, ...]
    trees: tuple[Tree, ...]
    kept: exp.Table
    labels: tuple[exp.Table, ...]
    ground: frozenset[int]
    types: tuple[str | None, ...]
    mask: bool = False

    def released_type(self, column: Column, own: str) -> str:
        """What has labels is VARCHAR, unless all of them are values of the column."""
        if column.quasi is None or (not self.mask and (column.quasi in self.ground or self.types[column.quasi])):
            return own
        return "VARCHAR"

    def with_column(self, column: Column) -> LocalRecoding:
        """The same, with one more column of the source."""
        return replace(self, columns=(*self.columns, column))

    def of_rows(self, source: exp.Table) -> LocalRecoding:
        """The same, of other rows of the source."""
        return replace(self, source=source)

    def class_keys(self) -> dict[int, str]:
        """By attribute its code, or its value where that is the source's own."""
        values = {column.quasi: f"value_{j}" for j, column in enumerate(self.columns) if column.quasi in self.ground}
        return {i: values.get(i, f"code_{i}") for i in range(len(self.attributes))}

    def label_counts(self) -> exp.Select:
        """One row: how many labels each attribute has in the release."""
        return exp.Select(
            expressions=[
                subquery(select([exp.Count(this=exp.Distinct(expressions=[col("code")]))], table.copy()))
                for table in self.labels
            ]
        )

    def select(self, shuffled: bool = True) -> exp.Select:
        """The statement that makes the release, rows in random order (unless not ``shuffled``, for checks)."""
        return self.labelled(in_order(self.rows(), shuffled))

    def labelled(self, rows: exp.Expr) -> exp.Select:
        """The release, of `rows`: labels are looked up by their codes."""
        query = exp.Select().from_(aliased(rows, "r"))
        for i in self._by_label():
            label = exp.Select(expressions=[col("code"), col("label")], distinct=exp.Distinct())
            labels = subquery(label.from_(self.labels[i].copy(), copy=False), f"l{i}")
            on = col(f"code_{i}", "r").eq(col("code", f"l{i}"))
            query = query.join(labels, on=on, join_type="left" if self.mask else "", copy=False)
        output = [named(self._value(j), column.name) for j, column in enumerate(self.columns)]
        return query.select(*output, copy=False)

    def _by_label(self) -> list[int]:
        """The attributes whose values are looked up by their code."""
        return [i for i in range(len(self.attributes)) if i not in self.ground]

    def rows(self) -> exp.Select:
        """The rows of the release: ``code_i`` for attributes that have labels, ``value_j`` for the other columns."""
        query = exp.Select().from_(aliased(self.source, "s"))
        keys: list[exp.Expr] = []
        for i, (attribute, tree) in enumerate(zip(self.attributes, self.trees, strict=True)):
            if tree.floor == tree.height and not attribute.unknown:
                continue
            on = same(col(attribute.column, "s"), col("value", f"h{i}"), attribute.nullable)
            query = query.join(aliased(attribute.table, f"h{i}"), on=on, copy=False)
            if tree.floor < tree.height:
                code = cast(col(f"code_{tree.floor}", f"h{i}"), "INTEGER")
                node = exp.Paren(this=code + number(tree.offsets[0]))
                keys.append(node.eq(col(f"ground_{i}", "k")))
            if attribute.unknown:
                keys.append(col(KNOWN, f"h{i}"))
        query = query.join(
            aliased(self.kept, "k"), on=all_of(keys), join_type="left" if self.mask else "inner", copy=False
        )
        output = [named(col(f"code_{i}", "k"), f"code_{i}") for i in self._by_label()]
        output += [
            named(self._own_value(column), f"value_{j}")
            for j, column in enumerate(self.columns)
            if column.quasi is None or column.quasi in self.ground
        ]
        if self.mask:
            output.append(named(is_null(col("combination", "k")), MASKED))
        return query.select(*(output or [named(exp.true(), KNOWN)]), copy=False)

    def _own_value(self, column: Column) -> exp.Expr:
        """A value of the source; beside masks its text, where that is not left to the engine."""
        if self.mask and column.quasi is not None and (texts := self.attributes[column.quasi].texts) is not None:
            return col(texts, f"h{column.quasi}")
        return col(column.name, "s")

    def _value(self, j: int) -> exp.Expr:
        """Column ``j`` of the release."""
        quasi = self.columns[j].quasi
        if quasi is None:
            return col(f"value_{j}", "r")
        type_ = self.types[quasi]
        value: exp.Expr = col(f"value_{j}", "r") if quasi in self.ground else col("label", f"l{quasi}")
        if self.mask:
            top = text(self.tops[quasi] or "")
            return exp.Case(ifs=[exp.If(this=col(MASKED, "r"), true=top)], default=cast(value, "VARCHAR"))
        return cast(value, type_) if type_ is not None and quasi not in self.ground else value


def kept_combinations(readable: exp.Table, judged: exp.Select, attributes: Sequence[int]) -> exp.Select:
    """The rows of `placed.readable` whose class is kept."""
    keys = [col(f"code_{i}", "r").eq(col(f"code_{i}", "j")) for i in attributes]
    good = subquery(select([exp.Star()], subquery(judged, "g")).where(col("kept"), copy=False), "j")
    query = exp.Select(expressions=[exp.Column(this=exp.Star(), table=exp.to_identifier("r", quoted=True))])
    return query.from_(aliased(readable, "r"), copy=False).join(good, on=all_of(keys), join_type="semi", copy=False)
