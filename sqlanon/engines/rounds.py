"""``WITH RECURSIVE``, for engines that have none: its parts, so that its rounds can be run one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.expressions import star, subquery, union_all


@dataclass(frozen=True)
class Rounds:
    """A query with a recursion in it.

    Attributes
    ----------
    query, owner:
        The query, and the part of it whose ``WITH`` has the recursion: a union of a first round and of a query that
        makes the next round of the last one.
    """

    query: exp.Query
    owner: exp.Select

    @property
    def plain(self) -> dict[str, exp.Query]:
        """The queries beside the recursion, by name."""
        return {one.alias: one.this for one in self._parts[:-1]}

    @property
    def name(self) -> str:
        """The recursion's name."""
        return self._parts[-1].alias

    def first(self, made: Mapping[str, exp.Table]) -> exp.Query:
        """The first round, over the tables that were made of the queries beside it."""
        return _over(self._parts[-1].this.left, made)

    def later(self, made: Mapping[str, exp.Table]) -> exp.Query:
        """The next round: with the last one among the tables."""
        return _over(self._parts[-1].this.right, made)

    def rest(self, made: Mapping[str, exp.Table], rounds: Sequence[exp.Table]) -> exp.Query:
        """The query over all rounds."""
        whole = self.query.copy()
        found = _found(whole)
        assert found is not None
        found.set("with_", None)
        all_rounds = subquery(union_all(*(star(one) for one in rounds)))
        rest = _over(found, {**made, self.name: all_rounds})
        if found is whole:
            return rest
        found.replace(rest)
        return whole

    @property
    def _parts(self) -> list[exp.CTE]:
        parts: list[exp.CTE] = self.owner.args["with_"].expressions
        return parts


def rounds_of(query: exp.Query) -> Rounds | None:
    """A recursion in a query; None where there is none.

    >>> from sqlglot import parse_one
    >>> query = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT SUM(n) FROM r"
    >>> found = rounds_of(parse_one(query))
    >>> found.later({"r": exp.to_table("last")}).sql()
    'SELECT n + 1 FROM last AS r WHERE n < 3'
    >>> found.rest({}, [exp.to_table("a"), exp.to_table("b")]).sql()
    'SELECT SUM(n) FROM (SELECT * FROM a UNION ALL SELECT * FROM b) AS r'
    """
    owner = _found(query)
    return None if owner is None else Rounds(query, owner)


def _found(query: exp.Query) -> exp.Select | None:
    withs = (one for one in query.find_all(exp.With) if one.args.get("recursive"))
    return next((one.parent for one in withs if isinstance(one.parent, exp.Select)), None)


def _over(query: exp.Query, made: Mapping[str, exp.Expr]) -> exp.Query:
    """A query with other relations in the place of some names."""
    whole = subquery(query.copy())
    for found in list(whole.find_all(exp.Table)):
        other = made.get(found.name)
        if other is not None and not found.db:
            new = other.copy()
            new.set("alias", exp.TableAlias(this=exp.to_identifier(found.alias or found.name)))
            found.replace(new)
    result: exp.Query = whole.this.pop()
    return result
