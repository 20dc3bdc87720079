"""The experiment of the paper "(k,ε)-Anonymity" on Adult with heights: errors, linking risk, confidence, and the price
of generalizing what could have noise.

    python benchmarks/k_epsilon.py [--runs 30] [--k 2 5 10 20 50 100] [--epsilon 0.1 0.25 0.5 1 2 4 8]
        [--strategies optimal mondrian] [--parts noise generalized] [--searches 5] [--results DIR]

Source: N. Holohan, S. Antonatos, S. Braghin, P. Mac Aonghusa, "(k,ε)-Anonymity: k-anonymity with ε-differential
privacy" (2017). The table and its hierarchies: heights.py. The search is the same on every run, so it is made once for
each strategy and k, with at most 5 % suppressed; noise is drawn anew on every run, by the package's own stage, which
has no seed: the figures differ a little each time. What 99 %-confidence suppresses is measured without a limit, with
the number of runs that stay within 5 % in brackets. The paper's figure 2, which compares other noise with noise per
class, is repeated for k = 20. `k_epsilon_plot.py` draws what ``--results`` keeps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import duckdb
from harness import header, machine, parser, record, require_tables, row
from heights import K_QUASIS, make_people
from sqlglot import exp

import sqlanon
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import InfeasibleError
from sqlanon.measures import MEASURES
from sqlanon.noise import linking
from sqlanon.noise.columns import require_usable_noisy_columns
from sqlanon.noise.stage import NoisePlan, add_noise, local_noise_source
from sqlanon.noise.statements import NoisyColumn
from sqlanon.pipeline import prepare
from sqlanon.recode.stage import Recoding, recode
from sqlanon.sources.run import Run
from sqlanon.sources.workspace import Workspace
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.stage import run_search
from sqlanon.support.expressions import create_schema, drop_schema, table

LIMIT = 0.05
CONFIDENCE = 0.99
COMPARED = 20
"""The k at which noise per class is compared with other noise."""

NOISE: Mapping[str, Any] = {"height": {"role": "quasi", "noise": {"epsilon": 1.0}}}
INTERVALS: Mapping[str, Any] = {"intervals": [2.5, 5, 10, 20], "below": 150, "above": 190}
GENERALIZED: Mapping[str, Any] = {"height": {"role": "quasi", "hierarchy": [INTERVALS]}}

USEFUL: Mapping[str, Any] = {"height": {**GENERALIZED["height"], "max_level": 4}}
"""Height in intervals of at most 20 cm: else the search gives it up, and the others lose little."""

Figures = dict[str, Any]


def policy(k: int, strategy: str, limit: float, height: Mapping[str, Any], **privacy: float) -> sqlanon.Policy:
    """People, their height as it is told (or not at all)."""
    return sqlanon.Policy(
        source={"table": "people", "undeclared": "drop"},
        attributes={**K_QUASIS, **height},
        privacy={"k": k, **privacy},
        search={"strategy": strategy, "suppression_limit": limit},
    )


@dataclass(frozen=True)
class Searched:
    """A run after its search, of which noise can be drawn many times."""

    run: Run
    prepared: SearchInput
    found: SearchResult
    chosen: Recoding
    column: NoisyColumn

    @contextmanager
    def draw(self, epsilon: float) -> Iterator[Figures]:
        """Draw noise once, with confidence and no limit; what it leads to, and its tables until the end of the block.

        The linking risk is of all that got noise, before confidence suppresses any.
        """
        engine, catalog = self.run.engine, self.run.work("any").catalog
        engine.execute(create_schema("draw", catalog))
        try:
            column, sets = replace(self.column, epsilon=epsilon), copy(self.prepared.frequency_sets)
            sets.work = self.work
            noised = add_noise(
                StatementRunner(engine),
                replace(self.prepared, frequency_sets=sets),
                self.chosen,
                NoisePlan((column,), local_noise_source(engine, (column,))),
                lambda waiting, done: None,
            )
            errors = noised.attributes["height"]
            assert noised.confidence is not None
            rows, suppressed = self.prepared.marginals.rows, noised.recoding.figures.suppressed_rows
            linked, strictly = self.linked("noise_rows")
            yield {
                "expected": errors["expected_relative_error"],
                "observed": errors["observed_relative_error"],
                "expected_cm": errors["expected_error"],
                "linked": linked,
                "strictly": strictly,
                "confidence": noised.confidence["suppressed_rows"] / rows,
                "feasible": suppressed <= int(LIMIT * rows),
            }
        finally:
            engine.execute(drop_schema("draw", catalog))

    def work(self, name: str) -> exp.Table:
        """The tables of a draw."""
        return table(name, "draw", self.run.work("any").catalog)

    def linked(self, rows: str) -> tuple[float, float]:
        """The linking risk of a table with ``record``, ``class``, ``x_0`` and ``y_0``, and the strict one."""
        steps = StatementRunner(self.run.engine)
        query = linking.linked_records(self.work(rows), self.work("noise_classes"), (self.column,))
        links = steps.create_table(self.work(f"{rows}_links"), query)
        count, linked, strictly = self.run.engine.rows(linking.linking_counts(links, None))[0]
        return linked / count, strictly / count

    def others(self, epsilon: float, mean: float) -> Figures:
        """What other noise on the same originals leads to: drawn by the engine, for comparison only.

        Laplace with the range of the whole table; and uniform noise with the mean error of noise per class. In addition
        the error that is made where the mean of its class stands for each value.
        """
        rows, connection = self.work("noise_rows").sql("duckdb"), self.run.engine.connection
        ratio = "ln((1 - random()) / (1 - random()))"  # of two uniform numbers: Laplace of scale 1
        noises = {
            "whole": f"(SELECT (max(x_0) - min(x_0)) / {epsilon} FROM {rows}) * {ratio}",
            "uniform": f"{2 * mean} * (2 * random() - 1)",
        }
        mean_of_class = f"(SELECT *, avg(x_0) OVER (PARTITION BY class) AS mean FROM {rows})"
        query = f"SELECT avg(abs(mean - x_0) / x_0) FROM {mean_of_class}"
        figures = {"mean_error": connection.execute(query).fetchall()[0][0]}
        for name, noise in noises.items():
            sql = self.work(name).sql("duckdb")
            connection.execute(
                f"CREATE TABLE {sql} AS SELECT record, class, x_0, round(x_0 + {noise}, 1) AS y_0 FROM {rows}"
            )
            error = connection.execute(f"SELECT avg(abs(y_0 - x_0) / x_0) FROM {sql}").fetchall()[0][0]
            figures |= {f"{name}_error": error, f"{name}_linked": self.linked(name)[0]}
        return figures


@contextmanager
def search_noise(space: Workspace, k: int, strategy: str) -> Iterator[Searched]:
    """Search once."""
    requested_policy = policy(k, strategy, LIMIT, NOISE)
    with space.run(requested_policy) as run:
        columns = require_usable_noisy_columns(run.engine, requested_policy, run.source)
        prepared = prepare(StatementRunner(run.engine), requested_policy, run.source, run.work)
        steps = StatementRunner(run.engine)
        search_result = run_search(steps, prepared, lambda open_, checked, best: None)
        late = policy(k, strategy, 1.0, NOISE, confidence=CONFIDENCE)
        yield Searched(
            run, replace(prepared, policy=late), search_result, recode(steps, prepared, search_result), columns[0]
        )


def mean_figures(search: Searched, k: int, epsilon: float, runs: int) -> Figures:
    """The means over the runs."""
    figures: list[Figures] = []
    for _ in range(runs):
        with search.draw(epsilon) as draw:
            figures.append({**draw, **(search.others(epsilon, draw["expected_cm"]) if k == COMPARED else {})})
    means = {name: statistics.mean(figure[name] for figure in figures) for name in figures[0]}
    return {**means, "feasible": sum(figure["feasible"] for figure in figures), "runs": runs}


def with_noise(space: Workspace, arguments: argparse.Namespace) -> list[Figures]:
    """All set-ups, one after the other."""
    header("strategy", "k", "classes", "smallest", "suppressed rows", "loss", "generalization", "risk by guessing")
    lines: list[Figures] = []
    for strategy in arguments.strategies:
        for k in arguments.k:
            with search_noise(space, k, strategy) as search:
                chosen, figures = search.chosen, search.chosen.figures
                levels = ", ".join(
                    f"{name} {'-' if level is None else level}" for name, level in chosen.generalization.items()
                )
                rows = search.prepared.marginals.rows
                row(strategy, k, f"{figures.classes:,}", chosen.smallest_class, f"{figures.suppressed_rows:,}",
                    f"{search.found.score:.4f}", levels, percent(figures.classes / (rows - figures.suppressed_rows)),
                )  # fmt: skip
                for epsilon in arguments.epsilon:
                    started = time.perf_counter()
                    line = {"k": k, "epsilon": epsilon, **mean_figures(search, k, epsilon, arguments.runs)}
                    seconds = time.perf_counter() - started
                    record(arguments.results, "k_epsilon", strategy, rows, seconds, **line)
                    lines.append({"strategy": strategy, **line})
    return lines


def percent(share: float) -> str:
    """A share, to three digits or a hundredth of a percent."""
    return f"{100 * share:.{1 if share >= 0.1 else 2}f}%"


def pivot(title: str, figures: Sequence[Figures], arguments: argparse.Namespace, first: str, second: str) -> None:
    """A table with a column for each ε."""
    print(f"\n{title}\n")
    header("strategy", "k", *(f"ε = {epsilon:g}" for epsilon in arguments.epsilon))
    by_setup = {(figure["strategy"], figure["k"], figure["epsilon"]): figure for figure in figures}
    for strategy in arguments.strategies:
        for k in arguments.k:
            cells = [by_setup[strategy, k, epsilon] for epsilon in arguments.epsilon]
            row(strategy, k, *(f"{percent(cell[first])} ({_bracket(cell[second])})" for cell in cells))


def _bracket(figure: float) -> str:
    return percent(figure) if isinstance(figure, float) else str(figure)


def print_comparison(figures: Sequence[Figures]) -> None:
    """The paper's figure 2, as a table."""
    print(f"\nOther noise, k = {COMPARED}: mean relative error, and linking risk\n")
    header("strategy", "ε", "per class", "risk", "whole table", "risk", "uniform, as per class", "risk", "class's mean")
    for figure in figures:
        if figure["k"] == COMPARED:
            names = (
                "observed",
                "linked",
                "whole_error",
                "whole_linked",
                "uniform_error",
                "uniform_linked",
                "mean_error",
            )
            row(figure["strategy"], f"{figure['epsilon']:g}", *(percent(figure[name]) for name in names))


