"""Semi and anti joins for engines without a USING in them."""

from __future__ import annotations

from sqlglot import exp

from sqlanon.errors import UntranslatableError
from sqlanon.support.expressions import all_of, col


def join_by_condition(node: exp.Join, dialect: str) -> exp.Join:
    """A semi or anti join with a condition in place of USING; other joins are unchanged.

    >>> from sqlglot import parse_one
    >>> query = parse_one("SELECT * FROM a AS x SEMI JOIN b USING (n)")
    >>> join_by_condition(query.args["joins"][0], "spark").sql()
    'SEMI JOIN b ON "x"."n" = "b"."n"'
    """
    if node.args.get("kind") not in ("SEMI", "ANTI") or not node.args.get("using"):
        return node
    query = node.parent
    assert isinstance(query, exp.Select)
    if node.index:  # a name may be a column of several tables
        raise UntranslatableError(f"{node.sql('duckdb')} cannot be translated to {dialect}: put it first, or use ON")
    left, right = query.args["from_"].this.alias_or_name, node.this.alias_or_name
    join = node.copy()
    join.set("on", all_of(col(name.name, left).eq(col(name.name, right)) for name in node.args["using"]))
    join.set("using", None)
    return join
