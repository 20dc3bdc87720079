"""The evaluation of classes of combinations, and the figures of those that meet the requirements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.statements import MOVER, PERSONS, class_count
from sqlanon.requirements import Distribution, Requirements
from sqlanon.requirements.base import SHARE, VALUE
from sqlanon.strategies.lattice.classes import KEPT, evaluated_classes
from sqlanon.strategies.local.core.nodes import Tree, equal_columns, join_levels, node_column
from sqlanon.support.coding import ROW_COUNT, Levels, code_column, inner_column
from sqlanon.support.expressions import as_column, col, select, subquery, template

_CLASSES_OF_ROWS = template("""
    SELECT :keys, class_size, class_size AS class_count, class_size >= :least AS kept
    FROM (SELECT :keys, sum(row_count)::BIGINT AS class_size FROM :relation AS p GROUP BY :keys) AS j
""")


@dataclass(frozen=True)
class ClassEvaluator:
    """Evaluates requirements on classes of combinations."""

    requirements: Requirements
    persons: exp.Table | None = None  # ``combination``, ``row_count``, ``persons`` and, if persons move, ``mover``
    moving: bool = False
    sensitive: Mapping[Distribution, SensitiveTable] | None = None  # tables with ``combination`` in place of codes

    @property
    def needs_only_rows(self) -> bool:
        """Whether a class is feasible if it has as many rows as the smallest class must have."""
        return self.persons is None and self.requirements.are_minimum_counts

    @property
    def person_count(self) -> exp.Expr:
        """The aggregate that counts the persons of rows of ``persons``."""
        return class_count(PERSONS, MOVER if self.moving else None)

    def evaluate(self, relation: exp.Expr, keys: Sequence[str]) -> exp.Select:
        """The classes of a relation with ``combination``, ``row_count`` and some keys: the keys, ``class_size`` (rows),
        ``class_count`` (rows or persons) and ``kept``: whether they meet the requirements."""
        if self.needs_only_rows:
            columns = [col(key) for key in keys]
            return _CLASSES_OF_ROWS(keys=columns, relation=relation, least=self.requirements.min_class_rows)
        # The statement for classes expects codes of attributes at level 0.
        codes = [code_column(i, 0) for i in range(len(keys))]
        coded_keys = [as_column(col(key, "p"), code) for key, code in zip(keys, codes, strict=True)]
        if self.persons is None:
            frequency = template("SELECT :keys, p.row_count AS row_count FROM :relation AS p")(
                keys=coded_keys, relation=relation
            )
        else:
            # Rows are counted once for each combination, persons for each of its movers.
            movers = [as_column(col(MOVER, "c"), MOVER)] if self.moving else []
            frequency = template("""
                SELECT :keys, c.row_count AS row_count, c.persons AS persons, :movers
                FROM :relation AS p
                JOIN :persons AS c ON p.combination = c.combination
            """)(keys=coded_keys, movers=movers, relation=relation, persons=self.persons)

        def count_values(table: SensitiveTable) -> SensitiveTable:
            names = [
                *(inner_column(i) for i in range(table.inner)),
                VALUE,
                SHARE,
                ROW_COUNT,
                *([MOVER] if self.moving else []),
            ]
            counts = [col(name, "s") for name in names]
            values = template("""
                SELECT :keys, :counts
                FROM :relation AS p
                JOIN :sensitive AS s ON p.combination = s.combination
            """)(keys=coded_keys, counts=counts, relation=relation, sensitive=table.table)
            return replace(table, table=subquery(values, "f"))

        space = ClassSpace(
            subquery(frequency, "f"),
            (1,) * len(keys),
            self.requirements,
            sensitive={distribution: count_values(table) for distribution, table in (self.sensitive or {}).items()},
            persons=self.persons is not None,
            moving=self.moving,
        )
        extra: list[exp.Expr] = [as_column(col(code), key) for code, key in zip(codes, keys, strict=True)]
        classes = evaluated_classes(space, (0,) * len(keys), extra)
        return template("SELECT :keys, class_size, class_count, kept FROM :classes AS j")(
            keys=[col(key) for key in keys], classes=classes
        )


def generalized_combinations(combinations: exp.Table, trees: Sequence[Tree], levels: Levels) -> exp.Select:
    """The combinations at a generalization: ``combination``, ``row_count``, ``node_i``."""
    query = template("SELECT c.combination, c.row_count FROM :combinations AS c")(combinations=combinations)
    query, nodes = join_levels(query, trees, levels)
    return query.select(*(as_column(node, node_column(i)) for i, node in enumerate(nodes)), copy=False)


def feasible_rows(relation: exp.Expr, evaluated: exp.Expr, keys: Sequence[str], feasible: bool = True) -> exp.Select:
    """The rows of a relation whose class meets (or violates) the requirements."""
    return template("""
        SELECT p.*
        FROM :relation AS p
        SEMI JOIN (SELECT * FROM :evaluated AS e WHERE :is_chosen) AS j ON :same_class
    """)(
        relation=relation,
        evaluated=evaluated,
        is_chosen=col(KEPT) if feasible else ~col(KEPT),
        same_class=equal_columns(keys, "p", "j"),
    )


class_figures = template("""
    SELECT
        count(*) AS classes,
        coalesce(sum(class_size)::BIGINT, 0) AS rows,
        coalesce(min(class_size), 0) AS smallest,
        coalesce(min(class_count), 0) AS fewest,
        coalesce(sum(pow(class_size::DOUBLE, 2))::DOUBLE, 0) AS squares,
        coalesce(sum(class_count)::BIGINT, 0) AS kept_count,
        count(*) FILTER (WHERE class_count = 1) AS single_classes
    FROM :evaluated AS j
    WHERE kept
""")
"""Figures of the classes that are kept: ``smallest`` is the least number of rows, ``fewest`` the least count (rows or
persons), ``single_classes`` the number of classes with a count of one."""


def attribute_figures(kept_combinations: exp.Table, attribute_count: int) -> exp.Select:
    """Figures of the kept rows by attribute: ``leaves_i`` and ``levels_i`` (sums), ``low_i`` and ``high_i`` (lowest and
    highest level)."""
    figures: list[exp.Expr] = []
    for i in range(attribute_count):
        query = template("""
            SELECT
                sum(row_count::DOUBLE * :leaves)::DOUBLE AS leaves,
                sum(row_count * :level)::BIGINT AS levels,
                min(:level) AS low,
                max(:level) AS high
        """)(leaves=col(f"leaves_{i}"), level=col(f"level_{i}"))
        figures += [as_column(figure.this, f"{figure.alias}_{i}") for figure in query.expressions]
    return select(figures, kept_combinations.copy())
