"""l-diversity: every class has l well-represented values of a sensitive attribute."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field
from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, Check, figure
from sqlanon.requirements.base import (
    TOLERANCE,
    ClassCondition,
    Distribution,
    Entry,
    Requirement,
    SensitiveAttribute,
    SourceFacts,
    format_number,
)
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import ClassValues, WarehouseRelease
from sqlanon.support.coding import ROWS
from sqlanon.support.expressions import anonymous, cast, col, double_total, fragment, greatest, number
from sqlanon.support.fields import Flaw, Name, Number, Positive, Section, StrictBoolean

LOGS = fragment("sum(n * ln(n))")
ENTROPY = fragment("ln(:total) - :logs / :total")
ENTROPY_LOST = fragment(":total * (1 - :entropy / :log_l)")
RECURSIVE = fragment(":largest / nullif(:tail, 0) < :c")
RECURSIVE_LOST = fragment(":largest - :c * :tail")
PLAIN_ENTROPY = fragment("ln(sum(n)) - sum(n * ln(n)) / nullif(sum(n), 0)")
TOO_LITTLE_ENTROPY = fragment("ln(sum(n)) - sum(n * ln(n)) / nullif(sum(n), 0) < :least")
PLAIN_TIMES_TAIL = fragment("max(n) / nullif(sum(CASE WHEN place >= :l THEN n ELSE 0::DOUBLE END), 0)")
NOT_UNDER = fragment("NOT coalesce((:least < :c), false)")

L_DIVERSITY = Macro("l_diversity", ("distinct_l", "entropy_l", "recursive_c", "classes"))


def require_distinct_values(attribute: str, least: int) -> tuple[str, dict[str, object]]:
    """The key of ``[privacy]`` and the entry that require at least some number of different values in each class."""
    return LDiversity.entry.key, {"attribute": attribute, "kind": "distinct", "l": least}


class LDiversity(Section, Requirement):
    """l-diversity: the sensitive values of every class are diverse.

    Source: A. Machanavajjhala, D. Kifer, J. Gehrke, M. Venkitasubramaniam, "l-Diversity: privacy beyond
    k-anonymity" (ACM TKDD 1(1), 2007), section 4: definitions 4.1 and 4.2, and section 4.3.

    Attributes
    ----------
    kind:
        ``distinct``: at least l values. ``entropy``: −Σ p ln p ≥ ln l (definition 4.1). ``recursive``:
        r_1 < c (r_l + ... + r_m), r_i the i-th largest count (definition 4.2, (c, l)-diversity).
    l:
        A whole number, except for ``entropy``.
    c:
        For ``recursive``, and for nothing else.
    joint:
        The other sensitive attributes count as quasi-identifiers: within a class, each combination of their values
        must be diverse (section 4.3, several sensitive attributes).

    >>> LDiversity(attribute="diagnosis", kind="recursive", l=3, c=4).c
    4.0
    """

    attribute: Name = Field(description="a sensitive attribute", examples=["diagnosis"])
    kind: Literal["distinct", "entropy", "recursive"] = Field(
        description="one of distinct, entropy, recursive", examples=["entropy"]
    )
    l: Number = Field(  # the letter that the literature gives it
        json_schema_extra={"minimum": 1},
        description="the required diversity: 1 or more; a whole number, except for entropy",
        examples=[3],
    )
    c: Positive | None = Field(
        default=None, description="for recursive: the largest count is under c times the tail", examples=[4]
    )
    joint: StrictBoolean = Field(
        default=False, description="the other sensitive attributes count as quasi-identifiers", examples=[True]
    )

    entry: ClassVar[Entry] = Entry(
        "l_diversity", "list", "diverse sensitive values in every class", macros=(L_DIVERSITY,)
    )

    def _flaws(self) -> Iterator[Flaw]:
        if self.l < 1:
            yield ("l",), f"must be at least 1, not {self.l}"
        elif self.kind != "entropy" and not isinstance(self.l, int):
            yield ("l",), f'must be a whole number, not {self.l}: only kind = "entropy" takes others'
        if self.kind == "recursive" and self.c is None:
            yield ("c",), "is missing: recursive (c, l)-diversity needs it; add c = 4, for example"
        if self.kind != "recursive" and self.c is not None:
            yield ("c",), f'applies to kind = "recursive", and this one is {self.kind}: leave it out'

    @classmethod
    def find_conflicts(cls, written: Mapping[str, Any], name: str, spot: SensitiveAttribute) -> Iterator[Flaw]:
        if written.get("joint") is True and spot.is_only_one:
            yield ("joint",), f"needs a second sensitive attribute besides {name!r}: leave it out"

    @property
    def uses_all_sensitive(self) -> bool:
        return self.joint

    def bind(self, source: SourceFacts) -> ClassCondition:
        own = self._own()
        return JointDiversity(own) if self.joint else own

    def _own(self) -> DistinctDiversity | EntropyDiversity | RecursiveDiversity:
        if self.kind == "distinct":
            return DistinctDiversity(self.attribute, int(self.l))
        if self.kind == "entropy":
            return EntropyDiversity(self.attribute, float(self.l))
        return RecursiveDiversity(self.attribute, float(self.c or 0), int(self.l))

    def guaranteed_k(self, quasi: Sequence[str]) -> int:
        return math.ceil(self.l)

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        """By ``l_diversity``; joint, with the other sensitive columns beside the quasi-identifiers."""
        others = [name for name in audited.sensitive if name.lower() != self.attribute.lower()] if self.joint else []
        whole = math.floor(self.l)
        keys = [*audited.quasi_identifiers, *others]
        found = audited.figures(L_DIVERSITY, keys, self.attribute, l=max(whole, 1), **audited.person_option)
        if self.kind == "recursive":
            least, holds = found["recursive_c"], whole == 1 or figure(found["recursive_c"]) < figure(self.c)
            message = f"in the worst class r1 is {figure(least):.6g} times the sum of the rarer counts"
        else:
            least = found["distinct_l" if self.kind == "distinct" else "entropy_l"]
            holds = math.log(max(figure(least), 1.0)) >= math.log(self.l) - TOLERANCE
            message = f"worst class: {figure(least):.6g} (required: {format_number(self.l)})"
        check = Check(self.name, bool(holds), message)
        # Too few values are too few, whoever has them.
        enough = self.kind != "distinct" and figure(found["distinct_l"]) >= self.l
        yield audited.as_person_check(check) if enough else check

    def violations(self, released: WarehouseRelease) -> exp.Select:
        return self._own().violations(released.values(self.attribute, self.joint))

    def sentence(self, who: str) -> str:
        joint = ", also among those who agree in the other sensitive columns" if self.joint else ""
        c, l = format_number(self.c or 0), format_number(self.l)
        meant = {
            "distinct": f"at least {l} different values",
            "entropy": f"values as diverse as {l} equally frequent ones",
            "recursive": f"no value that outweighs the others (recursive, c = {c}, l = {l})",
        }[self.kind]
        return f"Those who look alike have {meant} of {self.attribute}{joint} (l-diversity)."


class _Diversity(ClassCondition):
    """What the kinds of l-diversity share: an attribute, its values in a class, and that l values take l rows."""

    attribute: str
    l: float

    @abstractmethod
    def violations(self, values: ClassValues) -> exp.Select:
        """The classes that break it, in plain SQL."""

    @property
    def distribution(self) -> Distribution:
        return Distribution(self.attribute)

    @property
    def min_class_rows(self) -> int:
        """l, rounded up: each value needs a row."""
        return math.ceil(self.l - 1e-9)


@dataclass(frozen=True)
class DistinctDiversity(_Diversity):
    """At least ``l`` distinct values in a class, NULL among them.

    Monotone, with suppression too: a part of a class has no value that the class does not have.
    """

    attribute: str
    l: int
    hereditary = True

    @property
    def name(self) -> str:
        return f"distinct {self.l}-diversity of {self.attribute}"

    def figures(self) -> Mapping[str, exp.Expr]:
        """``distinct``: the number of values."""
        return {"distinct": exp.Count(this=exp.Star())}

    def condition(self) -> exp.Expr:
        return self.distribution.column("distinct") >= number(self.l)

    def violations(self, values: ClassValues) -> exp.Select:
        distinct = exp.Count(this=exp.Star())
        return values.counted(distinct, distinct < number(self.l))


@dataclass(frozen=True)
class EntropyDiversity(_Diversity):
    """−Σ p ln p ≥ ln l in a class.

    Monotone without suppression: entropy is concave, so that two classes merged have at least the lesser entropy of
    the two. Not with suppression: a class that meets it can merge with one that does not, and be lost. A class of n
    rows and entropy H loses at least n (1 − H / ln l) of them, by the same concavity.
    """

    attribute: str
    l: float

    @property
    def name(self) -> str:
        return f"entropy {format_number(self.l)}-diversity of {self.attribute}"

    def figures(self) -> Mapping[str, exp.Expr]:
        """``total``: Σ n. ``logs``: Σ n ln n."""
        return {"total": double_total(col(ROWS)), "logs": LOGS()}

    def derived_figures(self, min_rows: int) -> Mapping[str, exp.Expr]:
        """``entropy``: ln Σ n − Σ n ln n / Σ n."""
        return {"entropy": ENTROPY(**{name: self.distribution.column(name) for name in ("total", "logs")})}

    def condition(self) -> exp.Expr:
        return self.distribution.column("entropy") >= number(math.log(self.l) - TOLERANCE)

    def shortfall(self) -> exp.Expr:
        """n (1 − H / ln l)."""
        figures = {name: self.distribution.column(name) for name in ("total", "entropy")}
        return greatest(number(1), ENTROPY_LOST(**figures, log_l=math.log(self.l) or 1.0))

    def violations(self, values: ClassValues) -> exp.Select:
        return values.counted(PLAIN_ENTROPY(), TOO_LITTLE_ENTROPY(least=math.log(self.l) - TOLERANCE))


@dataclass(frozen=True)
class RecursiveDiversity(_Diversity):
    """r1 < c (r_l + ... + r_m) in a class, r_i its i-th largest count; 1-diversity always holds.

    Monotone without suppression: r1 grows at most by the other class's, and the sum of the least counts at least by
    the other's. Not with suppression. A class loses at least r1 − c (r_l + ... + r_m) rows, since no part of it has a
    greater sum of least counts.
    """

    attribute: str
    c: float
    l: int

    @property
    def name(self) -> str:
        return f"recursive ({format_number(self.c)}, {self.l})-diversity of {self.attribute}"

    def figures(self) -> Mapping[str, exp.Expr]:
        """``counts``: all of them, the largest first."""
        order = exp.Order(this=col(ROWS), expressions=[exp.Ordered(this=col(ROWS), desc=True)])
        return {"counts": exp.ArrayAgg(this=order), "largest": exp.Max(this=col(ROWS))}

    def derived_figures(self, min_rows: int) -> Mapping[str, exp.Expr]:
        """``tail from l``: r_l + ... + r_m."""
        counts = self.distribution.column("counts")
        tail = anonymous("list_slice", counts, number(self.l), anonymous("len", counts.copy()))
        sum_ = exp.Coalesce(this=anonymous("list_sum", tail), expressions=[number(0)])
        return {f"tail from {self.l}": cast(sum_, "DOUBLE")}

    def condition(self) -> exp.Expr:
        if self.l == 1:
            return exp.true()
        # A quotient is rounded as c itself was: at the border the two are the same number.
        return RECURSIVE(**self._figures())

    def shortfall(self) -> exp.Expr:
        """r1 − c (r_l + ... + r_m)."""
        return greatest(number(1), RECURSIVE_LOST(**self._figures()))

    def _figures(self) -> dict[str, exp.Expr]:
        figure_of = self.distribution.column
        return {"largest": figure_of("largest"), "tail": figure_of(f"tail from {self.l}"), "c": number(self.c)}

    def violations(self, values: ClassValues) -> exp.Select:
        least = PLAIN_TIMES_TAIL(l=self.l)
        return values.ranked(least, exp.false() if self.l == 1 else NOT_UNDER(least=least, c=self.c))


@dataclass(frozen=True)
class JointDiversity(ClassCondition):
    """l-diversity within equal values of all other sensitive attributes.

    Each of them counts as a quasi-identifier: in a class, every group of rows that agree in them has to be l-diverse.
    Monotone without suppression. Not with suppression, whatever the kind: one group that is not l-diverse takes the
    whole class with it. A class loses at least what its groups lose.
    """

    diversity: DistinctDiversity | EntropyDiversity | RecursiveDiversity

    @property
    def distribution(self) -> Distribution:
        return Distribution(self.diversity.attribute, "joint")

    @property
    def group_condition(self) -> ClassCondition:
        return self.diversity

    @property
    def name(self) -> str:
        return f"joint {self.diversity.name}"

    @property
    def min_class_rows(self) -> int:
        """As of its groups."""
        return self.diversity.min_class_rows

    def figures(self) -> Mapping[str, exp.Expr]:
        """``holds``: whether all groups meet it. ``short``: Σ of what they lose."""
        group = self.diversity
        lost: exp.Expr = group.shortfall()
        if group.hereditary:
            lost = number(1)
        # Never NULL: an aggregate would pass over a group that has no figure because it has too few values.
        holds = exp.Coalesce(this=exp.Paren(this=group.condition()), expressions=[exp.false()])
        short = exp.If(this=holds, true=number(0), false=lost)
        return {
            self._figure("holds"): exp.LogicalAnd(this=holds.copy()),
            self._figure("short"): double_total(short),
        }

    def condition(self) -> exp.Expr:
        return self.distribution.column(self._figure("holds"))

    def shortfall(self) -> exp.Expr:
        """Σ of what the groups lose."""
        return self.distribution.column(self._figure("short"))

    def _figure(self, name: str) -> str:
        return f"{self.diversity.name} {name}"
