"""Every error that sqlanon raises on purpose: one root, and subclasses that carry their data.

Errors are for people: each says what is wrong, where, and what to do. None carries a private value
beyond the few that the data holder needs to mend a hierarchy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and its place (``attributes.zip.hierarchy``).

    >>> print(Problem("privacy.k", "must be at least 1"))
    privacy.k: must be at least 1
    """

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class SqlanonError(Exception):
    """The root of all errors of sqlanon. ``exit_status`` is what the command line ends with."""

    exit_status = 2


class _ProblemsError(SqlanonError, ValueError):
    """An error that reports several problems at once."""

    heading = "{count} problems"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        plural = "problem" if count == 1 else "problems"
        options = self.problems and all(problem.place.startswith("--") for problem in self.problems)
        lines = [
            f"{count} {plural} in {'the options' if options else self.heading}:",
            *(f"  - {problem}" for problem in self.problems),
        ]
        super().__init__("\n".join(lines))


class PolicyError(_ProblemsError):
    """The policy is wrong. ``problems`` has all of its mistakes, each with its place."""

    heading = "the policy"


class HierarchyError(_ProblemsError):
    """A hierarchy is not a tree over the column's values. ``problems`` names levels, values and counts."""

    heading = "the hierarchies"


class SourceError(SqlanonError, ValueError):
    """The source cannot be read, or it does not fit the policy."""


class ReleaseError(SqlanonError):
    """The release, or the file of one, cannot be written or read."""


class DiskError(SqlanonError):
    """A disk is full, or cannot be written: the source's, that of temporary files, the catalog's or the release's."""


class OvertakenError(ReleaseError):
    """Another run has published meanwhile: what a release was held against, or its place, has changed."""


class BrokenReleaseError(ReleaseError):
    """A file is a release of sqlanon that was tampered with: what it claims cannot even be read."""

    exit_status = 1


class MissingLibraryError(SqlanonError, ImportError):
    """Something was asked for that needs a library which is not installed; says which extra brings it.

    >>> print(MissingLibraryError("a report", "altair", "report"))
    a report needs altair, which is not installed: pip install 'sqlanon[report]'
    """

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(f"{what} needs {library}, which is not installed: pip install 'sqlanon[{extra}]'")


class InfeasibleError(SqlanonError):
    """No generalization meets the policy.

    Attributes
    ----------
    nearest:
        The generalization that comes nearest (level per attribute), or ``None`` for an empty source.
    suppressed_rows:
        The rows that ``nearest`` would have to leave out.
    allowed_rows:
        The rows that the suppression limit lets it leave out.
    """

    exit_status = 1

    def __init__(
        self, message: str, nearest: Mapping[str, int] | None, suppressed_rows: int, allowed_rows: int
    ) -> None:
        self.nearest = None if nearest is None else dict(nearest)
        self.suppressed_rows = suppressed_rows
        self.allowed_rows = allowed_rows
        super().__init__(message)


class AuditError(SqlanonError):
    """The audit of a freshly written release failed; nothing was published. ``failures`` says why."""

    exit_status = 1

    def __init__(self, failures: Iterable[str]) -> None:
        self.failures = tuple(failures)
        super().__init__("the audit refused the release; nothing was published:\n  - " + "\n  - ".join(self.failures))


class OvertimeError(SqlanonError):
    """A job took longer than it may.

    >>> print(OvertimeError(30))
    took more than 30 seconds
    """

    exit_status = 1

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"took more than {seconds:.3g} seconds")


class UntranslatableError(SqlanonError, ValueError):
    """A query that is built for DuckDB has something in it that is not known to mean the same in another engine."""
