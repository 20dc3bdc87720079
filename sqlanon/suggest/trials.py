"""Trials: several strategies for one policy on a sample of its source, within seconds.

All losses are computed alike, so that full-domain and local strategies can be compared. The classes of a sample are
smaller than those of the whole table, so its figures are slightly worse.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlanon import pipeline
from sqlanon.disclosure.attribute_disclosure import homogeneous_rows
from sqlanon.engines.deadline import interrupt_after
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, SqlanonError
from sqlanon.policy import Policy
from sqlanon.policy.sections import SearchSection
from sqlanon.policy.strategies import FINER_SEARCHES, SUGGESTED_SEARCHES, strategy_traits
from sqlanon.recode.stage import recode
from sqlanon.requirements import require_distinct_values
from sqlanon.sources import source_errors
from sqlanon.sources.column_figures import sample_query
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run
from sqlanon.sources.source import Source
from sqlanon.strategies.compare import compute_loss, with_search_keys
from sqlanon.strategies.lattice.lattice import ignore_progress
from sqlanon.strategies.stage import run_search
from sqlanon.suggest.typical_counts import TypicalCounts, compute_count_error, count_source
from sqlanon.support.expressions import anonymous, col, subquery, template

if TYPE_CHECKING:
    from sqlanon.result import Result

ROWS = 25_000
"""Maximum number of rows of a sample."""
SECONDS = 30.0
"""Time limit of all trials together, on an idle machine: see `_Clock`."""
SHORT_ROWS, SHORT_SECONDS, SHORT_ROUNDS = 5_000, 5.0, 10
"""Maximum rows, minimum time limit and maximum rounds of trials after a run, which may take as long as the run."""
DISTINCT_VALUES = 2
"""Distinct values of a sensitive attribute that each group should have."""

_TRIAL_SHARE = 0.6  # of the remaining time, for each trial but the last
_SEARCH_SHARE = 0.6  # of the time of a trial; the other part is for counts
_FIRST_TRIALS = 3  # always run before sensitive attributes: sets, ranges and a full-domain strategy
_REPEATED, _MOST_REPEATED = 1.5, 3  # time reserved for each sensitive attribute, in runs of the best trial
_DEAREST, _CHEAP = 2.0, 0.1  # a requirement is affordable up to this many times the loss, or up to this loss
_CLOSE_FACTOR, _CLOSE, _FARTHEST = 1.1, 0.02, 1.5  # figures are about equal up to this factor or difference


@dataclass(frozen=True)
class Trial:
    """The result of one strategy on a sample.

    Attributes
    ----------
    name:
        The strategy in words, such as ``mondrian with sets``.
    search:
        The keys of ``[search]`` that choose it.
    loss:
        By the measure of that name, whatever the policy's is; None with an ``error``.
    fully_suppressed:
        The quasi-identifiers whose released values are all equal.
    rows, suppressed_rows:
        Of the sample.
    seconds:
        Wall time.
    stopped:
        Whether its time, or ``max_checks``, ended the search: with more, it may lose less.
    error:
        Why it has no result; else None.
    count_error:
        The mean error of `TypicalCounts` answered from the release; None if they were not requested.
    homogeneous:
        By sensitive attribute, the rows in classes that share one value of it, which fewer than 90 % of all rows have.
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
    count_error: float | None = None
    homogeneous: Mapping[str, int] = field(default_factory=dict)

    @property
    def released_rows(self) -> int:
        return self.rows - (self.suppressed_rows or 0)

    @property
    def is_full_domain(self) -> bool:
        """Whether `extend` and `live` support it."""
        return not strategy_traits(self.search["strategy"]).is_local and self.search.get("suppression") != "cells"

    @property
    def has_figures(self) -> bool:
        return self.error is None and self.loss is not None and self.count_error is not None


