"""The OMOP common data model 5.4 of OHDSI: the roles of its columns, and hierarchies of its concepts.

``omop.csv`` lists the known tables and columns. Each event row references its person and may reference a visit. It
belongs to the visit if all rows of its table reference a visit of their person, and otherwise to the person.

A concept may have several parents. A hierarchy is a tree, so each concept keeps one: the nearest ancestor; among
equally near ones, the one with the most rows below it, then the one with the smallest number. Concepts of drugs keep
only their ingredient and its ATC classes: forms and strengths say little about a drug.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, cast

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies.parts import TOP
from sqlanon.policy.models import toml_parser
from sqlanon.sources.column_figures import exact_counts_query
from sqlanon.sources.column_kinds import Role
from sqlanon.sources.run import Run
from sqlanon.suggest.hierarchies import FileFolder, file_name
from sqlanon.suggest.links import Link, ProfiledTable, count_orphans
from sqlanon.suggest.person_tree import PersonTree
from sqlanon.suggest.policy_text import join_keys
from sqlanon.suggest.propose import SUPPRESS, Proposal, Rule
from sqlanon.suggest.suggest import Location
from sqlanon.support.expressions import col, template, text

PERSON, VISIT, CONCEPT, CONCEPT_ANCESTOR = "person", "visit_occurrence", "concept", "concept_ancestor"
_PERSON_ID, _VISIT_ID = "person_id", "visit_occurrence_id"
_MAX_LEVELS = 3  # of a hierarchy of concepts, below its top
_MIN_REDUCTION = 2  # a level has at most half the labels of the one below
_DEEPEST = 20  # steps from a concept to its root
_DRUG_CLASSES = ("Ingredient", *(f"ATC {rank}" for rank in ("1st", "2nd", "3rd", "4th", "5th")))

NEEDS_FILES = "to generalize concepts by concept_ancestor: --hierarchies"


@dataclass(frozen=True)
class ColumnRole:
    """A column of the common data model: its role, its hierarchy, and the reason."""

    role: Role | Literal["key"]
    hierarchy: str
    reason: str

    @property
    def rule(self) -> Rule | None:
        """The hierarchy as a policy writes it; of concepts, the one without a vocabulary."""
        if not self.hierarchy:
            return None
        if self.has_concepts:
            return SUPPRESS
        rule: Rule = toml_parser().loads(f"rule = {self.hierarchy}")["rule"]
        return rule

    @property
    def has_concepts(self) -> bool:
        """Whether the vocabulary has a hierarchy for its values."""
        return self.hierarchy == "concepts"


@cache
def read_roles() -> Mapping[str, Mapping[str, ColumnRole]]:
    """The roles of the columns by table, from ``omop.csv``.

    >>> read_roles()["person"]["year_of_birth"].role
    'quasi'
    """
    roles: dict[str, dict[str, ColumnRole]] = {}
    with (Path(__file__).parent / "omop.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file, delimiter="|", quoting=csv.QUOTE_NONE):
            entry = ColumnRole(cast("Role", line["role"]), line["hierarchy"], line["reason"])
            roles.setdefault(line["table"], {})[line["column"]] = entry
    return roles


def is_omop(names: Sequence[str]) -> bool:
    """Whether tables are those of the common data model: persons, visits and events of these."""
    table_names = {name.lower() for name in names} & read_roles().keys()
    return {PERSON, VISIT} <= table_names and len(table_names) > 2


def build_omop_tree(tables: Sequence[ProfiledTable], outside_tables: Sequence[str]) -> tuple[PersonTree, list[Link]]:
    """The tree of the known tables, in which each row belongs to a person, and the links to visits."""
    (persons,) = (table for table in tables if table.name.lower() == PERSON)
    (person_key,) = (name for name in persons.columns if name.lower() == _PERSON_ID)
    links = {
        table.name: Link(
            table.name, (name,), persons.name, (person_key,),
            count_orphans(table, (name,), persons, (person_key,)), "as in the common data model",
        )
        for table in tables
        for name in table.columns
        if name.lower() == _PERSON_ID and table is not persons
    }  # fmt: skip
    order = {name: position for position, name in enumerate(read_roles())}
    linked = sorted((table for table in tables if table.name in links), key=lambda table: order[table.name.lower()])
    keyed = [_with_key(table) for table in (persons, *linked)]
    unlinked_tables = [table.name for table in tables if table is not persons and table.name not in links]
    tree = PersonTree(tuple(keyed), links, {table.name: {} for table in keyed}, (), (*outside_tables, *unlinked_tables))
    return tree, [*_find_visit_links(keyed)]


def _find_visit_links(tables: Sequence[ProfiledTable]) -> Iterator[Link]:
    """The links of events to visits, if the number of a visit identifies its row."""
    visits = next((table for table in tables if table.name.lower() == VISIT and table.keys), None)
    for table in tables:
        for name in table.columns:
            if visits is not None and table is not visits and name.lower() == _VISIT_ID:
                yield Link(table.name, (name,), visits.name, visits.keys[0], 0, "as in the common data model")


def describe_links(tree: PersonTree) -> str:
    """A note on the tables and their links."""
    without = [
        table.name
        for table in tree.tables
        if _VISIT_ID in map(str.lower, table.columns) and table.name.lower() != VISIT
        if tree.links[table.name].parent.lower() != VISIT
    ]
    text = "Tables of the OMOP common data model 5.4, whose columns have the roles of sqlanon's list for it."
    if without:
        text += (
            f" Rows of {join_keys(without)} name their person directly, because some have no visit or one of another "
            "person: the release does not say at which visit they were made."
        )
    return f"{text} Columns outside of the model are not released."


def _with_key(table: ProfiledTable) -> ProfiledTable:
    """The table with the key of the common data model, if it identifies its rows."""
    roles = read_roles()[table.name.lower()]
    keys = [name for name in table.columns if (role := roles.get(name.lower())) is not None and role.role == "key"]
    key = [name for name in keys if name.lower() != _PERSON_ID] or keys
    if table.name.lower() == PERSON:
        return replace(table, keys=(tuple(key),))
    (counts,) = StatementRunner(table.run.engine).fetch_rows(exact_counts_query(table.run.source.relation, key), [])
    return replace(table, keys=(tuple(key),) if all(count == table.rows for count in counts) else ())


def propose_omop(table: ProfiledTable, keys: Collection[str]) -> list[Proposal]:
    """The roles of a table's columns but its keys; concepts without a hierarchy yet."""
    roles = read_roles()[table.name.lower()]
    proposals: list[Proposal] = []
    for column in table.profile.profiles:
        role = roles.get(column.name.lower())
        if column.name in keys:
            continue
        if role is None:
            proposals.append(Proposal(column, "identifying", "not a column of the common data model"))
        elif role.role == "key":
            proposals.append(
                Proposal(column, "identifying", "several rows have the same, so it is not a key", known=True)
            )
        else:
            proposals.append(Proposal(column, role.role, role.reason, role.rule, known=True))
    return proposals


