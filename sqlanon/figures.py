"""The figures of a result: plain values, which say how good it is to programs, to people and to the catalog."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlanon.markup import html_table
from sqlanon.policy import Policy
from sqlanon.version import __version__

if TYPE_CHECKING:
    from sqlanon.decoys import Decoys
    from sqlanon.noise.stage import Linking
    from sqlanon.risk.narrowing import Narrowing


class ResultFigures:
    """What is known of a result without its tables; `Result` says what each is."""

    run_id: str
    started_at: datetime
    policy: Policy
    generalization: Mapping[str, int | None]
    measure: str
    score: float
    score_without_decoys: float | None
    optimal: bool
    bound: float
    rows: int
    suppressed_rows: int
    released_rows: int
    classes: int
    smallest_class: int
    null_map: int | None
    wrong_map: int | None
    nodes: int
    checked: int
    k_minimal: list[dict[str, int]] | None
    satisfying: list[dict[str, int]] | None
    epsilon: float | None
    noise: Mapping[str, Mapping[str, Any]] | None
    _linking: Linking | None
    linking_risk: float | None
    linking_risk_strict: float | None
    confidence: Mapping[str, Any] | None
    decoys: Decoys | None
    held_against: tuple[str, ...]
    dependencies: tuple[Narrowing, ...]
    warnings: tuple[str, ...]
    seconds: dict[str, float]

    @property
    def gap(self) -> float:
        """How far the score may be from the best one, as a share of it: |score − bound| / |score|; 0 if it is
        optimal."""
        score = self.score if self.score_without_decoys is None else self.score_without_decoys
        return abs(score - self.bound) / abs(score) if score != self.bound else 0.0

    @property
    def proof(self) -> str:
        """What is proven of the score, in words: ``optimal``, or ``not proven optimal: within 3.2 %``."""
        of = " before decoys" if self.decoys is not None and self.decoys.rows else ""
        if self.optimal:
            return f"optimal{of}"
        if self.policy.search.is_local:  # nothing is known of what all recodings could reach
            return "not proven optimal"
        return f"not proven optimal{of}: within {math.ceil(1000 * self.gap) / 10:g} %"  # rounded up, so that it is true

    def to_catalog(self) -> dict[str, Any]:
        """The run, as a row of the catalog."""
        return {
            "run_id": self.run_id,
            "started_at": self.started_at,
            "policy": self.policy.model_dump_json(),
            "policy_hash": self.policy.fingerprint(),
            "strategy": self.policy.search.strategy,
            "measure": self.measure,
            "rows": self.rows,
            "suppressed_rows": self.suppressed_rows,
            "classes": self.classes,
            "score": self.score,
            "optimal": self.optimal,
            "generalization": json.dumps(self.generalization, ensure_ascii=False),
            "nodes": self.nodes,
            "checked": self.checked,
            "seconds": sum(self.seconds.values()),
            "sqlanon_version": __version__,
        }

    def to_dict(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        return {
            "rows": self.rows,
            "released_rows": self.released_rows,
            "suppressed_rows": self.suppressed_rows,
            "classes": self.classes,
            "smallest_class": self.smallest_class,
            "generalization": self.generalization,
            "measure": self.measure,
            "score": self.score,
            "lattice": {"nodes": self.nodes, "checked": self.checked},
            "optimal": self.optimal,
            "bound": self.bound,
            "gap": self.gap,
            "held_against": list(self.held_against),
            "dependencies": [one.to_dict() for one in self.dependencies],
            "warnings": list(self.warnings),
            **{
                name: value
                for name in ("null_map", "wrong_map", "k_minimal")
                if (value := getattr(self, name)) is not None
            },
            **({} if self.satisfying is None else {"satisfying": len(self.satisfying)}),
            **self._noise_to_dict(),
            **self._decoys_to_dict(),
        }

    def _decoys_to_dict(self) -> dict[str, Any]:
        if self.decoys is None:
            return {}
        return {"decoys": self.decoys.to_dict(), "score_without_decoys": self.score_without_decoys}

    def _noise_to_dict(self) -> dict[str, Any]:
        if self._linking is None:
            return {}
        return {
            "epsilon": self.epsilon,
            "noise": self.noise,
            "linking_risk": self.linking_risk,
            "linking_risk_strict": self.linking_risk_strict,
            **({} if self._linking.all_records else {"linking_rows": self._linking.records}),
            **({} if self.confidence is None else {"confidence": self.confidence}),
        }

    def _repr_html_(self) -> str:
        """For notebooks: its figures as a small table. Nothing is asked of the source."""
        rows = [
            ("generalization", ", ".join(f"{name} {_level(level)}" for name, level in self.generalization.items())),
            (f"score ({self.measure})", f"{self.score:.6g}, {self.proof}"),
            ("rows", f"{self.released_rows:,} of {self.rows:,} released, {self.suppressed_rows:,} suppressed"),
            ("classes", f"{self.classes:,}, the smallest of {self.smallest_class:,} rows"),
        ]
        return html_table("What would be released", ["", ""], rows)

    def __repr__(self) -> str:
        return (
            f"Result(generalization={self.generalization}, {self.measure}={self.score:.6g}, "
            f"suppressed_rows={self.suppressed_rows}, classes={self.classes}, optimal={self.optimal})"
        )


def _level(level: int | None) -> str:
    return "at several levels" if level is None else str(level)
