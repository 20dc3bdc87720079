"""Every error that sqlanon raises on purpose: one root, and subclasses that carry their data.

Each error says what is wrong, where, and what to do. It shows no private values, except the few that are
needed to correct a hierarchy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A mistake, and its place (``attributes.zip.hierarchy``).

    >>> print(Problem("privacy.k", "must be at least 1"))
    privacy.k: must be at least 1
    """

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class SqlanonError(Exception):
    """The base class of all errors of sqlanon. ``exit_status`` is the exit status of the command line."""

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

    def renamed(self, places: Mapping[str, str]) -> PolicyError:
        """The same error with other names of places."""
        return PolicyError(Problem(places.get(one.place, one.place), one.message) for one in self.problems)


class HierarchyError(_ProblemsError):
    """A hierarchy is not a tree over the values of its column. ``problems`` names levels, values and counts."""

    heading = "the hierarchies"


class SourceError(SqlanonError, ValueError):
    """The source cannot be read, or does not fit the policy."""


class UnreadableColumnsError(SourceError):
    """A server refuses to read some of the columns, or has no text for some of their values; others may be readable."""


class ReleaseError(SqlanonError):
    """The release cannot be written or read."""


class NotComparedError(ReleaseError):
    """Two releases cannot be compared. ``remedy``, if there is one, says what would make them comparable."""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


class DiskError(SqlanonError):
    """A disk is full or broken: that of the source, the temporary files, the catalog or the release."""


class OvertakenError(ReleaseError):
    """Another run published in the meantime, so the comparison with earlier releases is out of date."""


class BrokenReleaseError(ReleaseError):
    """A release was tampered with, so that its manifest cannot be read."""

    exit_status = 1


class MissingLibraryError(SqlanonError, ImportError):
    """An optional library is not installed; the message names the extra that has it.

    >>> print(MissingLibraryError("a report", "altair", "report"))
    a report needs altair, which is not installed; in the checkout of sqlanon, run: pip install '.[report]'
    """

    def __init__(self, what: str, library: str, extra: str) -> None:
        install = f"in the checkout of sqlanon, run: pip install '.[{extra}]'"
        super().__init__(f"{what} needs {library}, which is not installed; {install}")


class NoMarkedRowsError(SourceError):
    """No row of an earlier release is in the source."""


class RelabelledError(SourceError):
    """The source's values have other labels than in a release whose rows are kept.

    Attributes
    ----------
    counts:
        The values with another label, by attribute.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)
        message = (
            "have another label than when the release was made (a longer or shorter text under a mask, a number with "
            "more digits, an edited file), so its rows cannot be published again as they are: sqlanon anonymize makes "
            "a release with the new labels, which is not compared with the one that it replaces"
        )
        values = {name: f"{count:,} value{'s' if count > 1 else ''}" for name, count in counts.items()}
        super().__init__("; ".join(f"attributes.{name}: {counted} {message}" for name, counted in values.items()))


class InfeasibleError(SqlanonError):
    """No generalization meets the policy.

    Attributes
    ----------
    nearest:
        The generalization that comes nearest (level per attribute), or ``None`` for an empty source.
    suppressed_rows:
        The number of rows that ``nearest`` would suppress.
    allowed_rows:
        The number of rows that the suppression limit allows; ``None`` where persons are counted.
    suppressed_persons, allowed_persons:
        Where persons are counted: the persons of these rows, and how many of them the suppression limit allows;
        ``None`` where rows are counted, and for persons where they were not counted.
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
        Why, one sentence a failure.
    queries:
        Where the release is not safe beside an earlier one: SQL that lists the affected rows, over the two releases and
        the catalog. It runs once the release is published.
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
    """A query has an expression that is not known to mean the same in another engine."""
