"""t-closeness: in every class a sensitive attribute is distributed nearly as in the whole table.

The distance is the Earth Mover's Distance between the distribution in a class and the one in the source table,
suppressed rows included: what an attacker knows of everybody before the release.

Source: N. Li, T. Li, S. Venkatasubramanian, "t-Closeness: Privacy beyond k-anonymity and l-diversity", ICDE 2007:
definition 2, and section 4.1 on the distances.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field
from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, Check, figure
from sqlanon.requirements.base import (
    CUMULATED,
    SHARE,
    TOLERANCE,
    VALUE,
    WIDEST,
    ClassCondition,
    Distribution,
    Domain,
    Entry,
    Requirement,
    SensitiveAttribute,
    SourceFacts,
    format_number,
)
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.coding import ROWS
from sqlanon.support.expressions import anonymous, col, double_total, fragment, greatest, number
from sqlanon.support.fields import Flaw, Name, Section, Share

EQUAL_DISTANCE = fragment("sum(CASE WHEN p > q THEN p - q ELSE 0::DOUBLE END)")

T_CLOSENESS = Macro("t_closeness", ("t", "classes"))

NODE = fragment("{'c': n::DOUBLE, 'q': share}")
TREE_DISTANCE = fragment("""
    (list_sum(list_transform(:nodes, x -> abs(x.c / :total - x.q))) + (:height - :there)) / :twice_the_height
""")
# The table's share of the nodes that are no more frequent in the class than in the table, averaged over the levels.
RARER = fragment("""
    (list_sum(list_transform(:nodes, x -> if(x.c / :total <= x.q, x.q, 0.0))) + (:height - :there)) / :levels
""")
LOST = fragment(":total * (:distance - :t) / (:farthest - :t)")

# A step has a value, its count and a place for the sum. Types in full: 0.0 is a decimal of one digit, to which a
# reduction may round what comes after.
STEP = fragment("{'v': :value::INTEGER, 'c': :count::DOUBLE, 'd': 0.0::DOUBLE}")
# From step a to step b: at the places between, the class has the share that it had at a. The table's shares only grow:
# where all are on one side of the class's, their sum will do. Before the first value nothing is there; after the last
# all is, and the table's shares still come.
ORDERED_SUM = fragment("""
    (list_reduce(
        list_append(list_prepend(:start, list_sort(:steps)), :finish),
        (a, b) -> {
            'v': b.v::INTEGER,
            'c': (a.c + b.c)::DOUBLE,
            'd': (
                a.d + CASE
                    WHEN a.v = b.v THEN 0.0
                    WHEN a.c / :total >= list_extract(cumulated, b.v)
                        OR a.c / :total <= list_extract(cumulated, a.v + 1)
                        THEN abs(
                            a.c / :total * (b.v - a.v) - (list_extract(sums, b.v + 1) - list_extract(sums, a.v + 1))
                        )
                    ELSE list_sum(list_transform(list_slice(cumulated, a.v + 1, b.v), y -> abs(a.c / :total - y)))
                END
            )::DOUBLE
        }
    )).d