def steps(figures: Sequence[Figures], along: str) -> tuple[int, int]:
    """To how many next larger k the linking risk does not fall, or to how many next larger ε it does not rise; of
    how many."""
    fixed, sign = ("epsilon", 1) if along == "k" else ("k", -1)
    lines: dict[Any, list[Figures]] = {}
    for figure in sorted(figures, key=lambda entry: entry[along]):
        lines.setdefault((figure["strategy"], figure[fixed]), []).append(figure)
    wrong = [
        sign * (after["linked"] - before["linked"]) >= 0 for line in lines.values() for before, after in pairwise(line)
    ]
    return sum(wrong), len(wrong)


def print_claims(figures: Sequence[Figures]) -> None:
    """The figures of the paper, and ours."""
    print("\nWhat the paper states\n")
    header("the paper", "strategy", "here", "reached")
    for strategy in dict.fromkeys(figure["strategy"] for figure in figures):
        ours = [figure for figure in figures if figure["strategy"] == strategy]
        least = min(point["epsilon"] for point in ours)
        needed = [figure["expected"] * figure["epsilon"] / 0.05 for figure in ours if figure["epsilon"] == least]
        span = f"{min(needed):.2f} to {max(needed):.2f}"
        row("error below 5% for moderate ε (at most 4)", strategy, f"from ε = {span} on, by k", _is(max(needed) <= 4))
        lowest = [
            min(figure["linked"] for figure in ours if figure["k"] == k) for k in {figure["k"] for figure in ours}
        ]
        span = f"{percent(min(lowest))} to {percent(max(lowest))}"
        row("linking risk below 5% attainable for every k", strategy, f"{span} at the best ε, by k",
            _is(max(lowest) < 0.05))  # fmt: skip
        for along, words in (("k", "falls with k"), ("epsilon", "falls with smaller ε")):
            wrong, compared_steps = steps(ours, along)
            row(
                f"linking risk {words}",
                strategy,
                f"in {compared_steps - wrong} of {compared_steps} steps",
                _is(not wrong),
            )
        lost = [figure["confidence"] for figure in ours if figure["epsilon"] == least]
        row(f"99%-confident: less than 2% suppressed at ε = {least:g}", strategy,
            f"{percent(min(lost))} to {percent(max(lost))}, by k", _is(max(lost) < 0.02))  # fmt: skip