def choose_trial(trials: Sequence[Trial]) -> Trial | None:
    """The trial that keeps the most columns, then the best counts, then the most detail; None without figures.

    Counts are about equal if they are off by at most 10 % or 2 points more than the best ones. Among these the least
    loss decides; if losses are about equal (10 % or 0.02 more, and less than half as much again), a strategy whose
    releases can be extended comes first. A stopped search takes part only if it keeps another column, or if its counts
    are off by less than half, because its figures depend on the machine.

    >>> from dataclasses import replace
    >>> rough = Trial("rough", {"strategy": "optimal"}, loss=0.1, count_error=0.1, fully_suppressed=("age",))
    >>> fine = Trial("fine", {"strategy": "mondrian"}, loss=0.2, count_error=0.2)
    >>> choose_trial([rough, fine]).name, choose_trial([replace(fine, error="no")])
    ('fine', None)
    >>> wide = Trial("wide", {"strategy": "optimal"}, loss=0.21, count_error=0.21)
    >>> choose_trial([wide, fine]).name, choose_trial([replace(wide, count_error=0.23), fine]).name
    ('wide', 'fine')
    """
    peers = [trial for trial in trials if trial.has_figures]
    if not peers:
        return None
    fewest = min(len(trial.fully_suppressed) for trial in peers)
    peers = [trial for trial in peers if len(trial.fully_suppressed) == fewest]
    finished = [trial for trial in peers if not trial.stopped]
    if finished and min(map(_count_error, finished)) <= 2 * min(map(_count_error, peers)):
        peers = finished
    least = min(map(_count_error, peers))
    peers = [trial for trial in peers if _count_error(trial) <= max(_CLOSE_FACTOR * least, least + _CLOSE)]
    least = min(map(_loss, peers))
    limit = min(max(_CLOSE_FACTOR * least, least + _CLOSE), _FARTHEST * least)
    close = [trial for trial in peers if _loss(trial) <= limit]
    return min(close, key=lambda trial: (not trial.is_full_domain, _loss(trial)))


def explain_choice(best: Trial, trials: Sequence[Trial]) -> str:
    """The reasons of `choose_trial`.

    >>> sets = Trial("sets", {"strategy": "mondrian"}, loss=0.1, count_error=0.02)
    >>> full = Trial("full", {"strategy": "optimal"}, loss=0.2, count_error=0.01)
    >>> explain_choice(sets, [sets, full])
    'counts from it are about as good as the best, and it loses the least'
    """
    rivals = [trial for trial in trials if trial.has_figures and trial is not best]
    peers = [trial for trial in rivals if len(trial.fully_suppressed) == len(best.fully_suppressed)]
    reasons = []
    if any(
        trial not in peers and (_count_error(trial) < _count_error(best) or _loss(trial) < _loss(best))
        for trial in rivals
    ):
        reasons.append("it keeps the most columns")
    if any(trial.stopped and _count_error(trial) < _count_error(best) for trial in peers):
        reasons.append("it finished")
        peers = [trial for trial in peers if not trial.stopped]
    has_best_counts = all(_count_error(best) <= _count_error(trial) for trial in peers)
    reasons.append("counts from it are " + ("off the least" if has_best_counts else "about as good as the best"))
    if not has_best_counts:
        if all(_loss(best) <= _loss(trial) for trial in peers):
            reasons.append("it loses the least")
        elif best.is_full_domain:
            reasons.append("its releases can be extended")
    *first, last = reasons
    return f"{', '.join(first)}, and {last}" if first else last


def _loss(trial: Trial) -> float:
    return 1.0 if trial.loss is None else trial.loss


def _count_error(trial: Trial) -> float:
    return math.inf if trial.count_error is None else trial.count_error


class _Clock:
    """A time limit that hardly depends on other work on the machine.

    Time passes as the slower of the wall clock and the processor time of this process, but at a third of the wall
    clock at least. Otherwise a busy machine would decide which strategies finish.
    """

    _SLOWEST = 3.0

    def __init__(self, seconds: float) -> None:
        self._seconds, self._wall, self._processor = seconds, time.monotonic(), time.process_time()

    @property
    def _elapsed_seconds(self) -> tuple[float, float]:
        wall = time.monotonic() - self._wall
        return wall, max(min(wall, time.process_time() - self._processor), wall / self._SLOWEST)

    @property
    def remaining(self) -> float:
        return self._seconds - self._elapsed_seconds[1]

    @property
    def pace(self) -> float:
        """Wall seconds for one of these seconds: 1 on an idle machine."""
        wall, passed = self._elapsed_seconds
        return wall / passed if passed > 0 else 1.0


