"""What a check of one generalization tells: of itself, of all below it, and of all above it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlanon.measures import Figures
from sqlanon.requirements import Requirements


@dataclass(frozen=True)
class Verdict:
    """What follows from the figures of a generalization.

    Attributes
    ----------
    satisfies:
        Whether it satisfies the policy.
    hopeless:
        Whether neither it nor anything below it can.
    lasting:
        Whether everything above it satisfies the policy, as it does.
    """

    satisfies: bool
    hopeless: bool
    lasting: bool


@dataclass(frozen=True)
class Rules:
    """What may be concluded, and nothing else: the docstrings of the requirements say why.

    Attributes
    ----------
    requirements:
        What the policy asks for.
    rows:
        Of the source.
    additive:
        Whether the counts of merged classes add up.
    """

    requirements: Requirements
    rows: int
    additive: bool = True

    def judge(self, figures: Figures, allowed_rows: int) -> Verdict:
        """Judge a generalization, where so many rows may be suppressed."""
        asked = self.requirements
        count, singles = figures.count, figures.singles
        table = [one.holds(figures.classes, count, singles) for one in asked.table]
        within = figures.suppressed_rows <= allowed_rows and figures.classes > 0
        satisfies = within and all(table) and not figures.unmet and figures.estimate_holds
        lost = figures.suppressed_rows if figures.lost is None else figures.lost
        # What is lost is a sum of distances and logarithms times rows: a rounding must not rule out what satisfies.
        too_many = lost > min(allowed_rows, self.rows - 1) + 1e-6 + 1e-9 * self.rows
        same_rows = not (asked.classes or asked.shields) or figures.suppressed_rows == allowed_rows == 0
        never = same_rows and self.additive and not all(table)
        everything = figures.suppressed_rows == 0 and self.additive and asked.population_uniqueness is None
        return Verdict(
            satisfies,
            hopeless=too_many or never or (figures.too_few > 0 and self.additive),
            lasting=satisfies and (asked.hereditary or everything),
        )