def _is(reached: bool) -> str:
    return "yes" if reached else "**no**"


def timed_search(space: Workspace, requested_policy: sqlanon.Policy) -> Figures | None:
    """One search, and the loss of the attributes besides height; None where nothing meets the policy."""
    with space.run(requested_policy) as run:
        prepared = prepare(StatementRunner(run.engine), requested_policy, run.source, run.work)
        started = time.perf_counter()
        try:
            steps = StatementRunner(run.engine)
            search_result = run_search(steps, prepared, lambda open_, checked, best: None)
            chosen = recode(steps, prepared, search_result)
        except InfeasibleError:
            return None
        seconds = time.perf_counter() - started
        assert search_result.search is not None and search_result.levels is not None
        weights = [float(name != "height") for name in requested_policy.generalized_attributes]
        measure, levels = MEASURES["loss"](prepared.marginals, weights), search_result.levels
        return {
            "seconds": seconds,
            "loss": measure.score(levels, search_result.search.figures[levels]),
            "level": chosen.generalization.get("height"),
            "checked": search_result.checked,
        }


def searches(space: Workspace, k: int, strategy: str, limit: float, repeats: int) -> list[Figures | None]:
    """Without height, with it, and with it in intervals of at most 20 cm; the seconds are medians, of searches in
    turn."""
    tried = [
        [timed_search(space, policy(k, strategy, limit, height)) for height in ({}, GENERALIZED, USEFUL)]
        for _ in range(repeats)
    ]
    figures: list[Figures | None] = []
    for same in zip(*tried, strict=True):
        completed = [figures for figures in same if figures is not None]
        figures.append(
            {**completed[0], "seconds": statistics.median(figures["seconds"] for figures in completed)}
            if completed
            else None
        )
    return figures


