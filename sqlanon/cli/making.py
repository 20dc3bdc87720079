"""The commands that make releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sqlanon.cli.common import AsJson, Dialect, MemoryLimit, PolicyFile, Threads, app, load
from sqlanon.cli.printing import print_comparison, print_export, print_json, print_live, print_result
from sqlanon.errors import PolicyError, Problem
from sqlanon.terminal import hand_out, printable, say

if TYPE_CHECKING:
    from sqlanon.policy import Policy


@app.command()
def demo(
    directory: Annotated[Path, typer.Option("--dir", help="where its files go")] = Path("sqlanon-demo"),
    rows: Annotated[int, typer.Option("--rows", min=1, help="patients of the hospital")] = 100_000,
) -> None:
    """Tell the whole story on a hospital database that it makes itself."""
    from sqlanon.demo import run_demo

    if not run_demo(directory, rows).verified:
        raise typer.Exit(1)


@app.command()
def anonymize(
    policy: PolicyFile,
    as_json: AsJson = False,
    force: Annotated[
        bool, typer.Option("--force", help="publish even what breaks an earlier release; the ledger says so")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FOLDER", help="of a frequency set: write what a warehouse needs to release"),
    ] = None,
    dialect: Dialect = None,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Find the best version of the table that meets the policy, audit it, and publish it."""
    import time

    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect

    started = time.perf_counter()
    asked = load(policy)
    if export is not None or dialect is not None or asked.source.frequency_set:
        _export(asked, export, dialect, as_json, memory_limit, threads)
        return
    if asked.release is None or not asked.release.has_a_place:
        places = 'database = "release.duckdb", file = "release.parquet", postgres = ... or spark = true'
        message = f"say where the release goes: {places}"
        raise PolicyError([Problem("release", message)])
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_progress() as progress:
        result = db.anonymize(asked, progress)
        progress("write", 0, result.checked, result.score)
        release = result.publish(force=force)
    figures = result.to_dict() | {
        "classes": release.manifest.classes,
        "smallest_class": release.manifest.smallest_class,
        "release": str(release.path),
        "table": release.table,
        "sha256": release.sha256,
        "seconds": result.seconds | {"total": time.perf_counter() - started},
    }
    for warning in result.warnings:
        say(f"warning: {warning}", err=True)
    if as_json:
        print_json(figures)
        return
    print_result(result, release, figures["seconds"]["total"])


def _export(
    asked: Policy,
    export: Path | None,
    dialect: str | None,
    as_json: bool,
    memory_limit: str | None,
    threads: int | None,
) -> None:
    """Find the best version of a table in a warehouse, and write what makes its release there."""
    import time

    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect
    from sqlanon.warehouse import dialect_of

    if not asked.source.frequency_set:
        message = "is for a table in a warehouse, of which [source] has a frequency_set: leave it out"
        raise PolicyError([Problem("--export" if export is not None else "--dialect", message)])
    if export is None or dialect is None:
        message = (
            "has no rows to release: --export FOLDER --dialect NAME writes what makes the release in the warehouse"
        )
        raise PolicyError([Problem("source.frequency_set", message)])
    started, dialect = time.perf_counter(), dialect_of(dialect)
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_progress() as progress:
        result = db.anonymize(asked, progress)
        folder = result.export(export, dialect)
    total = time.perf_counter() - started
    for warning in result.warnings:
        say(f"warning: {warning}", err=True)
    if as_json:
        table = "release" if asked.release is None else asked.release.table
        more = {"export": str(folder), "table": table, "seconds": result.seconds | {"total": total}}
        print_json(result.to_dict() | more)
        return
    print_export(result, folder, total)


@app.command()
def extend(
    policy: PolicyFile,
    as_json: AsJson = False,
    force: Annotated[
        bool, typer.Option("--force", help="publish even what breaks another release; the ledger says so")
    ] = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Add to a release what its source has got since; what was released stays as it is."""
    import time

    from sqlanon.database import connect

    started = time.perf_counter()
    with connect(memory_limit=memory_limit, threads=threads) as db:
        found = db.extend(load(policy))
        if found.added_rows:
            found.publish(force=force)
    for warning in found.warnings:
        say(f"warning: {warning}", err=True)
    figures = found.to_dict() | {"release": str(found.path), "table": found.table}
    figures |= {"seconds": {"total": time.perf_counter() - started}}
    if as_json:
        print_json(figures)
        return
    say(f"{found.released_before:,} rows were released before; the source has {found.new_rows:,} more")
    say(f"{found.added_rows:,} of them are added, {found.waiting_rows:,} have to wait")
    if not found.added_rows:
        say("the release stays as it is")
    say(f"{found.classes:,} classes, the smallest of {found.smallest_class:,} rows")
    say(f"release: {found.path}, table {found.table}")


@app.command()
def live(
    policy: PolicyFile,
    name: Annotated[
        str | None, typer.Option("--name", metavar="VIEW", help="the view; by default the table's name with _live")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="remove the view instead")] = False,
    as_json: AsJson = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Make a view in the private database that generalizes, and suppresses whenever it is read."""
    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect

    asked = load(policy)
    if drop:
        with connect(memory_limit=memory_limit, threads=threads) as db:
            dropped = db.drop_live(asked, name)
        if as_json:
            print_json({"dropped": dropped})
        else:
            say(f"view {printable(dropped)} is gone, and what it read beside its table")
        return
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_progress() as progress:
        made = db.live(asked, name, progress)
    for warning in made.warnings:
        say(f"warning: {warning}", err=True)
    if as_json:
        print_json(made.to_dict() | {"database": str(asked.source.database)})
        return
    print_live(made, asked)


@app.command()
def compare(
    policy: PolicyFile,
    strategies: Annotated[
        str | None,
        typer.Option("--strategies", metavar="NAME,...", help="which; by default all that can do what is asked"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON list, an object a strategy")] = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Say what each of several strategies finds; nothing is published."""
    from sqlanon.cli.progress import shown_comparison
    from sqlanon.compare import policies_of
    from sqlanon.database import connect

    asked = load(policy)
    names = None if strategies is None else [name.strip() for name in strategies.split(",")]
    count = len(policies_of(asked, names))
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_comparison(count) as progress:
        relation = db.compare(asked, names, progress)
        found = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    if as_json:
        print_json(found)
    else:
        print_comparison(found, asked.search.measure)
        for one in found:
            if one["error"] is not None:
                say(f"{one['strategy']}: {one['error']}", err=True)
    if all(one["error"] is not None for one in found):
        raise typer.Exit(1)


@app.command()
def plan(policy: PolicyFile, dialect: Dialect = None) -> None:
    """Show the stages of the main job and their SQL; reads no rows."""
    from sqlanon.database import connect

    with connect() as db:
        hand_out(str(db.plan(load(policy), dialect)))


@app.command()
def init(
    database: Annotated[Path, typer.Argument(metavar="DATABASE", help="a DuckDB file", show_default=False)],
) -> None:
    """Install the catalog and the macro library in a DuckDB file."""
    from sqlanon.catalog import init_database

    init_database(database.absolute())
    say(f"{database.absolute()}: the catalog and the macro library are in schema sqlanon")
