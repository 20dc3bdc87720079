"""The stage of noise: from a recoding to what is released, drawn once.

recoding ──> records ──> classes ──> noisy ──> links, near ──> survivors, judged ──> released
(rows with    (with a     (range,     (what     (the risk,      (where rows are       (the recoding
 classes)      number)     grid)       is drawn) confidence)     suppressed last)      again)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from sqlglot import exp

from sqlanon.engines.base import Engine, WorkEngine, Workers
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import InfeasibleError, SourceError
from sqlanon.noise import linking
from sqlanon.noise import statements as noise
from sqlanon.noise.columns import noisy_columns, require_usable_noisy_columns
from sqlanon.noise.laplace import NoiseDrawing, batch_noise_drawer, refuse_without_opendp
from sqlanon.noise.statements import (
    NoisyColumn,
    NoisyRecoding,
    judged_survivors,
    kept_records,
    persons_of_records,
    survivors,
)
from sqlanon.policy import Policy
from sqlanon.policy.noise import noise_claims
from sqlanon.recode.stage import Recoding
from sqlanon.requirements.base import RetainedClasses
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.persons import PersonFigures
from sqlanon.strategies.local.placement import class_figures
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.coding import Column
from sqlanon.support.expressions import Namer, create_table_with_columns, drop_table, select_star, template
from sqlanon.support.notices import Notice

PAIRS = 200_000_000
"""With several attributes, so many pairs of records of a class are compared for the linking risk: some ten seconds.
Where there are more, evenly chosen records are looked at."""


@dataclass(frozen=True)
class Linking:
    """The linking attack on what is released."""

    records: int  # released records that were looked at
    linked: int  # no original of the class is nearer to them than their own
    strictly: int  # their own is the only nearest
    all_records: bool  # whether all released records were looked at

    @property
    def risk(self) -> float:
        """The share that is linked."""
        return self.linked / self.records if self.records else 0.0

    @property
    def strict_risk(self) -> float:
        """The share that is linked to one record alone."""
        return self.strictly / self.records if self.records else 0.0


@dataclass(frozen=True)
class NoiseResult:
    """What noise made of a recoding."""

    recoding: Recoding  # its figures, without the rows that are suppressed after noise was drawn
    statement: NoisyRecoding
    # By attribute ``epsilon``, ``expected_relative_error``, ``observed_relative_error`` (None where all values are 0,
    # and for dates), ``expected_error``, ``observed_error`` and ``zero_rows``.
    attributes: Mapping[str, Mapping[str, Any]]
    linking: Linking
    # ``beta`` and ``suppressed_rows``, the rows that were suppressed for it; None where the policy has no confidence.
    confidence: Mapping[str, Any] | None

    def manifest_values(self, policy: Policy) -> dict[str, Any]:
        """What the manifest shows, by its columns: what the policy asked for.

        The errors of a table may be those of one outlier. The linking risk, and the rows that were suppressed for
        confidence, change with one person's value where what is released is the same.
        """
        epsilon, noise = noise_claims(policy.redact())
        confidence = None if self.confidence is None else {"beta": self.confidence["beta"]}
        return {"epsilon": epsilon, "noise": noise, "confidence": confidence}


def make_noise_classes(
    steps: StatementRunner, recoding: ClassRecoding, columns: tuple[NoisyColumn, ...], work: Namer
) -> tuple[exp.Table, exp.Table]:
    """The records of a recoding, and their classes with what noise needs to be told of them.

    Makes ``noise_records`` and ``noise_classes``.
    """
    made = steps.create_table(work("noise_records"), noise.records(recoding.rows(), columns))
    return made, steps.create_table(work("noise_classes"), noise.noise_classes(made, recoding.class_keys(), columns))


Progress: TypeAlias = Callable[[int, int], None]
"""Reports the records that wait for noise, and those that have it."""

Draw: TypeAlias = Callable[[exp.Table, exp.Table, int, Progress], None]
"""Makes a table of noise, by its name, for the records of a table, which are so many.

