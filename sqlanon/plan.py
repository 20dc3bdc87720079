"""The plan: the stages of the main job and their SQL, from the schema alone. No row is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.columns import Columns, match_columns, released_columns
from sqlanon.engines.base import Engine
from sqlanon.errors import HierarchyError, Problem
from sqlanon.hierarchies import hierarchy_query, known_height
from sqlanon.policy import Policy
from sqlanon.privacy import requirements_of
from sqlanon.quality import MEASURES
from sqlanon.queries import coding as cd
from sqlanon.queries import distribution as ds
from sqlanon.queries import frequency as fq
from sqlanon.queries.candidate import candidate
from sqlanon.queries.classes import ClassSpace, SensitiveTable
from sqlanon.queries.coding import ROWS, Coded
from sqlanon.queries.macros import digest_of, k_anonymity_of
from sqlanon.queries.names import Namer, create_table, table
from sqlanon.queries.recode import Recoding, recode, suppressed_classes
from sqlanon.release.requirements import Audited, Private, requirement_queries
from sqlanon.sources import Source

EXAMPLE_LENGTH = 5
"""A mask's levels depend on the data: the plan shows a column whose longest text has so many characters."""


@dataclass(frozen=True)
class Stage:
    """A step of the main job: its name, what it reads and makes, and its statements."""

    name: str
    note: str
    sql: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The stages of the main job.

    Attributes
    ----------
    stages:
        In order.
    nodes:
        The size of the lattice; None where it depends on data.
    unknown_heights:
        The quasi-identifiers whose number of levels depends on data.
    """

    stages: tuple[Stage, ...]
    nodes: int | None
    unknown_heights: tuple[str, ...]

    def __str__(self) -> str:
        parts = []
        for number, stage in enumerate(self.stages, 1):
            parts.append(f"-- {number}. {stage.name}: {stage.note}")
            parts += [f"{statement};" for statement in stage.sql]
            parts.append("")
        if self.nodes is not None:
            parts.append(f"-- The lattice has {self.nodes:,} generalizations.")
        else:
            names = ", ".join(self.unknown_heights)
            parts.append(f"-- The size of the lattice depends on the data: on the longest values of {names}.")
        return "\n".join(parts)


def plan(engine: Engine, policy: Policy, source: Source, work: Namer) -> Plan:
    """Lay out the main job.

    Raises
    ------
    SourceError, HierarchyError
        The schema does not fit the policy, or a hierarchy's file or table cannot be read.
    """
    columns = match_columns(policy, source)
    rules = [policy.attributes[name].hierarchy or () for name in policy.quasi]
    heights = [known_height(rule, engine) for rule in rules]
    shown = tuple(known_height(rule, engine, EXAMPLE_LENGTH) or 0 for rule in rules)
    attributes = tuple(
        Coded(column, height, work(f"coded_{i}"))
        for i, (column, height) in enumerate(zip(columns.quasi, shown, strict=True))
    )
    space = _space(policy, columns, shown, work)
    limits = [policy.attributes[name] for name in policy.quasi]
    spans = [
        None
        if height is None and limit.max_level is None
        else min(x for x in (height, limit.max_level) if x is not None) - limit.min_level + 1
        for height, limit in zip(heights, limits, strict=True)
    ]
    return Plan(
        (
            _scan(engine, source, columns, work),
            _hierarchies(engine, policy, source, columns.quasi, work),
            _frequency(engine, policy, columns, attributes, space, work),
            _search(engine, policy, space),
            _release(engine, policy, source, space, attributes, work),
            _audit(engine, policy, source, columns, work),
        ),
        None if None in spans else math.prod(span for span in spans if span is not None),
        tuple(name for name, span in zip(policy.quasi, spans, strict=True) if span is None),
    )


def _text(engine: Engine, query: exp.Expr) -> str:
    return query.sql(engine.dialect, pretty=True)


def _space(policy: Policy, columns: Columns, heights: tuple[int, ...], work: Namer) -> ClassSpace:
    """What classes are made from, where no person is in several combinations."""
    requirements = requirements_of(policy.privacy, policy.quasi)
    sensitive = {
        one: SensitiveTable(
            work(f"distribution_{i}"),
            len(columns.sensitive) - 1 if one.kind == "joint" else 0,
            work(f"domain_{columns.sensitive_names.index(one.attribute)}") if one.kind == "values" else None,
        )
        for i, one in enumerate(requirements.distributions)
    }
    return ClassSpace(
        work("frequency"),
        heights,
        requirements,
        sensitive=sensitive,
        persons=columns.person is not None,
        population=policy.population is not None,
    )


def _scan(engine: Engine, source: Source, columns: Columns, work: Namer) -> Stage:
    query = fq.raw_frequency(source.relation, columns.quasi, columns.sensitive, columns.person)
    statement = create_table(work("frequency_raw"), query)
    note = "one pass over the source: its distinct combinations, with counts"
    return Stage("scan", note, (_text(engine, statement),))


def _hierarchies(engine: Engine, policy: Policy, source: Source, columns: Sequence[str], work: Namer) -> Stage:
    statements = []
    for i, (name, column) in enumerate(zip(policy.quasi, columns, strict=True)):
        values = work(f"values_{i}")
        statements.append(_text(engine, create_table(values, cd.value_counts(work("frequency_raw"), i))))
        try:
            query = hierarchy_query(
                policy.attributes[name].hierarchy or (),
                values,
                source.columns[column],
                engine=engine,
                longest=EXAMPLE_LENGTH,
            )
        except HierarchyError as error:
            raise HierarchyError(
                Problem(f"attributes.{name}.hierarchy", problem.message) for problem in error.problems
            ) from error
        statements.append(_text(engine, create_table(work(f"hierarchy_{i}"), query)))
    return Stage("hierarchies", "one table a quasi-identifier, leaf to root, then validated", tuple(statements))


def _frequency(
    engine: Engine, policy: Policy, columns: Columns, attributes: tuple[Coded, ...], space: ClassSpace, work: Namer
) -> Stage:
    statements = [
        create_table(
            attribute.table,
            cd.coded_values(work(f"values_{i}"), work(f"hierarchy_{i}"), attribute.height, "*", nullable=True),
        )
        for i, attribute in enumerate(attributes)
    ]
    quasi, persons = len(columns.quasi), columns.person is not None
    raw = combined = work("frequency_raw")
    if persons:
        statements.append(create_table(work("members"), fq.memberships(raw, quasi)))
    if persons or columns.sensitive:
        combined = work("combinations")
        members = work("members") if persons else raw
        statements.append(create_table(combined, fq.combinations(members, None, quasi, persons)))
    counts = [ROWS, *([fq.PERSONS] if persons else [])]
    leaves = MEASURES[policy.search.measure].needs_leaves
    if not space.population:  # else: beside the population's combinations, made in the same way
        statements.append(create_table(work("frequency"), fq.frequency(combined, attributes, counts, leaves)))
    for number in range(len(columns.sensitive)):
        pairs = work(f"pairs_{number}")
        statements.append(create_table(pairs, ds.value_pairs(raw, quasi, number, (), persons)))
        statements.append(create_table(work(f"sensitive_{number}"), ds.sensitive_values(pairs, False)))
    for one, sensitive in space.sensitive.items():
        number = columns.sensitive_names.index(one.attribute)
        if one.kind == "values" and isinstance(sensitive.table, exp.Table):
            query = ds.distribution(work(f"pairs_{number}"), work(f"sensitive_{number}"), attributes)
            statements.append(create_table(sensitive.table, query))
        if sensitive.domain is not None:
            statements.append(create_table(sensitive.domain, ds.domain(work(f"sensitive_{number}"))))
    return Stage(
        "frequency set",
        "small integers for labels, level by level, and the counts of sensitive values",
        tuple(_text(engine, s) for s in statements),
    )


def _search(engine: Engine, policy: Policy, space: ClassSpace) -> Stage:
    example = tuple(min(1, height) for height in space.heights)
    query = candidate(space, example, MEASURES[policy.search.measure].needs_leaves)
    note = f"strategy {policy.search.strategy}: a check like this for every generalization that bounds leave open"
    return Stage("search", note, (_text(engine, query),))


def _release(
    engine: Engine,
    policy: Policy,
    source: Source,
    space: ClassSpace,
    attributes: tuple[Coded, ...],
    work: Namer,
) -> Stage:
    example = tuple(min(1, height) for height in space.heights)
    suppressed = work("suppressed")
    recoding = Recoding(
        source.relation,
        released_columns(policy, source),
        attributes,
        tuple("*" for _ in attributes),
        example,
        suppressed,
        mask=policy.release is not None and policy.release.suppressed == "mask",
    )
    statements = (create_table(suppressed, suppressed_classes(space, attributes, example)), recode(recoding))
    note = "one pass over the source, in random order, to a fresh file (here: every attribute at level 1)"
    return Stage("recode and suppress", note, tuple(_text(engine, statement) for statement in statements))


def _audit(engine: Engine, policy: Policy, source: Source, columns: Columns, work: Namer) -> Stage:
    name = policy.release.table if policy.release is not None else "release"
    relation = table(name).sql(engine.dialect)
    person = columns.person
    private = Private(
        source.relation.sql(engine.dialect),
        person,
        work("population_audited").sql(engine.dialect) if policy.population is not None else None,
        policy.population.person if policy.population is not None else None,
        {name: work(f"sensitive_hierarchy_{s}").sql(engine.dialect) for s, name in enumerate(columns.sensitive_names)},
    )
    # With persons, on a view of the same rows that has them too.
    rows = relation if person is None else work("audited").sql(engine.dialect)
    sensitive = policy.with_role("sensitive")

    def audited(by: Engine) -> Audited:
        return Audited(by, rows, columns.quasi, sensitive, 0, person is not None, None, private)

    queries: list[exp.Expr] = [k_anonymity_of(relation, columns.quasi), digest_of(relation)]
    queries += requirement_queries(policy.privacy, audited)
    note = "in the fresh file, which then takes the place of the old one; what needs the source, by the source's engine"
    return Stage("audit and publish", note, tuple(dict.fromkeys(_text(engine, query) for query in queries)))
