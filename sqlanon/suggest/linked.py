"""`suggest` for a database or a folder without a table named: a policy for all tables about the same persons."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from sqlanon.errors import PolicyError, Problem, SourceError
from sqlanon.places.databases import file_kind, is_attached
from sqlanon.policy import Policy
from sqlanon.sources.constraints import Constraints, list_constraints
from sqlanon.sources.run import Run
from sqlanon.suggest import omop
from sqlanon.suggest.hierarchies import FileFolder
from sqlanon.suggest.linked_risk import measure_uniqueness
from sqlanon.suggest.linked_text import LinkedFindings, TableSuggestion, linked_policy_text
from sqlanon.suggest.links import ProfiledTable, find_keys, find_links
from sqlanon.suggest.person_tree import PersonTree, build_tree, name_nearer_rows
from sqlanon.suggest.profile import profile_table
from sqlanon.suggest.propose import Proposal, propose_roles, require_a_quasi_identifier
from sqlanon.suggest.reading import UNCHANGED, find_missing_codes, find_readings
from sqlanon.suggest.suggest import Location, Suggestion, add_labels, convert_numbers, fit_hierarchies, suggest
from sqlanon.support.names import table_parts
from sqlanon.support.notices import sort_messages

OpenRun: TypeAlias = Callable[[Policy], Run]


@dataclass(frozen=True)
class LocatedTable:
    """A table of a database or folder, by its name in the policy."""

    name: str
    location: Location
    constraints: Constraints


_FILES = ("csv", "parquet")
_MOST_OF_PERSONS, _MOST_OF_CHILDREN = 8, 16
"""Maximum number of quasi-identifiers of the table of persons, and of all other tables together."""


def suggest_tables(open_run: OpenRun, location: Location, requested_person: str | None = None) -> Suggestion:
    """A policy for the tables of a database or folder; for a single table if it has no others."""
    with ExitStack() as stack:
        located_tables = _locate_tables(open_run, location)
        if len(located_tables) < 2:
            if requested_person is not None:
                message = "is for a database or folder of several tables, and this has one: leave it out"
                raise PolicyError([Problem("person", message)])
            return suggest(open_run, location)
        read = _read_omop if omop.is_omop([located.name for located in located_tables]) else _read_links
        tree, suggestions, notes = read(open_run, stack, located_tables, location, requested_person)
        uniqueness = measure_uniqueness(tree, suggestions)
        warnings = sort_messages(notice for table in tree.tables for notice in table.run.notices)
    findings = LinkedFindings(tree, uniqueness, notes)
    sections = [
        TableSuggestion(table, tree.key_of(table), tree.links.get(table.name), proposals)
        for table, proposals in zip(tree.tables, suggestions, strict=True)
    ]
    unreleased = {
        f"{section.table.name}.{proposal.column.name}": proposal.reason
        for section in sections
        for proposal in section.proposals
        if proposal.role == "identifying"
    }
    return Suggestion(linked_policy_text(location, sections, findings), warnings, unreleased)


def is_of_tables(location: Location) -> bool:
    """Whether a location without a table may have several: a DuckDB file, or a folder."""
    if location.table is not None or location.query is not None:
        return False
    if location.files:
        return len(location.files) == 1 and Path(location.files[0]).is_dir()
    return location.database is not None and not is_attached(location.database)


def _read_links(
    open_run: OpenRun,
    stack: ExitStack,
    located_tables: Sequence[LocatedTable],
    location: Location,
    requested_person: str | None,
) -> tuple[PersonTree, list[list[Proposal]], Sequence[str]]:
    """Find the tree of the tables by their references, and propose the roles of their columns."""
    tables = [_bind(open_run, stack, located.name, located.location, located.constraints) for located in located_tables]
    links = find_links(tables)
    if not links:
        place = location.database or Path(location.files[0])
        message = f"{place.name}: no table has a column that names rows of another one"
        raise SourceError(f"{message}: {_advise_single_table(location, tables)}")
    tree = name_nearer_rows(build_tree(tables, links, requested_person), links)
    suggestions = [_propose(open_run, tree, table, location) for table in tree.tables]
    if not any(proposal.role == "quasi" for proposals in suggestions for proposal in proposals):
        suggestions[0] = require_a_quasi_identifier(suggestions[0])
    return tree, suggestions, ()


def _read_omop(
    open_run: OpenRun,
    stack: ExitStack,
    located_tables: Sequence[LocatedTable],
    location: Location,
    requested_person: str | None,
) -> tuple[PersonTree, list[list[Proposal]], Sequence[str]]:
    """The tree and the roles of the OMOP common data model, with hierarchies of concepts if files are written."""
    if requested_person is not None and requested_person.lower() != omop.PERSON:
        message = f"of the OMOP common data model it is {omop.PERSON!r}: leave it out"
        raise PolicyError([Problem("person", message)])
    tables, vocabulary, outside_tables = list[ProfiledTable](), dict[str, Run](), list[str]()
    for located in located_tables:
        name = located.name
        if name.lower() in omop.read_roles():
            table = _bind(open_run, stack, name, located.location, located.constraints)
            if table.rows or name.lower() == omop.PERSON:
                tables.append(table)
                continue
        elif name.lower() in (omop.CONCEPT, omop.CONCEPT_ANCESTOR):
            if location.hierarchies is not None:
                vocabulary[name.lower()] = stack.enter_context(open_run(located.location.binding_policy()))
            continue
        outside_tables.append(name)
    tree = name_nearer_rows(*omop.build_omop_tree(tables, outside_tables))
    has_vocabulary = {omop.CONCEPT, omop.CONCEPT_ANCESTOR} <= {located.name.lower() for located in located_tables}
    suggestions: list[list[Proposal]] = []
    for table in tree.tables:
        folder, concepts = _file_folder(table, location), omop.concept_columns(table)
        proposals = omop.propose_omop(table, _key_columns(tree, table))
        for i, proposal in enumerate(proposals):
            if proposal.column.name in concepts and has_vocabulary:
                proposals[i] = (
                    omop.write_concept_hierarchy(table, proposal, vocabulary, folder, table.location)
                    if vocabulary
                    else replace(proposal, reason=omop.NEEDS_FILES)
                )
        suggestions.append(fit_hierarchies(open_run, proposals, folder, table.location))
    return tree, suggestions, (omop.describe_links(tree),)


def _file_folder(table: ProfiledTable, location: Location) -> FileFolder:
    """The folder of existing hierarchy files of a table, and the one of new ones."""
    data = location.database or Path(table.location.files[0])
    return FileFolder(data.parent, None if location.hierarchies is None else location.hierarchies / table.name)


def _key_columns(tree: PersonTree, table: ProfiledTable) -> frozenset[str]:
    """The columns that identify rows of a table, or name its parents."""
    link = tree.links.get(table.name)
    return frozenset((*tree.key_of(table), *(() if link is None else link.references)))


def _locate_tables(open_run: OpenRun, location: Location) -> list[LocatedTable]:
    """The tables of a database or folder: their names in the policy, and their constraints."""
    if location.files:
        return [
            LocatedTable(name, replace(location, files=files), Constraints())
            for name, files in _list_files(Path(location.files[0])).items()
        ]
    with open_run(Location(query="SELECT 1 AS one").binding_policy()) as run:
        declared = list_constraints(run.engine)
    parts = {name: table_parts(name) for name in declared}
    last = [names[-1].lower() for names in parts.values()]
    return [
        LocatedTable(
            names[-1] if last.count(names[-1].lower()) == 1 else "_".join(names),
            replace(location, table=full_name),
            declared[full_name],
        )
        for full_name, names in parts.items()
    ]


def _list_files(folder: Path) -> Mapping[str, tuple[str, ...]]:
    """The data files of a folder, by table: each file is one, and each folder of files."""
    files: dict[str, tuple[str, ...]] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "hierarchy_")):
            continue
        if path.is_dir():
            kinds = {kind for file in path.iterdir() if (kind := file_kind(file.name)) in _FILES}
            paths = [str(file) for file in sorted(path.iterdir()) if file_kind(file.name) in _FILES]
            if len(kinds) == 1:
                files[path.name] = tuple(paths)
        elif file_kind(path.name) in _FILES:
            name = path.name.split(".", maxsplit=1)[0]
            if name.lower() in map(str.lower, files):
                raise SourceError(f"{folder}: several files are named {name!r}: keep one of them in the folder")
            files[name] = (str(path),)
    if not files:
        raise SourceError(f"{folder}: has no CSV or Parquet files")
    return files


def _bind(
    open_run: OpenRun, stack: ExitStack, name: str, location: Location, constraints: Constraints
) -> ProfiledTable:
    """Read the profile of a table, whose run stays open with the stack."""
    try:
        run = stack.enter_context(open_run(location.binding_policy()))
        if not location.columns and (columns := find_readings(run)):
            return _bind(open_run, stack, name, replace(location, columns=columns), constraints)
        profile = profile_table(run)
        if location.query is None:
            converted = convert_numbers(open_run, run, profile, location)
            if converted is not None:
                return _bind(open_run, stack, name, converted, constraints)
    except SourceError as error:
        raise SourceError(f"table {name!r}: {error}") from error
    return ProfiledTable(name, location, run, profile, constraints, find_keys(run, profile, constraints))


def _propose(open_run: OpenRun, tree: PersonTree, table: ProfiledTable, location: Location) -> list[Proposal]:
    """The roles and hierarchies of a table's columns but its keys."""
    keys = _key_columns(tree, table)
    columns = [column for column in table.profile.profiles if column.name not in keys]
    most = _MOST_OF_PERSONS if table is tree.tables[0] else max(2, _MOST_OF_CHILDREN // (len(tree.tables) - 1))
    missing = find_missing_codes(table.run, table.profile, table.location.columns)
    readings = {**table.location.columns, **missing}
    dropped = tree.dropped[table.name]
    proposals = [
        replace(proposal, reading=readings.get(proposal.column.name, UNCHANGED))
        for proposal in propose_roles([column for column in columns if column.name not in dropped], most)
    ]
    folder = _file_folder(table, location)
    proposals = add_labels(table.run, table.profile, proposals, folder, table.location)
    proposals = fit_hierarchies(open_run, proposals, folder, table.location)
    proposals += [
        Proposal(column, "identifying", dropped[column.name], known=True)
        for column in columns
        if column.name in dropped
    ]
    order = [column.name for column in columns]
    return sorted(proposals, key=lambda proposal: order.index(proposal.column.name))


def _advise_single_table(location: Location, tables: Sequence[ProfiledTable]) -> str:
    if location.database is None:
        return "name the files of one table"
    file = min(os.path.relpath(location.database), str(location.database), key=len)
    command = f"sqlanon suggest {shlex.quote(file)} {shlex.quote(tables[0].location.table or '')}"
    return f"name a table, as in `{command}`; its tables: {', '.join(table.name for table in tables)}"
