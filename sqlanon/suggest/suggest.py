"""`suggest`: a policy to start from, for a table that nobody has said anything of."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlglot import exp

from sqlanon.disclosure.dependencies import Narrowing, find_narrowing_in_source
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, InfeasibleError, SourceError
from sqlanon.frequency.scan import scan_tables
from sqlanon.hierarchies.build import build_hierarchies
from sqlanon.policy import Policy, SourceSection
from sqlanon.sources.duckdb import list_tables
from sqlanon.sources.persons import KeyColumn, PersonColumn, can_number_people, find_person_column
from sqlanon.sources.run import Run
from sqlanon.sources.statistics_files import UndecidedReadingError
from sqlanon.suggest.distinction import figures_of
from sqlanon.suggest.groupings import labelled_values
from sqlanon.suggest.hierarchies import INLINE, FileFolder, can_write_file, needs_labels, use_files, with_labels
from sqlanon.suggest.policy_text import SUPPRESSION_LIMIT, K, Seen, policy_text
from sqlanon.suggest.profile import TableProfile, number_types, profile_table
from sqlanon.suggest.propose import NEEDS_FILES, SUPPRESS, Proposal, is_measured, propose
from sqlanon.suggest.reading import AS_IT_STANDS, Reading, find_missing_codes, find_readings
from sqlanon.suggest.trials import Diversity, Trial, try_with_diversity
from sqlanon.support.expressions import as_column, col, fragment, table, template
from sqlanon.support.names import table_parts
from sqlanon.support.notices import sort_messages

SIZE, MOST_SETS = 3, 1000
"""The size of the largest sets of quasi-identifiers that are counted, and the most sets of a size that are."""


MOST_PAIRS = 240
"""The most pairs of an unchanged column and a quasi-identifier that are measured: about ten seconds."""


@dataclass(frozen=True)
class Suggestion:
    """The text of a policy, what was left out of the files of its source, and the columns that it does not release,
    each with its reason."""

    text: str
    warnings: tuple[str, ...] = ()
    unreleased: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where the table is, with absolute paths; the folder that paths of the policy are relative to (None: they stay
    absolute); the folder of hierarchy files (None: none are written); a query in place of the table; how the labels and
    missing codes of a statistics file are read, how CSV files are written, and how their columns are read."""

    table: str | None = None
    database: Path | None = None
    files: tuple[str, ...] = ()
    folder: Path | None = None
    hierarchies: Path | None = None
    query: str | None = None
    reading: Mapping[str, object] = field(default_factory=dict)
    columns: Mapping[str, Reading] = field(default_factory=dict)

    @property
    def source(self) -> dict[str, object]:
        """``[source]`` of the policy, as it is written."""
        found: dict[str, object] = {}
        if self.database is not None:
            found["database"] = self.shown(self.database)
        if self.files:
            shown = [self.shown(one) for one in self.files]
            found["files"] = shown if len(shown) > 1 else shown[0]
        return found | self._relation | dict(self.reading)

    def shown(self, path: str | Path) -> str:
        """A path as the policy has it."""
        if self.folder is None:
            return str(path)
        with suppress(ValueError):  # on another drive
            return os.path.relpath(path, self.folder).replace(os.sep, "/")
        return str(path)

    @property
    def read(self) -> dict[str, object]:
        """``[source]`` for the trials, where the connection does not say all of it."""
        return self._relation | ({"files": list(self.files)} if self.files else {}) | dict(self.reading)

    @property
    def _relation(self) -> dict[str, object]:
        if self.query is not None:
            return {"query": self.query}
        return {} if self.table is None or self.files else {"table": self.table}

    @property
    def name(self) -> str:
        return (table_parts(self.table or "") or (Path(self.files[0]).stem if self.files else "table",))[-1]


def asks_nothing(table: str | None = None) -> Policy:
    """A policy by which a table is bound, and which says nothing of its columns."""
    return policy_of_any_columns(Place(table))


