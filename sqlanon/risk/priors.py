"""Priors: what an attacker believes before anything leaks, as the share of each value of an attribute.

Without priors all rows are equally likely to be the one that is looked for. With a prior of one attribute, the rows of
a value divide the probability of that value equally. Priors of several attributes hold together: of all probabilities
of rows that give each value its share, they are those nearest to equal ones (the least relative entropy). Proportional
fitting finds them: the rows are scaled to one attribute's shares after the other until all hold.

Sources: W. E. Deming, F. F. Stephan, "On a least squares adjustment of a sampled frequency table when the expected
marginal totals are known" (1940), for the fitting; I. Csiszár, "I-divergence geometry of probability distributions and
minimization problems" (1975), for what it finds.

Names of columns, all ours. In the shares of an attribute: ``code`` and ``share``, of the values that the table has. In
the factors of an attribute: ``code``, ``factor`` (what the probability of a row of that value is multiplied by) and
``off`` (by how much the share was missed before). In the weighted rows: the codes, ``n`` (rows) and ``weight`` (their
probability).
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
    same,
    subquery,
    template,
    union_all,
)
from sqlanon.support.fields import in_words

TOLERANCE = 0.001
"""Shares add up to 1 within this: they may be rounded. They are then scaled to 1."""

FITTED = 1e-10
"""Fitting ends where each share is met within this."""

LEAST = 1e-12
"""The least share above 0: probabilities of rows have 30 decimals, and are products of shares."""

ROUNDS = 500
"""The most rounds of fitting; shares that can hold together are met in far fewer."""

PATIENCE, LEAST_PROGRESS = 20, 0.99
"""Fitting ends where this number of rounds has not brought the shares nearer, by this factor: they cannot hold
together. The factors then grow until they are no numbers."""

_GIVEN = template("""
    SELECT text, key, c1 AS written, TRY_CAST(c1 AS DOUBLE) AS share
    FROM :keys
""")
_WRONG_KEYS = template("""
    SELECT text AS label, 1 AS n FROM :given
    WHERE key IS NULL AND text <> ''
""")
_TWICE = template("SELECT min(text) AS label, count(*) AS n FROM :given GROUP BY key HAVING count(*) > 1")
_NO_SHARES = template("""
    SELECT text AS label, 1 AS n FROM :given
    WHERE NOT coalesce(share >= 0 AND isfinite(share), FALSE)
""")
_TOO_SMALL = template("SELECT text AS label, 1 AS n FROM :given WHERE share > 0 AND share < :least")
_WITHOUT_SHARE = template("""
    SELECT d.value::VARCHAR AS label, d.n FROM :dictionary AS d
    ANTI JOIN :given AS g ON :same
""")
_FIRST = template("SELECT label, n, count(*) OVER () FROM :findings AS f ORDER BY n DESC, label NULLS FIRST LIMIT 5")
_SUM = template("SELECT coalesce(fsum(share ORDER BY share), 0) FROM :given")
_GREATEST = template("SELECT max(share) FROM :present")
_PRESENT = template("SELECT d.code, g.share FROM :dictionary AS d JOIN :given AS g ON :same")
_SHARES = template("""
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
        abs(s.share - m.mass * :before) AS off
    FROM :shares AS s
    JOIN :masses AS m ON s.code = m.code
""")
_MASSES = template("SELECT :code AS code, sum(:weight ORDER BY :codes) AS mass FROM :combinations AS c GROUP BY :code")
_BEFORE = fragment("(SELECT factor FROM :factors AS f WHERE f.code = s.code)")
_OFF = template("""
    SELECT coalesce(max(off), 0), coalesce(bool_and(isfinite(factor) AND isfinite(off)), TRUE)
    FROM :factors
""")
# Decimals: their sum does not depend on their order.
_WEIGHED = template("""
    SELECT :codes, :count AS n, (:count * :factors / (SELECT sum(:count) FROM :rows))::DECIMAL(38, 30) AS weight
    FROM :rows AS r
""")
# Classes of one weight together: of millions of classes the weights are few.
_SETS = template("""
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
    FROM :weighed
    GROUP BY :keys
""")
_WHOLE = template("""
    SELECT coalesce(sum(
        CASE WHEN weight > 0 THEN weight::DOUBLE * (:log2_rows - :log2_weight) ELSE 0 END::DECIMAL(38, 30)
    )::DOUBLE, 0)
    FROM :weighed
