"""The noise stage: add noise to the rows of a recoding, drawn once.

noise_records ──> noise_classes ──> noise_rows ──> noise_links ──> noise_survivors, noise_evaluated ──> noise_kept
(recoded rows     (range and        (values with   (linking risk;  (late suppression: nearby         (released
 with numbers)     grid)             noise)         noise_near:     originals, classes                records)
                                                    confidence)     evaluated again)
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
from sqlanon.noise.statements import DrawnNoise, NoisyColumn
from sqlanon.policy import Policy
from sqlanon.policy.noise import noise_claims
from sqlanon.recode.stage import Recoding
from sqlanon.requirements.base import KeptClasses
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.persons import PersonFigures
from sqlanon.strategies.local.core.evaluation import class_figures
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.coding import Column
from sqlanon.support.expressions import Namer, create_table_with_columns, drop_table, select_star, template
from sqlanon.support.notices import Notice

MAX_PAIRS = 200_000_000
"""Maximum number of record pairs compared for the linking risk (about ten seconds); beyond it, records are sampled
evenly."""


@dataclass(frozen=True)
class Linking:
    """The linking attack: an attacker with the original values links released records to the nearest of their class."""

    records: int  # compared records of the release
    linked: int  # records whose own original is the nearest, or as near as another
    strictly_linked: int  # records whose own original is the only nearest
    all_records: bool  # whether all released records were compared

    @property
    def risk(self) -> float:
        """The share of linked records."""
        return self.linked / self.records if self.records else 0.0

    @property
    def strict_risk(self) -> float:
        """The share of strictly linked records."""
        return self.strictly_linked / self.records if self.records else 0.0


@dataclass(frozen=True)
class NoiseResult:
    """A recoding with noise, and the figures of the noise."""

    recoding: Recoding  # with noise, and without the rows that were suppressed after it was drawn
    drawn: DrawnNoise
    # By attribute ``epsilon``, ``expected_relative_error``, ``observed_relative_error`` (None if all values are 0, and
    # for dates), ``expected_error``, ``observed_error`` and ``zero_rows``.
    attributes: Mapping[str, Mapping[str, Any]]
    linking: Linking
    # ``beta`` and ``suppressed_rows``, the rows suppressed for it; None if the policy has no confidence.
    confidence: Mapping[str, Any] | None

    def manifest_values(self, policy: Policy) -> dict[str, Any]:
        """The manifest's entries: the noise that the policy requires.

        Observed figures are left out. Errors may be those of one outlier, and the linking risk and the rows suppressed
        for confidence may change with one person's value where the release does not.
        """
        epsilon, noise = noise_claims(policy.redact())
        confidence = None if self.confidence is None else {"beta": self.confidence["beta"]}
        return {"epsilon": epsilon, "noise": noise, "confidence": confidence}


def create_noise_classes(
    runner: StatementRunner, recoding: ClassRecoding, columns: tuple[NoisyColumn, ...], work: Namer
) -> tuple[exp.Table, exp.Table]:
    """Create `noise_records` and `noise_classes`, with the range of each attribute."""
    records = runner.create_table(work("noise_records"), noise.records(recoding.rows(), columns))
    query = noise.noise_classes(records, recoding.class_keys(), columns)
    return records, runner.create_table(work("noise_classes"), query)


Progress: TypeAlias = Callable[[int, int], None]
"""Reports the numbers of records without and with noise."""

NoiseSource: TypeAlias = Callable[[exp.Table, exp.Table, int, Progress], None]
"""Draws noise for `count` records into a table. It receives record numbers only, never values.

