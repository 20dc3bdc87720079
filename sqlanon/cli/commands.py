"""The commands: one thin function each, in the order of the help.

Those that make releases come first, then those that look at a private table before, and at releases after.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sqlanon.cli.printing import (
    print_attackers,
    print_comparison,
    print_dependencies,
    print_export,
    print_json,
    print_leakage,
    print_live,
    print_matrix,
    print_noise,
    print_requirements,
    print_result,
    print_suda,
    print_verification,
)
from sqlanon.errors import PolicyError, Problem
from sqlanon.resources import __version__
from sqlanon.terminal import hand_out, printable, say

if TYPE_CHECKING:
    from sqlanon.policy import Policy

app = typer.Typer(
    help="Makes tables safe to share: finds the version that protects everybody and loses the least.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY.toml", help="path to the policy file", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object")]
MemoryLimit = Annotated[
    str | None, typer.Option("--memory-limit", metavar="SIZE", help="what to hold in memory at most, such as 2GB")
]
Threads = Annotated[int | None, typer.Option("--threads", metavar="N", help="how many threads to use at most")]
Dialect = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        metavar="NAME",
        help="of the warehouse: bigquery, databricks, duckdb, postgres, snowflake, spark or trino",
    ),
]


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


def numbers(option: str, given: str | None) -> tuple[float, ...]:
    """Numbers with commas between them, of an option."""
    try:
        return () if given is None else tuple(float(one) for one in given.split(","))
    except ValueError:
        message = f"must be numbers with commas between them, such as 0.1,0.5,1, not {given!r}"
        raise PolicyError([Problem(option, message)]) from None


def two_names(option: str, given: str) -> tuple[str, str]:
    """Two names with a comma between them, of an option."""
    names = [name.strip() for name in given.split(",")]
    if len(names) != 2 or not all(names):
        raise PolicyError([Problem(option, f"must be two attributes with a comma between them, not {given!r}")])
    return names[0], names[1]


def load(path: Path) -> Policy:
    from sqlanon.policy import Policy

    return Policy.load(path)


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
    loaded = load(policy)
    if export is not None or dialect is not None or loaded.source.frequency_set:
        _export(loaded, export, dialect, as_json, memory_limit, threads)
        return
    if loaded.release is None or not loaded.release.has_a_place:
        places = 'database = "release.duckdb", file = "release.parquet", postgres = ... or spark = true'
        message = f"say where the release goes: {places}"
        raise PolicyError([Problem("release", message)])
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_progress() as progress:
        result = db.anonymize(loaded, progress)
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
    loaded: Policy,
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

    if not loaded.source.frequency_set:
        message = "is for a table in a warehouse, of which [source] has a frequency_set: leave it out"
        raise PolicyError([Problem("--export" if export is not None else "--dialect", message)])
    if export is None or dialect is None:
        message = (
            "has no rows to release: --export FOLDER --dialect NAME writes what makes the release in the warehouse"
        )
        raise PolicyError([Problem("source.frequency_set", message)])
    started, dialect = time.perf_counter(), dialect_of(dialect)
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_progress() as progress:
        result = db.anonymize(loaded, progress)
        folder = result.export(export, dialect)
    total = time.perf_counter() - started
    for warning in result.warnings:
        say(f"warning: {warning}", err=True)
    if as_json:
        table = "release" if loaded.release is None else loaded.release.table
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

    loaded = load(policy)
    if drop:
        with connect(memory_limit=memory_limit, threads=threads) as db:
            dropped = db.drop_live(loaded, name)
        if as_json:
            print_json({"dropped": dropped})
        else:
            say(f"view {printable(dropped)} is gone, and what it read beside its table")
        return
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_progress() as progress:
        view = db.live(loaded, name, progress)
    for warning in view.warnings:
        say(f"warning: {warning}", err=True)
    if as_json:
        print_json(view.to_dict() | {"database": str(loaded.source.database)})
        return
    print_live(view, loaded)


@app.command()
def compare(
    policy: PolicyFile,
    strategies: Annotated[
        str | None,
        typer.Option("--strategies", metavar="NAME,...", help="which to compare; default: all that fit the policy"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON list, an object a strategy")] = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Say what each of several strategies finds; nothing is published."""
    from sqlanon.cli.progress import shown_comparison
    from sqlanon.database import connect
    from sqlanon.search.compare import policies_of

    loaded = load(policy)
    names = None if strategies is None else [name.strip() for name in strategies.split(",")]
    count = len(policies_of(loaded, names))
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_comparison(count) as progress:
        relation = db.compare(loaded, names, progress)
        found = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    if as_json:
        print_json(found)
    else:
        print_comparison(found, loaded.search.measure)
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
    from sqlanon.ledger.catalog import init_database

    init_database(database.absolute())
    say(f"{database.absolute()}: the catalog and the macro library are in schema sqlanon")