""")
MEAN = fragment("CASE WHEN :values - 1 > 0 THEN :sum / (:values - 1)::DOUBLE ELSE 0.0 END")


def require_close_values(attribute: str, t: float) -> tuple[str, dict[str, object]]:
    """The key of ``[privacy]`` and the entry that require the values of an attribute in each class to be as frequent as
    in the whole table, up to a distance."""
    return TCloseness.entry.key, {"attribute": attribute, "distance": "equal", "t": t}


class TCloseness(Section, Requirement):
    """t-closeness: in every class the sensitive values are distributed almost as in the source table.

    Source: N. Li, T. Li, S. Venkatasubramanian, "t-Closeness: privacy beyond k-anonymity and l-diversity"
    (ICDE 2007), definition 2, and section 4 on the distances: the Earth Mover's Distance of a class to the table,
    suppressed rows included, is at most t.

    Attributes
    ----------
    distance:
        Between two values: ``equal``: 1. ``ordered``: their ranks' difference, over that of the extremes.
        ``hierarchical``: the level of their closest common ancestor, over the height of the attribute's hierarchy.

    >>> TCloseness(attribute="income", distance="ordered", t=0.2).t
    0.2
    """

    attribute: Name = Field(description="a sensitive attribute", examples=["diagnosis"])
    distance: Literal["equal", "ordered", "hierarchical"] = Field(
        description="one of equal, ordered, hierarchical", examples=["equal"]
    )
    t: Share = Field(description="the greatest distance of a class to the source table, 0 to 1", examples=[0.2])

    entry: ClassVar[Entry] = Entry(
        "t_closeness",
        "list",
        "sensitive values distributed almost as in the source, in every class",
        verifiable_alone=False,
        macros=(T_CLOSENESS,),
    )

    @classmethod
    def find_conflicts(cls, written: Mapping[str, Any], name: str, spot: SensitiveAttribute) -> Iterator[Flaw]:
        if written.get("distance") == "hierarchical" and not spot.has_hierarchy:
            yield (
                ("distance",),
                f"hierarchical needs a hierarchy of {name!r}, and there is none: "
                f"add hierarchy = ... to {spot.place}, or use another distance",
            )

    @property
    def needed_hierarchies(self) -> tuple[str, ...]:
        return (self.attribute,) if self.distance == "hierarchical" else ()

    @property
    def ordered_attributes(self) -> tuple[str, ...]:
        return (self.attribute,) if self.distance == "ordered" else ()

    def bind(self, source: SourceFacts) -> ClassCondition:
        domain = source.domains.get(self.attribute, Domain(2, 1))
        if self.distance == "ordered":
            return OrderedCloseness(self.attribute, self.t, domain.values)
        if self.distance == "hierarchical":
            # One level alone: all values are the root, and the distance is 0.
            return TreeCloseness(self.attribute, self.t, max(domain.height, 1), "hierarchical")
        return TreeCloseness(self.attribute, self.t)

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        options = {"distance": str(self.distance)}
        if self.distance == "hierarchical":
            if audited.private is None:
                message = "not verifiable alone: it needs the source and the attribute's hierarchy"
                yield Check(self.name, None, message)
                return
            options["hierarchy"] = audited.private.hierarchies[self.attribute]
        t = figure(audited.against_source(T_CLOSENESS, self.attribute, **options)["t"])
        message = f"farthest class from the table: {t:.6g} (allowed: {format_number(self.t)})"
        yield audited.as_source_check(Check(self.name, t <= self.t + TOLERANCE, message))

    def violations(self, released: WarehouseRelease) -> exp.Select | None:
        if self.distance != "equal":
            return None
        distance = EQUAL_DISTANCE()
        return released.values(self.attribute).shares(distance, distance > number(self.t + TOLERANCE))

    def sentence(self, who: str) -> str:
        return (
            f"Within each group, {self.attribute} is distributed nearly as in the whole table: the distance is at "
            f"most {format_number(self.t)} ({self.distance} t-closeness)."
        )


class _Closeness(ClassCondition):
    """At most ``t`` between a class and the table.

    Monotone without suppression: the distance is convex, so that two classes merged are at most as far as the farther
    of the two. Not with suppression. A class of n rows at distance d loses at least n (d − t) of them: leaving out a
    share x of a class moves its distribution by at most x, for no two values are farther apart than 1.
    """

    attribute: str
    t: float
    word: str

    @property
    def name(self) -> str:
        return f"{self.word} {format_number(self.t)}-closeness of {self.attribute}"

    @cached_property
    def _distance(self) -> exp.Expr:
        """Of each check, so it is built once."""
        return self.distance()

    @cached_property
    def _lost(self) -> exp.Expr:
        distance = self._column(f"{self.word} distance")
        return LOST(total=self._column("total"), distance=distance, farthest=self.farthest(), t=self.t)

    @abstractmethod
    def distance(self) -> exp.Expr:
        """The distance of a class, over its figures."""

    @abstractmethod
    def farthest(self) -> exp.Expr:
        """How far a part of the class may be."""

    def derived_figures(self, min_rows: int) -> Mapping[str, exp.Expr]:
        """The distance of a class, over its figures; NULL for classes that are too small anyway."""
        enough = exp.GTE(this=self._column("total"), expression=number(min_rows))
        distance = self._distance.copy()
        return {
            f"{self.word} distance": exp.Case(ifs=[exp.If(this=enough, true=distance)]) if min_rows > 1 else distance
        }

    def condition(self) -> exp.Expr:
        return exp.LTE(this=self._column(f"{self.word} distance"), expression=number(self.t + TOLERANCE))

    def shortfall(self) -> exp.Expr:
        """n (d − t) / (farthest − t)."""
        return greatest(number(1), self._lost.copy())

    @property
    @abstractmethod
    def distribution(self) -> Distribution:
        """The attribute's values, or the nodes of its hierarchy."""

    def _column(self, figure: str) -> exp.Column:
        return self.distribution.column(figure)


