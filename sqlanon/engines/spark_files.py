"""What is fetched of Spark through files: more than fits the driver's memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlglot import exp

from sqlanon.engines.spark import SparkEngine
from sqlanon.errors import SourceError
from sqlanon.workdir import private_directory

_SCRATCH = "sqlanon-fetch-"


@contextmanager
def through_files(server: SparkEngine, query: exp.Expr, scratch: Path | None) -> Iterator[list[str]]:
    """The Parquet files to which Spark writes the rows of a query, as long as they are needed."""
    if scratch is None and not server.is_here:
        # Each executor would write to a folder of its own machine, and nobody would remove that.
        raise SourceError(
            f"{server.place}: so much is fetched through files: give a folder that Spark and this machine share, "
            "as [source] scratch"
        )
    with private_directory(scratch or Path(tempfile.gettempdir()), _SCRATCH) as folder:
        with server.told():
            server.write_parquet(query, str(folder / "rows"))
        files = sorted(str(one) for one in (folder / "rows").glob("*.parquet"))
        if not files:
            raise SourceError(
                f"{server.place}: so much is fetched through files, and what Spark wrote to {folder} is not here: "
                "give a folder that both share as [source] scratch"
            )
        yield files
