"""Measure the changes of a source since one of its releases was published.

The ledger has hashes of the keys and persons of a release: those that the source lacks have left it. For a source whose
rows are on a server, the ledger has a sample of the people: those with the least hashes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.ledger.catalog import RELEASED_KEYS
from sqlanon.ledger.growth.marks import KEY_HASH, key_hash, recode_released_rows
from sqlanon.ledger.people_samples import SourcePeople, person_hash
from sqlanon.ledger.recording import read_ledger
from sqlanon.ledger.records import Publication, copy_hashes
from sqlanon.policy import Policy, ReleaseSection
from sqlanon.policy.compatibility import EARLIER_RELEASES, REMOTE_SOURCES, collect_sections, find_conflicts
from sqlanon.publish.targets.base import Reach
from sqlanon.release.manifest import Manifest
from sqlanon.release.source_change import SourceChange
from sqlanon.release.visible_values import count_different_rows
from sqlanon.requirements import guaranteed_k
from sqlanon.sources import Source
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.coding import Column
from sqlanon.support.expressions import (
    as_column,
    col,
    cols,
    create_temporary_view,
    fragment,
    same_values,
    template,
)

_COUNT_GONE_PEOPLE = template("""
    WITH range AS (
        SELECT least(
            (SELECT CASE WHEN count(*) < any_value(people) THEN max(person) END FROM :before),
            (SELECT CASE WHEN count(*) < :people_now THEN max(person) END FROM :now)
        ) AS greatest
    ),
    compared AS (
        SELECT b.person FROM :before AS b, range WHERE range.greatest IS NULL OR b.person <= range.greatest
    )
    SELECT
        (SELECT count(*) FROM compared) AS compared,
        (SELECT count(*) FROM compared AS c ANTI JOIN :now AS n ON c.person = n.person) AS gone,
        (SELECT any_value(people) FROM :before) AS people
""")
_COUNT_REMAINING_CLASSES = template("""
    WITH
        still AS (SELECT :keys, :size AS size FROM :recoded AS r GROUP BY :columns),
        classes AS (SELECT DISTINCT :keys FROM :released AS r),
        sizes AS (
            SELECT coalesce(s.size, 0) AS size
            FROM classes AS c
            LEFT JOIN still AS s ON :same
        )
    SELECT coalesce(min(size), 0) AS smallest, count(*) FILTER (WHERE size < :least) AS small
    FROM sizes