Its parameters are the new table, the table of records, ``count`` and the progress. Noise is drawn once for a result."""


@dataclass(frozen=True)
class NoisePlan:
    """The noise of a policy: its columns and its source."""

    columns: tuple[NoisyColumn, ...]
    draw: NoiseSource


def plan_noise(runner: StatementRunner, run: Run, policy: Policy) -> NoisePlan:
    """Plan the noise of a policy; refuse it before the search if it cannot be drawn."""
    if runner.dry:
        columns = noisy_columns(policy, run.source)
        types = noise.drawn_columns(columns)
        return NoisePlan(columns, lambda target, *_: runner.record(create_table_with_columns(target, types)))
    if (workers := run.source.workers) is None:
        refuse_without_opendp(policy.noisy_attributes[0])
    columns = require_usable_noisy_columns(run.engine, policy, run.source)
    if workers is None:
        return NoisePlan(columns, local_noise_source(run.engine, columns, run.engine.limits.threads))
    return NoisePlan(columns, remote_noise_source(run.engine, workers, columns, run.work))


def local_noise_source(engine: WorkEngine, columns: Sequence[NoisyColumn], threads: int | None = None) -> NoiseSource:
    """Draw noise in this process, with at most ``threads`` threads (by default, one for each processor)."""

    def draw(target: exp.Table, records: exp.Table, count: int, progress: Progress) -> None:
        done = 0

        def report_batch(batch_size: int) -> None:
            nonlocal done
            done += batch_size
            progress(count - done, done)

        progress(count, 0)
        with NoiseDrawing(count, [column.epsilon for column in columns], report_batch, threads) as drawing:
            engine.copy_arrow(target, drawing.reader)

    return draw


def remote_noise_source(engine: Engine, workers: Workers, columns: Sequence[NoisyColumn], work: Namer) -> NoiseSource:
    """Draw noise on Spark's workers; first test that they have OpenDP."""
    types = dict(noise.drawn_columns(columns))

    def create_drawn_table(target: exp.Table, records: exp.Select) -> None:
        workers.map_remotely(target, records, batch_noise_drawer([column.epsilon for column in columns]), types)
        undrawn = template("SELECT count(*) FILTER (WHERE n_0 IS NULL) FROM :drawn")(drawn=target)
        if engine.rows(undrawn)[0][0]:
            raise SourceError(
                f"{workers.place}: Spark's workers draw the noise with OpenDP, which is not "
                "installed: pip install opendp for the Python that they use (spark.pyspark.python)"
            )

    probe = work("noise_probe")
    create_drawn_table(probe, template("SELECT 0::BIGINT AS record")())  # no record has the number 0
    engine.execute(drop_table(probe))

    def draw(target: exp.Table, records: exp.Table, count: int, progress: Progress) -> None:
        progress(count, 0)
        create_drawn_table(target, template("SELECT record FROM :records")(records=records))
        progress(0, count)

    return draw


def add_noise(
    runner: StatementRunner, search_input: SearchInput, recoding: Recoding, noise_plan: NoisePlan, progress: Progress
) -> NoiseResult:
    """Draw noise for the rows of a recoding.

    Creates `noise_classes` and `noise_rows`, and if rows may be suppressed after noise `noise_near`, `noise_survivors`,
    `noise_evaluated` and `noise_kept`.
    """
    policy, work, columns = search_input.policy, search_input.work, noise_plan.columns
    person, plain = search_input.columns.person, recoding.statement
    private = tuple(map(Column, [*([] if person is None else [person]), *search_input.columns.key]))
    for column in private:
        plain = plain.with_column(column)
    records, classes = create_noise_classes(runner, plain, columns, work)
    count = int(
        runner.fetch_rows(template("SELECT count(*) FROM :records")(records=records), [(0,)], in_plan=False)[0][0]
    )
    drawn = work("noise_drawn")
    noise_plan.draw(drawn, records, count, progress)
    query = noise.noisy_records(records, classes, plain.class_keys(), drawn, columns)
    rows = runner.create_table(work("noise_rows"), query)
    runner.drop(records, drawn)
    links, all_records = create_links(runner, columns, rows, classes, work)
    released_records, beta, confidence = None, policy.privacy.confidence, None
    if policy.suppresses_after_noise:
        survivors, evaluated, released_records = _create_kept_records(
            runner, search_input, plain, columns, rows, classes
        )
        if not runner.dry:
            recoding = apply_late_suppression(runner, search_input, recoding, survivors, evaluated, released_records)
        released_rows = search_input.marginals.rows - recoding.figures.suppressed_rows
        confidence = None if beta is None else {"beta": beta, "suppressed_rows": count - released_rows}
    names = tuple(plain.rows().named_selects)
    noise_rows = DrawnNoise(rows, released_records, columns, names, len(recoding.statement.columns), private)
    recoding = replace(recoding, statement=replace(recoding.statement, drawn=noise_rows))
    if runner.dry:
        return NoiseResult(recoding, noise_rows, {}, Linking(0, 0, 0, all_records=True), confidence)
    expected_errors = runner.fetch_figures(noise.expected_errors(classes, columns))
    compared, linked, strictly_linked = runner.fetch_rows(linking.linking_counts(links, released_records), [])[0]
    linking_figures = Linking(compared, linked, strictly_linked, all_records)
    runner.drop(links)
    warnings = warn_of_constant_classes(policy, expected_errors) + warn_of_linkable_noise(policy, linking_figures)
    return NoiseResult(
        replace(recoding, warnings=(*recoding.warnings, *warnings)),
        noise_rows,
        measure_errors(runner, policy, columns, rows, expected_errors),
        linking_figures,
        confidence,
    )


