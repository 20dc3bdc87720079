"""A fault injector: somebody changes the catalog, or the files, between two statements of a publication."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from sqlglot import exp

METHODS = ("execute", "rows", "columns", "stream", "materialize")
"""The methods of an engine that run a statement, which is an argument of theirs."""


class Statements:
    """The statements that an engine has run, as text."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.was_attacked = False


@contextmanager
def attack_between(
    engine: type,
    attack: Callable[[], None],
    before: int | None,
    counts: Callable[[str], bool] = lambda text: True,
    methods: Sequence[str] = METHODS,
) -> Iterator[Statements]:
    """Call an attack once, directly before the statement of this number (None: never) of all engines of a class.

    ``counts`` says which statements have a number, by their text; what a statement of the attack runs has none.
    """
    statements = Statements()

    def wrap_method(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def method(self: Any, *arguments: Any, **options: Any) -> Any:
            expression = next((argument for argument in arguments if isinstance(argument, exp.Expr)), None)
            text = "" if expression is None else expression.sql(self.dialect)
            if counts(text):
                if len(statements.texts) == before:
                    statements.was_attacked = True
                    attack()
                statements.texts.append(f"{name}: {text}")
            return original(self, *arguments, **options)

        return method

    with pytest.MonkeyPatch.context() as patch:
        for name in methods:
            patch.setattr(engine, name, wrap_method(getattr(engine, name), name))
        yield statements
