"""`attack` and `attack_sql`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlanon.attacks import disclosure, matching, refinement
from sqlanon.attacks.attacker import Attacker, AttackResult, Releases, open_attacker
from sqlanon.attacks.findings import Attack, Attacks
from sqlanon.engines.limits import Limits
from sqlanon.errors import PolicyError, Problem
from sqlanon.policy import Policy
from sqlanon.sources import source_errors
from sqlanon.support.fields import nearest_word

_ATTACKS: Mapping[str, Callable[[Attacker], AttackResult]] = {
    "homogeneity": disclosure.find_homogeneity,
    "background_knowledge": disclosure.find_background_knowledge,
    "skewness": disclosure.find_skewness,
    "similarity": disclosure.find_similarity,
    "unsorted_matching": matching.find_unsorted_matching,
    "complementary_release": matching.find_complementary_release,
    "temporal": matching.find_temporal,
    "composition": matching.find_composition,
    "minimality": refinement.find_minimality,
    "downcoding": refinement.find_downcoding,
    "linking": matching.find_linking,
    "dependencies": refinement.find_dependencies,
}

NAMES = tuple(_ATTACKS)
"""The names of the attacks."""


def attack(
    releases: Releases,
    policy: Policy | None = None,
    outside: str | os.PathLike[str] | None = None,
    only: Sequence[str] | None = None,
    known: int = 1,
    *,
    memory_limit: str | None = None,
    threads: int | None = None,
) -> Attacks:
    """Run the published attacks on releases, and count the affected rows.

    Parameters
    ----------
    releases:
        One release file, or several releases of one table.
    policy:
        Names the hierarchies and the source. Needed for releases with different levels of an attribute, for an
        outside table, and for attacks that read the source.
    outside:
        A table that names people: a Parquet or CSV file, or a table in the database of the policy's source. Its
        columns have names of quasi-identifiers, and original values.
    only:
        The names of the attacks to run. Default: all of `NAMES`.
    known:
        The number of sensitive values that an attacker with background knowledge can rule out.
    memory_limit, threads:
        As for `sqlanon.connect`.

    Returns
    -------
    Attacks
        By the name of each attack: its victims, their share of the released rows, and the SQL that shows them, or the
        reason why it was skipped.

    Raises
    ------
    ReleaseError
        A file does not exist or is not a release, or a release is in PostgreSQL.
    PolicyError
        Unknown attack, or ``known`` is negative.
    SourceError, HierarchyError
        The source or the outside table cannot be read, or does not fit the policy.

    Examples
    --------
    >>> import tempfile, duckdb, sqlanon
    >>> connection = duckdb.connect()
    >>> _ = connection.execute("CREATE TABLE people AS SELECT i % 2 AS ward, 'flu' AS diagnosis FROM range(8) AS t(i)")
    >>> with tempfile.TemporaryDirectory() as folder, sqlanon.connect(connection) as db:
    ...     result = db.anonymize(Policy(
    ...         source={"table": "people"},
    ...         attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}, "diagnosis": {"role": "sensitive"}},
    ...         privacy={"k": 4},
    ...         release={"table": "people"},
    ...     ))
    ...     release = result.publish(f"{folder}/release.duckdb")
    ...     found = attack(release.path, only=["homogeneity", "temporal"])
    >>> found["homogeneity"].victims, found["homogeneity"].share
    (8, 1.0)
    >>> found["temporal"].skipped
    'needs two releases of one table'
    """
    names = _select_names(only, known)
    with open_attacker(releases, policy, outside, known, Limits(memory_limit, threads)) as attacker, source_errors():
        return Attacks(tuple(_run(name, attacker) for name in names), attacker.decoys)


def attack_sql(
    releases: Releases,
    policy: Policy | None = None,
    outside: str | os.PathLike[str] | None = None,
    only: Sequence[str] | None = None,
    known: int = 1,
) -> str:
    """The statements that show the victims of `attack`, for any DuckDB client. No attack is run.

    Parameters and errors are those of `attack`.
    """
    names = _select_names(only, known)
    limits = Limits(None, None)
    with open_attacker(releases, policy, outside, known, limits, counts=False) as attacker, source_errors():
        attacks = [_run(name, attacker) for name in names]
    texts = []
    for result in attacks:
        reason = [] if result.skipped is None else [f"-- {result.skipped}"]
        texts.append("\n".join([f"-- {result.name}", *(finding.sql for finding in result.findings), *reason]))
    return "\n\n".join(texts)


def _run(name: str, attacker: Attacker) -> Attack:
    findings, reasons = _ATTACKS[name](attacker)
    decoys = attacker.decoys
    with_decoys = [
        replace(finding, decoys=sum(decoys.get(path, 0) for path in finding.releases)) for finding in findings
    ]
    return Attack(name, tuple(with_decoys), "; ".join(dict.fromkeys(reasons)) or None)


def _select_names(only: Sequence[str] | None, known: int) -> list[str]:
    names, problems = list(NAMES if only is None else only), list[Problem]()
    for name in names:
        if name not in NAMES:
            guess = nearest_word(name, NAMES)
            remedy = f"did you mean {guess}?" if guess else f"there is {', '.join(NAMES)}"
            problems.append(Problem("--only", f"unknown attack {name!r}; {remedy}"))
    if known < 0:
        problems.append(Problem("--known", f"must be 0 or more, not {known}"))
    if problems:
        raise PolicyError(problems)
    return [name for name in NAMES if name in names]
