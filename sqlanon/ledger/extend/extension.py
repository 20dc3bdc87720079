"""What can be added to a release, and putting the extended release in its place."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from sqlglot import exp

from sqlanon.errors import AuditError
from sqlanon.expressions import col, select, star
from sqlanon.hierarchies import Hierarchy
from sqlanon.hierarchies.bounds import Kind
from sqlanon.ledger import Earlier, LedgerEntry, Publication, opened, tree_of_both, trees_of
from sqlanon.ledger import extension_statements as ex
from sqlanon.measures import MEASURES
from sqlanon.recode.recoding import FullDomainRecoding
from sqlanon.release.check import Check
from sqlanon.release.dependencies import Narrowing
from sqlanon.release.draft import ranges_of
from sqlanon.release.manifest import DIGEST, Facts, Manifest, ReleasedColumn, utc_now
from sqlanon.release.metadata import Suppressed
from sqlanon.release.publish import publish
from sqlanon.release.published import Release
from sqlanon.release.score import released_score
from sqlanon.release.source_audit import SourceAudit
from sqlanon.release.target import Expected, Reach
from sqlanon.release.targets.file import FileTarget
from sqlanon.resources import __version__
from sqlanon.search.preparation import SearchInput
from sqlanon.sources.earlier import KEY_HASH
from sqlanon.sources.run import Run


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
    _recoding: FullDomainRecoding
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
        run, prepared, publication = self._run, self._prepared, self._publication
        with opened(run.engine, publication, Reach(), verified=True) as release:
            draft = ExtensionDraft(run, prepared, self, release, self._recoding)
            entry = LedgerEntry(
                run,
                prepared,
                self._run_id,
                publication.path,
                self.released_before + self.new_rows,
                force,
                keyed=star(run.work("added")),
                hashed=select([col(KEY_HASH)], run.work("keys_0")),
                trees=self._trees(),
                extends=publication.run_id,
                opened={publication.run_id: release},
                row_of_run=self._to_catalog(),
            )
            target = FileTarget(publication.path, publication.table_name)
            published = publish(target, draft, entry, attempts=1)  # what is there then would be another release
        assert entry.joint_audit is not None
        self.warnings.extend(one for one in entry.joint_audit.notes(publication.digest) if one not in self.warnings)
        return published

    def _trees(self) -> list[Hierarchy]:
        """Values may have gone that are still released: their labels are those of the release."""
        run, prepared = self._run, self._prepared
        then = trees_of(run, prepared.policy, self._publication.run_id)
        return [
            tree_of_both(run, then[now.attribute.lower()], now) if now.attribute.lower() in then else now
            for now in prepared.own_hierarchies
        ]

    def _to_catalog(self) -> dict[str, Any]:
        """The run, as a row of the catalog."""
        policy = self._prepared.policy
        return {
            "run_id": self._run_id,
            "started_at": utc_now(),
            "policy": policy.model_dump_json(),
            "policy_hash": policy.fingerprint(),
            "strategy": "extend",
            "measure": self.measure,
            "rows": self.released_before + self.new_rows,
            "suppressed_rows": self.waiting_rows,
            "classes": self.classes,
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


@dataclass(frozen=True)
class ExtensionDraft:
    """An extended release before it is written: a `sqlanon.release.target.Draft`."""

    run: Run
    prepared: SearchInput
    extension: Extension
    release: Earlier
    recoding: FullDomainRecoding

    @property
    def expected(self) -> Expected:
        """What must come out."""
        return Expected(self.extension.released_rows, self.extension.classes, self.extension.smallest_class)

    @property
    def quasi(self) -> Sequence[str]:
        """The columns that make the classes."""
        return self.release.manifest.quasi

    @property
    def ranges(self) -> dict[str, Kind]:
        """By column, in lower case, what its labels are ranges of."""
        return ranges_of(self.prepared)

    def columns(self) -> tuple[ReleasedColumn, ...]:
        """Its columns, in order: those of the release."""
        return self.release.manifest.columns

    def repeating(self) -> Sequence[str]:
        """The columns of text that has few values: not counted again."""
        return ()

    def rows(self) -> AbstractContextManager[exp.Select]:
        """The rows of the release, and those that are added."""
        names = [one.name for one in self.columns()]
        return nullcontext(ex.extended(self.release.relation, self.run.work("added"), names))

    def rows_there(self) -> NoReturn:
        """A release on a server is not extended."""
        raise NotImplementedError

    def checks(self, released: exp.Table) -> list[Check]:
        """What a release alone does not show of its requirements, checked with the source."""
        run, recoding = self.run, self.recoding
        audit = SourceAudit(run.engine, run.work, run.install_macros(), self.prepared, recoding, recoding, None)
        return audit.checks(released.sql(run.engine.dialect))

    def suppressed_by(self, released: exp.Table) -> Suppressed:
        """Rows that wait are added later: nothing is told of them."""
        return ()

    def manifest(self, table_name: str, facts: Facts) -> Manifest:
        """What it claims, once its rows are counted."""
        before = self.release.manifest
        claims = replace(
            before,
            published_at=utc_now(),
            sqlanon_version=__version__,
            engine=f"{self.run.engine.version}, python {before.engine.partition('python ')[2]}",
            rows=self.extension.released_before + self.extension.new_rows,
            released_rows=facts.rows,
            suppressed_rows=self.extension.waiting_rows,
            classes=facts.classes,
            smallest_class=facts.smallest_class,
            score=None,
            optimal=False,
            digest=facts.digest,
            digest_algorithm=DIGEST,
            version=facts.version,
            linking_risk=None,
        )
        # Of the rows that were released before, the source may have others now: the release's own figure counts.
        needs_sizes = MEASURES[claims.measure].needs_squares
        return claims if needs_sizes else replace(claims, score=released_score(claims, {}))
