"""Open earlier releases, and prepare the search for a release that is based on them.

Together, the new release and the earlier ones reveal no more of any person than each of them does: no value is finer
than in the earlier release, and the earlier releases that contain a row count as a quasi-identifier. So the rows of a
class that an earlier release contains, and those that it does not, each meet the policy.

Source: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, section 4: base a release on the earlier one, or treat its columns as
quasi-identifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import BrokenReleaseError, NoMarkedRowsError, NotComparedError, PolicyError, Problem, ReleaseError
from sqlanon.ledger.catalog import RELEASED_KEYS
from sqlanon.ledger.growth.marks import (
    KEY_HASH,
    EarlierAttribute,
    add_empty_marks,
    count_marked_rows,
    count_rows_in_both,
    key_hash,
    mark_rows_by_hash,
    mark_rows_by_values,
    refuse_changed_labels,
)
from sqlanon.ledger.joint.release_links import ComparedRelease
from sqlanon.ledger.people_samples import SourcePeople, person_hash
from sqlanon.ledger.recording import read_ledger
from sqlanon.ledger.records import History, Publication, copy_hashes, find_named_publications
from sqlanon.ledger.released_hierarchies import copy_released_hierarchies, have_same_labels
from sqlanon.ledger.source_match import recognize
from sqlanon.places.addresses import format_location
from sqlanon.policy import Attribute, Policy
from sqlanon.policy.compatibility import LEDGER_FEATURES, collect_sections, find_conflicts
from sqlanon.policy.problems import join_key
from sqlanon.publish.targets.base import Reach, recorded_location
from sqlanon.publish.targets.kinds import kind_for_path
from sqlanon.release.manifest import Manifest
from sqlanon.requirements import guaranteed_k
from sqlanon.requirements.k_anonymity import Shield
from sqlanon.sources import Source
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import EarlierReleases, SearchInput
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import (
    aliased,
    col,
    create_table,
    create_temporary_view,
    drop_table,
    drop_view,
    row_count,
    table,
    template,
)
from sqlanon.support.names import EARLIER_RELEASES_COLUMN

MAX_EARLIER_RELEASES = 60
"""The bits of a mark."""


EARLIER_FILE = "sqlanon_earlier_file"
"""The prefix of the relation of an earlier release in the engine that has its source."""


@dataclass(frozen=True)
class EarlierRelease(ComparedRelease):
    """An unchanged earlier release at the location that the ledger records; its rows while it is open."""

    publication: Publication  # its record in the ledger


@contextmanager
def open_earlier_release(
    engine: DuckDBEngine, publication: Publication, reach: Reach, verified: bool = False
) -> Iterator[EarlierRelease]:
    """Open an earlier release after checking, by the hash of its file or by verification, that it is unchanged."""
    path, name = publication.path, f"{EARLIER_FILE}_{publication.run_id[:12]}"
    if publication.linked:
        raise NotComparedError(
            f"{format_location(path)} is a release of several tables about the same persons, and its rows link more "
            "about a person than a comparison of one table sees",
            "release this table together with the others, over that release",
        )
    location = recorded_location(path, publication.table_name, reach)
    with location.open_version(engine.limits, publication.version, publication.sha256, verified) as release:
        manifest = release.verification.manifest
        _refuse_changed_release(publication, release.verification)
        if release.is_changed:
            subject = "file was" if kind_for_path(path).in_files else "rows were"
            raise ReleaseError(
                f"{format_location(path)} is not the release that the ledger recorded: its {subject} changed"
            )
        with release.rows(engine, manifest, name) as relation:
            yield EarlierRelease(path, manifest, relation, publication)


def _refuse_changed_release(publication: Publication, verification: Verification) -> None:
    location = format_location(publication.path)
    if publication.manifest_hash != verification.manifest.fingerprint():
        raise ReleaseError(f"{location} is not the release that the ledger recorded: its manifest was changed")
    if verification.digest != publication.digest:
        raise ReleaseError(f"{location} is not the release that the ledger recorded: its rows were changed")
    if verification.failures:
        raise BrokenReleaseError(f"{location} was changed since it was published: {'; '.join(verification.failures)}")


def mark_released_rows(
    run: Run,
    search_input: SearchInput,
    earlier: Sequence[Publication],
    fixed: Manifest | None = None,
    verified: Collection[str] = (),
) -> tuple[Source, EarlierReleases]:
    """Mark the rows of the source that each earlier release contains; returns the marked source, and the constraints of
    these releases on the search.

    Makes ``marked_1`` and so on, and drops all but the last.
    """
    policy, columns = search_input.policy, _needed_columns(search_input)
    rows = run.work_names.view("unmarked")
    run.engine.execute(create_temporary_view(rows.copy(), add_empty_marks(run.source.relation, columns)))
    min_levels, guaranteed_ks, problems = dict[str, int](), list[int](), list[Problem]()
    changed_runs, runs_by_person = set[str](), set[str]()
    for i, publication in enumerate(earlier):
        with open_earlier_release(run.engine, publication, Reach(), publication.run_id in verified) as release:
            if fixed is not None and i == 0:  # the release that keeps its rows
                refuse_changed_labels(run, search_input, fixed, publication.run_id)
            problems += _find_obstacles(run, search_input, release, fixed is None)
            if problems:
                continue
            for name, min_level in _min_levels(search_input, release).items():
                min_levels[name] = max(min_level, min_levels.get(name, 0))
            guaranteed_ks.append(release.promised_k)
            marking = _Marking(run, search_input, release, rows, columns, i)
            if (people := marking.find_people()) is not None:
                rows = marking.mark_people(*people)
                runs_by_person.add(publication.run_id)
                continue
            # The rows of a release that is extended stay in it, even if they were deleted from the source.
            rows, is_complete = marking.mark_rows(should_count=fixed is None or i > 0)
            changed_runs |= set() if is_complete else {publication.run_id}
    problems += _max_level_problems(policy, min_levels) if fixed is None else []
    if problems:
        raise PolicyError(problems)
    if fixed is not None:
        min_levels = {name: level or 0 for name, level in fixed.levels(search_input.heights).items()}
    searched = _search_policy(policy, min_levels, guaranteed_ks, fixed is not None)
    source = Source(rows, run.engine.columns(rows), run.source.files)
    run_ids = tuple(publication.run_id for publication in earlier)
    return source, EarlierReleases(run_ids, frozenset(changed_runs), frozenset(runs_by_person), searched)


def find_base_publications(run: Run, policy: Policy, runs: Sequence[str] | None = None) -> list[Publication]:
    """The releases on which the policy's release is based: those that it names, or those of the runs."""
    publications = _base_publications(run, policy, runs)
    if len(publications) > MAX_EARLIER_RELEASES:
        message = f"{len(publications)} earlier releases are more than {MAX_EARLIER_RELEASES}: name those that matter"
        raise PolicyError([Problem("release.after", message)])
    return publications


