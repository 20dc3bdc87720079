"""Priors: what an attacker believes before anything leaks, as the share of each value of an attribute.

Without priors, all rows are equally likely to be the one of the person. With a prior of one attribute, the rows of a
value divide the probability of that value equally. Priors of several attributes hold together: of all probabilities of
rows that give each value its share, the ones closest to uniform are chosen (least relative entropy). Proportional
fitting finds them: rows are scaled to the shares of one attribute after the other until all hold.

Sources: W. E. Deming, F. F. Stephan, "On a least squares adjustment of a sampled frequency table when the expected
marginal totals are known" (1940), for the fitting; I. Csiszár, "I-divergence geometry of probability distributions and
minimization problems" (1975), for its limit.

The shares of an attribute have ``code`` and ``share``, for the values in the table. The factors of an attribute have
``code``, ``factor`` (by which the probability of a row of that value is multiplied) and ``deviation`` (by how much the
share was missed before). The weighted rows have the codes, ``n`` (rows) and ``weight`` (their probability).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from operator import mul

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, Problem
from sqlanon.hierarchies import RuleError, read_value_labels
from sqlanon.policy import Policy
from sqlanon.policy.sections import Prior
from sqlanon.risk.leakage import (
    SETS_AT_ONCE,
    SMALL,
    Attributes,
    AttributeSets,
    SetFigures,
    attribute_sets,
    batches,
    code_columns,
)
from sqlanon.support.expressions import (
    Namer,
    aliased,
    anonymous,
    cast,
    col,
    fragment,
    null_safe_equal,
    subquery,
    template,
    union_all,
)
from sqlanon.support.fields import in_words

TOLERANCE = 0.001
"""Shares add up to 1 within this: they may be rounded. They are then scaled to 1."""

MAX_DEVIATION = 1e-10
"""Fitting ends when each share is met within this."""

LEAST = 1e-12
"""The least share above 0: probabilities of rows have 30 decimals, and are products of shares."""

MAX_ROUNDS = 500
"""The greatest number of rounds of fitting; shares that can hold together are met in far fewer."""

PATIENCE, LEAST_PROGRESS = 20, 0.99
"""Fitting ends when this number of rounds has not reduced the deviation to this share: the shares cannot hold together.
The factors would grow until they overflow."""

_GIVEN_SHARES = template("""
    SELECT text, key, c1 AS written, TRY_CAST(c1 AS DOUBLE) AS share
    FROM :keys
""")
_INVALID_KEYS = template("""
    SELECT text AS label, 1 AS n FROM :given
    WHERE key IS NULL AND text <> ''
""")
_INVALID_SHARES = template("""
    SELECT text AS label, 1 AS n FROM :given
    WHERE NOT coalesce(share >= 0 AND isfinite(share), FALSE)
""")
_VALUES_WITHOUT_SHARE = template("""
    SELECT d.value::VARCHAR AS label, d.n FROM :dictionary AS d
    ANTI JOIN :given AS g ON :same
""")
_FIRST_LABELS = template("""
    SELECT label, n, count(*) OVER ()
    FROM :findings AS f
    ORDER BY n DESC, label NULLS FIRST
    LIMIT 5
""")
_SCALED_SHARES = template("""
    SELECT code, share / (SELECT sum(share ORDER BY code) FROM :present) AS share
    FROM :present
""")

_COMBINATIONS = template("""
    SELECT :codes, sum(:count)::DOUBLE / (SELECT sum(:count) FROM :rows) AS p
    FROM :rows
    GROUP BY :codes
""")
_FACTORS = template("""
    SELECT
        s.code,
        CASE WHEN s.share > 0 THEN coalesce(s.share / nullif(m.mass, 0), 0) ELSE 0 END AS factor,
        abs(s.share - m.mass * :previous) AS deviation
    FROM :shares AS s
    JOIN :masses AS m ON s.code = m.code
""")
_MAX_DEVIATION = template("""
    SELECT coalesce(max(deviation), 0), coalesce(bool_and(isfinite(factor) AND isfinite(deviation)), TRUE)
    FROM :factors
""")
# Decimals: their sum does not depend on their order.
_WEIGHTED_ROWS = template("""
    SELECT :codes, :count AS n, (:count * :factors / (SELECT sum(:count) FROM :rows))::DECIMAL(38, 30) AS weight
    FROM :rows AS r
""")
# Millions of classes have few distinct weights: classes of one weight are added up together.
_SET_FIGURES = template("""
    SELECT
        label,
        sum(classes)::BIGINT AS classes,
        sum(uniques)::BIGINT AS uniques,
        sum(CASE WHEN weight > 0 THEN classes * -(weight::DOUBLE * :log2) ELSE 0 END::DECIMAL(38, 30))::DOUBLE AS gain
    FROM (
        SELECT label, weight, count(*) AS classes, count(*) FILTER (WHERE n = 1) AS uniques
        FROM :groups AS g
        GROUP BY label, weight
    ) AS w
    GROUP BY label
""")
_GROUPS = template("""
    SELECT :label AS label, sum(n)::BIGINT AS n, sum(weight) AS weight
    FROM :weighted
    GROUP BY :keys
