"""Checking the requirements of a policy on a relation, with the macro library: nothing here is the search's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from sqlanon.policy import PrivacySection
from sqlanon.requirements import requirements_in, sensitive_attributes
from sqlanon.requirements.audit import Audited, Check, Queryable


def needs_source(section: PrivacySection, persons: bool) -> bool:
    """Whether a release alone cannot show that it meets the requirements."""
    return persons or not all(one.entry.alone for one in requirements_in(section))


def requirement_checks(section: PrivacySection, audited: Audited) -> list[Check]:
    return [check for one in requirements_in(section) for check in one.audit(audited)]


def unknown_names(section: PrivacySection, audited: Audited) -> str:
    """What requirements name, and is no sensitive column, or no quasi-identifier, of what is checked."""
    sensitive, quasi = ({name.lower() for name in names} for names in (audited.sensitive, audited.quasi))
    wrong = [name for name in sensitive_attributes(section) if name.lower() not in sensitive]
    named = (name for one in requirements_in(section) for name in one.quasi_identifiers)
    return ", ".join(map(repr, dict.fromkeys([*wrong, *(name for name in named if name.lower() not in quasi)])))


def requirement_queries(section: PrivacySection, audited: Callable[[Queryable], Audited]) -> list[exp.Expr]:
    """The queries of `requirement_checks`; none is run."""
    recorder = _Recorder()
    requirement_checks(section, audited(recorder))
    return recorder.queries


class _Recorder:
    """What runs nothing: it keeps the queries, and every answer is empty."""

    def __init__(self) -> None:
        self.queries: list[exp.Expr] = []

    def rows(self, query: exp.Expr) -> list[tuple[Any, ...]]:
        self.queries.append(query)
        return []