def _create_kept_records(
    runner: StatementRunner,
    search_input: SearchInput,
    recoding: ClassRecoding,
    noisy_columns: tuple[NoisyColumn, ...],
    rows: exp.Table,
    classes: exp.Table,
) -> tuple[exp.Table, exp.Table, exp.Table]:
    """Suppress records with too few nearby originals, and then every class that no longer meets the policy.

    This includes classes that lost rows whose values cannot have noise. Creates `noise_near`, `noise_survivors`,
    `noise_evaluated` and `noise_kept`; returns the last three.
    """
    policy, columns, work = search_input.policy, search_input.columns, search_input.work
    beta, k, attributes = policy.privacy.confidence, policy.k, len(policy.generalized_attributes)
    nearby = None
    if beta is not None:
        nearby_tables = [
            runner.create_table(
                work(f"noise_near_{j}"), linking.nearby_originals(rows, classes, noisy_columns, beta, j)
            )
            for j in range(len(noisy_columns))
        ]
        nearby = nearby_tables[0]
        if len(nearby_tables) > 1:
            query = linking.nearby_originals_in_all(rows, classes, noisy_columns, beta, nearby_tables, k)
            nearby = runner.create_table(work("noise_near"), query)
    value_columns = {column.name: f"value_{j}" for j, column in enumerate(recoding.columns)}
    sensitive = [value_columns[column] for column in columns.sensitive]
    person = value_columns.get(columns.person or "")
    query = noise.survivors(rows, classes, list(recoding.class_keys()), attributes, sensitive, person, nearby, k)
    survivors = runner.create_table(work("noise_survivors"), query)
    # The population of a class does not change; policies that count all of the population refuse late suppression.
    requirements, sets = search_input.requirements.without_population, search_input.frequency_sets.ground.sensitive
    query = noise.evaluated_survivors(
        survivors, attributes, columns.sensitive_names, sets, person is not None, requirements
    )
    evaluated = runner.create_table(work("noise_evaluated"), query)
    released_records = runner.create_table(work("noise_kept"), noise.kept_records(survivors, evaluated, attributes))
    return survivors, evaluated, released_records


def apply_late_suppression(
    runner: StatementRunner,
    search_input: SearchInput,
    recoding: Recoding,
    survivors: exp.Table,
    evaluated: exp.Table,
    released_records: exp.Table,
) -> Recoding:
    """The recoding with the figures after late suppression; refused if it no longer meets the policy."""
    figures, rows = runner.fetch_figures(class_figures(evaluated=select_star(evaluated))), search_input.marginals.rows
    suppressed_rows, limit, persons = rows - figures["rows"], search_input.limit, None
    if search_input.members is not None:
        query = noise.persons_of_records(search_input.members, survivors, released_records)
        all_persons, suppressed, partly_released = runner.fetch_rows(query, [])[0]
        persons = PersonFigures(all_persons, suppressed, partly_released, figures["fewest"])
    suppressed_persons = None if persons is None else persons.suppressed
    if not limit.allows(suppressed_rows, suppressed_persons) or not figures["classes"]:
        raise infeasible_after_noise(search_input, recoding, suppressed_rows, suppressed_persons)
    kept_classes = KeptClasses(figures["classes"], figures["rows"], figures["kept_count"], figures["single_classes"])
    conditions = search_input.requirements.table_conditions
    if unmet := [condition.name for condition in conditions if not condition.is_met_by(kept_classes)]:
        message = f"{', '.join(unmet)} would not be met by the {figures['rows']:,} rows that remain after noise was "
        message += "drawn: loosen it, or lower confidence"
        levels = levels_by_name(recoding)
        raise InfeasibleError(message, levels, suppressed_rows, limit.rows, suppressed_persons, limit.persons)
    recoding_figures = replace(
        recoding.figures,
        classes=figures["classes"],
        suppressed_rows=suppressed_rows,
        kept_count=figures["kept_count"],
        suppressed_persons=suppressed_persons,
    )
    return replace(recoding, figures=recoding_figures, smallest_class=figures["smallest"], persons=persons)


