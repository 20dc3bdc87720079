"""The errors that sqlanon raises: one base class, and subclasses that carry their data.

A message says where the error is, what is wrong, and what to do. It contains no private values, except the few that are
needed to correct a hierarchy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A mistake and its place, such as ``attributes.zip.hierarchy``.

    >>> print(Problem("privacy.k", "must be at least 1"))
    privacy.k: must be at least 1
    """

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class SqlanonError(Exception):
    """Base class of all errors of sqlanon. ``exit_status`` is the exit status of the command line."""

    exit_status = 2


class _ProblemsError(SqlanonError, ValueError):
    """An error that reports several problems at once."""

    heading = "{count} problems"

    def __init__(self, problems: Iterable[Problem], heading: str | None = None) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        plural = "problem" if count == 1 else "problems"
        options = self.problems and all(problem.place.startswith("--") for problem in self.problems)
        heading = heading or ("the options" if options else None)
        if count == 1 and heading is not None:
            super().__init__(str(self.problems[0]))
            return
        lines = [f"{count} {plural} in {heading or self.heading}:", *(f"  - {problem}" for problem in self.problems)]
        super().__init__("\n".join(lines))


class PolicyError(_ProblemsError):
    """The policy has mistakes. ``problems`` lists all of them, each with its place."""

    heading = "the policy"

    def with_places(self, places: Mapping[str, str]) -> PolicyError:
        """The error with other names for places."""
        return PolicyError(
            Problem(places.get(problem.place, problem.place), problem.message) for problem in self.problems
        )


class HierarchyError(_ProblemsError):
    """A hierarchy is not a tree over the values of its column. ``problems`` names levels, values and counts."""

    heading = "the hierarchies"


class SourceError(SqlanonError, ValueError):
    """The source cannot be read or does not match the policy."""


class UnreadableColumnsError(SourceError):
    """Some columns cannot be read or have values that cannot be cast to text; others may be readable."""


class LinkedSourceError(_ProblemsError, SourceError):
    """Some of several linked tables cannot be read, or do not fit together. ``problems`` lists them table by table."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        super().__init__(problems, "the tables")


class ReleaseError(SqlanonError):
    """A release cannot be written or read."""


class NotComparedError(ReleaseError):
    """Two releases cannot be compared. ``remedy`` says how to make them comparable, if that is possible."""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


class DiskError(SqlanonError):
    """The disk of the source, the temporary files, the catalog or the release is full or broken."""


class OvertakenError(ReleaseError):
    """Another run has published since the comparison with earlier releases, which is out of date."""


class BrokenReleaseError(ReleaseError):
    """A release was changed so that its manifest cannot be read."""

    exit_status = 1


class MissingLibraryError(SqlanonError, ImportError):
    """An optional library is not installed; the message names the extra that has it.

    >>> print(MissingLibraryError("a report", "altair", "report"))
    a report needs altair, which is not installed; in the checkout of sqlanon, run: pip install '.[report]'
    """

    def __init__(self, feature: str, library: str, extra: str) -> None:
        install = f"in the checkout of sqlanon, run: pip install '.[{extra}]'"
        super().__init__(f"{feature} needs {library}, which is not installed; {install}")


class NoMarkedRowsError(SourceError):
    """The source contains no row of an earlier release."""


class RelabelledError(SourceError):
    """Values of the source have other labels than in the release whose rows would be published again.

    Attributes
    ----------
    counts:
        Number of values with another label, by attribute.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)
        message = (
            "have another label than in the release (the longest text under a mask, the digits of a number or a file "
            "changed), so its rows cannot be published again unchanged: run sqlanon anonymize, which makes a release "
            "with the new labels and does not compare it with the one that it replaces"
        )
        values = {name: f"{count:,} value{'s' if count > 1 else ''}" for name, count in counts.items()}
        super().__init__("; ".join(f"attributes.{name}: {count} {message}" for name, count in values.items()))


class InfeasibleError(SqlanonError):
    """No generalization meets the policy.

    Attributes
    ----------
    nearest:
        The generalization that is closest to being feasible (level by attribute); ``None`` for an empty source.
    suppressed_rows:
        Number of rows that ``nearest`` would suppress.
    allowed_rows:
        Number of rows that the suppression limit allows; ``None`` if persons are counted.
    suppressed_persons, allowed_persons:
        Number of persons with suppressed rows, and the number that the suppression limit allows. ``None`` if rows are
        counted; ``suppressed_persons`` also if the persons of ``nearest`` were not counted.
    """

    exit_status = 1

    def __init__(
        self,
        message: str,
        nearest: Mapping[str, int] | None,
        suppressed_rows: int,
        allowed_rows: int | None,
        suppressed_persons: int | None = None,
        allowed_persons: int | None = None,
    ) -> None:
        self.nearest = None if nearest is None else dict(nearest)
        self.suppressed_rows = suppressed_rows
        self.allowed_rows = allowed_rows if allowed_persons is None else None
        self.suppressed_persons = suppressed_persons
        self.allowed_persons = allowed_persons
        super().__init__(message)


class AuditError(SqlanonError):
    """The audit of a new release failed, and nothing was published.

    Attributes
    ----------
    failures:
        One sentence for each failed check.
    queries:
        If the release is unsafe together with an earlier one: SQL over both releases and the catalog that lists the
        affected rows. The queries need the release to be published.
    """

    exit_status = 1

    def __init__(self, failures: Iterable[str], queries: Iterable[str] = ()) -> None:
        self.failures = tuple(failures)
        self.queries = tuple(queries)
        super().__init__("the audit refused the release; nothing was published:\n  - " + "\n  - ".join(self.failures))


class OvertimeError(SqlanonError):
    """A job exceeded its time limit.

    >>> print(OvertimeError(30))
    took more than 30 seconds
    """

    exit_status = 1

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"took more than {seconds:.3g} seconds")


class UntranslatableError(SqlanonError, ValueError):
    """A query has an expression that may mean something else in another engine."""