""")
_WHOLE = template("""
    SELECT coalesce(sum(
        CASE WHEN weight > 0 THEN weight::DOUBLE * (:log2_rows - :log2_weight) ELSE 0 END::DECIMAL(38, 30)
    )::DOUBLE, 0)
    FROM :weighted
""")


class WeightedSets:
    """Counts sets of a source's quasi-identifiers, with rows as likely as priors say."""

    gains_add_up = True

    def __init__(
        self,
        runner: StatementRunner,
        work: Namer,
        sets: AttributeSets,
        names: Sequence[str],
        shares: Mapping[int, exp.Table],
    ) -> None:
        self.runner, self.known = runner, dict[Attributes, SetFigures]()
        self._sets, self._attributes = sets, len(names)
        rows, count = sets.base
        factors = _fit_factors(runner, work, rows, count, shares, names)
        product: exp.Expr = reduce(mul, (col("factor", f"f{i}") for i in factors))
        query = _WEIGHTED_ROWS(codes=code_columns(range(len(names))), count=count, factors=product, rows=rows)
        for i, table in factors.items():
            on = col("code", f"f{i}").eq(col(f"c{i}", "r"))
            query = query.join(aliased(table.copy(), f"f{i}"), on=on, copy=False)
        self.table = runner.create_table(work("weighed"), query)

    @cached_property
    def whole(self) -> float:
        """The bits that it takes to find a row."""
        log2_rows, log2_weight = (anonymous("log2", cast(col(name), "DOUBLE")) for name in ("n", "weight"))
        query = _WHOLE(log2_rows=log2_rows, log2_weight=log2_weight, weighted=self.table)
        return float(self.runner.fetch_rows(query, [(0.0,)])[0][0])

    @cached_property
    def at_once(self) -> int:
        """The number of sets that are counted in one statement."""
        return SETS_AT_ONCE if self.runner.count(self.table) <= SMALL else 1

    def count_up_to(self, size: int) -> None:
        """Count all sets of up to ``size`` attributes."""
        self.count(attribute_sets(self._attributes, size))

    def count(self, sets: Sequence[Attributes]) -> None:
        """Count the sets that are not known yet."""
        for batch in batches([attributes for attributes in sets if attributes not in self.known], self.at_once):
            groups = [
                _GROUPS(label=i, weighted=self.table, keys=self._sets.keys(attributes))
                for i, attributes in enumerate(batch)
            ]
            query = _SET_FIGURES(log2=anonymous("log2", cast(col("weight"), "DOUBLE")), groups=union_all(*groups))
            figures_by_label = {label: figures for label, *figures in self.runner.fetch_rows(query, [])}
            for i, attributes in enumerate(batch):
                self.known[attributes] = SetFigures(attributes, *figures_by_label.get(i, (0, 0, 0.0)))


def read_shares(
    runner: StatementRunner,
    work: Namer,
    policy: Policy,
    attributes: Sequence[str],
    types: Sequence[str],
    dictionaries: Sequence[exp.Table],
) -> dict[int, exp.Table]:
    """Read the shares of the values of each attribute with a prior. A `PolicyError` lists all problems."""
    shares, problems = dict[int, exp.Table](), list[Problem]()
    for i, (name, type_, dictionary) in enumerate(zip(attributes, types, dictionaries, strict=True)):
        prior = read_priors(policy).get(name)
        if prior is None:
            continue
        key = f"risk.priors.{name}"
        try:
            origin, pairs = read_value_labels(prior.file, prior.table, type_, runner.engine)
        except RuleError as error:
            problems.append(Problem(key, str(error)))
            continue
        given = runner.create_table(work(f"prior_{i}"), _GIVEN_SHARES(keys=subquery(pairs, "keys")))
        on = null_safe_equal(col("value", "d"), col("key", "g"))
        present = runner.create_table(
            work(f"present_{i}"),
            template("SELECT d.code, g.share FROM :dictionary AS d JOIN :given AS g ON :same")(
                dictionary=dictionary, given=given, same=on
            ),
        )
        faults = [] if runner.dry else list(_find_faults(runner, origin, given, present, dictionary, type_))
        problems += [Problem(key, fault) for fault in faults]
        if not faults:
            shares[i] = runner.create_table(work(f"shares_{i}"), _SCALED_SHARES(present=present))
    if problems:
        raise PolicyError(problems, "the priors")
    return shares


def read_priors(policy: Policy) -> Mapping[str, Prior]:
    """The priors of a policy, by attribute."""
    return policy.risk.priors or {} if policy.risk else {}