""")
_PERSONS = fragment("count(DISTINCT :person) + coalesce(max((:person IS NULL)::INTEGER), 0)")


def find_recorded_publication(
    engine: DuckDBEngine, policy: Policy, release: Verification, sha256: str | None
) -> Publication | None:
    """The publication of a release that has the recorded manifest, digest and SHA-256, else None."""
    if policy.catalog is None or sha256 is None:
        return None
    try:
        ledger = read_ledger(engine, policy.catalog.database, Reach(policy))
    except SourceError:  # the catalog cannot be read now
        return None
    claims = release.manifest.fingerprint()
    for publication in reversed([*ledger.drafts, *ledger.publications]):
        recorded = (publication.manifest_hash, publication.digest, publication.sha256)
        if publication.intended_at is None and recorded == (claims, release.digest, sha256):
            return publication
    return None


def can_mark_rows(policy: Policy, source: Source, manifest: Manifest) -> bool:
    """Whether rows can be compared one by one with a release: DuckDB reads them, and each attribute has one level."""
    release = (policy.release or ReleaseSection()).model_copy(update={"after": ("all",)})
    parts = dict(policy) | {"release": release}
    refused = any(find_conflicts((*EARLIER_RELEASES, *REMOTE_SOURCES), collect_sections(parts)))
    at_one_level = None not in manifest.generalization.values()
    return source.access == "rows" and at_one_level and not refused and not manifest.decoys


def count_changes(
    run: Run, policy: Policy, publication: Publication, manifest: Manifest, rows_now: int
) -> SourceChange:
    """Count the changes that keys, persons and row counts show, without the rows of the release."""
    change = SourceChange(publication.published_at, manifest.rows, rows_now)
    if policy.catalog is None:
        return change
    published = _PublishedRelease(run, policy, publication)
    if (counts := published.count_deleted_rows()) is not None:
        deleted, present = counts
        new = rows_now - present - manifest.suppressed_rows
        change = replace(change, deleted_rows=deleted, new_rows=max(new, 0))
    person = policy.source.person
    if person is False:
        return replace(change, withdrawn_persons=change.deleted_rows)
    if isinstance(person, str):
        withdrawn, is_estimate = published.count_withdrawn_persons(person)
        return replace(change, withdrawn_persons=withdrawn, is_estimate=is_estimate)
    return change


def measure_released_rows(
    run: Run,
    search_input: SearchInput,
    publication: Publication,
    manifest: Manifest,
    released: exp.Expr,
    change: SourceChange,
) -> SourceChange:
    """Add the changes that the rows of the release show, where the rows of the source are marked.

    Makes ``released_rows`` and the view ``recoded``.
    """
    levels = {name: level or 0 for name, level in manifest.levels(search_input.heights).items()}
    recoding = recode_released_rows(run, search_input, levels)
    types = manifest.types
    view, person = run.work_names.view("recoded"), search_input.columns.person
    statement = recoding if person is None else recoding.with_column(Column(person))
    run.engine.execute(create_temporary_view(view.copy(), statement.select(shuffled=False)))
    if {name: type_ for name, type_ in run.engine.columns(view).items() if name in types} != types:
        return change
    missing, _ = run.engine.rows(count_different_rows(released.copy(), view, types))[0]
    least = guaranteed_k(search_input.policy.privacy, search_input.policy.quasi_identifiers)
    columns = cols(manifest.quasi_identifiers)
    keys = [as_column(column.copy(), f"key_{i}") for i, column in enumerate(columns)]
    size = exp.Count(this=exp.Star()) if person is None else _PERSONS(person=col(person))
    query = _COUNT_REMAINING_CLASSES(
        keys=keys or [as_column(exp.true(), "every")],
        columns=columns or [exp.true()],
        size=size,
        recoded=view,
        released=released.copy(),
        least=least,
        same=same_values((f"key_{i}" for i in range(len(keys))), "c", "s"),
    )
    smallest, small = run.engine.rows(query)[0]
    changed = None if change.deleted_rows is None else max(missing - change.deleted_rows, 0)
    return replace(
        change,
        missing_rows=missing,
        changed_rows=changed,
        smallest_class=smallest,
        small_classes=small,
        least=least,
        counts_persons=person is not None,
    )


@dataclass(frozen=True)
class _PublishedRelease:
    """A release in the ledger, and a run with its current source."""

    run: Run
    policy: Policy
    publication: Publication

    def count_deleted_rows(self) -> tuple[int, int] | None:
        """The released rows whose key left the source, and those whose key is still in it; None without keys."""
        source, key = self.run.source, self.policy.source.key
        if not key or source.access != "rows":
            return None
        before, secret = self._copy_hashes("keys_before", RELEASED_KEYS)
        gone, keys = self._count_gone(
            before, key_hash([_find_spelling(source, name) for name in key], secret), KEY_HASH
        )
        return (gone, keys - gone) if keys else None

    def count_withdrawn_persons(self, person: str) -> tuple[int | None, bool]:
        """The persons of the release who have left the source, and whether this is an estimate; None if unknown."""
        source = self.run.source
        if source.access != "rows":
            return self._count_withdrawn_of_sample()
        query = template("SELECT DISTINCT person FROM sqlanon_catalog.sqlanon.released_people WHERE run_id = :run_id")
        before, secret = self._copy_hashes("people_before", query)
        name = _find_spelling(source, person)
        gone, people = self._count_gone(before, person_hash(col(name), source.columns[name], secret), "person")
        return (gone if people else None), False

    def _count_gone(self, before: exp.Table, hashed: exp.Expr, name: str) -> tuple[int, int]:
        """The hashes that left the source, and all hashes of the release."""
        query = template("""
            WITH now AS (SELECT :hashed AS hash FROM :source)
            SELECT
                (SELECT count(*) FROM :before AS b ANTI JOIN now AS n ON :hash = n.hash),
                (SELECT count(*) FROM :before AS b)
        """)
        gone, hashes = self.run.engine.rows(
            query(before=before, hash=col(name, "b"), hashed=hashed, source=self.run.source.relation)
        )[0]
        return gone, hashes

    def _count_withdrawn_of_sample(self) -> tuple[int | None, bool]:
        """The withdrawn persons of a source whose rows are on a server, by its sampled people."""
        query = template("""
            SELECT DISTINCT person, people
            FROM sqlanon_catalog.sqlanon.source_people
            WHERE run_id = :run_id AND is_person
        """)
        before, secret = self._copy_hashes("sample_before", query)
        people = SourcePeople(self.run, self.policy)
        try:
            now = next((sample for sample in people.samples(secret) if sample.is_person), None)
            if now is None:
                return None, False
            counts = _COUNT_GONE_PEOPLE(before=before, now=now.table, people_now=now.people)
            compared, gone, count = self.run.engine.rows(counts)[0]
            return (round(gone / compared * count), compared < count) if compared else (None, False)
        finally:
            people.drop()

    def _copy_hashes(self, name: str, query: Callable[..., exp.Select]) -> tuple[exp.Table, str]:
        return copy_hashes(self.run, self.policy, name, query(run_id=self.publication.run_id))


def _find_spelling(source: Source, name: str) -> str:
    """The name of a column in the spelling of the source."""
    return next((column for column in source.columns if column.lower() == name.lower()), name)