def policy_of_any_columns(place: Place) -> Policy:
    attributes: dict[str, dict[str, object]] = {"sqlanon: any": {"role": "quasi", "hierarchy": "suppress"}}
    for name, reading in place.columns.items():
        attributes[name] = {"role": "insensitive", **reading.tried}
    return Policy(source=place.read, attributes=attributes, privacy={"k": 2})


def suggest(begin: Callable[[Policy], Run], place: Place) -> Suggestion:
    try:
        return _suggest(begin, place)
    except UndecidedReadingError as error:
        return _suggest(begin, replace(place, reading={**place.reading, **error.proposal}))


def _suggest(begin: Callable[[Policy], Run], place: Place) -> Suggestion:
    beside = place.database or (Path(place.files[0]) if place.files else None)
    folder = FileFolder(None if beside is None else beside.parent, place.hierarchies)
    if place.database is not None and place.table is None and place.query is None:
        _refuse_without_table(begin, place.database)
    with begin(policy_of_any_columns(place)) as run:
        if not place.columns and (columns := find_readings(run)):
            return _suggest(begin, replace(place, columns=columns))
        profile, warnings = profile_table(run), sort_messages(run.notices)
        instead = None if place.query is not None else _with_numbers(begin, run, profile, place)
        if instead is None:
            readings = {**place.columns, **find_missing_codes(run, profile, place.columns)}
            proposed = [
                replace(one, reading=readings.get(one.column.name, AS_IT_STANDS)) for one in propose(profile.profiles)
            ]
            person = find_person(run, profile, proposed)
            rules = _with_labels(run, profile, _with_person(proposed, person), folder, place)
            combinations = _combinations(run, profile, rules)
            narrowing = _dependencies(run, profile, rules, None if person is None else person.name)
            unmeasured = [one.column.name for one in rules if one.role == "quasi"][len(_narrowed(rules)) :]
    if instead is not None:
        return _suggest(begin, instead)
    of_person = {} if person is None else {"person": person.name}
    fitting = _fitting_files(begin, rules, use_files(rules, folder, place.shown), place.read)
    proposals = _valid_rules(begin, fitting, place.read)
    if folder.written is None:
        proposals = _advised(proposals)
    trials, diversity = _trials(begin, proposals, place.read | of_person)
    file_name = re.sub(r"\W+", "_", place.name).strip("_") or "table"
    release = {"database": f"{file_name}_release.duckdb", "table": place.name if place.table else file_name}
    seen = Seen(profile.rows, profile.step, combinations, narrowing, trials, diversity, person, warnings, unmeasured)
    unreleased = {one.column.name: one.reason for one in proposals if one.role == "identifying"}
    return Suggestion(policy_text(place.source | of_person, release, proposals, seen), warnings, unreleased)


def _refuse_without_table(begin: Callable[[Policy], Run], database: Path) -> None:
    with begin(policy_of_any_columns(Place(query="SELECT 1 AS one"))) as run:
        names = list_tables(run.engine)
    file = min(os.path.relpath(database), str(database), key=len)
    command = f"sqlanon suggest {shlex.quote(file)} {shlex.quote(names[0] if names else 'TABLE')}"
    there = f"; there is: {', '.join(names)}" if names else "; it has no tables"
    raise SourceError(f"{database.name}: name a table, as in `{command}`{there}")


def _with_numbers(begin: Callable[[Policy], Run], run: Run, profile: TableProfile, place: Place) -> Place | None:
    """The place with a query that makes numbers of texts such as "12" and "NA", where there are some: intervals need
    numbers. None for files and frames, which have no queries."""
    parts = table_parts(place.table or "")
    if not parts or place.files:
        return None
    texts = [one.name for one in profile.profiles if one.numbers_or_missing and is_measured(one)]
    casts = [_as_number(name, type_) for name, type_ in number_types(run, texts).items()]
    if not casts:
        return None
    own, *schemas = reversed(parts)
    query = _NUMBERS(casts=casts, rows=table(own, *schemas))
    instead = replace(place, query=query.sql("duckdb"))
    with suppress(SourceError), begin(policy_of_any_columns(instead)) as again:
        if StatementRunner(again.engine).count(again.source.relation) == profile.rows:
            return instead
    return None


