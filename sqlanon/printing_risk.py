"""What `risk` prints about attackers, leakage and levels, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sqlanon.printing import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlanon.risk import Leakage, Risk, UniquesMatrix

MOST_LEAKING = 10
"""So many sets of attributes are shown; ``--json`` has all."""


def print_attackers(found: Risk) -> None:
    """What each attacker may hope for, and how large classes are."""
    prosecutor, journalist, marketer = found.prosecutor, found.journalist, found.marketer
    for threshold, rows in prosecutor.rows_above.items():
        of_all = 100 * prosecutor.share_above[threshold]
        typer.echo(f"{rows:,} rows have a prosecutor's risk of more than {threshold}: {of_all:.3g} % of all")
    by = {"table": "by the population table", "estimate": "estimated from the size of the population", None: ""}
    if journalist.population is not None:
        told = f"highest {journalist.highest:.4g}, on average {journalist.average:.4g}"
        typer.echo(f"journalist's risk, {by[journalist.population]}: {told}")
        if journalist.rows_of_nobody:
            typer.echo(f"{journalist.rows_of_nobody:,} rows match nobody of the population")
        typer.echo(f"marketer's risk: {marketer.average:.4g}, or {marketer.expected:,.4g} of all {found.counts}")
    if found.population is not None:
        one = found.population
        share = "no estimate" if one.dankar is None else f"{100 * one.dankar:.4g} %"
        model = f" ({one.chosen})" if one.chosen else ""
        typer.echo(f"unique in a population of {one.N:,.0f}: {share} of the {found.counts}{model}")
    if found.individual is not None:
        risk = found.individual
        told = f"highest {risk.highest:.4g}, on average {risk.average:.4g}, {risk.expected:,.4g} expected"
        typer.echo(f"individual risk by weights: {told}")
    if found.household is not None:
        home = found.household
        told = f"highest {home.highest:.4g}, on average {home.average:.4g}"
        typer.echo(f"risk of {home.households:,} households: {told}")
    sizes = [f"{n:,} of {size}" for size, n in found.class_sizes.histogram.items() if n]
    if sizes:
        typer.echo(f"classes by size: {', '.join(sizes)}")


def print_leakage(leakage: Sequence[Leakage]) -> None:
    """What sets of attributes leak, in a table."""
    from rich.table import Table
    from rich.text import Text

    if not leakage:
        return
    table = Table("attributes", "bits of leakage", "of all", "classes", "unique rows")
    for column in table.columns[1:]:
        column.justify = "right"
    for one in leakage[:MOST_LEAKING]:
        cells = [f"{one.gain:.4f}", f"{100 * one.normalized:.2f} %", f"{one.classes:,}", f"{one.uniques:,}"]
        table.add_row(Text(", ".join(one.attributes)), *cells)
    print_table(table)


def print_matrix(found: UniquesMatrix) -> None:
    """The rows that are unique, by the levels of two attributes."""
    from rich.table import Column, Table
    from rich.text import Text

    first, second = found.attributes
    corner = Column(header=Text(f"unique rows: {first} by {second}"))
    table = Table(corner, *(f"level {j}" for j in range(len(found.uniques[0]))))
    for column in table.columns[1:]:
        column.justify = "right"
    for i, row in enumerate(found.uniques):
        table.add_row(f"level {i}", *(f"{n:,}" for n in row))
    print_table(table)
