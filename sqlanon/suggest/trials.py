"""Several strategies for one policy, tried on a sample of its source: what each would keep, in seconds.

The loss of each is worked out in the same way, so that full-domain and local strategies can be compared. In a sample of
a larger table the classes are smaller, so that the figures are a little worse than those of the whole table.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon import pipeline
from sqlanon.engines.deadline import interrupted_after
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, SqlanonError
from sqlanon.expressions import Namer, anonymous, col, template
from sqlanon.policy import Policy
from sqlanon.policy.sections import SearchSection
from sqlanon.recode.stage import recode
from sqlanon.search.compare import loss_of, with_search
from sqlanon.search.lattice import silent
from sqlanon.search.stage import search
from sqlanon.sources import source_errors
from sqlanon.sources.bound import Source
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run

ROWS = 100_000
"""The most rows of a sample."""

SECONDS = 20.0
"""What all trials together may take."""

CANDIDATES: Mapping[str, Mapping[str, str]] = {
    "optimal": {"strategy": "optimal"},
    "mondrian with sets": {"strategy": "mondrian", "summary": "set"},
    "mondrian": {"strategy": "mondrian", "summary": "range"},
    "local": {"strategy": "local"},
    "optimal with cells": {"strategy": "optimal", "suppression": "cells"},
    "subtree": {"strategy": "subtree"},
}
"""The strategies that are tried, by names for people: the keys of ``[search]`` that choose them. Each guarantees all
that a policy may require of classes."""

_FINEST = "mondrian with sets"
_FINER = (_FINEST, "local", "optimal with cells")


def finer_candidates(search: SearchSection) -> dict[str, Mapping[str, str]]:
    """The candidates that may keep a column which the strategy of ``[search]`` fully suppresses, the finest first."""

    def is_own(name: str) -> bool:
        keys = {"suppression": "rows", **CANDIDATES[name]}
        return all(getattr(search, key) == value for key, value in keys.items())

    return {} if is_own(_FINEST) else {name: CANDIDATES[name] for name in _FINER if not is_own(name)}


def keeps_most(trials: Iterable[Trial], columns: Collection[str], loss: float) -> Trial | None:
    """The trial with the least loss among those that keep most of these columns; it loses less than this."""
    better = [
        (len({*columns} - {*trial.fully_suppressed}), -trial.loss, trial)
        for trial in trials
        if trial.loss is not None and trial.loss < loss
    ]
    kept, _, best = max(better, key=lambda one: one[:2], default=(0, 0.0, None))
    return best if kept else None


_SHARE = 0.6  # of the time that is left, what the next trial may take; the last one may take all of it
_SEARCHES = 0.4  # of the time of a trial, what its search may take; the rest is for counting


@dataclass(frozen=True)
class Trial:
    """What one strategy keeps of a sample, or why it cannot run.

    Attributes
    ----------
    name:
        The strategy in words, such as ``mondrian with sets``.
    search:
        The keys of ``[search]`` that choose it.
    loss:
        By the measure of that name, whatever the policy's is; None where there is an ``error``.
    fully_suppressed:
        The quasi-identifiers of which nothing is left: all rows of the release show the same label.
    rows, suppressed_rows:
        Of the sample.
    seconds:
        Wall time.
    stopped:
        Whether its time ended the search: with more, it may lose less.
    error:
        Why it found nothing; else None.
    """

    name: str
    search: Mapping[str, str]
    loss: float | None = None
    fully_suppressed: tuple[str, ...] = ()
    rows: int = 0
    suppressed_rows: int | None = None
    seconds: float = 0.0
    stopped: bool = False
    error: str | None = None


def try_strategies(
    begin: Callable[[Policy], Run],
    policy: Policy,
    candidates: Mapping[str, Mapping[str, str]] = CANDIDATES,
    seconds: float | None = None,
    rows: int = ROWS,
) -> list[Trial]:
    """Try strategies on a sample of a policy's source: the same one on every run.

    The suppression limit is the same share of the sample. Earlier releases, noise and decoys do not count.

    Parameters
    ----------
    begin:
        Binds the source of a policy, such as `Workspace.run`.
    policy:
        The policy; its own strategy does not count.
    candidates:
        The keys of ``[search]`` of each strategy, by a name.
    seconds:
        What all of them together may take; default: `SECONDS`. A strategy whose time is over is interrupted.
    rows:
        The most rows of the sample. With ``[source] person`` whole persons are sampled.

    Returns
    -------
    list of Trial
        In the order of the candidates.

    Raises
    ------
    SourceError
        The source cannot be read, or does not fit the policy.
    """
    with begin(policy) as run:
        if run.source.access != "rows":
            error = (
                f"the rows of the source stay in {run.source.where}: strategies are tried on rows that are read here"
            )
            return [Trial(name, keys, error=error) for name, keys in candidates.items()]
        ends_at = time.monotonic() + (SECONDS if seconds is None else seconds)
        with source_errors():
            sampled = _sample(run, policy, rows)
        trials: list[Trial] = []
        for i, (name, keys) in enumerate(candidates.items()):
            left = ends_at - time.monotonic()
            limit = left if i == len(candidates) - 1 else left * _SHARE
            trials.append(_try(run, sampled, policy, Trial(name, keys), limit, i))
        return trials


_COUNT = template("SELECT count(*) FROM :rows")
_ALL = template("SELECT :columns FROM :rows")
# Where rows are counted, by their place; where persons are, all rows of a person or none.
_BY_PLACE = template("""
    SELECT :columns
    FROM (SELECT :columns, row_number() OVER () AS "sqlanon place" FROM :rows) AS s
    WHERE :place_hash % :step = 0
    LIMIT :most
