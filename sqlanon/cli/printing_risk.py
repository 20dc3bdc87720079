"""What `risk` prints about attackers, leakage and levels, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlanon.cli.printing import print_class_sizes
from sqlanon.terminal import percent, say, show_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlanon.release.dependencies import Narrowing
    from sqlanon.risk import Leakage, Risk, UniquesMatrix

MOST_LEAKING = 10
"""So many sets of attributes are shown; ``--json`` has all."""


def print_attackers(found: Risk) -> None:
    """What each attacker may hope for, and how large classes are."""
    prosecutor, journalist, marketer = found.prosecutor, found.journalist, found.marketer
    for threshold, rows in prosecutor.rows_above.items():
        of_all = percent(prosecutor.share_above[threshold], 1)
        say(f"{rows:,} rows have a prosecutor's risk of more than {threshold}: {of_all} of all")
    by = {"table": "by the population table", "estimate": "estimated from the size of the population", None: ""}
    if journalist.population is not None:
        told = f"highest {journalist.highest:.4g}, on average {journalist.average:.4g}"
        say(f"journalist's risk, {by[journalist.population]}: {told}")
        if journalist.rows_of_nobody:
            say(f"{journalist.rows_of_nobody:,} rows match nobody of the population")
        say(f"marketer's risk: {marketer.average:.4g}, or {marketer.expected:,.4g} of all {found.counts}")
    if found.population is not None:
        one = found.population
        share = "no estimate" if one.dankar is None else f"{100 * one.dankar:.4g} %"
        model = f" ({one.chosen})" if one.chosen else ""
        say(f"unique in a population of {one.N:,.0f}: {share} of the {found.counts}{model}")
    if found.individual is not None:
        risk = found.individual
        told = f"highest {risk.highest:.4g}, on average {risk.average:.4g}, {risk.expected:,.4g} expected"
        say(f"individual risk by weights: {told}")
    if found.household is not None:
        home = found.household
        told = f"highest {home.highest:.4g}, on average {home.average:.4g}"
        say(f"risk of {home.households:,} households: {told}")
    say("")
    print_class_sizes(found.class_sizes.sizes.items(), found.counts)


def print_leakage(leakage: Sequence[Leakage]) -> None:
    """What sets of attributes leak, in a table."""
    if not leakage:
        return
    say("")
    rows = []
    for one in leakage[:MOST_LEAKING]:
        cells = [f"{one.gain:.4f}", f"{100 * one.normalized:.2f} %", f"{one.classes:,}", f"{one.uniques:,}"]
        rows.append([", ".join(one.attributes), *cells])
    show_table(["attributes", "bits of leakage", "of all", "classes", "unique rows"], rows)


def print_dependencies(found: Sequence[Narrowing]) -> None:
    """The columns that narrow quasi-identifiers, in a table."""
    if not found:
        return
    say("")
    rows = [
        [" and ".join(one.columns), one.quasi, f"{one.before:,.1f}", f"{one.after:,.1f}", f"{100 * one.pinned:.1f} %"]
        for one in found
    ]
    show_table(["released as it is", "narrows", "values", "values left", "rows given away"], rows)
    say(f"to see the values left: {found[0].query}")


def print_matrix(found: UniquesMatrix) -> None:
    """The rows that are unique, by the levels of two attributes."""
    first, second = found.attributes
    say("")
    headers = [f"unique rows: {first} by {second}", *(f"level {j}" for j in range(len(found.uniques[0])))]
    show_table(headers, [[f"level {i}", *(f"{n:,}" for n in row)] for i, row in enumerate(found.uniques)])
