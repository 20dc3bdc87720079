"""Two releases side by side: what each shows, and how their rows can be linked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.queries.attacks.linked import Linked, known_labels, strange_labels
from sqlanon.queries.names import cast, col, named, select, subquery
from sqlanon.release.manifest import Manifest

MOST_RANGES = 500
"""So many ranges of an attribute are compared with other labels; each meets many."""


@dataclass(frozen=True)
class Subject:
    """A release.

    Attributes
    ----------
    path:
        Its file.
    manifest:
        What it claims.
    relation:
        Its rows.
    """

    path: Path
    manifest: Manifest
    relation: exp.Table

    @property
    def sensitive(self) -> list[str]:
        """Its sensitive columns."""
        return [column.name for column in self.manifest.columns if column.role == "sensitive"]

    @property
    def promised(self) -> int | None:
        """The k that it promises."""
        k = self.manifest.policy.get("privacy", {}).get("k")
        return k if isinstance(k, int) else None

    @property
    def k(self) -> int:
        """The k that it promises; where it promises none, the rows of its smallest class."""
        return self.promised or self.manifest.smallest_class

    @property
    def columns(self) -> dict[str, str]:
        """Name and type, by name in lower case, of what has no noise."""
        noisy = {name.lower() for name in self.manifest.noise or ()}
        return {one.name.lower(): one.type for one in self.manifest.columns if one.name.lower() not in noisy}

    def column(self, name: str) -> str | None:
        """Its column of a name in lower case, whatever the role, without noise."""
        if name not in self.columns:
            return None
        return next(one.name for one in self.manifest.columns if one.name.lower() == name)

    def is_quasi(self, name: str) -> bool:
        """Whether a column is generalized."""
        return name in {one.lower() for one in self.manifest.quasi}

    def level(self, name: str) -> int | None:
        """The one level of a column's labels; None where there are several, of masked rows too."""
        if not self.is_quasi(name):
            return 0
        if self.masks:
            return None
        return _lower(self.manifest.generalization).get(name)

    def levels(self, name: str, height: int) -> tuple[int, ...]:
        """The levels that a column's labels can be of."""
        if not self.is_quasi(name):
            return (0,)
        level = _lower(self.manifest.generalization).get(name)
        if level is None:
            return tuple(range(height + 1))
        return (level, height) if self.masks and level < height else (level,)

    @property
    def masks(self) -> bool:
        """Whether it may have rows that are masked."""
        return self.manifest.policy.get("suppressed") == "mask" and self.manifest.suppressed_rows > 0

    @property
    def shows_medians(self) -> bool:
        """Whether classes show a middle value of theirs: it does not tell what others they have."""
        return bool(self.manifest.policy["search"].get("summary") == "median")

    def rule(self, name: str) -> Any:
        """What the manifest shows of a column's hierarchy; None where it is not generalized."""
        attribute = _lower(self.manifest.policy["attributes"]).get(name)
        return None if attribute is None or not self.is_quasi(name) else attribute.get("hierarchy")


class Tree(Protocol):
    """A hierarchy: one row per ground value, ``level_0`` to the top."""

    @property
    def table(self) -> exp.Expr:
        """Its rows."""
        ...

    @property
    def height(self) -> int:
        """Its top level."""
        ...


@dataclass(frozen=True)
class Trees:
    """The hierarchies that are known.

    Attributes
    ----------
    hierarchies:
        By attribute in lower case.
    rules:
        What a manifest would show of them.
    different:
        The attributes, in lower case, whose labels are known to be of two hierarchies, whatever manifests show.
    """

    hierarchies: Mapping[str, Tree]
    rules: Mapping[str, Any]
    different: frozenset[str] = frozenset()

    def of(self, name: str, rule: Any) -> Tree | None:
        """The hierarchy of a column whose manifest shows a rule."""
        return self.hierarchies.get(name) if name in self.rules and _same(self.rules[name], rule) else None


NO_TREES = Trees({}, {})


def _lower(by_name: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in by_name.items()}