_NUMBERS = template("SELECT * REPLACE (:casts) FROM :rows")
_WHOLE = fragment("TRY_CAST(:text AS BIGINT)")
_DECIMAL = fragment("TRY_CAST(nullif(lower(:text), 'nan') AS DOUBLE)")


def _as_number(name: str, type_: str) -> exp.Expr:
    """A cast by which words become NULL: NaN, too, which is in no interval."""
    return as_column((_WHOLE if type_ == "BIGINT" else _DECIMAL)(text=col(name)), name)


def _advised(proposals: Sequence[Proposal]) -> list[Proposal]:
    """The proposals, with advice on numbers that have no intervals."""
    return [
        replace(one, reason=f"{one.reason}; {NEEDS_FILES}")
        if one.role == "quasi"
        and is_measured(one.column)
        and can_write_file(one)
        and not (isinstance(one.hierarchy, dict) and "file" in one.hierarchy)
        else one
        for one in proposals
    ]


def _with_labels(
    run: Run, profile: TableProfile, proposals: Sequence[Proposal], folder: FileFolder, place: Place
) -> Sequence[Proposal]:
    """The proposals, with hierarchies of texts: in files, or where a grouping is known, in the policy."""
    steps, found = StatementRunner(run.engine), list[Proposal]()
    if folder.written is not None:
        folder.written.mkdir(mode=0o700, parents=True, exist_ok=True)
    for one in proposals:
        column = one.column
        may_write = folder.written is not None and folder.existing(column.name) is None
        if needs_labels(one) and (may_write or column.grouping is not None):
            written, most = (folder.written, None) if may_write else (None, INLINE)
            values = labelled_values(steps, profile.groupings, run.source.relation, column.name, column.grouping, most)
            found.append(one if values is None else with_labels(one, values, written, place.shown))
        else:
            found.append(one)
    return found


def _fitting_files(
    begin: Callable[[Policy], Run], rules: Sequence[Proposal], files: Sequence[Proposal], source: Mapping[str, object]
) -> Sequence[Proposal]:
    """The proposals with files; without those that are no hierarchies of their columns."""
    changed = [one for one, before in zip(files, rules, strict=True) if one != before]
    if not changed or _builds(begin, changed, source):
        return files
    wrong = {one.column.name for one in changed if not _builds(begin, [one], source)}
    return [
        replace(before, reason=f"{before.reason}; its hierarchy file does not fit, and is not used")
        if one.column.name in wrong
        else one
        for one, before in zip(files, rules, strict=True)
    ]


def _trials(
    begin: Callable[[Policy], Run], proposals: Sequence[Proposal], source: Mapping[str, object]
) -> tuple[Sequence[Trial], Sequence[Diversity]]:
    """What strategies keep of a sample, by the policy that is proposed; and what diversity costs with the best one."""
    attributes = {
        one.column.name: {"role": "identifying" if one.role == "insensitive" else one.role}
        | ({} if one.hierarchy is None else {"hierarchy": one.hierarchy})
        | ({} if one.role == "insensitive" else dict(one.tried))
        for one in proposals
    }
    search = {"suppression_limit": SUPPRESSION_LIMIT}
    policy = Policy(source=source, attributes=attributes, privacy={"k": K}, search=search)
    sensitive = [one.column.name for one in proposals if one.role == "sensitive"]
    return try_with_diversity(begin, policy, sensitive)