""")


class WeightedSets:
    """The sets of a source's quasi-identifiers, where the rows are as likely as priors say."""

    gains_add_up = True

    def __init__(
        self,
        steps: StatementRunner,
        work: Namer,
        sets: AttributeSets,
        names: Sequence[str],
        shares: Mapping[int, exp.Table],
    ) -> None:
        self.steps, self.known = steps, dict[Attributes, SetFigures]()
        self._sets, self._attributes = sets, len(names)
        rows, count = sets.base
        factors = _fitted(steps, work, rows, count, shares, names)
        product: exp.Expr = reduce(mul, (col("factor", f"f{i}") for i in factors))
        query = _WEIGHED(codes=code_columns(range(len(names))), count=count, factors=product, rows=rows)
        for i, one in factors.items():
            on = col("code", f"f{i}").eq(col(f"c{i}", "r"))
            query = query.join(aliased(one.copy(), f"f{i}"), on=on, copy=False)
        self.table = steps.make(work("weighed"), query)

    @cached_property
    def whole(self) -> float:
        """The bits that it takes to find a row."""
        log2_rows, log2_weight = (anonymous("log2", cast(col(name), "DOUBLE")) for name in ("n", "weight"))
        return float(
            self.steps.ask(_WHOLE(log2_rows=log2_rows, log2_weight=log2_weight, weighed=self.table), [(0.0,)])[0][0]
        )

    @cached_property
    def at_once(self) -> int:
        """At most this many sets are counted in one statement."""
        return SETS_AT_ONCE if self.steps.count(self.table) <= SMALL else 1

    def count_up_to(self, most: int) -> None:
        """Count all sets of up to ``most`` attributes."""
        self.count(attribute_sets(self._attributes, most))

    def count(self, wanted: Sequence[Attributes]) -> None:
        """Count sets, as far as they are not known."""
        for batch in batches([one for one in wanted if one not in self.known], self.at_once):
            groups = [_GROUPS(label=i, weighed=self.table, keys=self._sets.keys(one)) for i, one in enumerate(batch)]
            query = _SETS(log2=anonymous("log2", cast(col("weight"), "DOUBLE")), groups=union_all(*groups))
            answers = {i: figures for i, *figures in self.steps.ask(query, [])}
            for i, one in enumerate(batch):
                self.known[one] = SetFigures(one, *answers.get(i, (0, 0, 0.0)))


def read_shares(
    steps: StatementRunner,
    work: Namer,
    policy: Policy,
    attributes: Sequence[str],
    types: Sequence[str],
    dictionaries: Sequence[exp.Table],
) -> dict[int, exp.Table]:
    """The shares of the values of each attribute with a prior. A `PolicyError` has all that is wrong with them."""
    found, problems = dict[int, exp.Table](), list[Problem]()
    for i, (name, type_, dictionary) in enumerate(zip(attributes, types, dictionaries, strict=True)):
        prior = read_priors(policy).get(name)
        if prior is None:
            continue
        place = f"risk.priors.{name}"
        try:
            what, pairs = read_value_labels(prior.file, prior.table, type_, steps.engine)
        except RuleError as flaw:
            problems.append(Problem(place, str(flaw)))
            continue
        given = steps.make(work(f"prior_{i}"), _GIVEN(keys=subquery(pairs, "keys")))
        on = same(col("value", "d"), col("key", "g"))
        present = steps.make(work(f"present_{i}"), _PRESENT(dictionary=dictionary, given=given, same=on))
        flaws = [] if steps.dry else list(_flaws(steps, what, given, present, dictionary, type_))
        problems += [Problem(place, flaw) for flaw in flaws]
        if not flaws:
            found[i] = steps.make(work(f"shares_{i}"), _SHARES(present=present))
    if problems:
        raise PolicyError(problems, "the priors")
    return found


def read_priors(policy: Policy) -> Mapping[str, Prior]:
    """The priors of a policy, by attribute."""
    return policy.risk.priors or {} if policy.risk else {}


