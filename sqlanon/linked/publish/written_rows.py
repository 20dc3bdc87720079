"""The released rows of linked tables in a DuckDB file, before readers see them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import Limits
from sqlanon.errors import ReleaseError
from sqlanon.linked.publish.recode import LinkedRecoding
from sqlanon.linked.publish.targets.base import open_engine
from sqlanon.linked.release.manifest import LinkedManifest, TableClaims, describe_structure
from sqlanon.linked.release.verification import digest_persons
from sqlanon.policy.sections import STORAGE_VERSION
from sqlanon.publish.targets.file.target import attach_new
from sqlanon.release.contents import ATTACHED
from sqlanon.release.manifest import version_name
from sqlanon.sources.relation import describe_engine_error
from sqlanon.support.expressions import table
from sqlanon.support.names import STAGED
from sqlanon.support.workdir import spill_directory


def digest_at_levels(recoding: LinkedRecoding, manifest: LinkedManifest, levels: Sequence[int]) -> str | None:
    """The digest of the released persons and rows with their labels at other levels.

    None if their tables and columns are not those of the manifest. Draws new keys.
    """
    recoding.create_surrogates()
    with spill_directory() as folder:
        file = folder / "other_levels.duckdb"
        table_fields = write_rows(replace(recoding, levels=tuple(levels)), file, manifest.version)
        written_tables = [
            TableClaims(**fields, released_rows=0, suppressed_rows=0, digest="") for fields in table_fields
        ]
        if describe_structure(written_tables) != describe_structure(manifest.tables):
            return None
        with open_written(file, recoding.records.limits) as engine:
            return digest_persons(engine, manifest)


def write_rows(recoding: LinkedRecoding, file: Path, version: int) -> list[dict[str, Any]]:
    """Write the rows of all tables to a fresh file; return the claims about them that the file does not show."""
    records, table_fields = recoding.records, list[dict[str, Any]]()
    engine = records.tables[0].run.engine
    attach_new(engine, file, STORAGE_VERSION)
    try:
        file.chmod(0o600)
        for linked_table in records.tables:
            columns = recoding.released_columns(linked_table)
            recoding.write_rows(linked_table, table(version_name(linked_table.name, version), "main", STAGED))
            levels = [recoding.levels[i] for i in linked_table.attribute_numbers]
            table_fields.append(
                {
                    "name": linked_table.name,
                    "parent": None if linked_table.parent is None else linked_table.parent.name,
                    "key": tuple(linked_table.released_key),
                    "references": tuple(linked_table.references),
                    "ancestor_references": {
                        column: linked_table.ancestors[position].name
                        for column, position in linked_table.ancestor_references.items()
                    },
                    "columns": columns,
                    "generalization": dict(zip(linked_table.policy.generalized_attributes, levels, strict=True)),
                    "rows": linked_table.rows,
                }
            )
    except duckdb.OutOfMemoryException as error:
        raise ReleaseError("the release needs more memory: raise memory_limit") from error
    except duckdb.Error as error:
        reason = describe_engine_error(error)
        raise ReleaseError(
            f"the release cannot be written: {reason}; if the source has changed in the meantime, run it again"
        ) from error
    finally:
        engine.detach(STAGED)
    return table_fields


@contextmanager
def open_written(file: Path, limits: Limits) -> Iterator[DuckDBEngine]:
    """Attach the file with the written rows to a separate engine."""
    with open_engine(limits) as (engine, _):
        engine.attach(file, ATTACHED, read_write=True)
        yield engine
        engine.detach(ATTACHED)