def _base_publications(run: Run, policy: Policy, runs: Sequence[str] | None) -> list[Publication]:
    after = policy.release.after if policy.release else ()
    if not after:
        return []
    if problems := list(find_conflicts(LEDGER_FEATURES, collect_sections(dict(policy)))):
        raise PolicyError(problems)
    assert policy.catalog is not None
    path = policy.catalog.database
    ledger = read_ledger(run.engine, path, Reach(policy, run.source))
    publications = ledger.publications
    if runs is None:
        return find_named_publications(ledger, after, lambda: _recognized_releases(run, policy, path, ledger))
    bases = [publication for publication in publications if publication.run_id in runs]
    if replaced := len(set(runs) - {publication.run_id for publication in bases}):
        raise ReleaseError(
            f"{replaced} of the releases on which this one is based {'was' if replaced == 1 else 'were'} replaced, so "
            "it cannot be made again from the source"
        )
    return bases


def _recognized_releases(run: Run, policy: Policy, path: Path, ledger: History) -> list[Publication]:
    """The releases of a run's source, recognized by its description, its rows or its people."""
    people = SourcePeople(run, policy)
    try:
        recognition = recognize(run, policy, path, ledger, ledger.publications, people)
    finally:
        people.drop()
    return [publication for publication in ledger.publications if recognition.recognizes(publication.source)]


def _needed_columns(search_input: SearchInput) -> list[str]:
    """The columns that are compared or released."""
    columns, attributes = search_input.columns, search_input.policy.attributes
    names = {column for name, column in columns.by_attribute.items() if attributes[name].role != "identifying"}
    names |= {*columns.key, *([columns.person] if columns.person else [])}
    return [name for name in search_input.source.columns if name in names]


def plan_marking(runner: StatementRunner, search_input: SearchInput, levels: Levels) -> None:
    """Record the statements that mark rows, with a made-up earlier release of the same columns."""
    released_columns, work = search_input.released_columns, search_input.work
    columns = [column.name for column in released_columns]
    rows = runner.create_table(work("marked_0"), add_empty_marks(search_input.source.relation, columns))
    attributes = [
        EarlierAttribute(column, level, "*", column.column)
        for column, level in zip(search_input.attributes, levels, strict=True)
    ]
    shared = [(column.name, column.name) for column in released_columns if column.quasi is None]
    runner.create_table(
        work("marked_1"), mark_rows_by_values(rows, columns, attributes, shared, table("earlier_release"), 1)
    )


