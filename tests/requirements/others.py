"""A requirement in one file outside the package: some rows of each class have another value than the most frequent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from pydantic import Field
from sqlglot import exp

from sqlanon.expressions import col, fragment, template
from sqlanon.fields import Name, Section, Whole
from sqlanon.requirements.audit import Audited, Check
from sqlanon.requirements.base import ClassCondition, Distribution, Entry, Requirement
from sqlanon.requirements.plain_sql import Released

OTHERS = fragment("sum(n) - max(n)")
FEWEST = template("""
    SELECT min(others)
    FROM (
        SELECT sum(n) - max(n) AS others
        FROM (SELECT :keys, count(*) AS n FROM :released GROUP BY :keys, :sensitive) AS counts
        GROUP BY :keys
    ) AS classes
""")


class Others(Section, Requirement, ClassCondition):
    """At least ``rows`` rows of a class have another value than its most frequent one.

    No part of a class has more of them than the class.
    """

    attribute: Name = Field(description="a sensitive attribute")
    rows: Annotated[Whole, Field(ge=1)] = Field(description="at least so many rows of a class are others")

    entry: ClassVar = Entry("others", "list", "rows of each class with another value than the most frequent one")
    hereditary: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"{self.rows} others of {self.attribute}"

    @property
    def distribution(self) -> Distribution:
        return Distribution(self.attribute)

    @property
    def least_class(self) -> int:
        return self.rows + 1

    def figures(self) -> Mapping[str, exp.Expr]:
        return {"others": OTHERS()}

    def condition(self) -> exp.Expr:
        return self.distribution.column("others") >= self.rows

    def audit(self, audited: Audited) -> Iterator[Check]:
        keys = [col(name) for name in audited.quasi]
        query = FEWEST(keys=keys, sensitive=col(self.attribute), released=audited.released)
        fewest = audited.engine.rows(query)
        found = (fewest[0][0] if fewest else None) or 0
        yield audited.beside_persons(Check(self.name, found >= self.rows, f"a class has {found}"))

    def violations(self, released: Released) -> exp.Select:
        return released.values(self.attribute).counted(OTHERS(), OTHERS() < self.rows)

    def sentence(self, who: str) -> str:
        return f"In each group, at least {self.rows} rows have another {self.attribute} than most."
