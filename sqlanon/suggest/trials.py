"""Several strategies for one policy, tried on a sample of its source: what each would keep, in seconds.

The loss of each is worked out in the same way, so that full-domain and local strategies can be compared. In a sample of
a larger table the classes are smaller, so that the figures are a little worse than those of the whole table.
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
from sqlanon.policy.strategies import strategy_traits
from sqlanon.recode.stage import recode
from sqlanon.requirements import require_distinct_values
from sqlanon.sources import source_errors
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run
from sqlanon.sources.source import Source
from sqlanon.strategies.compare import compute_loss, with_search_keys
from sqlanon.strategies.lattice.lattice import ignore_progress
from sqlanon.strategies.stage import run_search
from sqlanon.suggest.typical_counts import TypicalCounts, error_of_counts, typical_counts
from sqlanon.support.expressions import anonymous, col, subquery, template

if TYPE_CHECKING:
    from sqlanon.result import Result

ROWS = 25_000
"""The most rows of a sample."""

FEW_ROWS, FEW_ROUNDS = 5_000, 10
"""The most rows of the sample on which `try_finer` tries strategies, and the most rounds of each: enough to see what
they keep."""

FEW_SECONDS, SECONDS = 5.0, 30.0
"""What all trials together may take: seconds of a machine that does nothing else, see `_Clock`. After a run they may
take as long as the run took, but at least the few and at most all of these."""

CANDIDATES: Mapping[str, Mapping[str, str]] = {
    "mondrian with sets": {"strategy": "mondrian", "summary": "set"},
    "mondrian": {"strategy": "mondrian", "summary": "range"},
    "optimal": {"strategy": "optimal"},
    "subtree": {"strategy": "subtree"},
    "local": {"strategy": "local"},
    "optimal with cells": {"strategy": "optimal", "suppression": "cells"},
}
"""The strategies that are tried, by names for people: the keys of ``[search]`` that choose them. Each guarantees all
that a policy may require of classes. The quick ones come first: what they find does not depend on the time limit."""

_FINEST = "mondrian with sets"
_FINER = (_FINEST, "local", "optimal with cells")


def finer_candidates(search: SearchSection) -> dict[str, Mapping[str, str]]:
    """The candidates that may keep a column which the strategy of ``[search]`` fully suppresses, the finest first."""

    def is_own(name: str) -> bool:
        keys = {"suppression": "rows", **CANDIDATES[name]}
        return all(getattr(search, key) == value for key, value in keys.items())

    return {} if is_own(_FINEST) else {name: CANDIDATES[name] for name in _FINER if not is_own(name)}


def try_finer(result: Result, seconds: float) -> Trial | None:
    """The finer strategy that keeps most of the columns which are fully suppressed in the result of a run of so many
    seconds.

    They are tried one by one on a sample of the run's source, until one keeps all columns or the time is over. The
    policy's ``time_limit`` holds for all of them together, too.
    """
    run, policy, columns = result._run, result.policy, result.fully_suppressed
    if run.source.access != "rows":
        return None
    most = min(SECONDS, policy.search.time_limit or SECONDS)
    clock, trials, best = _Clock(min(max(seconds, FEW_SECONDS), most)), list[Trial](), None
    rounds = min(FEW_ROUNDS, policy.search.max_checks or FEW_ROUNDS)
    policy = policy.model_copy(update={"search": policy.search.model_copy(update={"max_checks": rounds})})
    with source_errors():
        sample = _Sample(run, _sampled(run, policy, FEW_ROWS, ()), ())
    for i, (name, keys) in enumerate(finer_candidates(policy.search).items()):
        trials.append(_try(sample, policy, Trial(name, keys), clock.left, clock.pace, f"finer_{i}"))
        best = keeps_most(trials, columns, result.loss)
        if best is not None and not {*columns} & {*best.fully_suppressed}:
            break
    return best


@dataclass(frozen=True)
class Price:
    """What a change of a policy costs: the loss before and after, of the columns that are generalized after it.

    ``loss_after`` is None where nothing meets the changed policy. ``stopped``: a search was not ended.
    """

    loss_before: float
    loss_after: float | None
    rows: int
    stopped: bool


def price_change(result: Result, change: Mapping[str, Mapping[str, Any]], seconds: float) -> Price | None:
    """Try the policy of a run of so many seconds, and the changed one, on a sample of its source; None: not measured.

    A column that becomes a quasi-identifier loses nothing before the change.
    """
    run, policy = result._run, result.policy
    changed = _changed(policy, change)
    if run.source.access != "rows" or changed is None:
        return None
    most = min(SECONDS, policy.search.time_limit or SECONDS)
    clock, trials = _Clock(min(max(seconds, FEW_SECONDS), most)), list[Trial]()
    with source_errors():
        sample = _Sample(run, _sampled(run, changed, FEW_ROWS, (), "price_rows"), ())
    for number, each in enumerate((policy, changed)):
        trial = Trial(each.search.strategy, {"strategy": each.search.strategy})
        trials.append(_try(sample, each, trial, clock.left, clock.pace, f"price_{number}"))
    before, after = trials
    late = after.stopped and after.loss is None
    if before.loss is None or late:
        return None
    weights = [sum(each.attributes[name].weight for name in each.generalized_attributes) for each in (policy, changed)]
    loss_before = before.loss * weights[0] / weights[1]
    return Price(loss_before, after.loss, before.rows, before.stopped or after.stopped)


def _changed(policy: Policy, change: Mapping[str, Mapping[str, Any]]) -> Policy | None:
    """The policy with some keys added; None where it cannot have them."""
    tree = policy.model_dump(exclude_none=True)
    names = {name.lower(): name for name in policy.attributes}
    for section, keys in change.items():
        for key, value in keys.items():
            known = names.get(key.lower(), key) if section == "attributes" else key
            present = tree[section].get(known)
            if isinstance(present, list | tuple):
                tree[section][known] = [*present, *value]
            elif isinstance(present, dict):
                tree[section][known] = {**present, **value}
            else:
                tree[section][known] = value
    try:
        return Policy(**tree)
    except PolicyError:
        return None


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
_SEARCHES = 0.6  # of the time of a trial, what its search may take; the rest is for counting


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
        Whether its time, or ``max_checks``, ended the search: with more, it may lose less.
    error:
        Why it found nothing; else None.
    count_error:
        The mean error of `TypicalCounts` answered from the release; None where they were not asked.
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
        """Whether `extend` and `live` can use it."""
        return not strategy_traits(self.search["strategy"]).is_local and self.search.get("suppression") != "cells"


_CLOSE_FACTOR, _CLOSE, _FARTHEST = 1.1, 0.02, 1.5


def chosen(trials: Sequence[Trial]) -> Trial | None:
    """The strategy that keeps the most: first columns, then what counts need, then values. None where none can run.

    Counts are about as good if they are off by at most 10 % or 2 points more than the best ones. Of these strategies
    the least loss decides; and of those that lose about the same (10 % or 0.02 more, and never half as much again), the
    one whose releases can be extended comes first. A search that was stopped takes part only where it keeps another
    column, or its counts are off by less than half: its figures depend on the machine.

    >>> from dataclasses import replace
    >>> rough = Trial("rough", {"strategy": "optimal"}, loss=0.1, count_error=0.1, fully_suppressed=("age",))
    >>> fine = Trial("fine", {"strategy": "mondrian"}, loss=0.2, count_error=0.2)
    >>> chosen([rough, fine]).name, chosen([replace(fine, error="no")])
    ('fine', None)
    >>> wide = Trial("wide", {"strategy": "optimal"}, loss=0.21, count_error=0.21)
    >>> chosen([wide, fine]).name, chosen([replace(wide, count_error=0.23), fine]).name
    ('wide', 'fine')
    """
    peers = _able(trials)
    if not peers:
        return None
    gone = min(len(one.fully_suppressed) for one in peers)
    peers = [one for one in peers if len(one.fully_suppressed) == gone]
    ended = [one for one in peers if not one.stopped]
    if ended and min(map(_count_error, ended)) <= 2 * min(map(_count_error, peers)):
        peers = ended
    least = min(map(_count_error, peers))
    peers = [one for one in peers if _count_error(one) <= max(_CLOSE_FACTOR * least, least + _CLOSE)]
    least = min(map(_loss, peers))
    limit = min(max(_CLOSE_FACTOR * least, least + _CLOSE), _FARTHEST * least)
    return min((one for one in peers if _loss(one) <= limit), key=lambda one: (not one.is_full_domain, _loss(one)))


def why_chosen(best: Trial, trials: Sequence[Trial]) -> str:
    """The choice in a sentence.

    >>> sets = Trial("sets", {"strategy": "mondrian"}, loss=0.1, count_error=0.02)
    >>> full = Trial("full", {"strategy": "optimal"}, loss=0.2, count_error=0.01)
    >>> why_chosen(sets, [sets, full])
    'counts from it are about as good as the best, and it loses the least'
    """
    others = [one for one in _able(trials) if one is not best]
    peers = [one for one in others if len(one.fully_suppressed) == len(best.fully_suppressed)]
    reasons = []
    if any(_count_error(one) < _count_error(best) or _loss(one) < _loss(best) for one in others if one not in peers):
        reasons.append("it keeps the most columns")
    if any(one.stopped and _count_error(one) < _count_error(best) for one in peers):
        reasons.append("it finished")
        peers = [one for one in peers if not one.stopped]
    has_best_counts = all(_count_error(best) <= _count_error(one) for one in peers)
    reasons.append("counts from it are " + ("off the least" if has_best_counts else "about as good as the best"))
    if all(_loss(best) <= _loss(one) for one in peers):
        reasons += [] if has_best_counts else ["it loses the least"]
    elif best.is_full_domain and not has_best_counts:
        reasons.append("its releases can be extended")
    *first, last = reasons
    return f"{', '.join(first)}, and {last}" if first else last


def _able(trials: Sequence[Trial]) -> list[Trial]:
    """The trials with figures."""
    return [one for one in trials if one.error is None and one.loss is not None and one.count_error is not None]


def _loss(trial: Trial) -> float:
    return 1.0 if trial.loss is None else trial.loss


def _count_error(trial: Trial) -> float:
    return math.inf if trial.count_error is None else trial.count_error


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
        What all of them together may take; default: `SECONDS`. A strategy whose time is over is interrupted. On a
        busy machine it is time of the processor, and up to three times as much on the clock.
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
    return _try_all(begin, policy, candidates, SECONDS if seconds is None else seconds, rows)[0]


@dataclass(frozen=True)
class Diversity:
    """What it costs that each class has two values of a sensitive attribute: the trial with that requirement, and
    those of the attributes before it that the policy keeps. ``kept``: the policy has it."""

    attribute: str
    trial: Trial | None = None
    kept: bool = False


def try_with_diversity(
    begin: Callable[[Policy], Run], policy: Policy, sensitive: Sequence[str]
) -> tuple[list[Trial], list[Diversity]]:
    """Try all candidates, and then the one that is `chosen` with distinct 2-diversity of sensitive attributes, one
    after the other. All together they may take `SECONDS`."""
    return _try_all(begin, policy, CANDIDATES, SECONDS, ROWS, sensitive)


_ALWAYS = 3
"""So many candidates come before sensitive attributes: sets, ranges and a full-domain strategy are always compared."""

_AGAIN, _MOST_AGAIN = 1.5, 3
"""Time is left for this many times as long as the best candidate took, for so many sensitive attributes."""

DIFFERENT = 2
"""Values of a sensitive attribute that each group should have."""

_DEAREST, _CHEAP = 2.0, 0.1
"""A requirement is kept up to this many times the loss, or up to this loss: nine tenths of the detail are left then.
Beyond both, a person weighs the risk against the loss."""


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
            error = (
                f"the rows of the source stay in {run.source.location}: strategies are tried on rows that are read here"
            )
            return [Trial(name, keys, error=error) for name, keys in candidates.items()], []
        clock = _Clock(seconds)
        with source_errors():
            source = _sampled(run, policy, rows, sensitive)
            generalized = match_columns(policy, source).generalized
            counts = typical_counts(StatementRunner(run.engine), source, generalized, run.work)
            sample = _Sample(run, source, sensitive, counts)
        trials: list[Trial] = []
        for i, (name, keys) in enumerate(candidates.items()):
            best = chosen(trials) if sensitive and i >= _ALWAYS else None
            reserved = 0 if best is None else _AGAIN * best.seconds / clock.pace * min(len(sensitive), _MOST_AGAIN)
            left = clock.left - reserved
            limit = left if i == len(candidates) - 1 else left * _SHARE
            trials.append(_try(sample, policy, Trial(name, keys), limit, clock.pace, f"trial_{i}"))
        best = chosen(trials)
        if best is None:
            return trials, [Diversity(name) for name in sensitive]
        return trials, _try_diversity(sample, policy, best, clock)


class _Clock:
    """What is left of a time that other work on the machine does not count in: of the clock and of the processor's time
    for this process, it takes the one that is behind, and a third of the clock at least. Else a busy machine would
    decide which strategies are tried to their end."""

    _SLOWEST = 3.0

    def __init__(self, seconds: float) -> None:
        self._seconds, self._wall, self._processor = seconds, time.monotonic(), time.process_time()

    @property
    def _passed(self) -> tuple[float, float]:
        wall = time.monotonic() - self._wall
        return wall, max(min(wall, time.process_time() - self._processor), wall / self._SLOWEST)

    @property
    def left(self) -> float:
        return self._seconds - self._passed[1]

    @property
    def pace(self) -> float:
        """Seconds on the clock for one of these: 1 on a machine that does nothing else."""
        wall, passed = self._passed
        return wall / passed if passed > 0 else 1.0


def _try_diversity(sample: _Sample, policy: Policy, best: Trial, clock: _Clock) -> list[Diversity]:
    found, kept = list[Diversity](), list[str]()
    for i, name in enumerate(sample.sensitive):
        required = [require_distinct_values(one, DIFFERENT) for one in (*kept, name)]
        tree = policy.model_dump(exclude_none=True)
        diverse = {required[0][0]: [entry for _, entry in required]}
        stricter = Policy(**{**tree, "privacy": {**tree["privacy"], **diverse}})
        trial = _try(sample, stricter, Trial(best.name, best.search), clock.left, clock.pace, f"diverse_{i}")
        found.append(Diversity(name, trial, _is_affordable(trial, best)))
        kept += [name] if found[-1].kept else []
    return found


def _is_affordable(trial: Trial, best: Trial) -> bool:
    if trial.loss is None or best.loss is None or {*trial.fully_suppressed} - {*best.fully_suppressed}:
        return False
    return trial.loss <= max(_DEAREST * best.loss, _CHEAP)


@dataclass(frozen=True)
class _Sample:
    """A run, its source with a table of some rows in place of its own, and the sensitive attributes to look at."""

    run: Run
    source: Source
    sensitive: Sequence[str]
    counts: TypicalCounts | None = None


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


def _sampled(run: Run, policy: Policy, most: int, sensitive: Sequence[str], name: str = "trial_rows") -> Source:
    """The source, with a table of some of its rows in place of its own: the columns that a search reads."""
    source, steps, matched = run.source, StatementRunner(run.engine), match_columns(policy, run.source)
    person = matched.person
    more = [matched.by_attribute[name] for name in sensitive]
    names = dict.fromkeys([*matched.generalized, *matched.sensitive, *more, *([person] if person else [])])
    given = {"rows": source.relation, "columns": [col(name) for name in names or source.columns]}
    count = int(steps.fetch_rows(_COUNT(rows=source.relation), [])[0][0])
    step = math.ceil(count / (_TO_SPARE * most))
    if count <= most:
        query = _ALL(**given)
    elif person is not None:
        query = _BY_PERSON(**given, person_hash=anonymous("HASH", col(person)), step=step, most=most)
    else:
        query = _BY_PLACE(**given, place_hash=anonymous("HASH", col("sqlanon place")), step=step, most=most)
    return replace(source, relation=steps.create_table(run.work(name), query), in_place=True)


def _try(sample: _Sample, policy: Policy, trial: Trial, seconds: float, pace: float, prefix: str) -> Trial:
    changed = with_search_keys(policy, trial.search)
    if isinstance(changed, PolicyError):
        return replace(trial, error="; ".join(map(str, changed.problems)))
    limit = min(seconds * pace * _SEARCHES, float(policy.search.time_limit or math.inf))
    if seconds <= 0:
        return replace(trial, stopped=True, error="no time was left to try it")
    asked = changed.model_copy(update={"search": changed.search.model_copy(update={"time_limit": limit})})
    started = time.monotonic()
    try:
        with source_errors(), interrupt_after(seconds * pace, sample.run.engines):
            trial = _figures(sample, asked, trial, prefix)
    except SqlanonError as error:
        late = time.monotonic() - started >= seconds * pace
        why = f"took more than {seconds:.1f} seconds" if late else str(error)
        trial = replace(trial, stopped=late, error=why)
    return replace(trial, seconds=time.monotonic() - started)


def _figures(sample: _Sample, policy: Policy, trial: Trial, prefix: str) -> Trial:
    run, sensitive, steps = sample.run, sample.sensitive, StatementRunner(sample.run.engine)
    prepared = pipeline.prepare(steps, policy, sample.source, lambda name: run.work(f"{prefix}_{name}"), run.population)
    # Of the sample, only these columns are there.
    released = tuple(one for one in prepared.released_columns if one.quasi is not None or one.name in sensitive)
    prepared = replace(prepared, columns=replace(prepared.columns, released=released))
    began, limit, most = time.monotonic(), policy.search.time_limit, policy.search.max_checks
    found = run_search(steps, prepared, ignore_progress)
    stopped = limit is not None and time.monotonic() - began >= limit
    stopped |= most is not None and found.rounds >= most
    recoding = recode(steps, prepared, found)
    gone = steps.fetch_rows(recoding.statement.fully_suppressed(), [])[0]
    homogeneous = {}
    if sensitive:
        release = subquery(recoding.statement.select(shuffled=False), "r")
        for name in sensitive:
            homogeneous[name] = int(
                steps.fetch_rows(homogeneous_rows(release, policy.generalized_attributes, name), [])[0][0]
            )
    count_error = None
    if sample.counts is not None:
        work = prepared.work
        count_error = error_of_counts(steps, sample.counts, prepared, recoding.statement, work)
    return replace(
        trial,
        count_error=count_error,
        loss=compute_loss(prepared, found),
        fully_suppressed=tuple(name for name, flag in zip(policy.generalized_attributes, gone, strict=True) if flag),
        rows=prepared.marginals.rows,
        suppressed_rows=recoding.figures.suppressed_rows,
        stopped=stopped,
        homogeneous=homogeneous,
    )