@dataclass(frozen=True)
class _Sample:
    """A run, its source with a table of some rows, and the sensitive attributes and counts to evaluate."""

    run: Run
    source: Source
    sensitive: Sequence[str] = ()
    counts: TypicalCounts | None = None


def try_strategies(
    begin: Callable[[Policy], Run],
    policy: Policy,
    candidates: Mapping[str, Mapping[str, str]] = SUGGESTED_SEARCHES,
    seconds: float | None = None,
    rows: int = ROWS,
) -> list[Trial]:
    """Try the ``candidates``, keys of ``[search]`` by name, on a sample that is the same on every run.

    The suppression limit is the same share of the sample. Earlier releases, noise and decoys are ignored. ``begin``
    binds the source of a policy. ``seconds``, by default `SECONDS`, limits all trials together; on a busy machine it is
    processor time, and up to three times as much wall time. With ``[source] person`` whole persons are sampled.
    """
    return _try_all(begin, policy, candidates, SECONDS if seconds is None else seconds, rows)[0]


@dataclass(frozen=True)
class Diversity:
    """The cost of two values of a sensitive attribute in each class: the trial of that requirement, together with
    those of earlier attributes that are ``affordable``."""

    attribute: str
    trial: Trial | None = None
    affordable: bool = False


def try_with_diversity(
    begin: Callable[[Policy], Run], policy: Policy, sensitive: Sequence[str]
) -> tuple[list[Trial], list[Diversity]]:
    """Try all suggested searches, and the best of them with distinct 2-diversity of sensitive attributes."""
    return _try_all(begin, policy, SUGGESTED_SEARCHES, SECONDS, ROWS, sensitive)


def _try_all(
    begin: Callable[[Policy], Run],
    policy: Policy,
    candidates: Mapping[str, Mapping[str, str]],
    seconds: float,
    rows: int,
    sensitive: Sequence[str] = (),
) -> tuple[list[Trial], list[Diversity]]:
    with begin(policy) as run:
        if run.source.access != "rows":
            error = f"the rows of the source stay in {run.source.location}: trials need rows that can be read locally"
            return [Trial(name, keys, error=error) for name, keys in candidates.items()], []
        clock = _Clock(seconds)
        with source_errors():
            source = _sample_source(run, policy, rows, sensitive)
            generalized = match_columns(policy, source).generalized
            counts = count_source(StatementRunner(run.engine), source, generalized, run.work)
            sample = _Sample(run, source, sensitive, counts)
        trials: list[Trial] = []
        for i, (name, keys) in enumerate(candidates.items()):
            best = choose_trial(trials) if sensitive and i >= _FIRST_TRIALS else None
            repeats = _REPEATED * min(len(sensitive), _MOST_REPEATED)
            remaining = clock.remaining - (0 if best is None else repeats * best.seconds / clock.pace)
            limit = remaining if i == len(candidates) - 1 else remaining * _TRIAL_SHARE
            trials.append(_try(sample, policy, Trial(name, keys), limit, clock.pace, f"trial_{i}"))
        best = choose_trial(trials)
        if best is None:
            return trials, [Diversity(name) for name in sensitive]
        return trials, _try_diversity(sample, policy, best, clock)


def _try_diversity(sample: _Sample, policy: Policy, best: Trial, clock: _Clock) -> list[Diversity]:
    results, affordable = list[Diversity](), list[str]()
    for i, name in enumerate(sample.sensitive):
        required = [require_distinct_values(attribute, DISTINCT_VALUES) for attribute in (*affordable, name)]
        tree = policy.model_dump(exclude_none=True)
        diverse = {required[0][0]: [entry for _, entry in required]}
        stricter = Policy(**{**tree, "privacy": {**tree["privacy"], **diverse}})
        trial = _try(sample, stricter, Trial(best.name, best.search), clock.remaining, clock.pace, f"diverse_{i}")
        is_affordable = (
            trial.loss is not None
            and best.loss is not None
            and {*trial.fully_suppressed} <= {*best.fully_suppressed}
            and trial.loss <= max(_DEAREST * best.loss, _CHEAP)
        )
        results.append(Diversity(name, trial, is_affordable))
        affordable += [name] if is_affordable else []
    return results


