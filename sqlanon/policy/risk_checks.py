"""Checks of the columns that `risk` looks at, against the attributes' roles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlanon.errors import Problem
from sqlanon.policy.problems import join
from sqlanon.policy.risk import RiskSection
from sqlanon.policy.sections import Attribute


def risk_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what the columns of weights and households may not be.

    A household tells its people apart from others, as a person's id does: it is not released. Weights are as harmless
    as a column that is released anyway, but no quasi-identifier: then they would make the classes that they weigh.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    section: RiskSection | None = parts.get("risk")
    attributes: dict[str, Attribute] = parts.get("attributes", {})
    if section is None:
        return
    for key, column, allowed in (
        ("weights", section.weights, ("identifying", "insensitive")),
        ("household", section.household, ("identifying",)),
    ):
        for name, attribute in attributes.items():
            if column is not None and name.lower() == column.lower() and attribute.role not in allowed:
                yield Problem(
                    f"risk.{key}",
                    f"{name!r} is declared {attribute.role}, and it has to be {' or '.join(allowed)} there: "
                    f"change its role in {join('attributes', name)}, or leave the attribute out",
                )
    columns = {name.lower() for name in section.columns.values()}
    if len(columns) < len(section.columns):
        yield Problem("risk.household", "is the column of weights, too: name the one that tells households apart")
