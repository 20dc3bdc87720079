"""The commands that make releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sqlanon.cli.common import AsJson, MemoryLimit, PolicyFile, Threads, app, load
from sqlanon.errors import PolicyError, Problem
from sqlanon.printing import print_comparison, print_json, print_noise_of, told_of_decoys


@app.command()
def demo(
    directory: Annotated[Path, typer.Option("--dir", help="where its files go")] = Path("sqlanon-demo"),
    rows: Annotated[int, typer.Option("--rows", min=1, help="patients of the hospital")] = 100_000,
) -> None:
    """Tell the whole story on a hospital database that it makes itself."""
    from rich.console import Console

    from sqlanon.demo import run_demo

    if not run_demo(directory, rows, Console()).verified:
        raise typer.Exit(1)


@app.command()
def anonymize(
    policy: PolicyFile,
    as_json: AsJson = False,
    force: Annotated[
        bool, typer.Option("--force", help="publish even what breaks an earlier release; the ledger says so")
    ] = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Find the best version of the table that meets the policy, audit it, and publish it."""
    import time

    from sqlanon.database import connect
    from sqlanon.progress import shown_progress

    started = time.perf_counter()
    asked = load(policy)
    if asked.release is None or not (asked.release.database or asked.release.file or asked.release.postgres):
        message = 'say where the release goes: database = "release.duckdb", file = "release.parquet" or postgres = ...'
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
        "seconds": result.seconds | {"total": time.perf_counter() - started},
    }
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json(figures)
        return
    levels = ", ".join(
        f"{name} {'at several levels' if level is None else level}" for name, level in result.generalization.items()
    )
    typer.echo(f"{result.released_rows:,} of {result.rows:,} rows released, {result.suppressed_rows:,} suppressed")
    typer.echo(f"{figures['classes']:,} classes, the smallest of {figures['smallest_class']:,} rows")
    typer.echo(f"generalization: {levels} ({result.measure} {result.score:.6g}, {result.proof})")
    if result.noise is not None:
        print_noise_of(result)
    if result.decoys is not None:
        typer.echo(told_of_decoys(result.decoys))
    of = "times" if asked.search.is_local else f"of {result.nodes:,} generalizations"
    typer.echo(f"checked {result.checked:,} {of} in {figures['seconds']['total']:.2f} s")
    typer.echo(f"release: {release.path}, table {release.table}")


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
        typer.echo(f"warning: {warning}", err=True)
    figures = found.to_dict() | {"release": str(found.path), "table": found.table}
    figures |= {"seconds": {"total": time.perf_counter() - started}}
    if as_json:
        print_json(figures)
        return
    typer.echo(f"{found.released_before:,} rows were released before; the source has {found.new_rows:,} more")
    typer.echo(f"{found.added_rows:,} of them are added, {found.waiting_rows:,} have to wait")
    if not found.added_rows:
        typer.echo("the release stays as it is")
    typer.echo(f"{found.classes:,} classes, the smallest of {found.smallest_class:,} rows")
    typer.echo(f"release: {found.path}, table {found.table}")


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
    from sqlanon.compare import policies_of
    from sqlanon.database import connect
    from sqlanon.progress import shown_comparison

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
                typer.echo(f"{one['strategy']}: {one['error']}", err=True)
    if all(one["error"] is not None for one in found):
        raise typer.Exit(1)


@app.command()
def plan(policy: PolicyFile) -> None:
    """Show the stages of the main job and their SQL; reads no rows."""
    from sqlanon.database import connect

    with connect() as db:
        typer.echo(str(db.plan(load(policy))))


@app.command()
def init(
    database: Annotated[Path, typer.Argument(metavar="DATABASE", help="a DuckDB file", show_default=False)],
) -> None:
    """Install the catalog and the macro library in a DuckDB file."""
    from sqlanon.catalog import init_database

    init_database(database.absolute())
    typer.echo(f"{database.absolute()}: the catalog and the macro library are in schema sqlanon")
