"""Changes of the rows of a table as queries for the changed rows, for engines whose tables cannot be changed."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.errors import UntranslatableError
from sqlanon.support.expressions import as_column, col, fragment, select_star, template, union_all

_REMAINING = template("SELECT * FROM :rows AS remaining ANTI JOIN :deleted AS deleted ON :same")

_MARKED = template("SELECT *, TRUE AS is_changed FROM :rows AS changes")

_CHANGED_VALUE = fragment("CASE WHEN :is_changed THEN :changed ELSE :unchanged END")


def select_changed_rows(statement: exp.Expr, columns: Sequence[str]) -> exp.Query:
    """The rows of a table with these columns after an INSERT, DELETE or UPDATE.

    A DELETE has one condition, ``column IN (SELECT ...)``. In an UPDATE, each row matches at most one row of its FROM
    clause.

    >>> from sqlglot import parse_one
    >>> statements = (
    ...     "INSERT INTO t SELECT a FROM new",
    ...     "DELETE FROM t WHERE a IN (SELECT b FROM old)",
    ...     "UPDATE t AS t SET n = t.n - u.n FROM u AS u WHERE t.a = u.a",
    ... )
    >>> for statement in statements:
    ...     print(select_changed_rows(parse_one(statement), ["a", "n"]).sql())
    SELECT * FROM t UNION ALL SELECT a FROM new
    SELECT * FROM t AS "remaining" ANTI JOIN (SELECT b FROM old) AS "deleted" ON "remaining"."a" = "deleted"."b"
    SELECT "t"."a" AS "a", CASE WHEN "u"."is_changed" THEN t.n - u.n ELSE "t"."n" END AS "n" \
FROM t AS t LEFT JOIN (SELECT *, TRUE AS "is_changed" FROM u AS "changes") AS u ON t.a = u.a
    """
    if isinstance(statement, exp.Insert):
        return union_all(select_star(statement.this), statement.expression.copy())
    if isinstance(statement, exp.Delete):
        return _select_remaining_rows(statement)
    assert isinstance(statement, exp.Update)
    return _select_updated_rows(statement, columns)


def _select_remaining_rows(statement: exp.Delete) -> exp.Query:
    condition = statement.args["where"].this
    if not (isinstance(condition, exp.In) and isinstance(deleted := condition.args.get("query"), exp.Subquery)):
        raise UntranslatableError(f"{statement.sql('duckdb')}: only rows with a column IN (SELECT ...) can be deleted")
    (name,) = deleted.this.named_selects
    same = col(condition.this.name, "remaining").eq(col(name, "deleted"))
    return _REMAINING(rows=statement.this, deleted=deleted, same=same)


def _select_updated_rows(statement: exp.Update, columns: Sequence[str]) -> exp.Query:
    target, changes = statement.this, statement.args["from_"].this
    changed = {assignment.this.name: assignment.expression for assignment in statement.expressions}
    is_changed = col("is_changed", changes.alias)
    values = []
    for column in columns:
        value: exp.Expr = col(column, target.alias)
        if column in changed:
            value = _CHANGED_VALUE(is_changed=is_changed.copy(), changed=changed[column], unchanged=value)
        values.append(as_column(value, column))
    relation = changes.copy()
    relation.set("alias", None)
    marked = exp.Subquery(this=_MARKED(rows=relation), alias=changes.args["alias"].copy())
    query = exp.Select(expressions=values).from_(target.copy())
    return query.join(marked, on=statement.args["where"].this.copy(), join_type="left", copy=False)