def _same(one: Any, other: Any) -> bool:
    return bool(json.loads(json.dumps(one)) == json.loads(json.dumps(other)))


@dataclass(frozen=True)
class Link:
    """How two releases are linked.

    Attributes
    ----------
    first, second:
        Their rows.
    shared:
        The columns that both show as they are.
    attributes:
        The quasi-identifiers of both.
    missing:
        Attributes that cannot be compared without their hierarchies, which are not known.
    """

    first: exp.Expr
    second: exp.Expr
    shared: tuple[str, ...]
    attributes: tuple[Linked, ...]
    missing: tuple[str, ...]

    @property
    def titles(self) -> list[str]:
        """The attributes' names."""
        return [one.name for one in self.attributes]


def link(first: Subject, second: Subject, trees: Trees) -> Link:
    """How to link two releases: labels at different levels meet through the hierarchies of a policy."""
    names = [name for name in first.columns if first.is_quasi(name)]
    names += [name for name in second.columns if second.is_quasi(name) and name not in names]
    attributes: list[Linked] = []
    missing: list[str] = []
    for name in names:
        own, other = first.column(name), second.column(name)
        if own is None or other is None:
            attributes.append(Linked(own or other or name, own, other))
            continue
        rules = [one.rule(name) for one in (first, second) if one.is_quasi(name)]
        # Labels of two hierarchies: each stands for itself.
        if len(rules) == 2 and (name in trees.different or not _same(*rules)):
            attributes += [Linked(own, own, None), Linked(f"{other} (2)", None, other)]
            continue
        levels = first.level(name), second.level(name)
        tree = trees.of(name, rules[0])
        if None not in levels and levels[0] == levels[1] and (tree is None or levels[0] == 0):
            attributes.append(Linked(own, own, other))
        elif tree is None:
            missing.append(own)
        else:
            of_first, of_second = first.levels(name, tree.height), second.levels(name, tree.height)
            attributes.append(Linked(own, own, other, of_first, of_second, tree.table, tree.height, ranges=True))
    shared = [
        name
        for name in first.columns
        if name in second.columns and not first.is_quasi(name) and not second.is_quasi(name)
    ]
    one, two = _comparable(first, second, [*names, *shared])
    return Link(one, two, tuple(first.column(name) or name for name in shared), tuple(attributes), tuple(missing))


def strange_columns(engine: Engine, subject: Subject, attributes: Sequence[Linked]) -> list[str]:
    """The columns of a release, the first of a link, whose labels tell nothing by their hierarchies: sets, medians,
    and values that these do not have."""
    found = []
    for one in attributes:
        if one.first is None or one.hierarchy is None:
            continue
        if len(one.first_levels) == 1:
            level = one.first_levels[0]
            query = known_labels(subject.relation, one.first, one.hierarchy, level)
            labels, known = engine.rows(query)[0]
            # Values may have gone that it still shows; but if it shows no other, the labels are made in another way.
            is_strange = 0 < level < one.height and labels > 0 and not known
        else:
            query = strange_labels(subject.relation, one.first, one.hierarchy, one.height)
            ranges, others = engine.rows(query)[0]
            is_strange = subject.shows_medians or others > 0 or ranges > MOST_RANGES
        if is_strange:
            found.append(one.first)
    return found


def _comparable(first: Subject, second: Subject, names: Sequence[str]) -> tuple[exp.Expr, exp.Expr]:
    """The rows of both; columns that have different types as text."""
    both = [name for name in names if name in first.columns and name in second.columns]
    different = {name for name in both if first.columns[name] != second.columns[name]}
    if not different:
        return first.relation, second.relation
    return _with_texts(first, different), _with_texts(second, different)


def _with_texts(subject: Subject, names: set[str]) -> exp.Subquery:
    output: list[exp.Expr] = []
    for column in subject.manifest.columns:
        value = col(column.name)
        text = named(cast(value, "VARCHAR"), column.name)
        output.append(text if column.name.lower() in names else value)
    return subquery(select(output, subject.relation.copy()))
