"""From a bound source to what the search needs: frequency set, hierarchies, marginals.

For the search the source is scanned once: its distinct combinations of values. All else is made from them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.errors import HierarchyError, InfeasibleError, Problem, SourceError
from sqlanon.hierarchies import Hierarchy, build_hierarchy
from sqlanon.policy import Attribute, Policy
from sqlanon.privacy import requirements_of
from sqlanon.quality import MEASURES, Marginals
from sqlanon.queries import frequency as fq
from sqlanon.queries.candidate import ClassSpace
from sqlanon.queries.frequency import Coded
from sqlanon.queries.names import Namer, create_table, drop_table
from sqlanon.queries.recode import Column
from sqlanon.search import Lattice
from sqlanon.sources import Source


@dataclass(frozen=True)
class Prepared:
    """All that is known before the search.

    Attributes
    ----------
    policy, source, columns:
        What is asked, of what, and what is released of it.
    hierarchies, attributes:
        Of the quasi-identifiers, in the policy's order.
    space:
        What classes are made from.
    marginals:
        What the attributes' own counts tell.
    """

    policy: Policy
    source: Source
    columns: tuple[Column, ...]
    hierarchies: tuple[Hierarchy, ...]
    attributes: tuple[Coded, ...]
    space: ClassSpace
    marginals: Marginals

    @property
    def lattice(self) -> Lattice:
        """The generalizations within the attributes' level limits."""
        specs = [self.policy.attributes[name] for name in self.policy.quasi]
        heights = self.space.heights
        return Lattice(
            self.policy.quasi,
            tuple(min(spec.min_level, height) for spec, height in zip(specs, heights, strict=True)),
            tuple(
                height if spec.max_level is None else min(spec.max_level, height)
                for spec, height in zip(specs, heights, strict=True)
            ),
        )


def match_columns(policy: Policy, source: Source) -> dict[str, str]:
    """The source's column of each attribute: by its name, whatever the case.

    Raises
    ------
    SourceError
        An attribute has no column, or a column no role.
    """
    by_lower = {name.lower(): name for name in source.columns}
    missing = [name for name in policy.attributes if name.lower() not in by_lower]
    declared = {name.lower() for name in policy.attributes}
    undeclared = [name for name in source.columns if name.lower() not in declared]
    wrong = []
    if missing:
        wrong.append(f"attributes without a column in the source: {_listed(missing)}; check their names")
    if undeclared and policy.source.undeclared == "error":
        wrong.append(
            f"columns without a role: {_listed(undeclared)}; "
            'declare them under [attributes], or set undeclared = "drop" under [source]'
        )
    if wrong:
        raise SourceError("; ".join(wrong))
    matched = {name: by_lower[name.lower()] for name in policy.attributes}
    nested = [name for name in policy.quasi if _is_nested(source.columns[matched[name]])]
    if nested:
        raise SourceError(
            f"quasi-identifiers of nested types: {_listed(nested)}; give their parts as columns of their own, "
            "with query = ... under [source]"
        )
    return matched


def _is_nested(type_: str) -> bool:
    """Equality of nested values is not what a reader sees: [-0.0] equals [0.0]."""
    return type_.endswith("]") or type_.startswith(("STRUCT(", "MAP(", "UNION(", "TUPLE(", "VARIANT"))


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))


def released_columns(policy: Policy, source: Source) -> tuple[Column, ...]:
    """What is released, in the source's order: everything with a role but the identifying."""
    matched = {column: name for name, column in match_columns(policy, source).items()}
    number = {name: i for i, name in enumerate(policy.quasi)}
    return tuple(
        Column(column, number.get(matched[column]))
        for column in source.columns
        if column in matched and policy.attributes[matched[column]].role != "identifying"
    )


