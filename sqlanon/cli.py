"""The command line: one thin function per command.

Results go to stdout, progress and errors to stderr. Exit status: 0 done; 1 the job ran and the answer is no;
2 the request is wrong.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sqlanon.errors import PolicyError, Problem, ReleaseError, SqlanonError
from sqlanon.printing import print_comparison, print_json, print_noise, print_noise_of, print_requirements
from sqlanon.version import __version__

if TYPE_CHECKING:
    from sqlanon.policy import Policy

app = typer.Typer(
    help="Makes tables safe to share: finds the version that protects everybody and loses the least.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY.toml", help="what is asked", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object")]
MemoryLimit = Annotated[
    str | None, typer.Option("--memory-limit", metavar="SIZE", help="what to hold in memory at most, such as 2GB")
]
Threads = Annotated[int | None, typer.Option("--threads", metavar="N", help="how many threads to use at most")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sqlanon {__version__}")
        raise typer.Exit


@app.callback()
def _sqlanon(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Makes tables safe to share."""


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
    policy: PolicyFile, as_json: AsJson = False, memory_limit: MemoryLimit = None, threads: Threads = None
) -> None:
    """Find the best version of the table that meets the policy, audit it, and publish it."""
    import time

    from sqlanon.database import connect
    from sqlanon.progress import shown_progress

    started = time.perf_counter()
    asked = _load(policy)
    if asked.release is None or not (asked.release.database or asked.release.file):
        message = 'say where the release goes: database = "release.duckdb" or file = "release.parquet"'
        raise PolicyError([Problem("release", message)])
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_progress() as progress:
        result = db.anonymize(asked, progress)
        progress("write", 0, result.checked, result.score)
        release = result.publish()
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
    of = "times" if asked.search.is_local else f"of {result.nodes:,} generalizations"
    typer.echo(f"checked {result.checked:,} {of} in {figures['seconds']['total']:.2f} s")
    typer.echo(f"release: {release.path}, table {release.table}")


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

    asked = _load(policy)
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
        typer.echo(str(db.plan(_load(policy))))


@app.command()
def risk(
    policy: PolicyFile,
    as_json: AsJson = False,
    epsilon: Annotated[
        str | None,
        typer.Option("--epsilon", metavar="E,...", help="for a policy with noise: tell the errors for these ε"),
    ] = None,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Say how risky the source is as it stands, and what of it breaks the policy."""
    from sqlanon.database import connect

    asked = _load(policy)
    with connect(memory_limit=memory_limit, threads=threads) as db:
        found = db.risk(asked, _numbers("--epsilon", epsilon))
    if as_json:
        print_json(found.to_dict())
        return
    persons = found.persons is not None
    who = f"{found.rows:,} rows" + (f" of {found.persons:,} persons" if persons else "")
    typer.echo(f"{who} in {found.classes:,} classes; {found.uniques:,} rows are alone in theirs")
    if found.k is not None:
        few = f"{found.k} persons" if persons else f"{found.k}"
        of = f", without {', '.join(asked.noisy)}" if asked.noisy else ""
        typer.echo(f"{found.rows_below_k:,} rows are in classes of fewer than {few}{of}")
    fewest = f"; the fewest persons in one are {found.smallest_class_persons:,}" if persons else ""
    typer.echo(f"the smallest class has {found.smallest_class:,} rows{fewest}")
    typer.echo(f"prosecutor's risk: highest {found.highest_risk:.4g}, on average {found.average_risk:.4g}")
    print_requirements(found.requirements)
    if found.noise is not None:
        print_noise(found.noise)
    elif asked.noisy:
        typer.echo("nothing meets the policy, so that there are no classes to tell the errors of noise for")


@app.command()
def verify(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="a release file", show_default=False)],
    policy: Annotated[Path | None, typer.Option("--policy", help="check against its source, too")] = None,
    as_json: AsJson = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Check a release: what it shows against what it claims."""
    from sqlanon.engines.limits import Limits
    from sqlanon.release.verify import verify_file

    path, limits = release.absolute(), Limits(memory_limit, threads)
    if policy is None:
        found = verify_file(path, limits=limits)
    else:
        from sqlanon.database import connect

        with connect(memory_limit=memory_limit, threads=threads) as db:
            found = db.verify(path, _load(policy))
    if as_json:
        print_json(found.to_dict())
    else:
        words = {True: "ok", False: "FAILED", None: "not verifiable alone"}
        for check in found.checks:
            word, message = words[check.passed], check.message
            if check.passed is None and message.startswith("not "):
                word, _, message = message.partition(": ")
            typer.echo(f"{word}: {check.name}: {message}")
        typer.echo("verified" if found.verified else "NOT verified")
    if not found.verified:
        raise typer.Exit(1)


@app.command()
def init(
    database: Annotated[Path, typer.Argument(metavar="DATABASE", help="a DuckDB file", show_default=False)],
) -> None:
    """Install the catalog and the macro library in a DuckDB file."""
    from sqlanon.catalog import init_database

    init_database(database.absolute())
    typer.echo(f"{database.absolute()}: the catalog and the macro library are in schema sqlanon")


def _numbers(option: str, given: str | None) -> tuple[float, ...]:
    try:
        return () if given is None else tuple(float(one) for one in given.split(","))
    except ValueError:
        message = f"must be numbers with commas between them, such as 0.1,0.5,1, not {given!r}"
        raise PolicyError([Problem(option, message)]) from None


def _load(path: Path) -> Policy:
    from sqlanon.policy import Policy

    return Policy.load(path)


def main() -> None:
    """Run the command line; errors become a sentence and an exit status, never a traceback."""
    try:
        app(prog_name="sqlanon")
    except SqlanonError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        typer.echo(f"error: {named}{error.strerror or type(error).__name__}", err=True)
        sys.exit(SqlanonError.exit_status)
    except Exception as error:  # an engine's message may quote private values: only its kind is shown
        if isinstance(error, RuntimeError) and "interrupted" in str(error).lower():  # so the engine tells of Ctrl-C
            sys.exit(130)
        if os.environ.get("SQLANON_DEBUG"):
            raise
        if type(error).__name__ == "OutOfMemoryException":  # the engine's
            typer.echo("error: more memory is needed: raise --memory-limit, or lower --threads", err=True)
            sys.exit(SqlanonError.exit_status)
        typer.echo(
            f"error: {type(error).__name__} in the engine or in sqlanon itself. Set SQLANON_DEBUG=1 to see all of it; "
            "mind that it may quote values of the source",
            err=True,
        )
        sys.exit(ReleaseError.exit_status)


if __name__ == "__main__":
    main()
