"""What the command line prints: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from sqlanon.attacks import Attacks
    from sqlanon.decoys import Decoys
    from sqlanon.result import Result
    from sqlanon.risk import RequirementRisk
    from sqlanon.suda import Suda


def print_requirements(requirements: Sequence[RequirementRisk]) -> None:
    """What breaks each requirement, in a table."""
    from rich.table import Table
    from rich.text import Text

    def figure(one: RequirementRisk) -> str:
        if one.limit is not None:
            return "no estimate" if one.figure is None else f"{one.figure:.4g}"
        return f"{one.population_classes:,} population classes without a row" if one.population_classes else ""

    headers = ["requirement", "holds", "classes that break it", "rows in them"]
    table = Table(*headers, *(["figure"] if any(map(figure, requirements)) else []))
    for column in table.columns[2:]:
        column.justify = "right"
    for one in requirements:
        counts = ["" if n is None else f"{n:,}" for n in (one.classes, one.rows)]
        cells = ["yes" if one.holds else "no", *counts, figure(one)]
        # A name is text, whatever brackets are in it.
        table.add_row(Text(one.requirement), *cells[: len(table.columns) - 1])
    print_table(table)


def print_suda(found: Suda) -> None:
    """Special uniques: how many rows, with how few attributes, and what each attribute has to do with it."""
    from rich.table import Table
    from rich.text import Text

    typer.echo(
        f"{found.rows_with_msus:,} of {found.rows:,} rows are alone with {found.size} or fewer of their "
        f"quasi-identifiers, in {found.msus:,} minimal ways"
    )
    if not found.msus:
        return
    smallest = ", ".join(f"{size}: {rows:,} rows" for size, rows in found.rows_by_smallest.items())
    typer.echo(f"by the fewest that are enough: {smallest}")
    score, ihsn = found.scores, found.ihsn_scores
    typer.echo(f"SUDA score: highest {score.highest:.4g} (IHSN: {ihsn.highest:.4g}), mean {score.average:.4g}")
    by = {"call": "as given", "policy": "by the policy", "default": "by default: the policy has none"}
    of = f"at a sampling fraction of {found.fraction:g} ({by[found.fraction_by]})"
    typer.echo(f"DIS-SUDA: highest {score.highest_dis:.4g} (IHSN: {ihsn.highest_dis:.4g}), DIS {found.dis:.4g}, {of}")
    table = Table("quasi-identifier", "contributes to the scores")
    table.columns[1].justify = "right"
    for name, share in sorted(score.contributions.items(), key=lambda one: -one[1]):
        table.add_row(Text(name), f"{share:.1f} %")
    print_table(table)


def print_comparison(found: Sequence[Mapping[str, Any]], measure: str) -> None:
    """What strategies found, in a table."""
    from rich.table import Table

    formats = {
        f"score ({measure})": ("score", ",.6g"),
        "loss": ("loss", ".4f"),
        "classes": ("classes", ",d"),
        "suppressed rows": ("suppressed_rows", ",d"),
        "checks": ("checked", ",d"),
        "seconds": ("seconds", ".2f"),
    }
    table = Table("strategy", *formats)
    for column in table.columns[1:]:
        column.justify = "right"
    for one in found:
        cells = ["" if one[name] is None else format(one[name], how) for name, how in formats.values()]
        cells[0] += " (optimal)" if one["optimal"] else ""
        table.add_row(one["strategy"], *cells)
    print_table(table)


def print_noise_of(result: Result) -> None:
    """What noise did to a result."""
    for name, one in (result.noise or {}).items():
        errors = [f"{one['expected_error']:,.4g}", f"{one['observed_error']:,.4g}"]
        shares = one["expected_relative_error"], one["observed_relative_error"]
        if None not in shares:  # a date has none, nor has a column of zeros
            errors = [f"{error} ({100 * share:.3g} % of it)" for error, share in zip(errors, shares, strict=True)]
        told = f"off by {errors[0]} as expected, by {errors[1]} as drawn, on average"
        typer.echo(f"noise: {name} with ε = {one['epsilon']:g}, {told}")
    risk = 100 * (result.linking_risk or 0.0)
    typer.echo(f"a record's ε is {result.epsilon:g}; {risk:.3g} % of the records can be linked to their own values")
    if result.confidence is not None:
        rows, beta = result.confidence["suppressed_rows"], result.confidence["beta"]
        typer.echo(f"{rows:,} of the suppressed rows were suppressed for a confidence of {100 * beta:g} %")


def told_of_decoys(decoys: Decoys) -> str:
    """What decoys there are, in words: k counts them, and says so."""
    if not decoys.rows:
        return "no decoys: no class stayed too small"
    told = f"{decoys.rows:,} of the released rows are decoys, which fill {decoys.classes:,} classes: k counts them; "
    return told + f"without them, the smallest class has {decoys.smallest_class_without:,} rows"


def print_noise(noise: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """The errors that noise would make, in a table."""
    from rich.table import Table
    from rich.text import Text

    table = Table("noise on", "ε", "expected relative error", "expected error")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, errors in noise.items():
        for one in errors:
            relative, error = one["expected_relative_error"], one["expected_error"]
            cells = ["" if relative is None else f"{100 * relative:.3g} %", "" if error is None else f"{error:,.4g}"]
            table.add_row(Text(name), f"{one['epsilon']:g}", *cells)
    print_table(table)


def print_table(table: Table) -> None:
    """As wide as it has to be where no terminal says otherwise."""
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout and sys.stdout.isatty() else 1000)
    with console.capture() as shown:
        console.print(table)
    typer.echo(shown.get(), nl=False)


def print_json(value: Any) -> None:
    """One line of JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def print_attacks(attacks: Attacks, with_sql: bool) -> None:
    """The victims of each attack; with SQL, the statements that show them, where there are any."""
    from rich.table import Table
    from rich.text import Text

    table = Table("attack", "victims", "share", "")
    for column in table.columns[1:3]:
        column.justify = "right"
    for one in attacks.values():
        name = one.name.replace("_", " ")
        if one.worst is None:
            table.add_row(name, "", "", Text(f"skipped: {one.skipped}"))
            continue
        figures = ", ".join(f"{key} {_plain(value)}" for key, value in one.worst.figures.items())
        table.add_row(name, f"{one.worst.victims:,}", f"{one.worst.share:.2%}", Text(figures))
    print_table(table)
    for path, decoys in attacks.decoys.items():
        typer.echo(f"{decoys:,} of the rows of {path} are decoys, rows of nobody: k, classes and victims count them")
    if not with_sql and any(one.victims for one in attacks.values()):
        typer.echo("who they are: --sql prints the statements that show them")
    for one in attacks.values():
        if with_sql and one.victims:
            typer.echo(f"\n-- {one.name.replace('_', ' ')}: this shows the victims\n{one.sql}")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