def finer_searches(search: SearchSection) -> dict[str, Mapping[str, str]]:
    """The searches that may keep a column which the strategy of ``[search]`` fully suppresses, the finest first."""

    def is_current(name: str) -> bool:
        keys = {"suppression": "rows", **SUGGESTED_SEARCHES[name]}
        return all(getattr(search, key) == value for key, value in keys.items())

    if is_current(FINER_SEARCHES[0]):
        return {}
    return {name: SUGGESTED_SEARCHES[name] for name in FINER_SEARCHES if not is_current(name)}


def try_finer(result: Result, seconds: float) -> Trial | None:
    """The finer search that keeps most of the fully suppressed columns of a result, whose run took ``seconds``.

    Searches are tried on a sample of the run's source until one keeps all columns or the time is over.
    """
    policy, columns = result.policy, result.fully_suppressed
    rounds = min(SHORT_ROUNDS, policy.search.max_checks or SHORT_ROUNDS)
    policy = policy.model_copy(update={"search": policy.search.model_copy(update={"max_checks": rounds})})
    if (opened := _sample_result(result, policy, seconds, "trial_rows")) is None:
        return None
    sample, clock = opened
    trials, best = list[Trial](), None
    for i, (name, keys) in enumerate(finer_searches(policy.search).items()):
        trials.append(_try(sample, policy, Trial(name, keys), clock.remaining, clock.pace, f"finer_{i}"))
        best = find_finest(trials, columns, result.loss)
        if best is not None and not {*columns} & {*best.fully_suppressed}:
            break
    return best


def find_finest(trials: Iterable[Trial], columns: Collection[str], loss: float) -> Trial | None:
    """The trial below a ``loss`` that keeps most of the columns; among these, the one with the least loss."""
    better = [
        (len({*columns} - {*trial.fully_suppressed}), -trial.loss, trial)
        for trial in trials
        if trial.loss is not None and trial.loss < loss
    ]
    count, _, best = max(better, key=lambda candidate: candidate[:2], default=(0, 0.0, None))
    return best if count else None


@dataclass(frozen=True)
class Price:
    """The cost of a change of a policy: the loss before and after, over the columns that are generalized after it.

    ``loss_after`` is None if nothing meets the changed policy. ``stopped``: a search did not finish.
    """

    loss_before: float
    loss_after: float | None
    rows: int
    stopped: bool


def price_change(result: Result, change: Mapping[str, Mapping[str, Any]], seconds: float) -> Price | None:
    """Try the policy of a run that took ``seconds``, and the changed policy, on a sample; None if it was not measured.

    A column that becomes a quasi-identifier loses nothing before the change.
    """
    policy, changed = result.policy, _change_policy(result.policy, change)
    if changed is None or (opened := _sample_result(result, changed, seconds, "price_rows")) is None:
        return None
    sample, clock = opened
    trials, weights = list[Trial](), list[float]()
    for i, version in enumerate((policy, changed)):
        trial = Trial(version.search.strategy, {"strategy": version.search.strategy})
        trials.append(_try(sample, version, trial, clock.remaining, clock.pace, f"price_{i}"))
        weights.append(sum(version.attributes[name].weight for name in version.generalized_attributes))
    before, after = trials
    if before.loss is None or (after.stopped and after.loss is None):
        return None
    return Price(before.loss * weights[0] / weights[1], after.loss, before.rows, before.stopped or after.stopped)


def _change_policy(policy: Policy, change: Mapping[str, Mapping[str, Any]]) -> Policy | None:
    """The policy with added keys; None if it does not support them."""
    tree = policy.model_dump(exclude_none=True)
    names = {name.lower(): name for name in policy.attributes}
    for section, keys in change.items():
        for key, value in keys.items():
            name = names.get(key.lower(), key) if section == "attributes" else key
            present = tree[section].get(name)
            if isinstance(present, list | tuple):
                tree[section][name] = [*present, *value]
            elif isinstance(present, dict):
                tree[section][name] = {**present, **value}
            else:
                tree[section][name] = value
    try:
        return Policy(**tree)
    except PolicyError:
        return None


def _sample_result(result: Result, policy: Policy, seconds: float, name: str) -> tuple[_Sample, _Clock] | None:
    """A sample of the source of a run that took ``seconds``, and the clock of its trials; None without local rows."""
    run = result._run
    if run.source.access != "rows":
        return None
    clock = _Clock(min(max(seconds, SHORT_SECONDS), SECONDS, result.policy.search.time_limit or SECONDS))
    with source_errors():
        return _Sample(run, _sample_source(run, policy, SHORT_ROWS, (), name)), clock


