"""The stages of a job that is laid out, and not done: their names, and their SQL."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass


def one_line(text: str) -> str:
    """A text in a comment, which it cannot end.

    >>> one_line("zip\\n; DROP TABLE t")
    'zip ; DROP TABLE t'
    """
    return " ".join("".join(" " if unicodedata.category(one)[0] in "CZ" else one for one in text).split())


@dataclass(frozen=True)
class Stage:
    """A step of the main job: its name, what it reads and makes, and its statements."""

    name: str
    note: str
    sql: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The stages of the main job.

    Attributes
    ----------
    stages:
        In order.
    nodes:
        The size of the lattice; None where it depends on data.
    unknown_heights:
        The quasi-identifiers whose number of levels depends on data.
    """

    stages: tuple[Stage, ...]
    nodes: int | None
    unknown_heights: tuple[str, ...]

    def __str__(self) -> str:
        parts = []
        for number, stage in enumerate(self.stages, 1):
            parts.append(f"-- {number}. {stage.name}: {stage.note}")
            parts += [f"{statement};" for statement in stage.sql]
            parts.append("")
        if self.nodes is not None:
            parts.append(f"-- The lattice has {self.nodes:,} generalizations.")
        else:
            names = one_line(", ".join(self.unknown_heights))
            parts.append(f"-- The size of the lattice depends on the data: on the values of {names}.")
        return "\n".join(parts)
