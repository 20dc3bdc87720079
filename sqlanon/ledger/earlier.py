"""Open earlier releases, and prepare the search for a release that is based on them.

Together, the new release and the earlier ones reveal no more of any person than each of them does.

L. Sweeney, "k-anonymity: a model for protecting privacy" (International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002), section 4, has two remedies: base the new release on the earlier one, or treat all
columns of the earlier one as quasi-identifiers (which a policy can declare). This module implements the first, and for
tables that change a remedy in the spirit of the second:

- No value is finer than in the earlier release: each attribute is generalized at least as far, and to its top if the
  earlier release lacks it. So a reader who joins the two finds no finer combination than before.
- The earlier releases that contain a row count as a quasi-identifier. The rows of a class that an earlier release
  contains, and those that it does not, must each meet the policy. So a reader who removes the rows of the earlier
  release is left with no rows, or with as many as the policy requires.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import BrokenReleaseError, NoMarkedRowsError, PolicyError, Problem, ReleaseError
from sqlanon.ledger import catalog
from sqlanon.ledger.growth.marks import (
    EarlierAttribute,
    add_empty_marks,
    count_marked_rows,
    count_rows_in_both,
    mark_rows_by_key,
    mark_rows_by_person,
    mark_rows_by_values,
    refuse_changed_labels,
)
from sqlanon.ledger.joint.release_links import ComparedRelease
from sqlanon.ledger.people_samples import SourcePeople, person_hash
from sqlanon.ledger.recording import read_ledger
from sqlanon.ledger.records import History, Publication, find_named_publications, read_history
from sqlanon.ledger.released_hierarchies import copy_released_hierarchies, have_same_labels
from sqlanon.ledger.source_match import recognize
from sqlanon.places.addresses import format_location
from sqlanon.policy import Attribute, Policy
from sqlanon.policy.compatibility import LEDGER_FEATURES, collect_sections, find_conflicts
from sqlanon.policy.problems import join_key
from sqlanon.release.manifest import Manifest
from sqlanon.release.targets.base import Reach, Verification, kind_for_path, recorded_location
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

MOST_EARLIER_RELEASES = 60
"""The bits of a mark."""


_HAS_PEOPLE = template("""
    SELECT count(*) > 0
    FROM (SELECT :person AS person FROM :source) AS s
    SEMI JOIN :people AS p ON s.person = p.person
