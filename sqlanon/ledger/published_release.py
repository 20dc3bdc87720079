"""The published release of a policy, and the rows that a new version of it lacks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlanon.errors import PolicyError, Problem, ReleaseError
from sqlanon.hierarchies.levels import ABOVE_ANY_MASK, has_mask
from sqlanon.ledger.earlier import open_earlier_release
from sqlanon.ledger.growth.source_change import can_mark_rows
from sqlanon.ledger.recording import read_ledger
from sqlanon.ledger.records import History, Publication
from sqlanon.places.addresses import format_location
from sqlanon.policy import Policy
from sqlanon.publish.draft import ReleaseDraft
from sqlanon.publish.targets.base import Reach, recorded_location, release_location
from sqlanon.publish.targets.kinds import kind_for_path, kind_for_target
from sqlanon.release.manifest import Manifest
from sqlanon.requirements import needs_source
from sqlanon.sources import Source
from sqlanon.sources.run import Run
from sqlanon.support.expressions import as_column, cols, same_values, template


@dataclass(frozen=True)
class PublishedRelease:
    """The unchanged release of a policy, its manifest, and the earlier releases on which it is based."""

    policy: Policy
    publication: Publication
    manifest: Manifest
    base_publications: Sequence[Publication]

    @property
    def levels(self) -> dict[str, int] | None:
        """The generalization of the release; None where an attribute has several levels.

        The manifest shows the top of a mask as level 1 of 1, whatever its height: here it is a level above all masks.
        """
        masks = [name for name in self.policy.generalized_attributes if has_mask(self.policy.attributes[name])]
        generalization = self.manifest.levels(dict.fromkeys(masks, ABOVE_ANY_MASK))
        levels = {name: level for name, level in generalization.items() if level is not None}
        return levels if len(levels) == len(generalization) else None

    def can_republish_released_rows(self, source: Source) -> bool:
        """Whether its rows are enough to make it again: no requirement compares classes with the whole source."""
        return can_mark_rows(self.policy, source, self.manifest) and not needs_source(self.policy.privacy, False)


def find_published_release(run: Run, policy: Policy) -> PublishedRelease:
    """Find the release of a policy from which rows are withdrawn."""
    if policy.catalog is None:
        message = "missing: withdraw needs the catalog in which the release was recorded; set database under [catalog]"
        raise PolicyError([Problem("catalog", message)])
    if policy.release is None or not policy.release.has_location:
        raise PolicyError([Problem("release", "names no place: set the file or table of the release to withdraw from")])
    reach = Reach(policy, run.source)
    ledger = read_ledger(run.engine, policy.catalog.database, reach)
    publication = find_newest_publication(ledger, run, policy)
    manifest = _read_manifest(run, publication, reach)
    advice = "withdraw from it with that policy, or run anonymize"
    return published_by_policy(policy, ledger, publication, manifest, advice)


def published_by_policy(
    policy: Policy, ledger: History, publication: Publication, manifest: Manifest, advice: str
) -> PublishedRelease:
    """The release of a policy; refuse one that another policy made."""
    if not policy.matches_fingerprint(manifest.policy_hash):
        raise ReleaseError(f"{format_location(publication.path)} was made by another policy: {advice}")
    bases = [earlier for earlier in ledger.publications if earlier.run_id in publication.after]
    return PublishedRelease(policy, publication, manifest, bases)


def find_newest_publication(ledger: History, run: Run, policy: Policy) -> Publication:
    """Find the newest release of a run's source at the location of its policy."""
    assert policy.catalog is not None
    location = _place(policy)
    published = [
        publication
        for publication in ledger.publications
        if _is_at(publication, location, policy) and publication.source == run.identity
    ]
    if published:
        return max(published, key=lambda publication: publication.published_at)
    if any(_is_at(draft, location, policy) for draft in ledger.drafts):
        raise ReleaseError(
            f"{format_location(location)} is a draft: publish a release there first, with sqlanon anonymize"
        )
    raise ReleaseError(
        f"the ledger in {policy.catalog.database} has no release of this source at {format_location(location)}: "
        "publish one first, with sqlanon anonymize"
    )


def _read_manifest(run: Run, publication: Publication, reach: Reach) -> Manifest:
    """Read the manifest of a release, and refuse one that was changed."""
    if kind_for_path(publication.path).compares:
        with open_earlier_release(run.engine, publication, reach) as release:
            return release.manifest
    verification = recorded_location(publication.path, publication.table_name, reach).verify(run.engine.limits)
    recorded = (publication.manifest_hash, publication.digest)
    if not verification.verified or (verification.manifest.fingerprint(), verification.digest) != recorded:
        raise ReleaseError(f"{format_location(publication.path)} is not the release that the ledger recorded")
    return verification.manifest


def _place(policy: Policy) -> Path:
    """The location of a policy's release as the ledger records it; in Spark, the name of its table."""
    section = policy.release
    assert section is not None
    if section.postgres is not None:
        return release_location(section.postgres, section.table).path
    return Path(section.table) if section.spark else Path(os.path.realpath(section.database or section.file or ""))


def _is_at(publication: Publication, place: Path, policy: Policy) -> bool:
    kind = kind_for_target(None, policy)
    if kind.is_at_source:
        return kind_for_path(publication.path) is kind and publication.path.name == place.name
    return publication.path == place


_COUNT_WITHDRAWN = template("""
    WITH
        published AS (SELECT :keys, count(*) AS row_count FROM :released AS r GROUP BY :columns),
        drafted AS (SELECT :keys, count(*) AS row_count FROM (:rows) AS r GROUP BY :columns),
        classes AS (
            SELECT p.row_count - coalesce(d.row_count, 0) AS gone
            FROM published AS p
            LEFT JOIN drafted AS d ON :same
        )
    SELECT count(*) AS classes, coalesce(sum(gone), 0)::BIGINT AS rows, coalesce(min(gone), 0) AS fewest
    FROM classes
    WHERE gone > 0
""")


@dataclass(frozen=True)
class WithdrawnRows:
    """The rows that a new version of a release lacks: readers of both versions see which these are.

    Attributes
    ----------
    classes:
        The classes that lose rows.
    fewest:
        The fewest rows that one of these classes loses.
    """

    rows: int
    classes: int
    fewest: int


def count_withdrawn_rows(published: PublishedRelease, draft: ReleaseDraft) -> WithdrawnRows | None:
    """Count the rows of a release that its new version lacks; None where their labels have different levels, or the
    rows are on a server."""
    run, manifest = draft.run, published.manifest
    if dict(draft.recoding.generalization) != manifest.levels(draft.search_input.heights) or published.levels is None:
        return None
    if draft.search_input.source.access != "rows" or draft.noise is not None or draft.decoys is not None:
        return None
    columns = cols(manifest.quasi_identifiers)
    keys = [as_column(column.copy(), f"key_{i}") for i, column in enumerate(columns)]
    with open_earlier_release(
        run.engine, published.publication, Reach(published.policy, run.source), verified=True
    ) as release:
        query = _COUNT_WITHDRAWN(
            keys=keys,
            columns=columns,
            released=release.relation,
            rows=draft.statement.select(shuffled=False),
            same=same_values((key.alias for key in keys), "p", "d"),
        )
        classes, rows, fewest = run.engine.rows(query)[0]
    return WithdrawnRows(rows, classes, fewest)
