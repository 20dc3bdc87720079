"""Growing tables: a release is extended by rows that its source has got since.

Released rows keep their values: they are copied from the release itself. New rows are generalized as these are. Those
of a class are added where they meet the policy by themselves: then nobody who has the release from before finds fewer
new rows in it than the policy asks for, and what two sets of rows meet, both together meet. Others wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlglot import exp

from sqlanon import catalog
from sqlanon.errors import PolicyError, Problem, ReleaseError, SourceError
from sqlanon.full_domain import measure_of
from sqlanon.ledger import (
    Earlier,
    NewRelease,
    Publication,
    Together,
    beside_earlier,
    opened,
    publications,
    record,
    secret_of,
    standing,
)
from sqlanon.policy import Policy
from sqlanon.policy.problems import join
from sqlanon.preparation import Prepared
from sqlanon.quality import Figures
from sqlanon.queries import extension as ex
from sqlanon.queries.candidate import candidate, suppressed_leaves
from sqlanon.queries.classes import ClassSpace
from sqlanon.queries.coding import Levels
from sqlanon.queries.earlier import KEY_HASH, key_hash, repeated_keys
from sqlanon.queries.names import col, create_table, named, select, subquery, table, union_all
from sqlanon.queries.recode import Column, Recoding, suppressed_classes
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.release.publish import Content, publish, utc_now
from sqlanon.release.published import Release
from sqlanon.source_audit import SourceAudit
from sqlanon.steps import Steps
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
                audit=lambda staged: self._audit(release.manifest.columns, together, staged),
            )
            verification = publish(engine, content, publication.path, publication.table_name)
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

    def _audit(self, columns: tuple[ReleasedColumn, ...], together: Together, staged: exp.Table) -> Sequence[Check]:
        run, prepared = self._run, self._prepared
        source = SourceAudit(run.engine, run.work, run.install_macros(), prepared, self._recoding, self._recoding, None)
        new = NewRelease(columns, dict(self.generalization), False, self._publication.table_name)
        return [*source.checks(staged.sql(run.engine.dialect)), *together.checks(new, staged)]

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
            select([col(KEY_HASH)], self._run.work(f"keys_{self._publication.run_id}")),
        ]
        record(engine, path, row, union_all(*keys))

    def to_dict(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        names = ("released_before", "new_rows", "added_rows", "waiting_rows", "released_rows")
        more = ("classes", "smallest_class", "generalization", "measure", "score")
        return {name: getattr(self, name) for name in (*names, *more)}


def extend(run: Run, policy: Policy) -> Extension:
    """What can be added to the policy's release of the rows that its source has got since.

    Makes in the work schema what `ledger.beside_earlier` makes, ``candidates``, ``waiting`` and ``added``.

    Raises
    ------
    PolicyError
        The policy does not say what tells rows apart, or asks for what an extended release cannot keep.
    ReleaseError
        There is no release to be extended, or it was made by another policy.
    SourceError
        Several rows have one key; or the source's values would be labelled in another way than in the release.
    """
    started = time.perf_counter()
    _refuse(policy)
    publication = _publication(run, policy)
    assert policy.catalog is not None
    _refuse_keys(run, policy)
    with opened(run.engine, publication) as release:
        manifest = release.manifest
    _refuse_others(policy, manifest, publication)
    levels = {name: level or 0 for name, level in manifest.generalization.items()}
    known = publications(run.engine, policy.catalog.database)
    others = [one for one in known if one.run_id in publication.after]
    prepared = beside_earlier(run, policy, [publication, *others], levels, {publication.run_id})
    _refuse_changes(run, prepared, manifest, levels)
    recoding, waiting = _recoding(run, prepared, levels)
    count = run.engine.rows(select([exp.Count(this=exp.Star())], run.work("added")))[0][0]
    with opened(run.engine, publication, verified=True) as release:
        names = [one.name for one in manifest.columns]
        rows = ex.extended(release.relation, run.work("added"), names, shuffled=False)
        figures = Steps(run.engine).figures(ex.class_figures(subquery(rows, "r"), manifest.quasi))
    kept = replace(waiting, classes=figures["classes"], squares=float(figures["squares"]))
    measure = measure_of(prepared)
    return Extension(
        released_before=manifest.released_rows,
        new_rows=count + waiting.suppressed_rows,
        added_rows=count,
        waiting_rows=waiting.suppressed_rows,
        classes=figures["classes"],
        smallest_class=figures["smallest_class"],
        generalization=levels,
        measure=policy.search.measure,
        score=measure.shown(measure.score((*levels.values(), 0), kept)),
        _run=run,
        _prepared=prepared,
        _publication=publication,
        _recoding=recoding,
        _run_id=uuid4().hex,
        _started=started,
    )


def _recoding(run: Run, prepared: Prepared, generalization: Mapping[str, int]) -> tuple[Recoding, Figures]:
    """How the rows are made that are added, and what is lost by those that wait.

    Makes ``candidates``, ``waiting`` and ``added``.
    """
    engine, levels = run.engine, (*generalization.values(), 0)
    candidates = run.work("candidates")
    engine.execute(create_table(candidates.copy(), ex.unreleased(prepared.source.relation)))
    space = ex.unreleased_space(prepared.sets.at(levels), prepared.attributes[-1])
    figures = _figures(prepared, space, levels)
    waiting = run.work("waiting")
    engine.execute(create_table(waiting.copy(), suppressed_classes(space, levels)))
    key = tuple(Column(name) for name in prepared.columns.key)
    recoding = Recoding(
        candidates,
        prepared.released,
        prepared.attributes,
        tuple(hierarchy.top for hierarchy in prepared.hierarchies),
        levels,
        waiting,
    )
    with_keys = replace(recoding, columns=(*recoding.columns, *key))
    engine.execute(create_table(run.work("added"), with_keys.select(shuffled=False)))
    return recoding, figures


def _figures(prepared: Prepared, space: ClassSpace, levels: Levels) -> Figures:
    """What is lost by the rows that wait, by the policy's measure."""
    steps, measure = prepared.sets.steps, measure_of(prepared)
    suppressed = steps.figures(candidate(space, levels))["suppressed_rows"]
    leaves: Mapping[str, float | None] = {}
    heights = prepared.marginals.heights
    between = [i for i, (level, height) in enumerate(zip(levels, heights, strict=True)) if 0 < level < height]
    if suppressed and measure.needs_leaves and between:
        leaves = steps.figures(suppressed_leaves(space, levels, prepared.attributes))
    return Figures(0, suppressed, suppressed_leaves={i: leaves.get(f"leaves_{i}") or 0.0 for i in between})