def concept_columns(table: ProfiledTable) -> list[str]:
    """The columns of a table whose concepts have a hierarchy in the vocabulary."""
    roles = read_roles()[table.name.lower()]
    return [name for name in table.columns if (role := roles.get(name.lower())) is not None and role.has_concepts]


# Hierarchies of concepts

_PARENTS = template("""
    WITH used AS (
        SELECT :value::BIGINT AS concept_id, count(*) AS row_count FROM :rows AS r WHERE :value IS NOT NULL GROUP BY 1
    ),
    allowed AS (
        SELECT concept_id FROM :concepts AS c WHERE :is_allowed
    ),
    above AS (
        SELECT
            ancestors.descendant_concept_id AS descendant,
            ancestors.ancestor_concept_id AS ancestor,
            ancestors.min_levels_of_separation AS distance
        FROM :ancestors AS ancestors
        SEMI JOIN allowed ON allowed.concept_id = ancestors.ancestor_concept_id
        WHERE ancestors.ancestor_concept_id <> ancestors.descendant_concept_id
    ),
    nodes AS (
        SELECT concept_id FROM used
        UNION
        SELECT ancestor FROM above SEMI JOIN used ON used.concept_id = above.descendant
    ),
    weights AS (
        SELECT above.ancestor, sum(used.row_count)::BIGINT AS row_count
        FROM above
        JOIN used ON used.concept_id = above.descendant
        GROUP BY above.ancestor
    ),
    ranked AS (
        SELECT
            above.descendant,
            above.ancestor,
            row_number() OVER (
                PARTITION BY above.descendant ORDER BY above.distance, weights.row_count DESC, above.ancestor
            ) AS place
        FROM above
        SEMI JOIN nodes ON nodes.concept_id = above.descendant
        JOIN weights ON weights.ancestor = above.ancestor
    )
    SELECT descendant AS concept_id, ancestor AS parent_id FROM ranked WHERE place = 1
""")
_CHAINS = template("""
    WITH RECURSIVE chains AS (
        SELECT DISTINCT :value::BIGINT AS concept_id, :value::BIGINT AS node, 0 AS steps
        FROM :rows AS r
        WHERE :value IS NOT NULL
        UNION ALL
        SELECT chains.concept_id, parents.parent_id, chains.steps + 1
        FROM chains
        JOIN :parents AS parents ON parents.concept_id = chains.node
        WHERE chains.steps < :deepest
    )
    SELECT concept_id, node, max(steps) OVER (PARTITION BY concept_id) - steps AS depth FROM chains
""")
# A concept above a depth is its own label there.
_LABELS = template("""
    WITH leaves AS (
        SELECT concept_id, max(depth) AS depth FROM :chains AS c GROUP BY concept_id
    ),
    depths AS (
        SELECT unnest(range(0, (SELECT max(depth) FROM leaves))) AS depth
    )
    SELECT leaves.concept_id, depths.depth, coalesce(c.node, leaves.concept_id) AS label
    FROM leaves
    CROSS JOIN depths
    LEFT JOIN :chains AS c ON c.concept_id = leaves.concept_id AND c.depth = depths.depth
""")


