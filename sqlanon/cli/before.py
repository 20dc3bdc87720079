"""The commands that look at a private table before it is released."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sqlanon.cli.common import AsJson, MemoryLimit, PolicyFile, Threads, app, load, numbers, two_names
from sqlanon.cli.printing import print_json, print_noise, print_requirements, print_suda
from sqlanon.cli.printing_risk import print_attackers, print_dependencies, print_leakage, print_matrix
from sqlanon.terminal import hand_out, say


@app.command()
def risk(
    policy: PolicyFile,
    as_json: AsJson = False,
    epsilon: Annotated[
        str | None,
        typer.Option("--epsilon", metavar="E,...", help="for a policy with noise: tell the errors for these ε"),
    ] = None,
    suda: Annotated[
        bool, typer.Option("--suda", help="look for rows that are alone with few of their quasi-identifiers, too")
    ] = False,
    suda_size: Annotated[
        int | None, typer.Option("--suda-size", metavar="M", help="--suda with at most so many of them at a time")
    ] = None,
    leakage: Annotated[
        int, typer.Option("--leakage", metavar="N", min=0, help="tell the leakage of sets of up to N attributes")
    ] = 3,
    matrix: Annotated[
        str | None,
        typer.Option("--matrix", metavar="A,B", help="count the rows that are unique at each level of two attributes"),
    ] = None,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
) -> None:
    """Say how risky the source is as it stands, and what of it breaks the policy."""
    from sqlanon.database import connect

    asked = load(policy)
    with connect(memory_limit=memory_limit, threads=threads) as db:
        found = db.risk(asked, numbers("--epsilon", epsilon), leakage)
        uniques = None if matrix is None else db.uniques_matrix(asked, *two_names("--matrix", matrix))
        special = db.suda(asked, suda_size) if suda or suda_size is not None else None
    if as_json:
        more = {"matrix": uniques, "suda": special}
        print_json(found.to_dict() | {name: one.to_dict() for name, one in more.items() if one is not None})
        return
    persons = found.persons is not None
    who = f"{found.rows:,} rows" + (f" of {found.persons:,} persons" if persons else "")
    say(f"{who} in {found.classes:,} classes; {found.uniques:,} rows are alone in theirs")
    if found.k is not None:
        few = f"{found.k} persons" if persons else f"{found.k}"
        of = f", without {', '.join(asked.noisy)}" if asked.noisy else ""
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
    elif asked.noisy:
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
