"""What can be added to a release, and putting the extended release in its place."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from sqlanon import catalog
from sqlanon.ledger import (
    Earlier,
    Publication,
    Together,
    opened,
    publications,
    record,
    secret_of,
    standing,
)
from sqlanon.preparation import Prepared
from sqlanon.queries import extension as ex
from sqlanon.queries.earlier import KEY_HASH, key_hash
from sqlanon.queries.names import col, named, select, union_all
from sqlanon.queries.recode import Recoding
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest
from sqlanon.release.publish import Content, publish, utc_now
from sqlanon.release.published import Release
from sqlanon.source_audit import SourceAudit
from sqlanon.version import __version__
from sqlanon.workspace import Run


@dataclass(frozen=True)
class Extension:
    """What can be added to a release; nothing is published yet.

    Attributes
    ----------
    released_before:
        Rows of the release.
    new_rows:
        Rows of the source that it does not have: those that came since, and those that could not be released before.
    added_rows, waiting_rows:
        Of these, those that are released now, and those that have to wait.
    classes, smallest_class:
        Of the release, with what is added.
    generalization, measure, score:
        Level by quasi-identifier, as before; and what is lost by it in the source as it is now, with
        the rows that wait.
    warnings:
        What the data holder should know, once it is published.
    """

    released_before: int
    new_rows: int
    added_rows: int
    waiting_rows: int
    classes: int
    smallest_class: int
    generalization: dict[str, int]
    measure: str
    score: float
    _run: Run
    _prepared: Prepared
    _publication: Publication
    _recoding: Recoding
    _run_id: str
    _started: float
    warnings: list[str] = field(default_factory=list)

    @property
    def released_rows(self) -> int:
        """Rows of the release, with what is added."""
        return self.released_before + self.added_rows

    def sql(self, dialect: str = "duckdb") -> str:
        """The statement that makes the rows that are added, on the connection of the `Database` that gave this."""
        return self._recoding.select(shuffled=False).sql(dialect=dialect, pretty=True)

    def publish(self, force: bool = False) -> Release:
        """Put the extended release in the place of the release.

        Parameters
        ----------
        force:
            Whether it is published even where it breaks another release of the ledger; the ledger says so then.

        Raises
        ------
        ReleaseError
            The place cannot be written, or the release is not there any more.
        AuditError
            The audit refused it; nothing was changed.
        """
        engine, publication = self._run.engine, self._publication
        with opened(engine, publication, verified=True) as release:
            together = self._together(force, release)
            query = ex.extended(
                release.relation, self._run.work("added"), [one.name for one in release.manifest.columns]
            )
            content = Content(
                query,
                release.manifest.columns,
                release.manifest.quasi,
                self.released_rows,
                self.classes,
                self.smallest_class,
                0,
                lambda rows, classes, smallest, digest: self._manifest(
                    release.manifest, rows, classes, smallest, digest
                ),
                audit=lambda staged: self._audit(release.manifest, together, staged),
            )
            verification = publish(engine, content, publication.path, publication.table_name)
        self.warnings[:] = together.warnings
        published = Release(publication.path, publication.table_name, verification.manifest, engine.limits)
        self._record(published, together)
        return published

    def _together(self, force: bool, release: Earlier) -> Together:
        catalog_section = self._prepared.policy.catalog
        assert catalog_section is not None
        known = publications(self._run.engine, catalog_section.database)
        own = {self._publication.run_id: release}
        earlier = standing(known, self._prepared, self._run.identity, str(self._publication.path))
        return Together(self._run, self._prepared, earlier, self._publication.path, force, own)

    def _audit(self, claims: Manifest, together: Together, staged: exp.Table) -> Sequence[Check]:
        run, prepared = self._run, self._prepared
        source = SourceAudit(run.engine, run.work, run.install_macros(), prepared, self._recoding, self._recoding, None)
        return [*source.checks(staged.sql(run.engine.dialect)), *together.checks(claims, staged)]

    def _manifest(self, before: Manifest, rows: int, classes: int, smallest: int, digest: str) -> Manifest:
        return replace(
            before,
            published_at=utc_now(),
            sqlanon_version=__version__,
            engine=f"{self._run.engine.version}, python {before.engine.partition('python ')[2]}",
            rows=self.released_before + self.new_rows,
            released_rows=rows,
            suppressed_rows=self.waiting_rows,
            classes=classes,
            smallest_class=smallest,
            score=self.score,
            optimal=False,
            digest=digest,
        )

    def _record(self, release: Release, together: Together) -> None:
        policy, engine = self._prepared.policy, self._run.engine
        assert policy.catalog is not None
        path, manifest = policy.catalog.database, release.manifest
        run = {
            "run_id": self._run_id,
            "started_at": manifest.published_at,
            "policy": policy.model_dump_json(),
            "policy_hash": policy.fingerprint(),
            "strategy": "extend",
            "measure": self.measure,
            "rows": manifest.rows,
            "suppressed_rows": manifest.suppressed_rows,
            "classes": manifest.classes,
            "score": self.score,
            "optimal": False,
            "generalization": manifest.row()["generalization"],
            "nodes": 1,
            "checked": 1,
            "seconds": time.perf_counter() - self._started,
            "sqlanon_version": __version__,
        }
        with catalog.open_catalog(engine, path):
            catalog.insert(engine, "runs", run)
        row = {
            "run_id": self._run_id,
            "published_at": manifest.published_at,
            "path": str(release.path),
            "table_name": release.table,
            "released_rows": manifest.released_rows,
            "digest": manifest.digest,
            "source": self._run.identity,
            "policy_hash": manifest.policy_hash,
            "epsilon": None,
            "after": [run_id for run_id in self._prepared.after if run_id != self._publication.run_id],
            "breaks": together.breaks,
            "extends": self._publication.run_id,
        }
        key = named(key_hash(self._prepared.columns.key, secret_of(engine, path)), KEY_HASH)
        keys = [
            select([key], self._run.work("added")),
            select([col(KEY_HASH)], self._run.work("keys_0")),
        ]
        record(engine, path, row, union_all(*keys))

    def to_dict(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        names = ("released_before", "new_rows", "added_rows", "waiting_rows", "released_rows")
        more = ("classes", "smallest_class", "generalization", "measure", "score")
        return {name: getattr(self, name) for name in (*names, *more)}