def generalize_height(space: Workspace, arguments: argparse.Namespace) -> None:
    """Height as one more quasi-identifier to generalize."""
    print(
        f"\nHeight generalized instead: loss of the other attributes, and the search "
        f"(medians of {arguments.searches})\n"
    )
    header("limit", "strategy", "k", "loss without height", "with it (its level)", "within 20 cm", "checks", "with it",
           "search, ms", "with it", "times")  # fmt: skip
    for limit in (LIMIT, 0.0):
        for strategy in ("optimal", "ola"):
            for k in arguments.k:
                plain, wide, useful = searches(space, k, strategy, limit, arguments.searches)
                assert plain is not None and wide is not None
                least = "none" if useful is None else f"{useful['loss']:.3f} ({useful['level']})"
                row(f"{limit:.0%}", strategy, k, f"{plain['loss']:.3f}", f"{wide['loss']:.3f} ({wide['level']})", least,
                    plain["checked"], wide["checked"], *(f"{1000 * run['seconds']:.0f}" for run in (plain, wide)),
                    f"{wide['seconds'] / plain['seconds']:.1f}")  # fmt: skip
                record(arguments.results, "k_epsilon generalized", strategy, 0, wide["seconds"], k=k, limit=limit,
                       loss=plain["loss"], loss_with=wide["loss"], loss_within=useful and useful["loss"],
                       seconds_without=plain["seconds"])  # fmt: skip


def print_tables(figures: Sequence[Figures], arguments: argparse.Namespace) -> None:
    """The tables of the runs with noise."""
    pivot("Relative error: expected (observed)", figures, arguments, "expected", "observed")
    pivot("Linking risk (strict)", figures, arguments, "linked", "strictly")
    title = f"Rows that 99 %-confidence suppresses (of {arguments.runs} runs, so many stay within {LIMIT:.0%})"
    pivot(title, figures, arguments, "confidence", "feasible")
    print_comparison(figures)
    print_claims(figures)


def main() -> None:
    options = parser(__doc__, makes_tables=False)
    options.add_argument("--runs", type=int, default=30, help="of the noise, for each k and ε")
    options.add_argument("--searches", type=int, default=5, help="with height and without, for each k")
    options.add_argument("--k", type=int, nargs="+", default=[2, 5, 10, 20, 50, 100])
    options.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 0.25, 0.5, 1, 2, 4, 8])
    options.add_argument("--strategies", nargs="+", default=["optimal", "mondrian"])
    options.add_argument("--parts", nargs="+", choices=["noise", "generalized"], default=["noise", "generalized"])
    args = options.parse_args()
    require_tables()
    print(f"{machine()}; at most {LIMIT:.0%} suppressed, {args.runs} runs\n")
    with duckdb.connect() as connection:
        make_people(connection)
        space = Workspace(connection)
        if "noise" in args.parts:
            print_tables(with_noise(space, args), args)
        if "generalized" in args.parts:
            generalize_height(space, args)
        space.close()


if __name__ == "__main__":
    main()