""")
_BY_PERSON = template("SELECT :columns FROM :rows WHERE :person_hash % :step = 0 LIMIT :most")
_TO_SPARE = 0.97  # a share of all hashes may have a few rows more than its part


def _sample(run: Run, policy: Policy, most: int) -> Source:
    """The source, with a table of some of its rows in place of its own: the columns that a search reads."""
    source, steps, matched = run.source, StatementRunner(run.engine), match_columns(policy, run.source)
    person = matched.person
    names = dict.fromkeys([*matched.generalized, *matched.sensitive, *([person] if person else [])])
    given = {"rows": source.relation, "columns": [col(name) for name in names or source.columns]}
    count = int(steps.ask(_COUNT(rows=source.relation), [])[0][0])
    step = math.ceil(count / (_TO_SPARE * most))
    if count <= most:
        query = _ALL(**given)
    elif person is not None:
        query = _BY_PERSON(**given, person_hash=anonymous("HASH", col(person)), step=step, most=most)
    else:
        query = _BY_PLACE(**given, place_hash=anonymous("HASH", col("sqlanon place")), step=step, most=most)
    return replace(source, relation=steps.make(run.work("trial_rows"), query), in_place=True)


def _try(run: Run, sampled: Source, policy: Policy, trial: Trial, seconds: float, number: int) -> Trial:
    changed = with_search(policy, trial.search)
    if isinstance(changed, PolicyError):
        return replace(trial, error="; ".join(map(str, changed.problems)))
    limit = min(seconds * _SEARCHES, float(policy.search.time_limit or math.inf))
    if seconds <= 0:
        return replace(trial, error="no time was left to try it")
    asked = changed.model_copy(update={"search": changed.search.model_copy(update={"time_limit": limit})})
    started, steps = time.monotonic(), StatementRunner(run.engine)

    def work(name: str) -> exp.Table:
        return run.work(f"trial_{number}_{name}")

    try:
        with source_errors(), interrupted_after(seconds, run.engines):
            trial = _figures(steps, run, sampled, asked, work, trial)
    except SqlanonError as error:
        late = time.monotonic() - started >= seconds
        trial = replace(trial, error=f"took more than {seconds:.1f} seconds on the sample" if late else str(error))
    return replace(trial, seconds=time.monotonic() - started)


def _figures(steps: StatementRunner, run: Run, sampled: Source, policy: Policy, work: Namer, trial: Trial) -> Trial:
    prepared = pipeline.prepare(steps, policy, sampled, work, run.population)
    began, limit = time.monotonic(), policy.search.time_limit
    found = search(steps, prepared, silent)
    stopped = limit is not None and time.monotonic() - began >= limit
    recoding = recode(steps, prepared, found)
    gone = steps.ask(recoding.statement.fully_suppressed(), [])[0]
    return replace(
        trial,
        loss=loss_of(prepared, found),
        fully_suppressed=tuple(name for name, flag in zip(policy.generalized, gone, strict=True) if flag),
        rows=prepared.marginals.rows,
        suppressed_rows=recoding.figures.suppressed_rows,
        stopped=stopped,
    )