Only the numbers of records get to what draws: no private value does. What was drawn is kept, and never drawn again."""


@dataclass(frozen=True)
class NoisePlan:
    """The noise of a policy: its columns, and what draws it where the records are."""

    columns: tuple[NoisyColumn, ...]
    draw: Draw


def plan_noise(steps: StatementRunner, run: Run, policy: Policy) -> NoisePlan:
    """The noise of a policy, refused before the search where it cannot be drawn."""
    if steps.dry:
        columns = noisy_columns(policy, run.source)
        return NoisePlan(
            columns, lambda target, *_: steps.record(create_table_with_columns(target, noise.drawn_columns(columns)))
        )
    if (workers := run.source.workers) is None:
        refuse_without_opendp(policy.noisy_attributes[0])
    columns = require_usable_noisy_columns(run.engine, policy, run.source)
    if workers is None:
        return NoisePlan(columns, local_noise_source(run.engine, columns, run.engine.limits.threads))
    return NoisePlan(columns, _draws_there(run.engine, workers, columns, run.work))


def local_noise_source(engine: WorkEngine, columns: Sequence[NoisyColumn], threads: int | None = None) -> Draw:
    """How noise is drawn beside us, on so many threads at most (default: as many as there are processors)."""

    def draw(target: exp.Table, records: exp.Table, count: int, progress: Progress) -> None:
        done = 0

        def add(more: int) -> None:
            nonlocal done
            done += more
            progress(count - done, done)

        progress(count, 0)
        with NoiseDrawing(count, [one.epsilon for one in columns], add, threads) as found:
            engine.copy_arrow(target, found.reader)

    return draw


_RECORD = template("SELECT record FROM :records")
_NO_RECORD = template("SELECT 0::BIGINT AS record")  # there is none of this number: to draw for
_UNDRAWN = template("SELECT count(*) FILTER (WHERE n_0 IS NULL) FROM :drawn")
_COUNT = template("SELECT count(*) FROM :rows")


def _draws_there(engine: Engine, workers: Workers, columns: Sequence[NoisyColumn], work: Namer) -> Draw:
    """How noise is drawn by the workers of Spark, once they have drawn some for a record that there is not."""
    types = dict(noise.drawn_columns(columns))

    def put(target: exp.Table, records: exp.Select) -> None:
        workers.map_remotely(target, records, batch_noise_drawer([one.epsilon for one in columns]), types)
        if engine.rows(_UNDRAWN(drawn=target))[0][0]:
            raise SourceError(
                f"{workers.place}: Spark's workers draw the noise with OpenDP, which is not "
                "installed: pip install opendp for the Python that they use (spark.pyspark.python)"
            )

    probe = work("noise_probe")
    put(probe, _NO_RECORD())
    engine.execute(drop_table(probe))

    def draw(target: exp.Table, records: exp.Table, count: int, progress: Progress) -> None:
        progress(count, 0)
        put(target, _RECORD(records=records))
        progress(0, count)

    return draw


def add_noise(
    steps: StatementRunner, prepared: SearchInput, recoding: Recoding, asked: NoisePlan, progress: Progress
) -> NoiseResult:
    """Draw noise for the rows of a recoding.

    Makes ``noise_classes``, ``noise_rows``, and where they are needed ``noise_near``, ``noise_survivors``,
    ``noise_judged`` and ``noise_kept`` in the work schema.
    """
    policy, work, columns = prepared.policy, prepared.work, asked.columns
    person, plain = prepared.columns.person, recoding.statement
    private = tuple(map(Column, [*([] if person is None else [person]), *prepared.columns.key]))
    for column in private:
        plain = plain.with_column(column)
    records, classes = make_noise_classes(steps, plain, columns, work)
    names = tuple(plain.rows().named_selects)
    count = int(steps.look_up(_COUNT(rows=records), [(0,)])[0][0])
    draws = work("noise_drawn")
    asked.draw(draws, records, count, progress)
    rows = steps.create_table(
        work("noise_rows"), noise.noisy_records(records, classes, plain.class_keys(), draws, columns)
    )
    steps.drop(records, draws)
    links, all_records = _links(steps, columns, rows, classes, work)
    kept, beta, confidence = None, policy.privacy.confidence, None
    if policy.suppresses_after_noise:
        left, judged, kept = _keep(steps, prepared, plain, columns, rows, classes)
        recoding = recoding if steps.dry else _suppressed_last(steps, prepared, recoding, left, judged, kept)
        released = prepared.marginals.rows - recoding.figures.suppressed_rows
        confidence = None if beta is None else {"beta": beta, "suppressed_rows": count - released}
    statement = NoisyRecoding(recoding.statement, rows, kept, columns, names, private)
    if steps.dry:
        return NoiseResult(recoding, statement, {}, Linking(0, 0, 0, all_records=True), confidence)
    expected = steps.fetch_figures(noise.expected_errors(classes, columns))
    looked_at, linked, strictly = steps.fetch_rows(linking.linking_counts(links, kept), [])[0]
    steps.drop(links)
    attack = Linking(looked_at, linked, strictly, all_records)
    return NoiseResult(
        replace(recoding, warnings=(*recoding.warnings, *_still(policy, expected), *_linkable(policy, attack))),
        statement,
        _errors(steps, policy, columns, rows, expected),
        attack,
        confidence,
    )


def _keep(
    steps: StatementRunner,
    prepared: SearchInput,
    recoding: ClassRecoding,
    noisy: tuple[NoisyColumn, ...],
    rows: exp.Table,
    classes: exp.Table,
) -> tuple[exp.Table, exp.Table, exp.Table]:
    """Leave out records that are near to too few, and then every class that does not meet the policy any more.

    Also of those whose rows were left out because no noise can be added to their values. Makes ``noise_near``,
    ``noise_survivors``, ``noise_judged`` and ``noise_kept``; gives the last three.
    """
    policy, columns, work = prepared.policy, prepared.columns, prepared.work
    near, beta, k, attributes = (
        None,
        policy.privacy.confidence,
        policy.privacy.k or 1,
        len(policy.generalized_attributes),
    )
    if beta is not None:
        each = [
            steps.create_table(work(f"noise_near_{j}"), linking.nearby_originals(rows, classes, noisy, beta, j))
            for j in range(len(noisy))
        ]
        near = each[0]
        if len(each) > 1:
            near = steps.create_table(
                work("noise_near"), linking.nearby_originals_in_all(rows, classes, noisy, beta, each, k)
            )
    places = {column.name: f"value_{place}" for place, column in enumerate(recoding.columns)}
    sensitive = [places[column] for column in columns.sensitive]
    person = places.get(columns.person or "")
    query = survivors(rows, classes, list(recoding.class_keys()), attributes, sensitive, person, near, k)
    left = steps.create_table(work("noise_survivors"), query)
    # How many of the population a class matches does not change; what counts them all is refused by the policy.
    requirements, sets = prepared.requirements.without_population, prepared.frequency_sets.ground.sensitive
    query = judged_survivors(left, attributes, columns.sensitive_names, sets, person is not None, requirements)
    judged = steps.create_table(work("noise_judged"), query)
    return left, judged, steps.create_table(work("noise_kept"), kept_records(left, judged, attributes))


def _suppressed_last(
    steps: StatementRunner,
    prepared: SearchInput,
    recoding: Recoding,
    survivors: exp.Table,
    judged: exp.Table,
    kept_records: exp.Table,
) -> Recoding:
    """The recoding without the rows that were suppressed after noise was drawn."""
    found, rows = steps.fetch_figures(class_figures(judged=select_star(judged))), prepared.marginals.rows
    suppressed, limit, persons = rows - found["rows"], prepared.limit, None
    if prepared.members is not None:
        query = persons_of_records(prepared.members, survivors, kept_records)
        every, lost, partly = steps.fetch_rows(query, [])[0]
        persons = PersonFigures(every, lost, partly, found["fewest"])
    suppressed_persons = None if persons is None else persons.suppressed
    if not limit.allows(suppressed, suppressed_persons) or not found["classes"]:
        raise _refused(prepared, recoding, suppressed, suppressed_persons)
    left = RetainedClasses(found["classes"], found["rows"], found["count"], found["singles"])
    if broken := [one.name for one in prepared.requirements.table_conditions if not one.is_met_by(left)]:
        message = f"{', '.join(broken)} would not be met by the {found['rows']:,} rows that remain after noise was "
        message += "drawn: loosen it, or lower confidence"
        raise InfeasibleError(message, _named(recoding), suppressed, limit.rows, suppressed_persons, limit.persons)
    kept = replace(
        recoding.figures,
        classes=found["classes"],
        suppressed_rows=suppressed,
        count=found["count"],
        suppressed_persons=suppressed_persons,
    )
    return replace(recoding, figures=kept, smallest_class=found["smallest"], persons=persons)


def _refused(prepared: SearchInput, recoding: Recoding, suppressed: int, persons: int | None) -> InfeasibleError:
    beta, rows, limit = prepared.policy.privacy.confidence, prepared.marginals.rows, prepared.limit
    before = recoding.figures.suppressed_rows
    message = f"after noise was drawn, the release would suppress {limit.sentence(suppressed, rows, persons)}. Before "
    message += f"noise it suppresses {before:,} rows. Others "
    if beta is None:
        message += "have a value that cannot have noise, or are in a class that is too small without such rows: "
        message += "raise suppression_limit, or give them a value with query = ..."
    else:
        message += (
            f"are not protected with confidence {beta:g}, or are in a class that is too small without such rows: "
        )
        message += "raise suppression_limit, lower epsilon, or lower confidence"
    return InfeasibleError(message, _named(recoding), suppressed, limit.rows, persons, limit.persons)


def _named(recoding: Recoding) -> dict[str, int]:
    return {name: level for name, level in recoding.generalization.items() if level is not None}


def _still(policy: Policy, expected: Mapping[str, Any]) -> list[Notice]:
    """Warnings of values that no noise is added to."""
    counts = {name: expected[f"still_{j}"] or 0 for j, name in enumerate(policy.noisy_attributes)}
    return [
        Notice(f"{count:,} rows are in classes in which all have the same {name!r}, which is released unchanged", count)
        for name, count in counts.items()
        if count
    ]


def _linkable(policy: Policy, attack: Linking) -> list[Notice]:
    """The warning of noise that the policy lets be weak, with the linking risk."""
    if not policy.privacy.linkable_noise:
        return []
    message = (
        f"linkable_noise: the epsilon of a record is {policy.epsilon:g}. A reader who has the original values links "
    )
    message += f"{attack.risk:.1%} of the released rows to their own by the nearest value (linking_risk)"
    return [Notice(message, attack.linked)]


def _errors(
    steps: StatementRunner,
    policy: Policy,
    columns: tuple[NoisyColumn, ...],
    rows: exp.Table,
    expected: Mapping[str, Any],
) -> dict[str, dict[str, Any]]:
    """By attribute, what was expected of noise, and what was observed: over all records that got it."""
    observed = steps.fetch_figures(noise.observed_errors(rows, columns))
    return {
        name: {
            "epsilon": one.epsilon,
            **expected_errors_for(one.epsilon, one, j, expected),
            "observed_relative_error": None if one.is_date else observed[f"observed_relative_{j}"],
            "observed_error": observed[f"observed_{j}"],
            "zero_rows": expected[f"zeros_{j}"],
        }
        for j, (name, one) in enumerate(zip(policy.noisy_attributes, columns, strict=True))
    }


def expected_errors_for(
    epsilon: float, column: NoisyColumn, j: int, expected: Mapping[str, Any]
) -> dict[str, float | None]:
    """The errors that are to be expected with some ε; a date has no relative one, for its zero means nothing."""
    relative, absolute = expected[f"expected_relative_{j}"], expected[f"expected_{j}"]
    return {
        "expected_relative_error": None if column.is_date or relative is None else relative / epsilon,
        "expected_error": None if absolute is None else absolute / epsilon,
    }


def _links(
    steps: StatementRunner, columns: tuple[NoisyColumn, ...], rows: exp.Table, classes: exp.Table, work: Namer
) -> tuple[exp.Table, bool]:
    """Make ``noise_links``; and whether all records are in it."""
    every = 1
    if len(columns) > 1:
        every = int(steps.look_up(linking.record_pairs(classes), [(0,)])[0][0] // PAIRS) + 1
    return steps.create_table(work("noise_links"), linking.linked_records(rows, classes, columns, every)), every == 1
