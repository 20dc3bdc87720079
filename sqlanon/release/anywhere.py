"""Verifying a release wherever it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.spark import is_session
from sqlanon.errors import ReleaseError
from sqlanon.policy import is_postgres
from sqlanon.policy.spark import names_spark
from sqlanon.release.postgres_reader import PostgresSpot, verify_postgres
from sqlanon.release.spark_catalog import SparkSpot
from sqlanon.release.spark_reader import verify_spark
from sqlanon.release.verify import Verification, verify_file


def verify_anywhere(release: Any, table_name: str | None, limits: Limits = NO_LIMITS) -> Verification:
    """Verify a release by itself, be it a file, in PostgreSQL or in Spark.

    Parameters
    ----------
    release:
        Its file; or ``postgresql://...``, an address of Spark such as ``sc://host:port``, or ``env:NAME``; or a session
        of Spark.
    table_name:
        Where it is no file its name, ``schema.name``.
    limits:
        What the engine that checks it may take.

    Raises
    ------
    ReleaseError
        It is not there, or not a release; or there is no name.
    """
    if is_file := isinstance(release, os.PathLike):
        place = ""
    elif isinstance(release, str):
        in_spark, in_postgres = names_spark(release), is_postgres(release)
        is_file = not (in_spark or in_postgres)
        place = "Spark" if in_spark else "PostgreSQL"
    elif is_session(release):
        place = "Spark"
    else:
        raise ReleaseError(
            f"a {type(release).__name__} is no place of a release: give a path, an address, or a session"
        )
    if is_file:
        if table_name is not None:
            raise ReleaseError("a file has one release, and needs no table: leave it out")
        return verify_file(Path(release).absolute(), limits=limits)
    if table_name is None:
        raise ReleaseError(f"say which release in {place}: --table schema.name")
    if place == "Spark":
        return verify_spark(SparkSpot.of(release, table_name), limits)
    return verify_postgres(PostgresSpot.of(release, table_name), limits)
