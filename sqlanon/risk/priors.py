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
share was missed before). The weighted rows have the codes, ``row_count`` (rows) and ``weight`` (their probability).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import mul

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, Problem
from sqlanon.hierarchies import RuleError, read_value_labels
from sqlanon.policy import Policy
from sqlanon.policy.sections import Prior
from sqlanon.risk.leakage import AttributeSets, TableSets, code_columns, log2
from sqlanon.support.expressions import Namer, aliased, col, fragment, subquery, template
from sqlanon.support.fields import in_words

TOLERANCE = 0.001
"""Shares add up to 1 within this: they may be rounded. They are then scaled to 1."""

MAX_DEVIATION = 1e-10
"""Fitting ends when each share is met within this."""

MIN_PRIOR_SHARE = 1e-12
"""The least share above 0: probabilities of rows have 30 decimals, and are products of shares."""

MAX_ROUNDS = 500
"""The greatest number of rounds of fitting; shares that can hold together are met in far fewer."""

PATIENCE, LEAST_PROGRESS = 20, 0.99
"""Fitting ends when this number of rounds has not reduced the deviation to this share: the shares cannot hold together.
The factors would grow until they overflow."""


# Millions of classes have few distinct weights: classes of one weight are added up together.
_SET_FIGURES = template("""
    SELECT
        label,
        sum(classes)::BIGINT AS classes,
        sum(uniques)::BIGINT AS uniques,
        sum(CASE WHEN weight > 0 THEN classes * -(weight::DOUBLE * :log2) ELSE 0 END::DECIMAL(38, 30))::DOUBLE AS gain
    FROM (
        SELECT label, weight, count(*) AS classes, count(*) FILTER (WHERE row_count = 1) AS uniques
        FROM :groups AS g
        GROUP BY label, weight
    ) AS w
    GROUP BY label
""")
_GROUPS = template("""
    SELECT :label AS label, sum(row_count)::BIGINT AS row_count, sum(weight) AS weight
    FROM :rows
    GROUP BY :keys
""")


def weighted_sets(work: Namer, sets: AttributeSets, names: Sequence[str], shares: Mapping[int, exp.Table]) -> TableSets:
    """Sets of quasi-identifiers, with rows as likely as priors say."""
    runner, (rows, count) = sets.runner, sets.base
    factors = _fit_factors(runner, work, rows, count, shares, names)
    product: exp.Expr = reduce(mul, (col("factor", f"f{i}") for i in factors))
    # Decimals: their sum does not depend on their order.
    query = template("""
        SELECT
            :codes, :count AS row_count,
            (:count * :factors / (SELECT sum(:count) FROM :rows))::DECIMAL(38, 30) AS weight
        FROM :rows AS r
    """)(codes=code_columns(range(len(names))), count=count, factors=product, rows=rows)
    for i, table in factors.items():
        on = col("code", f"f{i}").eq(col(f"c{i}", "r"))
        query = query.join(aliased(table.copy(), f"f{i}"), on=on, copy=False)
    weighted = runner.create_table(work("weighed"), query)
    whole = template("""
        SELECT coalesce(sum(
            CASE WHEN weight > 0 THEN weight::DOUBLE * (:log2_rows - :log2_weight) ELSE 0 END::DECIMAL(38, 30)
        )::DOUBLE, 0)
        FROM :weighted
    """)(log2_rows=log2("row_count"), log2_weight=log2("weight"), weighted=weighted)
    ((whole_bits,),) = runner.fetch_rows(whole, [(0.0,)])
    return TableSets(sets, weighted, float(whole_bits), _GROUPS, partial(_SET_FIGURES, log2=log2("weight")), float)


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
        query = template("""
            SELECT text, key, c1 AS written, TRY_CAST(c1 AS DOUBLE) AS share
            FROM :keys
        """)(keys=subquery(pairs, "keys"))
        listed_shares = runner.create_table(work(f"prior_{i}"), query)
        query = template("""
            SELECT d.code, g.share FROM :dictionary AS d
            JOIN :shares AS g ON d.value IS NOT DISTINCT FROM g.key
        """)(dictionary=dictionary, shares=listed_shares)
        present = runner.create_table(work(f"present_{i}"), query)
        faults = [] if runner.dry else list(_find_faults(runner, origin, listed_shares, present, dictionary, type_))
        problems += [Problem(key, fault) for fault in faults]
        if not faults:
            query = template(
                "SELECT code, share / (SELECT sum(share ORDER BY code) FROM :present) AS share FROM :present"
            )(present=present)
            shares[i] = runner.create_table(work(f"shares_{i}"), query)
    if problems:
        raise PolicyError(problems, "the priors")
    return shares