def infeasible_after_noise(
    search_input: SearchInput, recoding: Recoding, suppressed_rows: int, suppressed_persons: int | None
) -> InfeasibleError:
    beta, rows, limit = search_input.policy.privacy.confidence, search_input.marginals.rows, search_input.limit
    sentence = limit.sentence(suppressed_rows, rows, suppressed_persons)
    message = f"after noise was drawn, the release would suppress {sentence}. Before "
    message += f"noise it suppresses {recoding.figures.suppressed_rows:,} rows. Others "
    if beta is None:
        message += "have a value that cannot have noise, or are in a class that is too small without such rows: "
        message += "raise suppression_limit, or give them a value with query = ..."
    else:
        message += f"are not protected with confidence {beta:g}, or are in a class that is too small without such "
        message += "rows: raise suppression_limit, lower epsilon, or lower confidence"
    levels = levels_by_name(recoding)
    return InfeasibleError(message, levels, suppressed_rows, limit.rows, suppressed_persons, limit.persons)


def levels_by_name(recoding: Recoding) -> dict[str, int]:
    """The level of each attribute that has one level in the whole release."""
    return {name: level for name, level in recoding.generalization.items() if level is not None}


def warn_of_constant_classes(policy: Policy, expected_errors: Mapping[str, Any]) -> list[Notice]:
    """Warn about values without noise, in classes whose values are all equal."""
    counts = {name: expected_errors[f"constant_rows_{j}"] or 0 for j, name in enumerate(policy.noisy_attributes)}
    return [
        Notice(f"{count:,} rows are in classes in which all have the same {name!r}, which is released unchanged", count)
        for name, count in counts.items()
        if count
    ]


def warn_of_linkable_noise(policy: Policy, linking_figures: Linking) -> list[Notice]:
    """Warn about weak noise that the policy permits, with its linking risk."""
    if not policy.privacy.linkable_noise:
        return []
    message = f"linkable_noise: the epsilon of a record is {policy.epsilon:g}. A reader who has the original values "
    message += f"links {linking_figures.risk:.1%} of the released rows to their own by the nearest value (linking_risk)"
    return [Notice(message, linking_figures.linked)]


def measure_errors(
    runner: StatementRunner,
    policy: Policy,
    columns: tuple[NoisyColumn, ...],
    rows: exp.Table,
    expected_errors: Mapping[str, Any],
) -> dict[str, dict[str, Any]]:
    """Expected and observed errors by attribute, over all records with noise."""
    observed_errors = runner.fetch_figures(noise.observed_errors(rows, columns))
    return {
        name: {
            "epsilon": column.epsilon,
            **expected_errors_for(column.epsilon, column, j, expected_errors),
            "observed_relative_error": None if column.is_date else observed_errors[f"observed_relative_{j}"],
            "observed_error": observed_errors[f"observed_{j}"],
            "zero_rows": expected_errors[f"zeros_{j}"],
        }
        for j, (name, column) in enumerate(zip(policy.noisy_attributes, columns, strict=True))
    }


def expected_errors_for(
    epsilon: float, column: NoisyColumn, j: int, expected_errors: Mapping[str, Any]
) -> dict[str, float | None]:
    """The expected errors for an ε. Dates have no relative error, because their zero is arbitrary."""
    relative, absolute = expected_errors[f"expected_relative_{j}"], expected_errors[f"expected_{j}"]
    return {
        "expected_relative_error": None if column.is_date or relative is None else relative / epsilon,
        "expected_error": None if absolute is None else absolute / epsilon,
    }


def create_links(
    runner: StatementRunner, columns: tuple[NoisyColumn, ...], rows: exp.Table, classes: exp.Table, work: Namer
) -> tuple[exp.Table, bool]:
    """Create `noise_links`; also return whether it has all records."""
    every = 1
    if len(columns) > 1:
        every = int(runner.fetch_rows(linking.record_pairs(classes), [(0,)], in_plan=False)[0][0] // MAX_PAIRS) + 1
    return runner.create_table(work("noise_links"), linking.linked_records(rows, classes, columns, every)), every == 1