_SPARE_SHARE = 0.97  # hashes are not spread evenly: a share of them may have a few rows more


def _sample_source(run: Run, policy: Policy, limit: int, sensitive: Sequence[str], name: str = "trial_rows") -> Source:
    """The source with a table of some of its rows: the columns that a search reads."""
    source, steps, matched = run.source, StatementRunner(run.engine), match_columns(policy, run.source)
    person = matched.person
    columns = [*matched.generalized, *matched.sensitive, *(matched.by_attribute[name] for name in sensitive)]
    names = dict.fromkeys([*columns, *([person] if person else [])])
    read_columns = [*names] or [*source.columns]
    count = steps.count(source.relation)
    step = 1 if count <= limit else math.ceil(count / (_SPARE_SHARE * limit))
    if person is None or step == 1:
        query = sample_query(source.relation, read_columns, step)
    else:  # whole persons
        person_hash = anonymous("HASH", col(person))
        query = template("SELECT :columns FROM :rows WHERE :person_hash % :step = 0")(
            columns=[*map(col, read_columns)], rows=source.relation, person_hash=person_hash, step=step
        )
    query = query.limit(limit, copy=False)
    return replace(source, relation=steps.create_table(run.work(name), query), in_place=True)


def _try(sample: _Sample, policy: Policy, trial: Trial, seconds: float, pace: float, prefix: str) -> Trial:
    changed = with_search_keys(policy, trial.search)
    if isinstance(changed, PolicyError):
        return replace(trial, error="; ".join(map(str, changed.problems)))
    if seconds <= 0:
        return replace(trial, stopped=True, error="no time was left to try it")
    limit = min(seconds * pace * _SEARCH_SHARE, float(policy.search.time_limit or math.inf))
    limited = changed.model_copy(update={"search": changed.search.model_copy(update={"time_limit": limit})})
    started = time.monotonic()
    try:
        with source_errors(), interrupt_after(seconds * pace, sample.run.engines):
            trial = _run_trial(sample, limited, trial, prefix)
    except SqlanonError as error:
        is_late = time.monotonic() - started >= seconds * pace
        trial = replace(
            trial, stopped=is_late, error=f"took more than {seconds:.1f} seconds" if is_late else str(error)
        )
    return replace(trial, seconds=time.monotonic() - started)


def _run_trial(sample: _Sample, policy: Policy, trial: Trial, prefix: str) -> Trial:
    run, steps, search = sample.run, StatementRunner(sample.run.engine), policy.search
    search_input = pipeline.prepare(
        steps, policy, sample.source, lambda name: run.work(f"{prefix}_{name}"), run.population
    )
    # The sample has no other columns.
    released = [
        column
        for column in search_input.released_columns
        if column.quasi is not None or column.name in sample.sensitive
    ]
    search_input = replace(search_input, columns=replace(search_input.columns, released=tuple(released)))
    started = time.monotonic()
    search_result = run_search(steps, search_input, ignore_progress)
    is_late = search.time_limit is not None and time.monotonic() - started >= search.time_limit
    recoding = recode(steps, search_input, search_result)
    flags = steps.fetch_rows(recoding.statement.fully_suppressed(), [])[0]
    homogeneous = {}
    for name in sample.sensitive:
        release = subquery(recoding.statement.select(shuffled=False), "r")
        query = homogeneous_rows(release, policy.generalized_attributes, name)
        homogeneous[name] = int(steps.fetch_rows(query, [])[0][0])
    count_error = None
    if sample.counts is not None:
        count_error = compute_count_error(steps, sample.counts, search_input, recoding.statement)
    return replace(
        trial,
        count_error=count_error,
        loss=compute_loss(search_input, search_result),
        fully_suppressed=tuple(name for name, flag in zip(policy.generalized_attributes, flags, strict=True) if flag),
        rows=search_input.marginals.rows,
        suppressed_rows=recoding.figures.suppressed_rows,
        stopped=is_late or (search.max_checks is not None and search_result.rounds >= search.max_checks),
        homogeneous=homogeneous,
    )