@app.command()
def risk(
    policy: PolicyFile,
    as_json: AsJson = False,
    epsilon: Annotated[
        str | None,
        typer.Option("--epsilon", metavar="E,...", help="for a policy with noise: report the errors for these ε"),
    ] = None,
    suda: Annotated[
        bool, typer.Option("--suda", help="look for rows that are alone with few of their quasi-identifiers, too")
    ] = False,
    suda_size: Annotated[
        int | None, typer.Option("--suda-size", metavar="M", help="--suda with at most M of them at a time")
    ] = None,
    leakage: Annotated[
        int, typer.Option("--leakage", metavar="N", min=0, help="report the leakage of sets of up to N attributes")
    ] = 3,
    matrix: Annotated[
        str | None,
        typer.Option("--matrix", metavar="A,B", help="count the rows that are unique at each level of two attributes"),
    ] = None,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Report how risky the source is as it stands, and what in it breaks the policy."""
    from sqlanon.database import connect

    loaded = load(policy)
    with connect(memory_limit=memory_limit, threads=threads) as db:
        found = db.risk(loaded, numbers("--epsilon", epsilon), leakage)
        uniques = None if matrix is None else db.uniques_matrix(loaded, *two_names("--matrix", matrix))
        special = db.suda(loaded, suda_size) if suda or suda_size is not None else None
    if as_json:
        more = {"matrix": uniques, "suda": special}
        print_json(found.to_dict() | {name: one.to_dict() for name, one in more.items() if one is not None})
        return
    persons = found.persons is not None
    who = f"{found.rows:,} rows" + (f" of {found.persons:,} persons" if persons else "")
    say(f"{who} in {found.classes:,} classes; {found.uniques:,} rows are alone in theirs")
    if found.k is not None:
        few = f"{found.k} persons" if persons else f"{found.k}"
        of = f", without {', '.join(loaded.noisy)}" if loaded.noisy else ""
        say(f"{found.rows_below_k:,} rows are in classes of fewer than {few}{of}")
    fewest = f"; the fewest persons in one are {found.smallest_class_persons:,}" if persons else ""
    say(f"the smallest class has {found.smallest_class:,} rows{fewest}")
    say(f"prosecutor's risk: highest {found.highest_risk:.4g}, on average {found.average_risk:.4g}")
    print_attackers(found)
    print_requirements(found.requirements)
    print_leakage(found.leakage)
    print_dependencies(found.dependencies)
    if uniques is not None:
        print_matrix(uniques)
    if found.noise is not None:
        print_noise(found.noise)
    elif loaded.noisy:
        say("nothing meets the policy, so that there are no classes to tell the errors of noise for")
    if special is not None:
        print_suda(special)


@app.command()
def suggest(
    database: Annotated[
        Path, typer.Argument(metavar="DATABASE", help="a DuckDB file; or a Parquet or CSV file", show_default=False)
    ],
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="the table; of a file, leave it out", show_default=False)
    ] = None,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Write a commented policy to start from: roles and hierarchies, by names, types and figures."""
    from sqlanon.database import connect

    with connect(database, memory_limit=memory_limit, threads=threads) as db:
        hand_out(db.suggest(table))


@app.command()
def verify(
    release: Annotated[
        str,
        typer.Argument(
            metavar="RELEASE", help="a release file; or postgresql://..., sc://... or env:NAME", show_default=False
        ),
    ],
    policy: Annotated[Path | None, typer.Option("--policy", help="check against its source, too")] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="SCHEMA.NAME", help="which release, in PostgreSQL or Spark")
    ] = None,
    sha256: Annotated[
        str | None,
        typer.Option(
            "--sha256", metavar="HEX", help="the SHA-256 that its file should have, as its publisher gives it"
        ),
    ] = None,
    as_json: AsJson = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Check a release: what it shows against what it claims."""
    from sqlanon.engines.limits import Limits
    from sqlanon.release.target import place_of

    limits = Limits(memory_limit, threads)
    if policy is None:
        found = place_of(release, table).verify(limits, sha256)
    else:
        from sqlanon.database import connect

        with connect(memory_limit=memory_limit, threads=threads) as db:
            found = db.verify(release, load(policy), table, sha256)
    if as_json:
        print_json(found.to_dict())
    else:
        print_verification(found)
    if not found.verified:
        raise typer.Exit(1)


@app.command()
def attack(
    releases: Annotated[
        list[str], typer.Argument(metavar="RELEASE...", help="release files of one table", show_default=False)
    ],
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="POLICY.toml", help="its hierarchies, and its source")
    ] = None,
    outside: Annotated[
        str | None,
        typer.Option("--outside", metavar="FILE_OR_TABLE", help="a table that names people, to link the releases with"),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="ATTACK,...", help="which; by default all of them")
    ] = None,
    known: Annotated[
        int, typer.Option("--known", metavar="M", help="how many sensitive values the adversary can rule out")
    ] = 1,
    sql: Annotated[bool, typer.Option("--sql", help="print the statements that show the victims, too")] = False,
    as_json: AsJson = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Run the published attacks on releases and count the affected rows; give the SQL that shows them."""
    from sqlanon import attacks
    from sqlanon.cli.printing import print_attacks

    names = None if only is None else [name.strip() for name in only.split(",")]
    found = attacks.attack(
        releases,
        None if policy is None else load(policy),
        outside,
        names,
        known,
        memory_limit=memory_limit,
        threads=threads,
    )
    if as_json:
        print_json(found.to_dict())
    else:
        print_attacks(found, sql)


@app.command()
def report(
    of: Annotated[
        str,
        typer.Argument(metavar="POLICY.toml|RELEASE", help="a release, or what a policy would release"),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="the page to write", show_default=False)
    ],
    private: Annotated[
        bool, typer.Option("--private", help="of a policy: show the source and the search, too, for inside only")
    ] = False,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", metavar="POLICY.toml", help="of a release: check against its source, too"),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="with --private: compare all strategies that fit the policy")
    ] = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Write a page for people: what was asked, whether it holds, what happened to each column. Publishes nothing."""
    from sqlanon.cli.progress import shown_progress
    from sqlanon.database import connect

    subject = load(Path(of)) if of.lower().endswith(".toml") else of
    with connect(memory_limit=memory_limit, threads=threads) as db, shown_progress() as progress:
        holds = db.report(
            subject,
            output,
            private,
            None if policy is None else load(policy),
            None if compare else (),
            progress,
        )
    say(f"{output.absolute()}: {'what was asked holds' if holds else 'NOT verified'}")
    if not holds:
        raise typer.Exit(1)
