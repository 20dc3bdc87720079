"""The earlier release that a release of linked tables is made from.

Such a release has no other persons and rows than the earlier one, no finer level, and its persons are suppressed by the
labels of the rows that stay. A reader who has the earlier release and the chosen levels could make its rows, whatever
an attacker knows. The choice of levels also depends on the hierarchies, which are built over all source rows.

The earlier release is made again from the source, at its levels and by its requirements, to find its persons. It must
give the same persons with the same rows.

Tables: ``earlier_persons`` (``person``, ``class_id``), and ``earlier_suppressed_rows`` (``position``, ``row``): the
rows of these persons that the earlier release suppresses by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import Limits
from sqlanon.errors import PolicyError, Problem, ReleaseError
from sqlanon.ledger.recording import read_ledger
from sqlanon.ledger.records import Publication
from sqlanon.linked.check.kept_rows import KeptRows
from sqlanon.linked.check.peeling import Peeling
from sqlanon.linked.publish.recode import LinkedRecoding
from sqlanon.linked.publish.targets.base import find_location
from sqlanon.linked.publish.written_rows import digest_at_levels
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.release.manifest import LinkedManifest, hash_manifest
from sqlanon.places.addresses import format_location
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.policy.linked_sections import LinkedPrivacySection, LinkedSearchSection
from sqlanon.publish.targets.base import Reach
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import select_star

_KEY = "release.after"


@dataclass(frozen=True)
class EarlierRelease:
    """An earlier release whose persons and rows are found in the source.

    Attributes
    ----------
    run_ids:
        By table, the run that the ledger recorded.
    digest:
        The digest of its persons with their rows.
    levels:
        The level of each quasi-identifier.
    kept_rows:
        Its persons and rows in the source.
    """

    run_ids: Mapping[str, str]
    digest: str
    levels: Levels
    kept_rows: KeptRows

    @property
    def recoding(self) -> LinkedRecoding:
        """Makes its rows."""
        return LinkedRecoding(self.kept_rows, self.levels)


def find_earlier_release(records: LinkedRecords) -> tuple[LinkedRecords, EarlierRelease | None]:
    """Find the persons and rows of the release that the policy's ``after`` names, and exclude finer levels.

    Raises
    ------
    PolicyError
        The ledger has no such release, it cannot be the base of another one, or the policy contradicts it.
    ReleaseError
        It cannot be read, was changed, or the source does not give it again.
    """
    release, catalog = records.policy.release, records.policy.catalog
    if release is None or release.after is None or catalog is None:
        return records, None
    publications = _find_publications(records.tables[0].run.engine, catalog.database, release.after)
    manifest = read_recorded_manifest(publications, records.limits)
    levels = _read_levels(records, manifest, release.after)
    kept_rows = _find_kept_rows(records, manifest, levels)
    earlier = EarlierRelease(
        {publication.table_name: publication.run_id for publication in publications},
        publications[0].digest,
        levels,
        kept_rows,
    )
    if digest_at_levels(earlier.recoding, manifest, levels) != earlier.digest:
        raise ReleaseError(
            f"{_KEY}: the source does not give the persons and rows of {release.after} again: its tables, columns, "
            "hierarchies or rows have changed, or persons and rows have come or gone; publish over it instead"
        )
    return _exclude_finer_levels(records, levels, release.after), earlier


def _find_publications(engine: DuckDBEngine, catalog: Path, name: str) -> list[Publication]:
    """The records of a linked release by its name: one for each table."""
    history = read_ledger(engine, catalog, Reach())
    matches = [publication for publication in history.publications if name in publication.names]
    paths = {publication.path for publication in matches}
    publications = [publication for publication in history.publications if publication.path in paths]
    message = None
    if not publications:
        recorded_names = ", ".join(sorted({publication.path.name for publication in history.publications})) or "none"
        message = f"{name!r} is not in the ledger, which has: {recorded_names}"
    elif not all(publication.linked for publication in publications):
        message = f"{name!r} is a release of one table: name a release of these tables"
    elif len(paths) > 1:
        places = ", ".join(sorted(map(format_location, paths)))
        message = f"{name!r} is the name of several releases: name one of {places}"
    elif any(publication.after for publication in publications):
        message = f"{name!r} was itself made from another release: name that one"
    if message is not None:
        raise PolicyError([Problem(_KEY, message)])
    return publications


def read_recorded_manifest(publications: Sequence[Publication], limits: Limits) -> LinkedManifest:
    """Read the manifest of a release that the ledger recorded, once for each table.

    Raises
    ------
    ReleaseError
        It cannot be read, or was changed.
    """
    location, path = find_location(str(publications[0].path)), format_location(publications[0].path)
    if location is None:
        raise ReleaseError(f"{_KEY}: {path} cannot be read: name a release in a file or a folder")
    with location.open(limits) as release:
        manifest = release.manifest
    if any(publication.manifest_hash != hash_manifest(manifest) for publication in publications):
        raise ReleaseError(f"{_KEY}: {path} is not the release that the ledger recorded: its manifest was changed")
    return manifest


def _read_levels(records: LinkedRecords, manifest: LinkedManifest, name: str) -> Levels:
    """The levels of the earlier release, if it has the same quasi-identifiers, each at one level of its hierarchy."""
    levels = manifest.levels
    if list(levels) != list(records.names):
        message = f"{name} has other quasi-identifiers than this policy: give all tables and columns the same roles"
        raise PolicyError([Problem(_KEY, message)])
    problems = [
        Problem(_KEY, f"{name} shows {attribute} at several levels: name a release of a full-domain strategy")
        for attribute, level in levels.items()
        if level is None
    ]
    problems += [
        Problem(_KEY, f"{name} has level {level} of {attribute}, whose hierarchy has {coded.height} now")
        for (attribute, level), coded in zip(levels.items(), records.attributes, strict=True)
        if level is not None and level > coded.height
    ]
    if problems:
        raise PolicyError(problems)
    return tuple(level or 0 for level in levels.values())


def _find_kept_rows(records: LinkedRecords, manifest: LinkedManifest, levels: Levels) -> KeptRows:
    """Suppress persons and rows as the earlier release did; store what stays."""
    policy = _restore_earlier_policy(records.policy, manifest)
    row_limit = records.policy.search.row_suppression_limit
    earlier_row_limit = policy.search.row_suppression_limit
    if earlier_row_limit > row_limit:
        message = f"is {row_limit:f}, and the earlier release may lack {earlier_row_limit:f} of the child rows"
        message = f"{message}: raise it to that"
        raise PolicyError([Problem("search.row_suppression_limit", message)])
    earlier_records = replace(records, policy=policy)
    peeling = Peeling(earlier_records, policy.privacy.k, policy.privacy.known)
    peeling.suppress_rows_and_persons(levels, earlier_records.allowed_persons, earlier_records.allowed_rows)
    kept_rows, work = peeling.snapshot.kept_rows, records.work
    persons = records.runner.create_table(work("earlier_persons"), select_star(kept_rows.persons.copy()))
    suppressed_rows = None
    if kept_rows.suppressed_rows is not None:
        query = select_star(kept_rows.suppressed_rows.copy())
        suppressed_rows = records.runner.create_table(work("earlier_suppressed_rows"), query)
    peeling.drop_tables()
    return KeptRows(records, persons, suppressed_rows)


def _restore_earlier_policy(policy: LinkedPolicy, manifest: LinkedManifest) -> LinkedPolicy:
    """A policy with the requirements and the search of an earlier release."""
    fields = {name: getattr(policy, name) for name in LinkedPolicy.model_fields}
    fields["privacy"] = LinkedPrivacySection.model_validate(manifest.policy["privacy"])
    fields["search"] = LinkedSearchSection.model_validate(manifest.policy["search"])
    return LinkedPolicy.model_construct(**fields)


def _exclude_finer_levels(records: LinkedRecords, levels: Levels, name: str) -> LinkedRecords:
    """The records with the generalizations that are nowhere finer than the earlier release."""
    lattice = records.lattice
    bottom = tuple(map(max, lattice.bottom, levels))
    problems = [
        Problem(_KEY, f"{name} has level {level} of {attribute}, and max_level is {top}: raise it")
        for attribute, level, top in zip(records.names, levels, lattice.top, strict=True)
        if level > top
    ]
    if problems:
        raise PolicyError(problems)
    raised = replace(lattice, bottom=bottom)
    return replace(records, lattice=replace(raised, bottom=raised.lift(bottom)))