def _find_faults(
    runner: StatementRunner, origin: str, given: exp.Table, present: exp.Table, dictionary: exp.Table, type_: str
) -> Iterator[str]:
    checks = {
        f"{origin}: values that are not of type {type_}": _INVALID_KEYS(given=given),
        f"{origin}: values that are listed more than once": template(
            "SELECT min(text) AS label, count(*) AS n FROM :given GROUP BY key HAVING count(*) > 1"
        )(given=given),
        f"{origin}: shares that are not numbers of 0 or more (a file has no header), of": _INVALID_SHARES(given=given),
        f"{origin}: shares below {LEAST:g}, which must be 0 or more than that, of": template(
            "SELECT text AS label, 1 AS n FROM :given WHERE share > 0 AND share < :least"
        )(given=given, least=LEAST),
        f"values of the column without a share in {origin}": _VALUES_WITHOUT_SHARE(
            dictionary=dictionary, given=given, same=null_safe_equal(col("value", "d"), col("key", "g"))
        ),
    }
    has_faults = False
    for fault, query in checks.items():
        first = runner.engine.rows(_FIRST_LABELS(findings=query))
        if first:
            has_faults = True
            total = first[0][2]
            names = ", ".join("NULL" if label is None else in_words(label) for label, _, _ in first)
            more = f" and {total - len(first):,} more" if total > len(first) else ""
            yield f"{fault}: {names}{more}"
    if has_faults:
        return  # the sum of faulty shares says nothing
    ((total,),) = runner.engine.rows(
        template("SELECT coalesce(fsum(share ORDER BY share), 0) FROM :given")(given=given)
    )
    if abs(total - 1) > TOLERANCE:
        yield f"{origin}: the shares add up to {total:.6g}, and must add up to 1"
        return
    ((greatest,),) = runner.engine.rows(template("SELECT max(share) FROM :present")(present=present))
    if greatest == 0:
        yield f"{origin}: no value of the column has a share of more than 0"


def _fit_factors(
    runner: StatementRunner,
    work: Namer,
    rows: exp.Table,
    count: exp.Expr,
    shares: Mapping[int, exp.Table],
    names: Sequence[str],
) -> dict[int, exp.Table]:
    """Fit the factors of each attribute with a prior so that all shares hold."""
    codes = code_columns(list(shares))
    query = _COMBINATIONS(codes=codes, count=count, rows=rows)
    combinations = runner.create_table(work("prior_combinations"), query)
    factors = _fit(runner, work, codes, combinations, shares)
    if factors is not None:
        return factors
    conflicting = dict(shares)
    for i in shares:
        remaining = {j: table for j, table in conflicting.items() if j != i}
        fitted = _fit(runner, work, codes, combinations, remaining)
        if fitted is None:
            conflicting = remaining
        else:
            runner.drop(*fitted.values())
    keys = [f"risk.priors.{names[i]}" for i in conflicting]
    message = f"cannot hold together with {' and '.join(keys[1:])}: no probabilities of the rows of the source have "
    message += "these shares; correct the shares, or leave one of these priors out (the values of its column then have "
    message += "the shares that follow from the others)"
    raise PolicyError([Problem(keys[0], message)], "the priors")


def _fit(
    runner: StatementRunner,
    work: Namer,
    codes: Sequence[exp.Expr],
    combinations: exp.Table,
    shares: Mapping[int, exp.Table],
) -> dict[int, exp.Table] | None:
    """Fit factors to some shares; None if fitting does not approach them."""
    factors: dict[int, exp.Table] = {}
    deviations: list[float] = []
    for turn in range(MAX_ROUNDS):
        deviation = 0.0
        for i, table in shares.items():
            query = _factors(i, table, codes, combinations, factors)
            previous, factors[i] = factors.get(i), runner.create_table(work(f"factors_{i}_{turn % 2}"), query)
            greatest, is_finite = runner.fetch_rows(_MAX_DEVIATION(factors=factors[i]), [(0.0, True)])[0]
            if previous is not None:
                runner.drop(previous)
            deviation = max(deviation, greatest) if is_finite else math.inf
            if deviation == math.inf:
                break
        if deviation < math.inf and (len(shares) == 1 or (turn and deviation <= MAX_DEVIATION)):
            return factors
        deviations.append(deviation)
        if deviation == math.inf or (turn >= PATIENCE and deviation > LEAST_PROGRESS * deviations[-1 - PATIENCE]):
            break
    runner.drop(*factors.values())
    return None


def _factors(
    i: int, shares: exp.Table, codes: Sequence[exp.Expr], combinations: exp.Table, factors: Mapping[int, exp.Table]
) -> exp.Select:
    """The query for the factors of an attribute that make its shares hold with the current factors of the others."""
    fixed = [j for j in factors if j != i]
    weight: exp.Expr = reduce(mul, (col("factor", f"f{j}") for j in fixed), col("p", "c"))
    masses = template(
        "SELECT :code AS code, sum(:weight ORDER BY :codes) AS mass FROM :combinations AS c GROUP BY :code"
    )(code=col(f"c{i}", "c"), weight=weight, codes=codes, combinations=combinations)
    for j in fixed:
        on = col("code", f"f{j}").eq(col(f"c{j}", "c"))
        masses = masses.join(aliased(factors[j].copy(), f"f{j}"), on=on, copy=False)
    previous = (
        1
        if i not in factors
        else fragment("(SELECT factor FROM :factors AS f WHERE f.code = s.code)")(factors=factors[i])
    )
    return _FACTORS(previous=previous, shares=shares, masses=masses)