def read_priors(policy: Policy) -> Mapping[str, Prior]:
    """The priors of a policy, by attribute."""
    return policy.risk.priors or {} if policy.risk else {}


def _find_faults(
    runner: StatementRunner, origin: str, shares: exp.Table, present: exp.Table, dictionary: exp.Table, type_: str
) -> Iterator[str]:
    invalid_keys = template("SELECT text AS label, 1 AS row_count FROM :shares WHERE text <> '' AND key IS NULL")
    repeated_keys = template(
        "SELECT min(text) AS label, count(*) AS row_count FROM :shares GROUP BY key HAVING count(*) > 1"
    )
    invalid_shares = template("""
        SELECT text AS label, 1 AS row_count FROM :shares
        WHERE NOT coalesce(share >= 0 AND isfinite(share), FALSE)
    """)
    tiny_shares = template("SELECT text AS label, 1 AS row_count FROM :shares WHERE share > 0 AND share < :least")
    values_without_share = template("""
        SELECT d.value::VARCHAR AS label, d.row_count FROM :dictionary AS d
        ANTI JOIN :shares AS g ON d.value IS NOT DISTINCT FROM g.key
    """)
    checks = {
        f"{origin}: values that are not of type {type_}": invalid_keys(shares=shares),
        f"{origin}: values that are listed more than once": repeated_keys(shares=shares),
        f"{origin}: shares that are not numbers of 0 or more (a file has no header), of": invalid_shares(shares=shares),
        f"{origin}: shares below {MIN_PRIOR_SHARE:g}, which must be 0 or more than that, of": tiny_shares(
            shares=shares, least=MIN_PRIOR_SHARE
        ),
        f"values of the column without a share in {origin}": values_without_share(dictionary=dictionary, shares=shares),
    }
    has_faults = False
    for fault, query in checks.items():
        labels = runner.engine.rows(
            template("""
                SELECT label, count(*) OVER ()
                FROM :findings AS f
                ORDER BY row_count DESC, label NULLS FIRST
                LIMIT 5
            """)(findings=query)
        )
        if labels:
            has_faults = True
            total = labels[0][1]
            names = ", ".join("NULL" if label is None else in_words(label) for label, _ in labels)
            more = f" and {total - len(labels):,} more" if total > len(labels) else ""
            yield f"{fault}: {names}{more}"
    if has_faults:
        return  # the sum of faulty shares says nothing
    ((total,),) = runner.engine.rows(
        template("SELECT coalesce(fsum(share ORDER BY share), 0) FROM :shares")(shares=shares)
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
    query = template("""
        SELECT :codes, sum(:count)::DOUBLE / (SELECT sum(:count) FROM :rows) AS p
        FROM :rows
        GROUP BY :codes
    """)(codes=codes, count=count, rows=rows)
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
            summary = template("""
                SELECT coalesce(max(deviation), 0), coalesce(bool_and(isfinite(factor) AND isfinite(deviation)), TRUE)
                FROM :factors
            """)(factors=factors[i])
            ((greatest, is_finite),) = runner.fetch_rows(summary, [(0.0, True)])
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
    return template("""
        SELECT
            s.code,
            CASE WHEN s.share > 0 THEN coalesce(s.share / nullif(m.mass, 0), 0) ELSE 0 END AS factor,
            abs(s.share - m.mass * :previous) AS deviation
        FROM :shares AS s
        JOIN :masses AS m ON s.code = m.code
    """)(previous=previous, shares=shares, masses=masses)
