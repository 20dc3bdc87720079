"""l-diversity: every class has at least l well-represented values of a sensitive attribute."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, to_float
from sqlanon.requirements.base import (
    TOLERANCE,
    ClassCondition,
    Distribution,
    Entry,
    Requirement,
    SensitiveAttribute,
    SourceDomains,
    format_number,
)
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import ClassValues, WarehouseRelease
from sqlanon.support.checks import Check
from sqlanon.support.coding import ROW_COUNT
from sqlanon.support.expressions import anonymous, cast, col, double_total, fragment, greatest, number
from sqlanon.support.fields import Flaw, Name, Number, Positive, Section, StrictBoolean, policy_key

L_DIVERSITY = Macro("l_diversity", ("distinct_l", "entropy_l", "recursive_c", "classes"))


def require_distinct_values(attribute: str, l: int) -> tuple[str, dict[str, object]]:
    """A ``[privacy]`` key and entry: at least l different values in each class."""
    return LDiversity.entry.key, {"attribute": attribute, "kind": "distinct", "l": l}


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

    attribute: Name = policy_key("a sensitive attribute", example="diagnosis", default=...)
    kind: Literal["distinct", "entropy", "recursive"] = policy_key(
        "one of distinct, entropy, recursive", example="entropy", default=...
    )
    l: Number = policy_key(
        "the required diversity: 1 or more; a whole number, except for entropy",
        example=3,
        json_schema_extra={"minimum": 1},
        default=...,
    )
    c: Positive | None = policy_key("for recursive: the largest count must be less than c times the tail", example=4)
    joint: StrictBoolean = policy_key(
        "the other sensitive attributes count as quasi-identifiers", example=True, default=False
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
    def find_conflicts(cls, keys: Mapping[str, Any], name: str, attribute: SensitiveAttribute) -> Iterator[Flaw]:
        if keys.get("joint") is True and attribute.is_only_one:
            yield ("joint",), f"needs a second sensitive attribute besides {name!r}: leave it out"

    @property
    def uses_all_sensitive(self) -> bool:
        return self.joint

    def bind(self, source: SourceDomains) -> ClassCondition:
        diversity = self._diversity()
        return JointDiversity(diversity) if self.joint else diversity

    def _diversity(self) -> DistinctDiversity | EntropyDiversity | RecursiveDiversity:
        if self.kind == "distinct":
            return DistinctDiversity(self.attribute, int(self.l))
        if self.kind == "entropy":
            return EntropyDiversity(self.attribute, float(self.l))
        return RecursiveDiversity(self.attribute, float(self.c or 0), int(self.l))

    def guaranteed_k(self, quasi: Sequence[str]) -> int:
        return math.ceil(self.l)

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        """Audit with the macro ``l_diversity``. If joint, the other sensitive columns count as quasi-identifiers."""
        keys = [*audited.quasi_identifiers]
        if self.joint:
            keys += [name for name in audited.sensitive if name.lower() != self.attribute.lower()]
        whole = math.floor(self.l)
        figures = audited.figures(L_DIVERSITY, keys, self.attribute, l=max(whole, 1), **audited.person_option)
        distinct, entropy, ratio = (to_float(figures[name]) for name in ("distinct_l", "entropy_l", "recursive_c"))
        if self.kind == "recursive":
            holds = whole == 1 or ratio < to_float(self.c)
            message = f"in the worst class r1 is {ratio:.6g} times the sum of the rarer counts"
        else:
            worst = distinct if self.kind == "distinct" else entropy
            holds = math.log(max(worst, 1.0)) >= math.log(self.l) - TOLERANCE
            message = f"worst class: {worst:.6g} (required: {format_number(self.l)})"
        check = Check(self.name, holds, message)
        # Too few distinct values fail the check even where persons cannot be counted.
        depends_on_persons = self.kind != "distinct" and distinct >= self.l
        yield audited.as_person_check(check) if depends_on_persons else check

    def violations(self, released: WarehouseRelease) -> exp.Select:
        return self._diversity().violations(released.values(self.attribute, self.joint))

    def sentence(self, unit: str) -> str:
        joint = ", also among those who agree in the other sensitive columns" if self.joint else ""
        c, l = format_number(self.c or 0), format_number(self.l)
        diversity = {
            "distinct": f"at least {l} different values",
            "entropy": f"values as diverse as {l} equally frequent ones",
            "recursive": f"no value that outweighs the others (recursive, c = {c}, l = {l})",
        }[self.kind]
        return f"Those who look alike have {diversity} of {self.attribute}{joint} (l-diversity)."


class _Diversity(ClassCondition):
    attribute: str
    l: float

    @abstractmethod
    def violations(self, values: ClassValues) -> exp.Select:
        """The violating classes, in plain SQL."""

    @property
    def min_class_rows(self) -> int:
        """l rounded up, because each value needs a row."""
        return math.ceil(self.l - 1e-9)


@dataclass(frozen=True)
class DistinctDiversity(_Diversity):
    """At least ``l`` distinct values in a class, NULL among them.

    Monotone with suppression: every value of a part of a class is a value of the class.
    """

    attribute: str
    l: int
    hereditary = True

    @property
    def name(self) -> str:
        return f"distinct {self.l}-diversity of {self.attribute}"

    def figures(self) -> Mapping[str, exp.Expr]:
        return {"distinct": exp.Count(this=exp.Star())}

    def condition(self) -> exp.Expr:
        return self.figure_column("distinct") >= number(self.l)

    def violations(self, values: ClassValues) -> exp.Select:
        distinct = exp.Count(this=exp.Star())
        return values.violations_by_count(distinct, distinct < number(self.l))


@dataclass(frozen=True)
class EntropyDiversity(_Diversity):
    """−Σ p ln p ≥ ln l in a class.

    Monotone without suppression: entropy is concave, so a merged class has at least the smaller entropy of its parts.
    Not with suppression: a satisfying class can merge with a violating one and be suppressed. A class of n rows and
    entropy H loses at least n (1 − H / ln l) rows, by the same concavity.
    """

    attribute: str
    l: float

    @property
    def name(self) -> str:
        return f"entropy {format_number(self.l)}-diversity of {self.attribute}"

    def figures(self) -> Mapping[str, exp.Expr]:
        """``total``: Σ n. ``logs``: Σ n ln n."""
        return {"total": double_total(col(ROW_COUNT)), "logs": fragment("sum(row_count * ln(row_count))")()}

    def derived_figures(self, min_rows: int) -> Mapping[str, exp.Expr]:
        """``entropy``: ln Σ n − Σ n ln n / Σ n."""
        return {"entropy": fragment("ln(:total) - :logs / :total")(**self.figure_columns("total", "logs"))}

    def condition(self) -> exp.Expr:
        return self.figure_column("entropy") >= number(math.log(self.l) - TOLERANCE)

    def shortfall(self) -> exp.Expr:
        """n (1 − H / ln l)."""
        lost = fragment(":total * (1 - :entropy / :log_l)")
        return greatest(number(1), lost(**self.figure_columns("total", "entropy"), log_l=math.log(self.l) or 1.0))

    def violations(self, values: ClassValues) -> exp.Select:
        entropy = fragment("ln(sum(row_count)) - sum(row_count * ln(row_count)) / nullif(sum(row_count), 0)")()
        violated = fragment(":entropy < :min")(entropy=entropy, min=math.log(self.l) - TOLERANCE)
        return values.violations_by_count(entropy, violated)


@dataclass(frozen=True)
class RecursiveDiversity(_Diversity):
    """r1 < c (r_l + ... + r_m) in a class, r_i its i-th largest count; 1-diversity always holds.

    Monotone without suppression: a merged class has at most the sum of the two r1, and at least the sum of the two
    tails. Not with suppression. A class loses at least r1 − c (r_l + ... + r_m) rows, because no part of it has a
    greater tail.
    """

    attribute: str
    c: float
    l: int

    @property
    def name(self) -> str:
        return f"recursive ({format_number(self.c)}, {self.l})-diversity of {self.attribute}"

    def figures(self) -> Mapping[str, exp.Expr]:
        """``counts``: in descending order."""
        order = exp.Order(this=col(ROW_COUNT), expressions=[exp.Ordered(this=col(ROW_COUNT), desc=True)])
        return {"counts": exp.ArrayAgg(this=order), "largest": exp.Max(this=col(ROW_COUNT))}

    def derived_figures(self, min_rows: int) -> Mapping[str, exp.Expr]:
        """``tail from l``: r_l + ... + r_m."""
        counts = self.figure_column("counts")
        tail = anonymous("list_slice", counts, number(self.l), anonymous("len", counts.copy()))
        sum_ = exp.Coalesce(this=anonymous("list_sum", tail), expressions=[number(0)])
        return {f"tail from {self.l}": cast(sum_, "DOUBLE")}

    def condition(self) -> exp.Expr:
        if self.l == 1:
            return exp.true()
        # A quotient is rounded as c was: a class exactly at the limit compares as equal.
        return fragment(":largest / nullif(:tail, 0) < :c")(**self._columns(), c=self.c)

    def shortfall(self) -> exp.Expr:
        """r1 − c (r_l + ... + r_m)."""
        return greatest(number(1), fragment(":largest - :c * :tail")(**self._columns(), c=self.c))

    def _columns(self) -> dict[str, exp.Expr]:
        return {"largest": self.figure_column("largest"), "tail": self.figure_column(f"tail from {self.l}")}

    def violations(self, values: ClassValues) -> exp.Select:
        ratio = fragment("max(row_count) / nullif(sum(CASE WHEN place >= :l THEN row_count ELSE 0::DOUBLE END), 0)")(
            l=self.l
        )
        violated = fragment("NOT coalesce((:ratio < :c), false)")(ratio=ratio, c=self.c)
        return values.violations_by_rank(ratio, exp.false() if self.l == 1 else violated)


@dataclass(frozen=True)
class JointDiversity(ClassCondition):
    """l-diversity within equal values of all other sensitive attributes.

    The other sensitive attributes count as quasi-identifiers: in a class, every group of rows with equal values of them
    has to be l-diverse. Monotone without suppression. Not with suppression, for any kind: one violating group
    suppresses the whole class. A class loses at least the rows that its groups lose.
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
        return self.diversity.min_class_rows

    def figures(self) -> Mapping[str, exp.Expr]:
        """``holds``: whether all groups satisfy it. ``short``: Σ of the groups' shortfalls."""
        group = self.diversity
        lost = number(1) if group.hereditary else group.shortfall()
        # Not NULL: an aggregate would ignore a group that has no figure because it has too few values.
        holds = exp.Coalesce(this=exp.Paren(this=group.condition()), expressions=[exp.false()])
        short = exp.If(this=holds, true=number(0), false=lost)
        return {self._figure("holds"): exp.LogicalAnd(this=holds.copy()), self._figure("short"): double_total(short)}

    def condition(self) -> exp.Expr:
        return self.figure_column(self._figure("holds"))

    def shortfall(self) -> exp.Expr:
        return self.figure_column(self._figure("short"))

    def _figure(self, name: str) -> str:
        return f"{self.diversity.name} {name}"