@dataclass(frozen=True)
class TreeCloseness(_Closeness):
    """The ``equal`` and the ``hierarchical`` distance: of two values, their closest common ancestor's level / height.

    In a tree whose leaves are all as deep, the distance is Σ over all nodes but the root of |p − q| / (2 height), p and
    q being a node's shares in the class and in the table: the edge above it carries |p − q|, and each edge is
    1 / (2 height) long. With one level this is ½ Σ |p − q|, the equal distance.

    A class at distance d loses at least n (d − t) / (u − t) of its n rows, u being the table's share of the nodes that
    are no more frequent in the class than in the table, averaged over the levels. For of the n' rows that stay, these
    nodes have at most the n (u − d) that they had, and what they lack of u n' is the distance: u − n (u − d) / n' ≤ t.
    """

    attribute: str
    t: float
    height: int = 1
    word: str = "equal"

    @property
    def distribution(self) -> Distribution:
        return Distribution(self.attribute, "values" if self.word == "equal" else "nodes")

    def figures(self) -> Mapping[str, exp.Expr]:
        """``total``: Σ n. ``nodes``: count and share of those that are there. ``there``: Σ of these shares."""
        return {
            "total": exp.Div(this=double_total(col(ROWS)), expression=number(self.height)),
            "nodes": exp.ArrayAgg(this=NODE()),
            "there": exp.Sum(this=col(SHARE)),
        }

    def distance(self) -> exp.Expr:
        """(Σ over the nodes that are there of |p − q| + the shares of the others) / (2 height)."""
        return TREE_DISTANCE(**self._nodes(), twice_the_height=2.0 * self.height)

    def farthest(self) -> exp.Expr:
        """u."""
        return RARER(**self._nodes(), levels=float(self.height))

    def _nodes(self) -> dict[str, Any]:
        return {"height": self.height, **{name: self._column(name) for name in ("nodes", "total", "there")}}


@dataclass(frozen=True)
class OrderedCloseness(_Closeness):
    """The ``ordered`` distance: Σ |cumulative difference| / (m − 1), over the m values of the table in their order.

    Between two values that are there, the class's cumulative share stays as it is: it is held against the table's at
    each place from the one to the next.

    A class at distance d loses at least n (d − t) / (w − t) of its n rows, w being the mean over all places of the
    table's larger side of it: as for `TreeCloseness`, with what a class lacks on one side of each place. ``values`` is
    m; None: as many as the domain has then.
    """

    attribute: str
    t: float
    values: int | None = 1
    word: str = "ordered"

    @property
    def needs_domain(self) -> bool:
        """The table's shares in their order."""
        return True

    @property
    def distribution(self) -> Distribution:
        return Distribution(self.attribute)

    def figures(self) -> Mapping[str, exp.Expr]:
        """``total``: Σ n. ``steps``: value, count and a place for the sum."""
        return {
            "total": double_total(col(ROWS)),
            "steps": exp.ArrayAgg(this=STEP(value=col(VALUE), count=col(ROWS))),
        }

    def derived_figures(self, min_rows: int) -> Mapping[str, exp.Expr]:
        """The distance of a class, and the table's ``widest``."""
        return {**super().derived_figures(min_rows), "widest": col(WIDEST)}

    def farthest(self) -> exp.Expr:
        """w."""
        return self._column("widest")

    def distance(self) -> exp.Expr:
        """Σ of |class's share so far − the table's| over all places / (m − 1)."""
        if self.values is not None and self.values < 2:
            return number(0.0)
        values = anonymous("len", col(CUMULATED)) if self.values is None else number(self.values)
        last = exp.Sub(this=values, expression=number(1)) if self.values is None else number(self.values - 1)
        ends = {"start": STEP(value=0, count=0.0), "finish": STEP(value=last, count=0.0)}
        sum_ = ORDERED_SUM(steps=self._column("steps"), total=self._column("total"), **ends)
        if self.values is None:
            return MEAN(sum=sum_, values=values)
        return exp.Div(this=sum_, expression=number(float(self.values - 1)))
