"""Give the common table expressions of a statement distinct names: for Spark, sqlglot moves nested ones to the top."""

from __future__ import annotations

from collections import Counter

from sqlglot import exp

from sqlanon.support.expressions import ident, unused_name


def name_ctes_apart(statement: exp.Expr) -> None:
    """Rename common table expressions, in place, so that no two in a statement have the same name.

    >>> from sqlglot import parse_one
    >>> statement = parse_one("WITH a AS (WITH a AS (SELECT 1 FROM t) SELECT 2 FROM a) SELECT 3 FROM a")
    >>> name_ctes_apart(statement)
    >>> statement.sql()
    'WITH a AS (WITH "a_" AS (SELECT 1 FROM t) SELECT 2 FROM "a_" AS "a") SELECT 3 FROM a'
    """
    withs = [*statement.find_all(exp.With)]
    names = Counter(cte.alias.lower() for with_ in withs for cte in with_.expressions)
    if max(names.values(), default=0) < 2:
        return
    taken = {*names, *(table.name.lower() for table in statement.find_all(exp.Table))}
    for with_ in reversed(withs):  # innermost first, so that names outside are not those of inner ones
        for position, cte in enumerate(with_.expressions):
            name = cte.alias.lower()
            if names[name] > 1:
                names[name] -= 1
                new_name = unused_name(cte.alias, taken)
                taken.add(new_name.lower())
                _rename(with_, position, new_name)


def _rename(with_: exp.With, position: int, new_name: str) -> None:
    """Rename a common table expression where it is visible: in those after it, and in the query itself."""
    cte = with_.expressions[position]
    name, query = cte.alias.lower(), with_.parent
    assert query is not None
    earlier = {id(part) for earlier_cte in with_.expressions[: position + 1] for part in earlier_cte.walk()}
    for table in list(query.find_all(exp.Table)):
        if table.name.lower() == name and not table.db and id(table) not in earlier:
            if not table.alias:
                table.set("alias", exp.TableAlias(this=ident(table.name)))
            table.set("this", ident(new_name))
    cte.args["alias"].set("this", ident(new_name))