def _find_obstacles(run: Run, search_input: SearchInput, release: EarlierRelease, all_levels: bool) -> list[Problem]:
    """The reasons why a release cannot be based on an earlier one: rows or levels that cannot be compared, attributes
    with a finer role; and with ``all_levels``, hierarchies with other labels."""
    key_path, policy, problems = "release.after", search_input.policy, []
    name = release.path.name
    quasi = {column for column in release.columns if release.is_quasi(column)}
    if release.shows_masked_rows:
        problems.append(Problem(key_path, f"{name} has masked rows, which cannot be recognized: name other releases"))
    elif multilevel_columns := sorted(column for column in quasi if release.level(column, 0) is None):
        message = f"{name} shows {', '.join(multilevel_columns)} at several levels"
        problems.append(Problem(key_path, f"{message}: a release can be based on a full-domain release only"))
    if release.manifest.decoys:
        problems.append(
            Problem(key_path, f"{name} has decoys, which a release based on it would reveal: name other releases")
        )
    hierarchies = copy_released_hierarchies(run, policy, release.publication.run_id)
    current_hierarchies = {hierarchy.attribute: hierarchy for hierarchy in search_input.hierarchies}
    for attribute, spec in policy.attributes.items():
        key = attribute.lower()
        if key not in quasi or spec.role == "identifying":
            continue
        location = join_key("attributes", attribute)
        if spec.role != "quasi":
            message = f"is {spec.role} and so released unchanged, but {name} generalizes it"
            problems.append(Problem(location, f"{message}: make it quasi"))
        elif (
            all_levels
            and key in hierarchies
            and not have_same_labels(run.engine, hierarchies[key], current_hierarchies[attribute])
        ):
            message = f"gives other labels than in {name}"
            problems.append(Problem(join_key(location, "hierarchy"), f"{message}: use the same hierarchy"))
    return problems


def _min_levels(search_input: SearchInput, release: EarlierRelease) -> dict[str, int]:
    """The minimum level of each quasi-identifier."""
    min_levels = {}
    for name, height in zip(search_input.policy.generalized_attributes, search_input.marginals.heights, strict=True):
        key = name.lower()
        if key not in release.columns:
            min_levels[name] = height
        elif release.is_quasi(key):
            min_levels[name] = release.level(key, height) or 0
    return min_levels


def _max_level_problems(policy: Policy, min_levels: Mapping[str, int]) -> list[Problem]:
    problems = []
    for name, min_level in min_levels.items():
        max_level = policy.attributes[name].max_level
        if max_level is not None and max_level < min_level:
            message = (
                f"is {max_level}, and an earlier release allows no level below {min_level}: raise it, or leave it out"
            )
            problems.append(Problem(join_key(join_key("attributes", name), "max_level"), message))
    return problems


