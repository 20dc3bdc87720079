"""t-closeness: in every class a sensitive attribute is distributed nearly as in the whole table.

The distance is the Earth Mover's Distance between the distribution in a class and that of the source table, suppressed
rows included, because an attacker knows the latter before the release.

Source: N. Li, T. Li, S. Venkatasubramanian, "t-Closeness: Privacy beyond k-anonymity and l-diversity", ICDE 2007:
definition 2, and section 4.1 on the distances.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, to_float
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
    SourceDomains,
    format_number,
)
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.checks import Check
from sqlanon.support.coding import ROW_COUNT
from sqlanon.support.expressions import anonymous, col, double_total, fragment, greatest, number
from sqlanon.support.fields import Flaw, Name, Section, Share, policy_key

T_CLOSENESS = Macro("t_closeness", ("t", "classes"))

# A step holds a value, its count and the accumulated distance. The casts are explicit: 0.0 alone is a decimal of one
# digit, to which a reduction may round later terms.
STEP = fragment("{'v': :value::INTEGER, 'c': :count::DOUBLE, 'd': 0.0::DOUBLE}")
# Between step a and step b, the class keeps the cumulative share that it had at a. The table's cumulative shares only
# grow, so a difference of sums is enough where all of them are on one side of the class's. The start has no rows yet;
# the finish covers the table's values after the class's last one.
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


def require_close_values(attribute: str, t: float) -> tuple[str, dict[str, object]]:
    """A ``[privacy]`` key and entry: in each class, the values are as frequent as in the table, up to a distance t."""
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

    attribute: Name = policy_key("a sensitive attribute", example="diagnosis", default=...)
    distance: Literal["equal", "ordered", "hierarchical"] = policy_key(
        "one of equal, ordered, hierarchical", example="equal", default=...
    )
    t: Share = policy_key("the greatest distance of a class to the source table, 0 to 1", example=0.2, default=...)

    entry: ClassVar[Entry] = Entry(
        "t_closeness",
        "list",
        "sensitive values distributed almost as in the source, in every class",
        verifiable_alone=False,
        macros=(T_CLOSENESS,),
    )

    @classmethod
    def find_conflicts(cls, keys: Mapping[str, Any], name: str, attribute: SensitiveAttribute) -> Iterator[Flaw]:
        if keys.get("distance") == "hierarchical" and not attribute.has_hierarchy:
            yield (
                ("distance",),
                f"hierarchical needs a hierarchy of {name!r}, which has none: "
                f"add hierarchy = ... to {attribute.place}, or use another distance",
            )

    @property
    def needed_hierarchies(self) -> tuple[str, ...]:
        return (self.attribute,) if self.distance == "hierarchical" else ()

    @property
    def ordered_attributes(self) -> tuple[str, ...]:
        return (self.attribute,) if self.distance == "ordered" else ()

    def bind(self, source: SourceDomains) -> ClassCondition:
        domain = source.domains.get(self.attribute, Domain(2, 1))
        if self.distance == "ordered":
            return OrderedCloseness(self.attribute, self.t, domain.values)
        if self.distance == "hierarchical":
            # With one level, all values are the root and the distance is 0.
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
        t = to_float(audited.against_source(T_CLOSENESS, self.attribute, **options)["t"])
        message = f"farthest class from the table: {t:.6g} (allowed: {format_number(self.t)})"
        yield audited.as_source_check(Check(self.name, t <= self.t + TOLERANCE, message))

    def violations(self, released: WarehouseRelease) -> exp.Select | None:
        if self.distance != "equal":
            return None
        distance = fragment("sum(CASE WHEN p > q THEN p - q ELSE 0::DOUBLE END)")()
        return released.values(self.attribute).violations_by_share(distance, distance > number(self.t + TOLERANCE))

    def sentence(self, unit: str) -> str:
        return (
            f"Within each group, {self.attribute} is distributed nearly as in the whole table: the distance is at "
            f"most {format_number(self.t)} ({self.distance} t-closeness)."
        )


class _Closeness(ClassCondition):
    """A distance of at most ``t`` between a class and the table.

    Monotone without suppression: the distance is convex, so a merged class is at most as far away as the farther of
    its two parts. Not with suppression. A class of n rows at distance d loses at least n (d − t) rows: removing a share
    x of a class moves its distribution by at most x, because no two values are farther apart than 1.
    """

    attribute: str
    t: float
    word: str

    @property
    def name(self) -> str:
        return f"{self.word} {format_number(self.t)}-closeness of {self.attribute}"

    @cached_property
    def _distance(self) -> exp.Expr:
        """Built once, because every check uses it."""
        return self.distance()

    @cached_property
    def _lost_rows(self) -> exp.Expr:
        return fragment(":total * (:distance - :t) / (:farthest - :t)")(
            total=self.figure_column("total"),
            distance=self.figure_column(f"{self.word} distance"),
            farthest=self.farthest(),
            t=self.t,
        )

    @abstractmethod
    def distance(self) -> exp.Expr:
        """The distance of a class, over its figures."""

    @abstractmethod
    def farthest(self) -> exp.Expr:
        """An upper bound on the distance of a part of the class."""

    def derived_figures(self, min_rows: int) -> Mapping[str, exp.Expr]:
        """The distance of a class over its figures; NULL for classes below the minimum size."""
        enough = exp.GTE(this=self.figure_column("total"), expression=number(min_rows))
        distance = self._distance.copy()
        return {
            f"{self.word} distance": exp.Case(ifs=[exp.If(this=enough, true=distance)]) if min_rows > 1 else distance
        }

    def condition(self) -> exp.Expr:
        return exp.LTE(this=self.figure_column(f"{self.word} distance"), expression=number(self.t + TOLERANCE))

    def shortfall(self) -> exp.Expr:
        """n (d − t) / (farthest − t)."""
        return greatest(number(1), self._lost_rows.copy())


@dataclass(frozen=True)
class TreeCloseness(_Closeness):
    """The ``equal`` and the ``hierarchical`` distance: the level of the closest common ancestor of two values / height.

    In a tree with all leaves at the same depth, the distance is Σ |p − q| / (2 height) over all nodes but the root,
    where p and q are the shares of a node in the class and in the table: the edge above it carries |p − q|, and each
    edge has length 1 / (2 height). With one level this is ½ Σ |p − q|, the equal distance.

    A class at distance d loses at least n (d − t) / (u − t) of its n rows, where u is the table's share of the nodes
    that are at most as frequent in the class as in the table, averaged over the levels. Among the n' kept rows,
    these nodes have at most their former n (u − d), and the distance is their deficit to u n': u − n (u − d) / n' ≤ t.
    """

    attribute: str
    t: float
    height: int = 1
    word: str = "equal"

    @property
    def distribution(self) -> Distribution:
        return Distribution(self.attribute, "values" if self.word == "equal" else "nodes")

    def figures(self) -> Mapping[str, exp.Expr]:
        """``total``: Σ n. ``nodes``: count and share of the nodes in the class. ``there``: Σ of these shares."""
        return {
            "total": exp.Div(this=double_total(col(ROW_COUNT)), expression=number(self.height)),
            "nodes": exp.ArrayAgg(this=fragment("{'c': row_count::DOUBLE, 'q': share}")()),
            "there": exp.Sum(this=col(SHARE)),
        }

    def distance(self) -> exp.Expr:
        """(Σ |p − q| over the nodes in the class + the shares of all other nodes) / (2 height)."""
        return fragment("""
            (list_sum(list_transform(:nodes, x -> abs(x.c / :total - x.q))) + (:height - :there)) / :twice_the_height
        """)(**self._figures(), twice_the_height=2.0 * self.height)

    def farthest(self) -> exp.Expr:
        """The bound u of the class."""
        return fragment("""
            (list_sum(list_transform(:nodes, x -> if(x.c / :total <= x.q, x.q, 0.0))) + (:height - :there)) / :levels
        """)(**self._figures(), levels=float(self.height))

    def _figures(self) -> dict[str, Any]:
        return {"height": self.height, **self.figure_columns("nodes", "total", "there")}


@dataclass(frozen=True)
class OrderedCloseness(_Closeness):
    """The ``ordered`` distance: Σ |cumulative difference| / (m − 1), over the m values of the table in their order.

    Between two values of the class, its cumulative share is constant and is compared with the table's at each place.

    A class at distance d loses at least n (d − t) / (w − t) of its n rows, where w is the mean over all places of the
    larger side of the table: as for `TreeCloseness`, with the deficit on one side of each place. ``values`` is m; None:
    the size of the domain at run time.
    """

    attribute: str
    t: float
    values: int | None = 1
    word: str = "ordered"

    @property
    def needs_domain(self) -> bool:
        return True

    def figures(self) -> Mapping[str, exp.Expr]:
        """``total``: Σ n. ``steps``: the values with their counts."""
        return {
            "total": double_total(col(ROW_COUNT)),
            "steps": exp.ArrayAgg(this=STEP(value=col(VALUE), count=col(ROW_COUNT))),
        }

    def derived_figures(self, min_rows: int) -> Mapping[str, exp.Expr]:
        """The distance of a class, and the table's ``widest``."""
        return {**super().derived_figures(min_rows), "widest": col(WIDEST)}

    def farthest(self) -> exp.Expr:
        """The bound w of the table."""
        return self.figure_column("widest")

    def distance(self) -> exp.Expr:
        """Σ |cumulative share of the class − that of the table| over all places / (m − 1)."""
        if self.values is not None and self.values < 2:
            return number(0.0)
        values = anonymous("len", col(CUMULATED)) if self.values is None else number(self.values)
        last = exp.Sub(this=values, expression=number(1)) if self.values is None else number(self.values - 1)
        ends = {"start": STEP(value=0, count=0.0), "finish": STEP(value=last, count=0.0)}
        sum_ = ORDERED_SUM(steps=self.figure_column("steps"), total=self.figure_column("total"), **ends)
        if self.values is None:
            return fragment("CASE WHEN :last > 0 THEN :sum / (:last)::DOUBLE ELSE 0.0 END")(sum=sum_, last=last)
        return exp.Div(this=sum_, expression=number(float(self.values - 1)))
