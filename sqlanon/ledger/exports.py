"""Exports for warehouses, as the catalog has them: whether their statements were run is not known here, and the rows of
what they make are not here to compare others with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from sqlanon import catalog
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SqlanonError
from sqlanon.expressions import fragment, template
from sqlanon.ledger.intents import alone_with
from sqlanon.ledger.records import Publication

_EXPORTS = template("""
    SELECT run_id, exported_at, path, table_name, dialect, source
    FROM sqlanon_catalog.sqlanon.exports
    ORDER BY exported_at
""")
_DROP = fragment("DELETE FROM sqlanon_catalog.sqlanon.exports WHERE run_id = :run AND path = :folder")


@dataclass(frozen=True)
class Export:
    """One row of the table ``exports``."""

    run_id: str
    exported_at: datetime
    path: str
    table_name: str
    dialect: str
    source: str


def exports(engine: DuckDBEngine, path: Path) -> list[Export]:
    """The exports in a catalog, the oldest first."""
    if not path.exists():
        return []
    with catalog.open_catalog(engine, path):
        return [Export(*row) for row in engine.rows(_EXPORTS())]


@contextmanager
def recording_export(engine: DuckDBEngine, path: Path, export: Export) -> Iterator[None]:
    """Write an export to the ledger before its folder is there; and take it back if that comes to nothing."""
    with alone_with(path), catalog.open_catalog(engine, path):
        catalog.insert(engine, "exports", asdict(export))
    try:
        yield
    except BaseException:
        with suppress(SqlanonError), alone_with(path), catalog.open_catalog(engine, path):
            engine.execute(_DROP(run=export.run_id, folder=export.path))
        raise


def not_compared(known: list[Export]) -> list[str]:
    """What the holder should know of the exports, once a release is out."""
    if not known:
        return []
    newest, few = known[-1], len(known) == 1
    shown = (
        f"{'' if few else 'the newest '}of {newest.exported_at:%Y-%m-%d %H:%M}: {newest.table_name}, {newest.dialect}"
    )
    return [
        f"the ledger has {len(known)} export{'' if few else 's'} for warehouses ({shown}), and this release was not "
        f"compared with what {'it makes' if few else 'they make'} there: compare copies of both with sqlanon attack"
    ]


def compared_with_nothing(known: list[Export], publications: list[Publication]) -> list[str]:
    """What the holder should know of the ledger, once an export is written."""
    found = [
        f"{count} {what}{'s' if count > 1 else ''}"
        for count, what in ((len(publications), "release"), (len(known), "earlier export"))
        if count
    ]
    if not found:
        return []
    return [
        f"the ledger has {' and '.join(found)}, which this export is not compared with, because its rows are in the "
        "warehouse: compare copies with sqlanon attack"
    ]