def _combinations(
    run: Run, table_profile: TableProfile, proposals: Sequence[Proposal]
) -> Sequence[tuple[Sequence[str], int, int]]:
    """Sets of quasi-identifiers, with their distinct combinations and the rows that were looked at."""
    names = [one.column.name for one in proposals if one.role == "quasi"]
    if len(names) < 2:
        return []
    steps = StatementRunner(run.engine)
    size = next(size for size in range(SIZE, 0, -1) if size == 1 or math.comb(len(names), size) <= MOST_SETS)
    query = figures_of(steps, run.work, table_profile.sample, names, names, size)
    return [(attributes, distinct, rows) for attributes, _, distinct, rows, *_ in steps.fetch_rows(query, [])]


def _dependencies(
    run: Run, table_profile: TableProfile, proposals: Sequence[Proposal], person: str | None
) -> Sequence[Narrowing]:
    """The columns that would be released as they are, and narrow a quasi-identifier."""
    columns = [one.column.name for one in proposals if _may_narrow(one)]
    quasi = _narrowed(proposals)
    rows = table_profile.rows // table_profile.step
    return find_narrowing_in_source(
        StatementRunner(run.engine),
        run.work,
        table_profile.sample,
        rows,
        columns,
        quasi,
        run.source.columns,
        SourceSection(),
        person,
    )


def _narrowed(proposals: Sequence[Proposal]) -> list[str]:
    """The quasi-identifiers of which it is measured what narrows them: all of them, or the first that time allows."""
    quasi = [one.column.name for one in proposals if one.role == "quasi"]
    return quasi[: MOST_PAIRS // max(1, sum(_may_narrow(one) for one in proposals))]


def _may_narrow(one: Proposal) -> bool:
    return one.role in ("sensitive", "insensitive") and not one.column.constant


def find_person(run: Run, profile: TableProfile, proposals: Sequence[Proposal]) -> PersonColumn | None:
    """The column that numbers people, where some of them have several rows."""
    keys = [
        KeyColumn(column.name, column.type, one.known and one.role != "identifying")
        for one in proposals
        if can_number_people((column := one.column).name, column.type)
    ]
    compared = {one.column.name: one.column.type for one in proposals if one.role == "quasi"}
    steps = StatementRunner(run.engine)
    return find_person_column(
        lambda query: steps.fetch_rows(query, []), run.source.relation, keys, compared, profile.rows
    )


def _with_person(proposals: Sequence[Proposal], person: PersonColumn | None) -> Sequence[Proposal]:
    """The proposals, with the column of persons among the identifying ones."""
    return [
        replace(one, role="identifying", hierarchy=None, shown=None, reason="its values number people")
        if person is not None and one.column.name == person.name and one.role != "identifying"
        else one
        for one in proposals
    ]


def _valid_rules(
    begin: Callable[[Policy], Run], proposals: Sequence[Proposal], source: Mapping[str, object]
) -> Sequence[Proposal]:
    """The proposals, with ``suppress`` in place of a hierarchy that has no place for some values."""
    with_rules = [one for one in proposals if one.hierarchy not in (None, SUPPRESS)]
    if not with_rules or _builds(begin, with_rules, source):
        return proposals
    wrong = [one for one in with_rules if not _builds(begin, [one], source)]
    reason = "some values have no place in intervals or dates"
    return [
        replace(one, hierarchy=SUPPRESS, reason=f"{one.reason}; {reason}") if one in wrong else one for one in proposals
    ]


def _builds(begin: Callable[[Policy], Run], some: Sequence[Proposal], source: Mapping[str, object]) -> bool:
    """Whether hierarchies are trees over all values of their columns."""
    attributes = {
        one.column.name: {"role": "quasi", "hierarchy": one.hierarchy or SUPPRESS, **one.reading.tried} for one in some
    }
    policy = Policy(source={**source, "undeclared": "drop"}, attributes=attributes, privacy={"k": 2})
    with begin(policy) as run, suppress(InfeasibleError):
        try:
            steps = StatementRunner(run.engine)
            scanned = scan_tables(steps, policy, run.source, run.work)
            build_hierarchies(steps, policy, scanned.values, run.work)
        except HierarchyError:
            return False
    return True
