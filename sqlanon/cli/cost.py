"""The cost of a release: fully suppressed quasi-identifiers, and a strategy that would keep some of them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlanon.errors import SqlanonError
from sqlanon.release.sentences import join_names

if TYPE_CHECKING:
    from sqlanon.disclosure.residual_risk import ResidualRisk
    from sqlanon.pipeline import StageProgress
    from sqlanon.result import Result
    from sqlanon.suggest import Trial

_MAX_NAMES = 8
"""Maximum number of attributes that a sentence names."""


@dataclass(frozen=True)
class Cost:
    """The fully suppressed quasi-identifiers, the loss, and a trial of another strategy with those that it keeps."""

    fully_suppressed: tuple[str, ...]
    loss: float = 0.0
    trial: Trial | None = None
    retained: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Fields that the JSON of a result has in addition."""
        fields: dict[str, Any] = {"fully_suppressed": list(self.fully_suppressed)}
        if (trial := self.trial) is not None:
            alternative = {"search": dict(trial.search), "loss": trial.loss}
            fields["alternative"] = alternative | {"keeps": list(self.retained), "rows": trial.rows}
        return fields

    def sentences(self, policy: Path, rows: int) -> list[str]:
        suppressed, trial = self.fully_suppressed, self.trial
        if not suppressed:
            return []
        are = "is" if len(suppressed) == 1 else "are"
        sentences = [f"{join_names(suppressed, _MAX_NAMES)} {are} fully suppressed."]
        if trial is not None:
            names = join_names(self.retained, _MAX_NAMES)
            if len(self.retained) == len(suppressed):
                names = "it" if len(suppressed) == 1 else "them"
            loss = f"loss {trial.loss:.2g} instead of {self.loss:.2g}"
            loss += f", on a sample of {trial.rows:,} rows" if trial.rows < rows else ""
            loss += ", not searched to the end" if trial.stopped else ""
            settings = {key: value for key, value in trial.search.items() if key != "strategy"}
            options = "".join(f" --set search.{key}={value}" for key, value in settings.items())
            sentences.append(f"`{trial.name}` would keep {names} ({loss}):")
            sentences.append(f"  add --strategy {trial.search['strategy']}{options}")
            sentences.append(f"To compare all strategies: sqlanon compare {shlex.quote(str(policy))}")
        return sentences


def measure_cost(result: Result, seconds: float, progress: StageProgress) -> Cost:
    """Measure the cost of a result; try other strategies, in about as many seconds as its run took, only if an
    attribute is fully suppressed."""
    suppressed = result.fully_suppressed
    if not suppressed:
        return Cost(())
    from sqlanon.suggest.trials import try_finer

    progress("trials", 0, 0, None)
    try:
        trial = try_finer(result, seconds)
    except SqlanonError:  # a failed trial does not affect the release
        trial = None
    retained = () if trial is None else tuple(name for name in suppressed if name not in trial.fully_suppressed)
    return Cost(suppressed, result.loss, trial, retained)


def measure_price(result: Result, risk: ResidualRisk | None, seconds: float, progress: StageProgress) -> str | None:
    """Measure the loss that the advice against a risk would cost: a sentence; None if it was not measured."""
    if risk is None or risk.change is None:
        return None
    from sqlanon.suggest.trials import price_change

    progress("trials", 0, 0, None)
    try:
        price = price_change(result, risk.change, seconds)
    except SqlanonError:  # a failed trial does not affect the release
        price = None
    if price is None:
        return None
    sample = f" on a sample of {price.rows:,} rows" if price.rows < result.rows else ""
    if price.loss_after is None:
        return f"What prevents it costs too much:{sample or ' with it'} nothing meets the policy."
    end = ", not searched to the end" if price.stopped else ""
    loss = f"loss {price.loss_after:.2g} instead of {price.loss_before:.2g}"
    return f"What prevents it costs: {loss}{',' if sample else ''}{sample}{end}."
