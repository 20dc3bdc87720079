"""What can be added to a release, and putting the extended release in its place."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.errors import AuditError
from sqlanon.expressions import col, named, select, union_all
from sqlanon.ledger import (
    Earlier,
    Places,
    Publication,
    Together,
    held_against,
    opened,
    recording,
    released_row,
    sample_of,
    secret_of,
    tree_of_both,
    trees_of,
)
from sqlanon.ledger import extension_statements as ex
from sqlanon.recode.recoding import Recoding
from sqlanon.release.check import Check
from sqlanon.release.dependencies import Narrowing
from sqlanon.release.manifest import DIGEST, Manifest
from sqlanon.release.published import Release
from sqlanon.release.score import released_score
from sqlanon.release.source_audit import SourceAudit
from sqlanon.release.staging import Content
from sqlanon.release.targets.file import publish, utc_now
from sqlanon.release_draft import ranges_of
from sqlanon.search.preparation import SearchInput
from sqlanon.sources.earlier import KEY_HASH, key_hash
from sqlanon.sources.run import Run
from sqlanon.version import __version__


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
    dependencies:
        The released columns that narrow a generalized quasi-identifier: see docs/dependencies.md.
    warnings:
        What the data holder should know; of other releases, once it is published.
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
    dependencies: tuple[Narrowing, ...]
    warnings: list[str]
    _refusals: tuple[str, ...]
    _run: Run
    _prepared: SearchInput
    _publication: Publication
    _recoding: Recoding
    _run_id: str
    _started: float

    @property
    def path(self) -> Path:
        """The release that is extended."""
        return self._publication.path

    @property
    def table(self) -> str:
        """Its table."""
        return self._publication.table_name

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
        if self._refusals:
            raise AuditError(list(self._refusals))
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
                ranges=ranges_of(self._prepared),
                recording=lambda written, sha256: self._recording(written, sha256, together),
            )
            verification = publish(engine, content, publication.path, publication.table_name)
        self.warnings.extend(one for one in together.told(publication.digest) if one not in self.warnings)
        return Release(
            publication.path, publication.table_name, verification.manifest, engine.limits, verification.sha256
        )

    def _together(self, force: bool, release: Earlier) -> Together:
        own, path = {self._publication.run_id: release}, self._publication.path
        together = held_against(self._run, self._prepared, path, force, self._run_id, own)
        assert together is not None
        return together

    def _audit(self, claims: Manifest, together: Together, staged: exp.Table) -> Sequence[Check]:
        run, prepared = self._run, self._prepared
        source = SourceAudit(run.engine, run.work, run.install_macros(), prepared, self._recoding, self._recoding, None)
        return [*source.checks(staged.sql(run.engine.dialect)), *together.checks(claims, staged)]

    def _manifest(self, before: Manifest, rows: int, classes: int, smallest: int, digest: str) -> Manifest:
        claims = replace(
            before,
            published_at=utc_now(),
            sqlanon_version=__version__,
            engine=f"{self._run.engine.version}, python {before.engine.partition('python ')[2]}",
            rows=self.released_before + self.new_rows,
            released_rows=rows,
            suppressed_rows=self.waiting_rows,
            classes=classes,
            smallest_class=smallest,
            score=None,
            optimal=False,
            digest=digest,
            digest_algorithm=DIGEST,
            linking_risk=None,
        )
        # Of the rows that were released before, the source may have others now: the release's own figure counts.
        return claims if claims.measure == "discernibility" else replace(claims, score=released_score(claims, {}))

    def _recording(self, manifest: Manifest, sha256: str | None, together: Together) -> AbstractContextManager[None]:
        """What the ledger is told of the publication."""
        run, prepared, before = self._run, self._prepared, self._publication
        engine, policy = run.engine, prepared.policy
        assert policy.catalog is not None
        path = policy.catalog.database
        after = [run_id for run_id in prepared.after if run_id != before.run_id]
        row = released_row(self._run_id, before.path, manifest, sha256, run.identity, after, together)
        key = named(key_hash(prepared.columns.key, secret_of(engine, path)), KEY_HASH)
        keys = union_all(select([key], run.work("added")), select([col(KEY_HASH)], run.work("keys_0")))
        # Values may have gone that are still released: their labels are those of the release.
        then = trees_of(run, policy, before.run_id)
        trees = [
            tree_of_both(run, then[now.attribute.lower()], now) if now.attribute.lower() in then else now
            for now in prepared.own_hierarchies
        ]
        row["extends"] = before.run_id
        own = self._to_catalog(manifest)
        sample = sample_of(run, policy, path, self._run_id, manifest.rows)
        return recording(engine, path, row, Places.of(policy), keys, trees, together.known, sample=sample, run=own)

    def _to_catalog(self, manifest: Manifest) -> dict[str, Any]:
        """The run, as a row of the catalog."""
        policy = self._prepared.policy
        return {
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
            "generalization": json.dumps(self.generalization, ensure_ascii=False),
            "nodes": 1,
            "checked": 1,
            "seconds": time.perf_counter() - self._started,
            "sqlanon_version": __version__,
        }

    def to_dict(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        names = ("released_before", "new_rows", "added_rows", "waiting_rows", "released_rows")
        more = ("classes", "smallest_class", "generalization", "measure", "score")
        figures = {name: getattr(self, name) for name in (*names, *more)}
        return figures | {"dependencies": [one.to_dict() for one in self.dependencies]}