def prepare(engine: Engine, policy: Policy, source: Source, work: Namer) -> Prepared:
    """Scan the source, build and validate the hierarchies, make the frequency set.

    Makes in the work schema: ``values_i``, ``hierarchy_i``, ``coded_i`` and ``frequency``.

    Raises
    ------
    SourceError
        The source does not fit the policy.
    HierarchyError
        With the problems of all hierarchies.
    InfeasibleError
        The source has no rows.
    """
    matched = match_columns(policy, source)
    columns = [matched[name] for name in policy.quasi]
    raw = work("frequency_raw")
    engine.execute(create_table(raw, fq.raw_frequency(source.relation, columns)))
    rows = engine.rows(fq.row_count(raw))[0][0]
    if not rows:
        raise InfeasibleError("the source has no rows: there is nothing to release", None, 0, 0)
    hierarchies = _hierarchies(engine, policy, source, columns, raw, work)
    attributes = tuple(
        _coded(engine, column, hierarchy, i, work)
        for i, (column, hierarchy) in enumerate(zip(columns, hierarchies, strict=True))
    )
    measure = MEASURES[policy.search.measure]
    engine.execute(create_table(work("frequency"), fq.frequency(raw, attributes, measure.needs_leaves)))
    engine.execute(drop_table(raw.copy()))
    figures = [engine.rows(fq.marginals(attribute, measure.needs_entropy))[0] for attribute in attributes]
    marginals = _marginals(rows, hierarchies, figures, measure.needs_entropy)
    attributes = tuple(
        replace(attribute, unknown=bool(unknown))
        for attribute, unknown in zip(attributes, marginals.unknown, strict=True)
    )
    space = ClassSpace(
        work("frequency"), marginals.heights, requirements_of(policy.privacy), unknown=any(marginals.unknown)
    )
    return Prepared(policy, source, released_columns(policy, source), hierarchies, attributes, space, marginals)


def _hierarchies(
    engine: Engine, policy: Policy, source: Source, columns: list[str], raw: exp.Table, work: Namer
) -> tuple[Hierarchy, ...]:
    built: list[Hierarchy] = []
    problems: list[Problem] = []
    for i, (name, column) in enumerate(zip(policy.quasi, columns, strict=True)):
        spec = policy.attributes[name]
        values = work(f"values_{i}")
        engine.execute(create_table(values, fq.value_counts(raw, i)))
        hierarchy, found = build_hierarchy(
            engine,
            name,
            spec.hierarchy or (),
            values,
            source.columns[column],
            work(f"hierarchy_{i}"),
            spec.on_unknown,
        )
        problems += found
        if hierarchy is not None:
            problems += _level_problems(name, spec, hierarchy)
            built.append(hierarchy)
    if problems:
        raise HierarchyError(problems)
    return tuple(built)


def _level_problems(name: str, spec: Attribute, hierarchy: Hierarchy) -> list[Problem]:
    limits = {"min_level": spec.min_level, "max_level": spec.max_level}
    return [
        Problem(f"attributes.{name}.{key}", f"is {limit}, but the hierarchy's top level is {hierarchy.height}")
        for key, limit in limits.items()
        if limit is not None and limit > hierarchy.height
    ]


def _coded(engine: Engine, column: str, hierarchy: Hierarchy, i: int, work: Namer) -> Coded:
    """Make an attribute's coded values. Whether it has unknown ones is seen in its marginals, later."""
    values, coded = work(f"values_{i}"), work(f"coded_{i}")
    nullable = bool(engine.rows(fq.has_null(values))[0][0])
    engine.execute(
        create_table(coded, fq.coded_values(values, hierarchy.table, hierarchy.height, hierarchy.top or "", nullable))
    )
    return Coded(column, hierarchy.height, coded, nullable, unknown=True)


def _marginals(
    rows: int, hierarchies: tuple[Hierarchy, ...], figures: list[tuple[float, ...]], entropy: bool
) -> Marginals:
    heights = tuple(hierarchy.height for hierarchy in hierarchies)
    leaves = tuple(hierarchy.leaves for hierarchy in hierarchies)
    unknown = tuple(int(row[0]) for row in figures)
    leaf_sums = tuple(
        (0.0, *row[1:height], *([(rows - u) * (n - 1.0)] if height else []))
        for row, height, n, u in zip(figures, heights, leaves, unknown, strict=True)
    )
    entropies = tuple((0.0, *row[max(height, 1) :]) for row, height in zip(figures, heights, strict=True))
    return Marginals(rows, heights, leaves, unknown, leaf_sums, entropies if entropy else ())
