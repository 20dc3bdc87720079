"""What a release costs: the quasi-identifiers of which nothing is left, and the strategy that would keep them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlanon.release.sentences import join_names

if TYPE_CHECKING:
    from sqlanon.disclosure.residual_risk import ResidualRisk
    from sqlanon.pipeline import StageProgress
    from sqlanon.result import Result
    from sqlanon.suggest import Trial

MOST_NAMES = 8
"""The most attributes that a sentence names."""


@dataclass(frozen=True)
class Cost:
    """The quasi-identifiers that are fully suppressed, the loss, and what a trial of another strategy keeps of them."""

    fully_suppressed: tuple[str, ...]
    loss: float = 0.0
    trial: Trial | None = None
    kept: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON: beside the figures of a result."""
        found: dict[str, Any] = {"fully_suppressed": list(self.fully_suppressed)}
        if self.trial is not None:
            trial = self.trial
            found["alternative"] = {
                "search": dict(trial.search), "loss": trial.loss, "keeps": list(self.kept), "rows": trial.rows,
            }  # fmt: skip
        return found

    def sentences(self, policy: Path, rows: int) -> list[str]:
        """For people; nothing where nothing is fully suppressed."""
        gone = self.fully_suppressed
        if not gone:
            return []
        said = [f"{join_names(gone, MOST_NAMES)} {'is' if len(gone) == 1 else 'are'} fully suppressed."]
        if self.trial is not None:
            rest = "" if len(self.kept) < len(gone) else "it" if len(gone) == 1 else "them"
            loss = f"loss {self.trial.loss:.2g} instead of {self.loss:.2g}"
            loss += f", on a sample of {self.trial.rows:,} rows" if self.trial.rows < rows else ""
            loss += ", not searched to the end" if self.trial.stopped else ""
            options = f"--strategy {self.trial.search['strategy']}"
            more = {key: value for key, value in self.trial.search.items() if key != "strategy"}
            options += "".join(f" --set search.{key}={value}" for key, value in more.items())
            said.append(f"`{self.trial.name}` would keep {rest or join_names(self.kept, MOST_NAMES)} ({loss}):")
            said.append(f"  add {options}")
            said.append(f"To compare all strategies: sqlanon compare {shlex.quote(str(policy))}")
        return said


def cost_of(result: Result, seconds: float, progress: StageProgress) -> Cost:
    """What the result of a run of these seconds costs. Other strategies are tried only where nothing is left of some
    attribute."""
    gone = result.fully_suppressed
    if not gone:
        return Cost(())
    from sqlanon.errors import SqlanonError
    from sqlanon.suggest.trials import try_finer

    progress("trials", 0, 0, None)
    try:
        trial = try_finer(result, seconds)
    except SqlanonError:  # the release is what it is
        trial = None
    kept = () if trial is None else tuple(name for name in gone if name not in trial.fully_suppressed)
    return Cost(gone, result.loss, trial, kept)


def price_of(result: Result, risk: ResidualRisk | None, seconds: float, progress: StageProgress) -> str | None:
    """What the advice against a risk costs, in a sentence; None where it was not measured."""
    if risk is None or risk.change is None:
        return None
    from sqlanon.errors import SqlanonError
    from sqlanon.suggest.trials import price_change

    progress("trials", 0, 0, None)
    try:
        price = price_change(result, risk.change, seconds)
    except SqlanonError:  # the release is what it is
        price = None
    if price is None:
        return None
    sample = f" on a sample of {price.rows:,} rows" if price.rows < result.rows else ""
    if price.loss_after is None:
        return f"What prevents it costs too much:{sample or ' with it'} nothing meets the policy."
    end = ", not searched to the end" if price.stopped else ""
    loss = f"loss {price.loss_after:.2g} instead of {price.loss_before:.2g}"
    return f"What prevents it costs: {loss}{',' if sample else ''}{sample}{end}."
