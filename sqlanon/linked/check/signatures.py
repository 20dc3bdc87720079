"""Signatures of persons: their class, and the sorted lists of their child rows with the rows that belong to these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.linked.tables import LinkedTable
from sqlanon.support.coding import dense_rank
from sqlanon.support.expressions import all_of, as_column, col, cols, equal_values, subquery, template

_CHILD_SIGNATURES = template("""
    SELECT :keys, list_sort(list(signature)) AS signatures FROM :rows AS rows GROUP BY :keys
""")

_OWNERS = template("SELECT owners.person, owners.class_id, :keys FROM :owners AS owners")

_CODED_ROWS = template("SELECT :keys, code AS signature FROM :rows AS rows")

_PARENT_ROWS = template("SELECT :keys, rows.code FROM :rows AS rows")

_RANKED_ROWS = template("SELECT :keys, :rank AS signature FROM :nested AS nested")


@dataclass(frozen=True)
class SignatureBuilder:
    """Builds queries for signatures.

    Attributes
    ----------
    tables:
        The tables of the policy.
    code_rows:
        By position of a table, its rows: ``row``, ``parent``, ``code``, a number for each distinct row, and the columns
        ``unit_keys``.
    unit_keys:
        The columns that identify a unit, if there are several signatures of a person.
    """

    tables: Sequence[LinkedTable]
    code_rows: Callable[[int], exp.Query]
    unit_keys: tuple[str, ...] = ()

    def build(self, owners: exp.Expr) -> tuple[exp.Select, list[str]]:
        """The signatures of persons (``person``, ``class_id`` and ``unit_keys``), and the columns that make one: the
        class, and the lists of direct child rows, one for each table."""
        query = _OWNERS(keys=cols(self.unit_keys, "owners"), owners=owners)
        signatures, lists = self._join_lists(query, 0, col("person", "owners"), "owners")
        return signatures, ["class_id", *lists]

    def _join_lists(self, query: exp.Select, position: int, row: exp.Expr, alias: str) -> tuple[exp.Select, list[str]]:
        """Join the child rows of each row of a table with its query: a list for each table of child rows."""
        names: list[str] = []
        for child, table in enumerate(self.tables):
            if table.parent is self.tables[position]:
                name = f"rows_{child}"
                same_parent = row.copy().eq(col("parent", name))
                on = all_of([same_parent, equal_values(self.unit_keys, alias, name)]) if self.unit_keys else same_parent
                query = query.select(as_column(col("signatures", name), name), copy=False)
                child_signatures = subquery(self._child_signatures(child), name)
                query = query.join(child_signatures, on=on, join_type="left", copy=False)
                names.append(name)
        return query, names

    def _child_signatures(self, position: int) -> exp.Select:
        """The sorted signatures of the rows of a table, by unit and parent row: ``parent`` and ``signatures``."""
        return _CHILD_SIGNATURES(keys=self._parent_keys(), rows=self._row_signatures(position))

    def _row_signatures(self, position: int) -> exp.Select:
        """Signatures of the rows of a table with their nested child rows: ``parent``, ``signature``."""
        rows, keys = self.code_rows(position), self._parent_keys()
        if not any(table.parent is self.tables[position] for table in self.tables):
            return _CODED_ROWS(keys=keys, rows=rows)
        parents = _PARENT_ROWS(keys=self._parent_keys("rows"), rows=rows)
        nested, names = self._join_lists(parents, position, col("row", "rows"), "rows")
        rank = dense_rank([col("code", "nested"), *cols(names, "nested")], "BIGINT")
        return _RANKED_ROWS(keys=keys, rank=rank, nested=nested)

    def _parent_keys(self, alias: str | None = None) -> list[exp.Expr]:
        return cols((*self.unit_keys, "parent"), alias)