""")

EARLIER_FILE = "sqlanon_earlier_file"
"""The prefix of the relation of an earlier release in the engine that has its source."""


@dataclass(frozen=True)
class EarlierRelease(ComparedRelease):
    """An unchanged earlier release at the location that the ledger records; its rows while it is open.

    Attributes
    ----------
    publication:
        Its record in the ledger.
    """

    publication: Publication


@contextmanager
def open_earlier_release(
    engine: DuckDBEngine, publication: Publication, reach: Reach, verified: bool = False
) -> Iterator[EarlierRelease]:
    """Open an earlier release after checking, by the hash of its file or by verification, that it is unchanged."""
    path, name = publication.path, f"{EARLIER_FILE}_{publication.run_id[:12]}"
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
            if (people := _released_people(run, search_input, publication, run.work(f"people_{i}"))) is not None:
                rows = _mark_people(run, release, people, rows, columns, i)
                runs_by_person.add(publication.run_id)
                continue
            # The rows of a release that is extended stay in it, even if they were deleted from the source.
            rows, is_complete = _mark_rows(
                run, search_input, release, rows, columns, i, should_count=fixed is None or i > 0
            )
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
    if len(publications) > MOST_EARLIER_RELEASES:
        message = f"{len(publications)} earlier releases are more than {MOST_EARLIER_RELEASES}: name those that matter"
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
    hierarchies_now = {hierarchy.attribute: hierarchy for hierarchy in search_input.hierarchies}
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
            and not have_same_labels(run.engine, hierarchies[key], hierarchies_now[attribute])
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


def _mark_rows(
    run: Run,
    search_input: SearchInput,
    release: EarlierRelease,
    rows: exp.Table,
    columns: Sequence[str],
    i: int,
    should_count: bool,
) -> tuple[exp.Table, bool]:
    """Mark the rows that an earlier release contains; returns the marked table, and whether the source has all rows of
    the release (True unless ``should_count``). The table of earlier marks is dropped."""
    engine, target, bit = run.engine, run.work(f"marked_{i + 1}"), 1 << i

    def count(relation: exp.Expr) -> int:
        return int(engine.rows(count_marked_rows(relation, i + 1))[0][i + 1])

    shared_columns = _shown_columns(search_input, release, columns)
    hashes = _key_hashes(run, search_input, release, run.work(f"keys_{i}"))
    if hashes is None:
        engine.execute(create_table(target, mark_rows_by_values(rows, columns, *shared_columns, release.relation, bit)))
        present_rows = marked_rows = count(target)
    else:
        present_rows = release.manifest.released_rows
        if should_count:
            present_rows = int(engine.rows(count_rows_in_both(rows, *shared_columns, release.relation))[0][0])
        secret, hashed = hashes
        engine.execute(
            create_table(target, mark_rows_by_key(rows, columns, search_input.columns.key, secret, hashed, bit))
        )
        marked_rows = count(target)
    engine.execute(drop_table(rows) if i else drop_view(rows))
    if release.manifest.released_rows and not marked_rows:
        hint = "check that it is a release of this table and that the keys are written in the same way"
        raise NoMarkedRowsError(f"no row of {format_location(release.path)} was found in the source: {hint}")
    return target, present_rows == release.manifest.released_rows


def _released_people(
    run: Run, search_input: SearchInput, publication: Publication, target: exp.Table
) -> tuple[exp.Expr, exp.Table] | None:
    """The hash of a row's person, and the people of a release of another table, if the source has some of them.

    Makes ``target``.
    """
    person, catalog_section = search_input.columns.person, search_input.policy.catalog
    if person is None or catalog_section is None or publication.source in (None, run.identity):
        return None
    with catalog.open_catalog(run.engine, catalog_section.database):
        secret = read_history(run.engine).secret
        query = template("SELECT person FROM sqlanon_catalog.sqlanon.released_people WHERE run_id = :run_id")
        run.engine.execute(create_table(target.copy(), query(run_id=publication.run_id)))
    person_hashes = person_hash(col(person, "r"), search_input.source.columns[person], secret)
    is_shared = _HAS_PEOPLE(source=aliased(run.source.relation, "r"), person=person_hashes, people=target)
    if not run.engine.rows(is_shared)[0][0]:
        return None
    return person_hashes, target


def _mark_people(
    run: Run,
    release: EarlierRelease,
    people: tuple[exp.Expr, exp.Table],
    rows: exp.Table,
    columns: Sequence[str],
    i: int,
) -> exp.Table:
    """Mark the rows of the people in an earlier release; the table of earlier marks is dropped."""
    target = run.work(f"marked_{i + 1}")
    run.engine.execute(create_table(target, mark_rows_by_person(rows, columns, *people, 1 << i)))
    run.engine.execute(drop_table(rows) if i else drop_view(rows))
    return target


def _shown_columns(
    search_input: SearchInput, release: EarlierRelease, columns: Sequence[str]
) -> tuple[list[EarlierAttribute], list[tuple[str, str]]]:
    """The columns of the source that an earlier release shows: its quasi-identifiers, and the unchanged columns."""
    column_names = {key: release.column(key) or key for key in release.columns}
    attributes = [
        EarlierAttribute(
            search_input.attributes[i],
            release.level(column.lower(), height) or 0,
            search_input.hierarchies[i].top,
            column_names[column.lower()],
        )
        for i, (column, height) in enumerate(
            zip(search_input.columns.generalized, search_input.marginals.heights, strict=True)
        )
        if column.lower() in column_names and release.is_quasi(column.lower())
    ]
    shared = [
        (name, column_names[name.lower()])
        for name in columns
        if name.lower() in column_names and not release.is_quasi(name.lower())
    ]
    return attributes, shared


def _key_hashes(
    run: Run, search_input: SearchInput, release: EarlierRelease, target: exp.Table
) -> tuple[str, exp.Table] | None:
    """The secret and the hashes of the keys in an earlier release, if the ledger has them.

    Makes ``target``.
    """
    catalog_section = search_input.policy.catalog
    if not search_input.columns.key or catalog_section is None:
        return None
    with catalog.open_catalog(run.engine, catalog_section.database):
        secret = read_history(run.engine).secret
        query = template("SELECT key_hash FROM sqlanon_catalog.sqlanon.released_keys WHERE run_id = :run_id")
        run.engine.execute(create_table(target.copy(), query(run_id=release.publication.run_id)))
    if not run.engine.rows(row_count(rows=target))[0][0]:
        return None
    return secret, target


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
    privacy, k = policy.privacy, policy.privacy.k
    guaranteed = guaranteed_k(policy.privacy, policy.quasi_identifiers)
    part_k = max(min(guaranteed, earlier_k) for earlier_k in guaranteed_ks)
    shields = getattr(privacy, Shield.entry.key)
    if k is not None and part_k < k:
        shields = (*shields, Shield(quasi=policy.generalized_attributes, k=k))
    privacy = privacy.model_copy(update={"k": part_k, Shield.entry.key: shields})
    # The source of the search has no columns that are never released.
    return policy.model_copy(update={"attributes": attributes, "privacy": privacy, "risk": None})
