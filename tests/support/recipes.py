"""The recipes of EXTENDING.md: each has its code on the page once, and runs here as a module outside the package."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from sqlanon import measures, requirements
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.publish.targets import kinds as target
from sqlanon.sources import kinds as sources
from sqlanon.strategies import registry
from support.files import ROOT

PAGE = (ROOT / "EXTENDING.md").read_text(encoding="utf-8")

REGISTRIES: tuple[tuple[Callable[[], tuple[Any, ...]], Callable[[Any], None]], ...] = (
    (requirements.requirement_types, requirements.unregister),
    (lambda: tuple(measures.MEASURES.values()), measures.unregister),
    (lambda: tuple(STRATEGIES.values()), registry.unregister),
    (lambda: tuple(sources.KINDS.values()), sources.unregister_source),
    (lambda: tuple(target.KINDS.values()), target.unregister),
)
"""Registered names of each seam, and a function that removes one. An engine comes with its source."""


@contextmanager
def registrations() -> Iterator[None]:
    """Names that are registered within the context are removed at its end."""
    before = [names() for names, _ in REGISTRIES]
    try:
        yield
    finally:
        for (names, remove), names_before in zip(REGISTRIES, before, strict=True):
            for name in names():
                if name not in names_before:
                    remove(name)


def section(title: str) -> str:
    """The text of a recipe, under its heading."""
    (text,) = re.findall(rf"^### {title}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return text


def code(name: str) -> str:
    """The Python of a recipe, by the name of its file."""
    return _code(name)[1]


def _code(name: str) -> re.Match[str]:
    (match,) = re.finditer(rf"^```python\n# {name}\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return match


def run(name: str) -> ModuleType:
    """Run a recipe's code, with its registration at the end, as a module that others can import."""
    sys.modules[name] = module = ModuleType(name)
    match = _code(name)
    lines = "\n" * PAGE.count("\n", 0, match.start(1))  # an error names the line of the page
    exec(compile(lines + match[1], str(ROOT / "EXTENDING.md"), "exec"), vars(module))
    return module


@cache
def recipe(name: str) -> Any:
    """The module of a recipe, whose tests register what it has for as long as they need it."""
    with registrations():
        return run(name)
