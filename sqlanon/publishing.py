"""Publishing what was made, held against earlier releases: to a file or a server, and to the ledger."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from sqlglot import exp

from sqlanon.engines.federated import FederatedEngine
from sqlanon.engines.postgres import PostgresEngine
from sqlanon.errors import OvertakenError, ReleaseError
from sqlanon.ledger import Places, Together, held_against, recording, recording_replaced, released_row, sample_of
from sqlanon.policy import Policy, same_file, table_parts
from sqlanon.release.manifest import Manifest
from sqlanon.release.published import Release
from sqlanon.release.staging import Content, refuse_types
from sqlanon.release.targets.file import publish
from sqlanon.release.targets.postgres import publish_postgres
from sqlanon.release.targets.postgres_reader import PostgresRelease, PostgresSpot
from sqlanon.release.targets.spark import publish_spark
from sqlanon.release.targets.spark_catalog import SparkSpot
from sqlanon.release.targets.spark_reader import AFTERWARDS, SparkRelease
from sqlanon.release.verify import Verification
from sqlanon.release_draft import ReleaseDraft, ranges_of
from sqlanon.sources import NOT_THERE, Source


def refuse_types_of(policy: Policy, source: Source) -> None:
    """Refuse columns that are released as they are, and that the policy's file cannot hold: before anything is
    searched. What quasi-identifiers are released as is known later.
    """
    section = policy.release
    target = None if section is None else section.database or section.file
    if target is None:
        return
    released = {name.lower() for name in (*policy.with_role("sensitive"), *policy.with_role("insensitive"))}
    types = {name: type_ for name, type_ in source.columns.items() if name.lower() in released and type_ != NOT_THERE}
    refuse_types(types, target.suffix.lower() == ".parquet")


_ATTEMPTS = 5
"""So often a release is made again where another run published meanwhile."""

ManifestOf: TypeAlias = Callable[[int, int, int, str], Manifest]
"""A manifest, by released rows, classes, rows of the smallest class, and digest."""


@dataclass(frozen=True)
class Publishing:
    """What was made, on its way out.

    Attributes
    ----------
    made, run_id:
        What, and of which run.
    manifest_of:
        Its manifest, by the name of the released table.
    figures:
        What must come out: released rows, classes, and rows of the smallest.
    """

    made: ReleaseDraft
    run_id: str
    manifest_of: Callable[[str], ManifestOf]
    figures: tuple[int, int, int]

    @property
    def policy(self) -> Policy:
        """The one that it was made by."""
        return self.made.prepared.policy

    def publish(
        self, path: str | Path | None, table: str | None, force: bool
    ) -> tuple[Release | PostgresRelease | SparkRelease, Together | None]:
        """Publish to a place, else to that of the policy; and tell what it was held against."""
        section, limits = self.policy.release, self.made.run.engine.limits
        if path is None and section is not None and section.postgres is not None:
            spot = PostgresSpot.of(section.postgres, table or section.table)
            verification, together = self._put(spot.path, spot.name, force, partial(self._to_postgres, spot))
            return PostgresRelease(spot, verification.manifest, limits), together
        if path is None and section is not None and section.spark:
            at = SparkSpot.of(self._in_spark().home, table or section.table)
            verification, together = self._put(at.path, at.name, force, partial(self._to_spark, at))
            told = tuple(one.message for one in verification.checks if one.passed is None and one.name in AFTERWARDS)
            return SparkRelease(at, verification.manifest, limits, told), together
        target, name = self._target(path), table or table_name_of(self.policy)
        verification, together = self._put(target, name, force, partial(self._to_file, target, name))
        return Release(target, name, verification.manifest, limits, verification.sha256), together

    def _put(
        self, target: Path, name: str, force: bool, put: Callable[[Content], Verification]
    ) -> tuple[Verification, Together | None]:
        """Publish; once more, held against what there is by then, where another run has published meanwhile."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(OvertakenError):
                return self._put_once(target, name, force, put)
        return self._put_once(target, name, force, put)

    def _put_once(
        self, target: Path, name: str, force: bool, put: Callable[[Content], Verification]
    ) -> tuple[Verification, Together | None]:
        made, (rows, classes, smallest) = self.made, self.figures
        together = held_against(made.run, made.prepared, target, force, self.run_id)
        manifest = self.manifest_of(name)
        claims = manifest(rows, classes, smallest, "")
        sample = self._sample(claims.rows)
        content = Content(
            query=made.recoding.select(),
            columns=made.columns(),
            quasi=[column.name for column in made.recoding.columns if column.quasi is not None],
            rows=rows,
            classes=classes,
            smallest_class=smallest,
            masked_rows=made.chosen.masked_rows,
            manifest=manifest,
            repeating=made.repeating(),
            audit=made.audit(claims, together),
            recording=lambda written, sha256: self._recording(target, written, sha256, together, sample),
            ranges=ranges_of(made.prepared),
            suppressed=made.suppressed_by,
            keep=self._keep,
        )
        with made.prepared.source.carrying({one.name: one.type for one in content.columns}):
            return put(content), together

    def _to_file(self, target: Path, name: str, content: Content) -> Verification:
        with self._source_there(), self.made.rows() as query:
            return publish(self.made.run.engine, replace(content, query=query), target, name)

    @contextmanager
    def _source_there(self) -> Iterator[None]:
        """What fails for want of the source says so."""
        try:
            yield
        except ReleaseError as error:
            if gone := [str(file) for file in self.made.prepared.source.files if not file.exists()]:
                raise ReleaseError(
                    f"the source was removed since it was read: {', '.join(gone)}; nothing was published"
                ) from error
            raise

    def _to_postgres(self, spot: PostgresSpot, content: Content) -> Verification:
        self.made.prepared.source.refuse_release(spot.address, spot.schema)  # it may be another than the policy's
        with self._server(spot.address) as server:
            fill = partial(self.made.fill, server, spot.address)
            return publish_postgres(self.made.run.engine, server, content, spot, fill)

    def _to_spark(self, spot: SparkSpot, content: Content) -> Verification:
        with self.made.rows_there() as query:
            return publish_spark(self.made.run.engine, self._in_spark().there.server, content, spot, query)

    def _in_spark(self) -> FederatedEngine:
        if (there := self.made.prepared.source.server(FederatedEngine)) is None:
            raise ReleaseError("a release goes to the Spark that its source is in, and this source is in none")
        return there

    @contextmanager
    def _server(self, address: str) -> Iterator[PostgresEngine]:
        """The source's connection, if that is the place, by the very text of its address; else a new one."""
        if (own := self.made.prepared.source.server(PostgresEngine, address)) is not None:
            yield own
            return
        with closing(PostgresEngine.open(address, "release.postgres")) as server:
            yield server

    def _target(self, path: str | Path | None) -> Path:
        section, catalog = self.policy.release, self.policy.catalog
        chosen = path or (None if section is None else section.database or section.file)
        if chosen is None:
            raise ReleaseError('say where: publish("release.duckdb"), or [release] database = ... in the policy')
        target = Path(os.path.realpath(chosen))  # a link stays a link
        private = [*self.made.prepared.source.files, *self.made.run.engine.files()]
        if catalog is not None:
            private.append(catalog.database)
        if any(same_file(target, file) for file in private):
            raise ReleaseError(f"{target} is the source, or the catalog: a release needs a file of its own")
        return target

    @property
    def _keep(self) -> int:
        return 1 if self.policy.release is None else self.policy.release.keep

    def _sample(self, rows: int) -> exp.Query | None:
        """The rows of the source that the ledger keeps: taken before the server is busy with the release."""
        section, catalog = self.policy.release, self.policy.catalog
        if catalog is None or (section is not None and not section.ledger):
            return None
        return sample_of(self.made.run, self.policy, catalog.database, self.run_id, rows)

    def _recording(
        self,
        target: Path,
        manifest: Manifest,
        sha256: str | None,
        together: Together | None,
        sample: exp.Query | None,
    ) -> AbstractContextManager[None]:
        """What the ledger is told of a publication."""
        if self.policy.catalog is None:
            return nullcontext()
        run, prepared, path = self.made.run, self.made.prepared, self.policy.catalog.database
        places = Places.of(self.policy, prepared.source)
        if self.policy.release is not None and not self.policy.release.ledger:
            return recording_replaced(run.engine, path, target, manifest, places)
        known = together.known if together is not None else frozenset()
        row = released_row(self.run_id, target, manifest, sha256, run.identity, prepared.after, together)
        keys = self.made.keys(path)
        return recording(run.engine, path, row, places, keys, prepared.own_hierarchies, known, self._keep, sample)


def table_name_of(policy: Policy) -> str:
    """The released table: the policy's, else the source's name."""
    if (section := policy.release) is not None:
        return section.name
    name = policy.source.table or "release"
    return table_parts(name)[-1] if table_parts(name) else name