def write_concept_hierarchy(
    table: ProfiledTable, proposal: Proposal, vocabulary: Mapping[str, Run], folder: FileFolder, location: Location
) -> Proposal:
    """The proposal with a hierarchy file of its concepts, by the vocabulary; unchanged if it has no levels for them.

    Creates ``concept_parents``, ``concept_chains`` and ``concept_labels`` in the run of the table.
    """
    name, run, runner = proposal.column.name, table.run, StatementRunner(table.run.engine)
    existing, output = folder.find_file(name), folder.output
    if existing is not None or output is None:
        return proposal
    is_drug = name.lower().startswith("drug_")
    classes = [text(class_) for class_ in _DRUG_CLASSES]
    is_allowed = exp.In(this=col("concept_class_id"), expressions=classes) if is_drug else exp.true()
    value, rows = col(name, "r"), run.source.relation
    parents = runner.create_table(
        run.work("concept_parents"),
        _PARENTS(
            value=value,
            rows=rows,
            concepts=vocabulary[CONCEPT].source.relation,
            ancestors=vocabulary[CONCEPT_ANCESTOR].source.relation,
            is_allowed=is_allowed,
        ),
    )
    chains = runner.create_table(
        run.work("concept_chains"), _CHAINS(value=value, rows=rows, parents=parents, deepest=_DEEPEST)
    )
    labels = runner.create_table(run.work("concept_labels"), _LABELS(chains=chains))
    depths = _choose_depths(runner, labels, proposal.column.distinct)
    if not depths:
        return proposal
    at_depth = template("SELECT max(label) FILTER (WHERE depth = :depth)::VARCHAR")
    columns = [at_depth(depth=depth).expressions[0] for depth in depths]
    query = template("""
        SELECT concept_id::VARCHAR, :columns FROM :labels AS l GROUP BY concept_id ORDER BY concept_id
    """)(columns=columns, labels=labels)
    output.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = output / (file_name(name) or "")
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
        writer = csv.writer(stream, delimiter=";", lineterminator="\n")
        writer.writerows([*line, TOP] for line in runner.fetch_rows(query, []))
    return replace(
        proposal,
        hierarchy={"file": str(file)},
        shown={"file": location.show_path(file)},
        reason="the file groups concepts by concept_ancestor; labels are concepts, too",
    )


def _choose_depths(runner: StatementRunner, labels: exp.Table, distinct: int) -> list[int]:
    """The depths that are levels of the hierarchy, from fine to coarse: each has at most half the labels below it."""
    query = template("SELECT depth, count(DISTINCT label) FROM :labels AS l GROUP BY depth ORDER BY depth DESC")
    depths: list[int] = []
    below = distinct
    for depth, count in runner.fetch_rows(query(labels=labels), []):
        if 1 < count <= below / _MIN_REDUCTION and len(depths) < _MAX_LEVELS:
            depths.append(depth)
            below = count
    return depths
