"""`suggest`: a policy to start from, for a table without any declarations."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlanon.disclosure.dependencies import Narrowing, find_narrowing_in_source
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, InfeasibleError, SourceError
from sqlanon.frequency.scan import scan_tables
from sqlanon.hierarchies.build import build_hierarchies
from sqlanon.policy import Policy, SourceSection
from sqlanon.sources.duckdb import list_tables
from sqlanon.sources.files.statistics_files import UndecidedReadingError
from sqlanon.sources.persons import KeyColumn, PersonColumn, can_number_people, find_person_column
from sqlanon.sources.run import Run
from sqlanon.suggest.distinction import count_sets
from sqlanon.suggest.groupings import label_values
from sqlanon.suggest.hierarchies import (
    MAX_CATEGORIES,
    FileFolder,
    add_categories,
    can_write_file,
    needs_labels,
    use_files,
    write_file,
)
from sqlanon.suggest.policy_text import SUPPRESSION_LIMIT, Findings, K, policy_text
from sqlanon.suggest.profile import TableProfile, find_number_types, profile_table
from sqlanon.suggest.propose import NEEDS_FILES, SUPPRESS, Proposal, is_measured, propose
from sqlanon.suggest.reading import UNCHANGED, Reading, find_missing_codes, find_readings
from sqlanon.suggest.trials import Diversity, Trial, try_with_diversity
from sqlanon.support.expressions import as_column, col, fragment, table, template
from sqlanon.support.names import table_parts
from sqlanon.support.notices import sort_messages

_SET_SIZE, _MAX_SETS = 3, 1000  # of quasi-identifiers whose combinations are counted
_MAX_PAIRS = 240  # of an unchanged column and a quasi-identifier that are measured: about ten seconds


@dataclass(frozen=True)
class Suggestion:
    """The text of a policy, warnings about its source files, and the columns that it does not release, with reasons."""

    text: str
    warnings: tuple[str, ...] = ()
    unreleased: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Location:
    """The location of a table, with absolute paths, and how it is read.

    ``folder`` is the folder that paths of the policy are relative to (None: they stay absolute), and ``hierarchies``
    the folder of new hierarchy files (None: none are written). ``query`` replaces the table. ``reading`` has keys of
    ``[source]`` for files, and ``columns`` keys of their columns.
    """

    table: str | None = None
    database: Path | None = None
    files: tuple[str, ...] = ()
    folder: Path | None = None
    hierarchies: Path | None = None
    query: str | None = None
    reading: Mapping[str, object] = field(default_factory=dict)
    columns: Mapping[str, Reading] = field(default_factory=dict)

    @property
    def policy_section(self) -> dict[str, object]:
        section: dict[str, object] = {}
        if self.database is not None:
            section["database"] = self.show_path(self.database)
        if self.files:
            paths = [self.show_path(file) for file in self.files]
            section["files"] = paths if len(paths) > 1 else paths[0]
        return section | self._relation | dict(self.reading)

    def show_path(self, path: str | Path) -> str:
        if self.folder is None:
            return str(path)
        with suppress(ValueError):  # on another drive
            return os.path.relpath(path, self.folder).replace(os.sep, "/")
        return str(path)

    @property
    def run_section(self) -> dict[str, object]:
        """``[source]`` for runs, whose connection has the database."""
        return self._relation | ({"files": list(self.files)} if self.files else {}) | dict(self.reading)

    @property
    def _relation(self) -> dict[str, object]:
        if self.query is not None:
            return {"query": self.query}
        return {} if self.table is None or self.files else {"table": self.table}

    @property
    def name(self) -> str:
        return (table_parts(self.table or "") or (Path(self.files[0]).stem if self.files else "table",))[-1]

    def binding_policy(self) -> Policy:
        """A policy that binds the table and declares none of its columns."""
        attributes: dict[str, dict[str, object]] = {"sqlanon: any": {"role": "quasi", "hierarchy": SUPPRESS}}
        for name, reading in self.columns.items():
            attributes[name] = {"role": "insensitive", **reading.trial_keys}
        return Policy(source=self.run_section, attributes=attributes, privacy={"k": 2})


def suggest(begin: Callable[[Policy], Run], location: Location) -> Suggestion:
    try:
        return _suggest(begin, location)
    except UndecidedReadingError as error:
        return _suggest(begin, replace(location, reading={**location.reading, **error.proposal}))


def _suggest(begin: Callable[[Policy], Run], location: Location) -> Suggestion:
    data_file = location.database or (Path(location.files[0]) if location.files else None)
    folder = FileFolder(None if data_file is None else data_file.parent, location.hierarchies)
    if location.database is not None and location.table is None and location.query is None:
        _refuse_without_table(begin, location.database)
    with begin(location.binding_policy()) as run:
        if not location.columns and (columns := find_readings(run)):
            return _suggest(begin, replace(location, columns=columns))
        profile, warnings = profile_table(run), sort_messages(run.notices)
        converted = None if location.query is not None else convert_numbers(begin, run, profile, location)
        if converted is None:
            readings = {**location.columns, **find_missing_codes(run, profile, location.columns)}
            proposals = [
                replace(proposal, reading=readings.get(proposal.column.name, UNCHANGED))
                for proposal in propose(profile.profiles)
            ]
            person = find_person(run, profile, proposals)
            proposals = add_labels(run, profile, _withhold_person(proposals, person), folder, location)
            combinations = _count_combinations(run, profile, proposals)
            quasi = [proposal.column.name for proposal in proposals if proposal.role == "quasi"]
            narrowing, unmeasured = _find_narrowing(run, profile, proposals, quasi, person)
    if converted is not None:
        return _suggest(begin, converted)
    section, proposals = location.run_section, fit_hierarchies(begin, proposals, folder, location)
    of_person = {} if person is None else {"person": person.name}
    trials, diversity = _run_trials(begin, proposals, section | of_person)
    file_name = re.sub(r"\W+", "_", location.name).strip("_") or "table"
    release = {"database": f"{file_name}_release.duckdb", "table": location.name if location.table else file_name}
    findings = Findings(
        profile.rows, profile.step, combinations, narrowing, trials, diversity, person, warnings, unmeasured
    )
    unreleased = {proposal.column.name: proposal.reason for proposal in proposals if proposal.role == "identifying"}
    text = policy_text(location.policy_section | of_person, release, proposals, findings)
    return Suggestion(text, warnings, unreleased)


def _refuse_without_table(begin: Callable[[Policy], Run], database: Path) -> None:
    with begin(Location(query="SELECT 1 AS one").binding_policy()) as run:
        names = list_tables(run.engine)
    file = min(os.path.relpath(database), str(database), key=len)
    command = f"sqlanon suggest {shlex.quote(file)} {shlex.quote(names[0] if names else 'TABLE')}"
    tables = f"; its tables: {', '.join(names)}" if names else "; it has no tables"
    raise SourceError(f"{database.name}: name a table, as in `{command}`{tables}")


def convert_numbers(
    begin: Callable[[Policy], Run], run: Run, profile: TableProfile, location: Location
) -> Location | None:
    """The location with a query that converts texts such as "12" and "NA" to numbers, which intervals need.

    None without such texts, and for files and frames, which have no queries.
    """
    parts = table_parts(location.table or "")
    if not parts or location.files:
        return None
    texts = [column.name for column in profile.profiles if column.has_numbers_or_missing and is_measured(column)]
    casts = []
    for name, type_ in find_number_types(run, texts).items():
        # NaN is in no interval, so it becomes NULL as words do.
        number = "TRY_CAST(:text AS BIGINT)" if type_ == "BIGINT" else "TRY_CAST(nullif(lower(:text), 'nan') AS DOUBLE)"
        casts.append(as_column(fragment(number)(text=col(name)), name))
    if not casts:
        return None
    name, *schemas = reversed(parts)
    query = template("SELECT * REPLACE (:casts) FROM :rows")(casts=casts, rows=table(name, *schemas))
    converted = replace(location, query=query.sql("duckdb"))
    with suppress(SourceError), begin(converted.binding_policy()) as converted_run:
        if StatementRunner(converted_run.engine).count(converted_run.source.relation) == profile.rows:
            return converted
    return None


def find_person(run: Run, profile: TableProfile, proposals: Sequence[Proposal]) -> PersonColumn | None:
    """The column that numbers people, if some of them have several rows."""
    keys = [
        KeyColumn(column.name, column.type, proposal.known and proposal.role != "identifying")
        for proposal in proposals
        if can_number_people((column := proposal.column).name, column.type)
    ]
    compared = {proposal.column.name: proposal.column.type for proposal in proposals if proposal.role == "quasi"}
    steps = StatementRunner(run.engine)
    return find_person_column(
        lambda query: steps.fetch_rows(query, []), run.source.relation, keys, compared, profile.rows
    )


def _withhold_person(proposals: Sequence[Proposal], person: PersonColumn | None) -> list[Proposal]:
    return [
        replace(proposal, role="identifying", hierarchy=None, shown=None, reason="its values number people")
        if person is not None and proposal.column.name == person.name and proposal.role != "identifying"
        else proposal
        for proposal in proposals
    ]


def add_labels(
    run: Run, profile: TableProfile, proposals: Sequence[Proposal], folder: FileFolder, location: Location
) -> list[Proposal]:
    """The proposals with hierarchies of texts: in new files, or as categories if their grouping is known."""
    steps, labelled = StatementRunner(run.engine), list[Proposal]()
    if folder.output is not None:
        folder.output.mkdir(mode=0o700, parents=True, exist_ok=True)
    for proposal in proposals:
        column, output = proposal.column, folder.output
        if output is not None and folder.find_file(column.name) is not None:
            output = None
        if needs_labels(proposal) and (output is not None or column.grouping is not None):
            limit = MAX_CATEGORIES if output is None else None
            relation, grouping = run.source.relation, column.grouping
            values = label_values(steps, profile.groupings, relation, column.name, grouping, limit)
            if values is not None and output is None:
                proposal = add_categories(proposal, values)  # noqa: PLW2901
            elif values is not None and output is not None:
                proposal = write_file(proposal, values, output, location.show_path)  # noqa: PLW2901
        labelled.append(proposal)
    return labelled


def _count_combinations(
    run: Run, profile: TableProfile, proposals: Sequence[Proposal]
) -> Sequence[tuple[Sequence[str], int, int]]:
    """Sets of quasi-identifiers, with their distinct combinations and the rows that were read."""
    names = [proposal.column.name for proposal in proposals if proposal.role == "quasi"]
    if len(names) < 2:
        return []
    steps = StatementRunner(run.engine)
    size = next(size for size in range(_SET_SIZE, 0, -1) if size == 1 or math.comb(len(names), size) <= _MAX_SETS)
    query = count_sets(steps, run.work, profile.sample, names, names, size)
    return [(attributes, distinct, rows) for attributes, _, distinct, rows, *_ in steps.fetch_rows(query, [])]


def _find_narrowing(
    run: Run, profile: TableProfile, proposals: Sequence[Proposal], quasi: Sequence[str], person: PersonColumn | None
) -> tuple[Sequence[Narrowing], Sequence[str]]:
    """The unchanged columns that narrow quasi-identifiers, and the quasi-identifiers that time does not allow."""
    columns = [
        proposal.column.name
        for proposal in proposals
        if proposal.role in ("sensitive", "insensitive") and not proposal.column.is_constant
    ]
    count = _MAX_PAIRS // max(1, len(columns))
    narrowing = find_narrowing_in_source(
        StatementRunner(run.engine),
        run.work,
        profile.sample,
        profile.rows // profile.step,
        columns,
        quasi[:count],
        run.source.columns,
        SourceSection(),
        None if person is None else person.name,
    )
    return narrowing, quasi[count:]


def fit_hierarchies(
    begin: Callable[[Policy], Run], proposals: Sequence[Proposal], folder: FileFolder, location: Location
) -> list[Proposal]:
    """The proposals with existing hierarchy files, and with hierarchies that are trees over all values."""
    section, files = location.run_section, use_files(proposals, folder, location.show_path)
    proposals = _replace_unfit(begin, files, proposals, "its hierarchy file does not fit, and is not used", section)
    plain = [replace(proposal, hierarchy=proposal.hierarchy and SUPPRESS) for proposal in proposals]
    proposals = _replace_unfit(begin, proposals, plain, "some values do not fit into intervals or dates", section)
    return [*proposals] if folder.output is not None else [_advise_files(proposal) for proposal in proposals]


def _replace_unfit(
    begin: Callable[[Policy], Run],
    proposals: Sequence[Proposal],
    alternatives: Sequence[Proposal],
    reason: str,
    source: Mapping[str, object],
) -> list[Proposal]:
    """The proposals, with alternatives to those whose hierarchies are not trees over all values of their columns."""
    pairs = [*zip(proposals, alternatives, strict=True)]
    changed = [proposal for proposal, alternative in pairs if proposal.hierarchy != alternative.hierarchy]
    if not changed or _can_build(begin, changed, source):
        return [*proposals]
    unfit = [proposal for proposal in changed if not _can_build(begin, [proposal], source)]
    return [
        replace(alternative, reason=f"{proposal.reason}; {reason}") if proposal in unfit else proposal
        for proposal, alternative in pairs
    ]


def _can_build(begin: Callable[[Policy], Run], proposals: Sequence[Proposal], source: Mapping[str, object]) -> bool:
    attributes = {
        proposal.column.name: {
            "role": "quasi", "hierarchy": proposal.hierarchy or SUPPRESS, **proposal.reading.trial_keys,
        }
        for proposal in proposals
    }  # fmt: skip
    policy = Policy(source={**source, "undeclared": "drop"}, attributes=attributes, privacy={"k": 2})
    with begin(policy) as run, suppress(InfeasibleError):
        try:
            steps = StatementRunner(run.engine)
            scanned = scan_tables(steps, policy, run.source, run.work)
            build_hierarchies(steps, policy, scanned.values, run.work)
        except HierarchyError:
            return False
    return True


def _advise_files(proposal: Proposal) -> Proposal:
    """Add advice to columns of words and numbers without a hierarchy."""
    has_file = isinstance(proposal.hierarchy, dict) and "file" in proposal.hierarchy
    if proposal.role == "quasi" and is_measured(proposal.column) and can_write_file(proposal) and not has_file:
        return replace(proposal, reason=f"{proposal.reason}; {NEEDS_FILES}")
    return proposal


def _run_trials(
    begin: Callable[[Policy], Run], proposals: Sequence[Proposal], source: Mapping[str, object]
) -> tuple[Sequence[Trial], Sequence[Diversity]]:
    """Try strategies with the proposed policy on a sample, and the cost of diversity with the best of them."""
    attributes = {
        proposal.column.name: {"role": "identifying"}
        if proposal.role == "insensitive"
        else {
            "role": proposal.role,
            **({} if proposal.hierarchy is None else {"hierarchy": proposal.hierarchy}),
            **proposal.trial_keys,
        }
        for proposal in proposals
    }
    search = {"suppression_limit": SUPPRESSION_LIMIT}
    policy = Policy(source=source, attributes=attributes, privacy={"k": K}, search=search)
    sensitive = [proposal.column.name for proposal in proposals if proposal.role == "sensitive"]
    return try_with_diversity(begin, policy, sensitive)