def _refuse(policy: Policy) -> None:
    """Refuse what an extended release cannot keep, all at once."""
    asked = {
        "source.key": (not policy.source.key, "is missing: name the columns that tell rows apart, which stay the same"),
        "source.person": (policy.source.person is not None, "a release does not tell whose its rows are: leave it out"),
        "population": (policy.population is not None, "is as it was when the release was made: anonymize anew"),
        "search.strategy": (policy.search.is_local, "recodes below the full domain: new rows have no level to be at"),
        "search.measure": (
            policy.search.measure == "entropy",
            "is of one source, and here rows of several are released",
        ),
        "catalog": (policy.catalog is None, "is missing: the ledger, which knows what was released, is in it"),
        "release": (
            policy.release is None or not (policy.release.database or policy.release.file),
            "says of no place: name the release that is to be extended",
        ),
        "attributes": (bool(policy.noisy), "noise is drawn once for all rows of a class: leave it out"),
        "privacy.population_uniqueness": (
            policy.privacy.population_uniqueness is not None,
            "is estimated from one source: leave it out",
        ),
    }
    if policy.release is not None:
        asked["release.suppressed"] = (
            policy.release.suppressed == "mask",
            'masked rows cannot be taken back: use "drop"',
        )
        asked["release.decoys"] = (policy.release.decoys, "decoys cannot be told from rows: leave it out")
    problems = [Problem(place, message) for place, (wrong, message) in asked.items() if wrong]
    if problems:
        raise PolicyError(problems)


def _publication(run: Run, policy: Policy) -> Publication:
    """The release that is to be extended, as the ledger has it."""
    assert policy.catalog is not None
    assert policy.release is not None
    place = Path(os.path.realpath(policy.release.database or policy.release.file or ""))
    known = publications(run.engine, policy.catalog.database)
    found = [one for one in known if one.path == place and one.source == run.identity]
    if not found:
        raise ReleaseError(
            f"the ledger in {policy.catalog.database} has no release of this source at {place}: publish one first, "
            "with sqlanon anonymize"
        )
    return found[-1]


def _refuse_keys(run: Run, policy: Policy) -> None:
    columns = {name.lower(): name for name in run.source.columns}
    missing = [name for name in policy.source.key if name.lower() not in columns]
    if missing:
        return  # said with everything else that is missing
    key = [columns[name.lower()] for name in policy.source.key]
    repeated, without = run.engine.rows(repeated_keys(run.source.relation, key))[0]
    if repeated or without:
        raise SourceError(
            f"source.key: {repeated:,} keys are of several rows, and {without:,} rows have none: "
            "name columns that tell all rows apart"
        )


def _refuse_others(policy: Policy, manifest: Manifest, publication: Publication) -> None:
    """Only what was made by this policy can be extended by it."""
    if manifest.policy_hash != policy.fingerprint():
        raise ReleaseError(
            f"{publication.path} was made by another policy: extend it with that one, or anonymize anew with "
            "[release] after"
        )


def _refuse_changes(run: Run, prepared: Prepared, manifest: Manifest, levels: Mapping[str, int]) -> None:
    """New rows must be labelled as those of the release are, and be of the same types."""
    problems = []
    policy, source = prepared.policy, prepared.source
    recoding = Recoding(source.relation, prepared.released, prepared.attributes, (), (*levels.values(), 0))
    found = [(one.name, recoding.released_type(one, source.columns[one.name])) for one in prepared.released]
    if found != [(one.name, one.type) for one in manifest.columns]:
        problems.append(Problem("source", "its columns are not those of the release: anonymize anew"))
    assert policy.catalog is not None
    with catalog.open_catalog(run.engine, policy.catalog.database):
        for i, name in enumerate(policy.generalized):
            if levels[name] == 0:
                continue
            then = table(catalog.hierarchy_name(manifest.policy_hash, name), catalog.SCHEMA, catalog.ATTACHED)
            query = ex.changed_labels(then, prepared.hierarchies[i].table, levels[name])
            if changed := run.engine.rows(query)[0][0]:
                told = f"{changed:,} values have another label than when the release was made: anonymize anew, with "
                problems.append(Problem(join("attributes", name), f"{told}[release] after"))
    if problems:
        raise SourceError("; ".join(map(str, problems)))