def _flaws(
    steps: StatementRunner, what: str, given: exp.Table, present: exp.Table, dictionary: exp.Table, type_: str
) -> Iterator[str]:
    checks = {
        f"{what}: values that are not of type {type_}": _WRONG_KEYS(given=given),
        f"{what}: values that are listed more than once": _TWICE(given=given),
        f"{what}: shares that are not numbers of 0 or more (a file has no header), of": _NO_SHARES(given=given),
        f"{what}: shares below {LEAST:g}, which must be 0 or more than that, of": _TOO_SMALL(given=given, least=LEAST),
        f"values of the column without a share in {what}": _WITHOUT_SHARE(
            dictionary=dictionary, given=given, same=same(col("value", "d"), col("key", "g"))
        ),
    }
    wrong = False
    for finding, query in checks.items():
        first = steps.engine.rows(_FIRST(findings=query))
        if first:
            wrong = True
            total = first[0][2]
            names = ", ".join("NULL" if label is None else in_words(label) for label, _, _ in first)
            more = f" and {total - len(first):,} more" if total > len(first) else ""
            yield f"{finding}: {names}{more}"
    if wrong:
        return  # the sum is of no use
    ((total,),) = steps.engine.rows(_SUM(given=given))
    if abs(total - 1) > TOLERANCE:
        yield f"{what}: the shares add up to {total:.6g}, and must add up to 1"
        return
    ((greatest,),) = steps.engine.rows(_GREATEST(present=present))
    if greatest == 0:
        yield f"{what}: no value of the column has a share of more than 0"


def _fitted(
    steps: StatementRunner,
    work: Namer,
    rows: exp.Table,
    count: exp.Expr,
    shares: Mapping[int, exp.Table],
    names: Sequence[str],
) -> dict[int, exp.Table]:
    """The factors of each attribute with a prior, such that all shares hold."""
    codes = code_columns(list(shares))
    query = _COMBINATIONS(codes=codes, count=count, rows=rows)
    combinations = steps.make(work("prior_combinations"), query)
    factors = _fit(steps, work, codes, combinations, shares)
    if factors is not None:
        return factors
    conflicting = dict(shares)
    for i in shares:
        others = {j: one for j, one in conflicting.items() if j != i}
        fitted = _fit(steps, work, codes, combinations, others)
        if fitted is None:
            conflicting = others
        else:
            steps.drop(*fitted.values())
    places = [f"risk.priors.{names[i]}" for i in conflicting]
    message = f"cannot hold together with {' and '.join(places[1:])}: no probabilities of the rows of the source have "
    message += "these shares; correct the shares, or leave one of these priors out (the values of its column then have "
    message += "the shares that follow from the others)"
    raise PolicyError([Problem(places[0], message)], "the priors")


def _fit(
    steps: StatementRunner,
    work: Namer,
    codes: Sequence[exp.Expr],
    combinations: exp.Table,
    shares: Mapping[int, exp.Table],
) -> dict[int, exp.Table] | None:
    """The factors with which some shares hold; None where fitting does not come nearer to them."""
    factors: dict[int, exp.Table] = {}
    misses: list[float] = []
    for turn in range(ROUNDS):
        missed = 0.0
        for i, one in shares.items():
            query = _factors(i, one, codes, combinations, factors)
            before, factors[i] = factors.get(i), steps.make(work(f"factors_{i}_{turn % 2}"), query)
            greatest, is_finite = steps.ask(_OFF(factors=factors[i]), [(0.0, True)])[0]
            if before is not None:
                steps.drop(before)
            missed = max(missed, greatest) if is_finite else math.inf
            if missed == math.inf:
                break
        if missed < math.inf and (len(shares) == 1 or (turn and missed <= FITTED)):
            return factors
        misses.append(missed)
        if missed == math.inf or (turn >= PATIENCE and missed > LEAST_PROGRESS * misses[-1 - PATIENCE]):
            break
    steps.drop(*factors.values())
    return None


def _factors(
    i: int, shares: exp.Table, codes: Sequence[exp.Expr], combinations: exp.Table, factors: Mapping[int, exp.Table]
) -> exp.Select:
    """The factors of an attribute, such that its shares hold with the factors of the others as they are."""
    others = [j for j in factors if j != i]
    weight: exp.Expr = reduce(mul, (col("factor", f"f{j}") for j in others), col("p", "c"))
    masses = _MASSES(code=col(f"c{i}", "c"), weight=weight, codes=codes, combinations=combinations)
    for j in others:
        on = col("code", f"f{j}").eq(col(f"c{j}", "c"))
        masses = masses.join(aliased(factors[j].copy(), f"f{j}"), on=on, copy=False)
    before = 1 if i not in factors else _BEFORE(factors=factors[i])
    return _FACTORS(before=before, shares=shares, masses=masses)