@dataclass(frozen=True)
class _Marking:
    """Marks the rows of the source that an earlier release contains."""

    run: Run
    search_input: SearchInput
    release: EarlierRelease
    rows: exp.Table  # with the marks of the releases before it; dropped once rows are marked
    columns: Sequence[str]
    i: int

    def mark_rows(self, should_count: bool) -> tuple[exp.Table, bool]:
        """Mark the rows of the release; returns the marked table, and whether the source has all rows of the release
        (True unless ``should_count``)."""
        engine, release, key = self.run.engine, self.release, self.search_input.columns.key
        attributes, shared = self._find_common_columns()
        hashes = None
        if key and self.search_input.policy.catalog is not None:
            hashes, secret = self._copy_hashes(f"keys_{self.i}", RELEASED_KEYS)
        present_rows = release.manifest.released_rows
        if hashes is not None and engine.rows(row_count(rows=hashes))[0][0]:
            if should_count:
                in_both = count_rows_in_both(self.rows, attributes, shared, release.relation)
                present_rows = int(engine.rows(in_both)[0][0])
            hashed = key_hash(key, secret, "r")
            marked = self._mark(mark_rows_by_hash(self.rows, self.columns, hashed, hashes, KEY_HASH, 1 << self.i))
            marked_rows = self._count_marked_rows(marked)
        else:
            marked = self._mark(
                mark_rows_by_values(self.rows, self.columns, attributes, shared, release.relation, 1 << self.i)
            )
            present_rows = marked_rows = self._count_marked_rows(marked)
        if release.manifest.released_rows and not marked_rows:
            hint = "check that it is a release of this table and that the keys are written in the same way"
            raise NoMarkedRowsError(f"no row of {format_location(release.path)} was found in the source: {hint}")
        return marked, present_rows == release.manifest.released_rows

    def find_people(self) -> tuple[exp.Expr, exp.Table] | None:
        """The hash of a row's person, and the people of a release of another table, if the source has some of them."""
        person, source = self.search_input.columns.person, self.release.publication.source
        if person is None or self.search_input.policy.catalog is None or source in (None, self.run.identity):
            return None
        query = template("SELECT person FROM sqlanon_catalog.sqlanon.released_people WHERE run_id = :run_id")
        people, secret = self._copy_hashes(f"people_{self.i}", query)
        hashed = person_hash(col(person, "r"), self.search_input.source.columns[person], secret)
        has_people = template("""
            SELECT count(*) > 0
            FROM (SELECT :person AS person FROM :source) AS s
            SEMI JOIN :people AS p ON s.person = p.person
        """)(source=aliased(self.run.source.relation, "r"), person=hashed, people=people)
        return (hashed, people) if self.run.engine.rows(has_people)[0][0] else None

    def mark_people(self, hashed: exp.Expr, people: exp.Table) -> exp.Table:
        """Mark the rows of the people in the release."""
        return self._mark(mark_rows_by_hash(self.rows, self.columns, hashed, people, "person", 1 << self.i))

    def _mark(self, query: exp.Select) -> exp.Table:
        target = self.run.work(f"marked_{self.i + 1}")
        self.run.engine.execute(create_table(target.copy(), query))
        self.run.engine.execute(drop_table(self.rows) if self.i else drop_view(self.rows))
        return target

    def _count_marked_rows(self, marked: exp.Table) -> int:
        return int(self.run.engine.rows(count_marked_rows(marked, self.i + 1))[0][self.i + 1])

    def _copy_hashes(self, name: str, query: Callable[..., exp.Select]) -> tuple[exp.Table, str]:
        run_id = self.release.publication.run_id
        return copy_hashes(self.run, self.search_input.policy, name, query(run_id=run_id))

    def _find_common_columns(self) -> tuple[list[EarlierAttribute], list[tuple[str, str]]]:
        """The columns of the source that the release shows: its quasi-identifiers, and the unchanged columns."""
        search_input, release = self.search_input, self.release
        names = {key: release.column(key) or key for key in release.columns}
        heights = zip(search_input.columns.generalized, search_input.marginals.heights, strict=True)
        attributes = [
            EarlierAttribute(
                search_input.attributes[i],
                release.level(column.lower(), height) or 0,
                search_input.hierarchies[i].top,
                names[column.lower()],
            )
            for i, (column, height) in enumerate(heights)
            if column.lower() in names and release.is_quasi(column.lower())
        ]
        shared = [name for name in self.columns if name.lower() in names and not release.is_quasi(name.lower())]
        return attributes, [(name, names[name.lower()]) for name in shared]


def _search_policy(
    policy: Policy, min_levels: Mapping[str, int], guaranteed_ks: Sequence[int], is_fixed: bool
) -> Policy:
    """The policy of the search: with minimum levels, or exactly these, and the marks as one more quasi-identifier.

    Requirements apply to the parts of classes. Where all earlier releases guarantee a smaller k, parts have the
    greatest of these, and whole classes the policy's k: the rows that are new to an earlier release are then at least
    the smaller k of the two, which `JointAudit` requires.
    """
    attributes = {}
    for name, spec in policy.attributes.items():
        if spec.role != "identifying":
            part_k = (
                min_levels[name] if is_fixed and name in min_levels else max(spec.min_level, min_levels.get(name, 0))
            )
            max_level = part_k if is_fixed else spec.max_level
            limits = {"min_level": part_k, "max_level": max_level}
            attributes[name] = spec.model_copy(update=limits) if spec.role == "quasi" else spec
    attributes[EARLIER_RELEASES_COLUMN] = Attribute.model_validate(
        {"role": "quasi", "hierarchy": "suppress", "max_level": 0}
    )
    privacy, k = policy.privacy, policy.k
    guaranteed = guaranteed_k(policy.privacy, policy.quasi_identifiers)
    part_k = max(min(guaranteed, earlier_k) for earlier_k in guaranteed_ks)
    shields = getattr(privacy, Shield.entry.key)
    if part_k < k:
        shields = (*shields, Shield(quasi=policy.generalized_attributes, k=k))
    privacy = privacy.model_copy(update={"k": part_k, Shield.entry.key: shields})
    # The source of the search has no columns that are never released.
    return policy.model_copy(update={"attributes": attributes, "privacy": privacy, "risk": None})
