"""SQL for DuckDB in which every function has its full name, ``system.main.sum``.

DuckDB looks up functions by name, and with them operators, lists and structs: a macro ``sum``, ``+`` or ``list_value``
in the schema of a view replaces the engine's own function in it, also if the macro is made later than the view. A full
name finds the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.generators.duckdb import DuckDBGenerator

_SYNTAX = frozenset({"coalesce", "grouping", "row", "try"})
"""What looks like a call, and is known to the parser: no name is looked up."""

_COMPARISONS = frozenset(
    {"=", "<>", "<", "<=", ">", ">=", "IS", "IS NOT", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", ":=", "=>"}
)
"""Operators for which no name is looked up."""

_OTHERS = (
    exp.Bracket, exp.Comprehension, exp.Extract, exp.ILike, exp.Interval, exp.Like, exp.SimilarTo, exp.Unnest,
)  # fmt: skip
"""Notations for functions that nothing here has needed: they are refused."""


class Qualified(DuckDB):
    """The dialect.

    >>> query = exp.select(exp.func("sum", exp.column("x") + 1), exp.Array(expressions=[exp.column("y")])).from_("t")
    >>> query.sql(dialect=Qualified)
    'SELECT system.main.sum(system.main."+"(x, 1)), system.main.list_value(y) FROM t'
    """

    class Generator(DuckDBGenerator):
        """Its writer.

        Some of the engine's own functions are macros, in whose text functions have no full names: they are written out.
        """

        TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., str]]] = {
            **DuckDBGenerator.TRANSFORMS,
            exp.Array: lambda self, array: self.func("list_value", *array.expressions),
            exp.Mod: lambda self, node: self.binary(node, "%"),
            exp.Nullif: lambda self, node: self.sql(_nullif(node)),
            exp.Rand: lambda self, _: self.func("random"),
            exp.Struct: lambda self, struct: self.func("struct_pack", *struct.expressions),
            **{kind: lambda self, node: self.refuse(node) for kind in _OTHERS},
        }

        def func(self, name: str, *args: Any, prefix: str = "(", suffix: str = ")", normalize: bool = True) -> str:
            """A call."""
            lower = name.lower()
            match lower, args:
                case "list_append" | "array_append", (items, item):
                    return self.func("list_concat", items, exp.Array(expressions=[item]))
                case "list_prepend" | "array_prepend", (item, items):
                    return self.func("list_concat", exp.Array(expressions=[item]), items)
                case "list_sum", (items,):
                    return self.func("list_aggregate", items, exp.Literal.string("sum"))
            full = name if not normalize or "." in name or lower in _SYNTAX else f"system.main.{lower}"
            return super().func(full, *args, prefix=prefix, suffix=suffix, normalize=False)

        def anonymous_sql(self, expression: exp.Anonymous) -> str:
            """A call of a function by its name; of one with a schema, as it is."""
            parent = expression.parent
            placed = isinstance(parent, exp.Dot) and parent.expression is expression
            placed = placed or (isinstance(parent, exp.Table) and bool(parent.args.get("db")))
            return self.func(self.sql(expression, "this"), *expression.expressions, normalize=not placed)

        def binary(self, expression: exp.Binary, op: str) -> str:
            """An operator."""
            if op in _COMPARISONS:
                return super().binary(expression, op)
            return self.func(f'"{op}"', expression.this, expression.expression)

        def neg_sql(self, expression: exp.Neg) -> str:
            """A negative value."""
            return self.func('"-"', expression.this)

        def column_sql(self, expression: exp.Column) -> str:
            """A column; or a field of the parameter of a lambda, which looks like one."""
            around = expression.find_ancestor(exp.Lambda) if expression.table else None
            while around is not None:
                for parameter in around.expressions:
                    if parameter.name == expression.table:
                        return self.func("struct_extract", parameter.copy(), exp.Literal.string(expression.name))
                around = around.find_ancestor(exp.Lambda)
            return super().column_sql(expression)

        def dot_sql(self, expression: exp.Dot) -> str:
            """A field of a struct; or a function with its schema."""
            if isinstance(expression.expression, exp.Func):
                return super().dot_sql(expression)
            return self.func("struct_extract", expression.this, exp.Literal.string(expression.expression.name))

        def collate_sql(self, expression: exp.Collate) -> str:
            """A collation, which is no function."""
            return super().binary(expression, "COLLATE")

        def refuse(self, expression: exp.Expr) -> str:
            """No text."""
            raise NotImplementedError(f"{expression.key}: write a call of the function")


def _nullif(node: exp.Nullif) -> exp.Case:
    same = exp.EQ(this=node.this.copy(), expression=node.expression.copy())
    return exp.Case(ifs=[exp.If(this=same, true=exp.null())], default=node.this.copy())
