"""The commands that look at releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sqlanon.cli.common import AsJson, MemoryLimit, Threads, app, load
from sqlanon.cli.printing import print_json, print_verification
from sqlanon.terminal import say


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
    """Attack releases as the literature knows how: count the victims, and give the SQL that shows them."""
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
        bool, typer.Option("--compare", help="with --private: compare all strategies that can do what is asked")
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
