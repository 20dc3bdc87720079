"""The SQL that shows victims: the statements that a query needs before it, and its relations under names for people."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from sqlanon.expressions import aliased


class Shown:
    """Knows the relations of a run under the names that people can use, and the statements that make them."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[exp.Table, str | None]] = {}
        self._needs: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def need(self, key: str, statements: Iterable[str], after: Iterable[str] = ()) -> None:
        """Statements, by a key; those of other keys come before."""
        self._needs[key] = (tuple(statements), tuple(after))

    def name(self, own: exp.Table, shown: exp.Table, need: str | None) -> None:
        """What a relation of the run is called for people, and the key of what makes it."""
        self._names[_key(own)] = (shown, need)

    def text(self, *queries: exp.Query) -> str:
        """The queries as they can be run by anybody who has the files."""
        needed: dict[str, None] = {}

        def renamed(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table) or _key(node) not in self._names:
                return node
            shown, need = self._names[_key(node)]
            if need is not None:
                self._collect(need, needed)
            return aliased(shown, node.alias) if node.alias else shown.copy()

        texts = [f"{query.copy().transform(renamed).sql('duckdb', pretty=True)};" for query in queries]
        before = [statement for key in needed for statement in self._needs[key][0]]
        return "\n".join([*before, *texts])

    def _collect(self, key: str, needed: dict[str, None]) -> None:
        for other in self._needs[key][1]:
            self._collect(other, needed)
        needed.setdefault(key)


def _key(table: exp.Table) -> str:
    return "\n".join(part.name for part in table.parts) if isinstance(table.this, exp.Identifier) else table.sql()
