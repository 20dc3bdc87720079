"""The distinction and separation of every set of attributes up to a size, level by level."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.engines.dialects.kinds import is_nested
from sqlanon.errors import PolicyError, Problem
from sqlanon.expressions import Namer
from sqlanon.frequency.packing import pack, refuse_too_many, subsets_of_size
from sqlanon.policy import Policy
from sqlanon.risk.suda_statements import uniques_and_pairs
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run
from sqlanon.statement_runner import Steps
from sqlanon.suggest import distinction_queries as dq

_LISTED = 1000
"""So many sets are listed in one statement."""


def refuse_size(size: int) -> None:
    """Refuse a size that is none.

    Raises
    ------
    PolicyError
        It is less than 1.
    """
    if size < 1:
        raise PolicyError([Problem("size", f"must be at least 1, and {size} is not")])


def find_distinction(run: Run, policy: Policy | None, size: int) -> exp.Select:
    """The query of all figures, over tables of the run.

    Parameters
    ----------
    run:
        The source.
    policy:
        Whose quasi-identifiers it is about; None: all columns that are not nested.
    size:
        The greatest number of attributes of a set.

    Raises
    ------
    SourceError
        The source does not fit the policy.
    """
    return _figures(run, policy, size, Steps(run.engine))


def distinction_statements(run: Run, policy: Policy | None, size: int) -> str:
    """The statements behind `find_distinction`, and its query; no row is read.

    What one of them needs of the answers before it is shown with an example: attributes of three values, no keys.
    """
    shown: list[str] = []
    steps = Steps(run.engine, shown)
    steps.show(_figures(run, policy, size, steps))
    return "\n\n".join(f"{statement};" for statement in shown)


def _figures(run: Run, policy: Policy | None, size: int, steps: Steps) -> exp.Select:
    if policy is None:
        names = columns = [name for name, type_ in run.source.columns.items() if not is_nested(type_)]
    else:
        names = list(policy.quasi)
        matched = match_columns(policy, run.source).by_attribute
        columns = [matched[name] for name in names]
    return figures_of(steps, run.work, run.source.relation, names, columns, size)


def figures_of(
    steps: Steps, work: Namer, relation: exp.Table, names: Sequence[str], columns: Sequence[str], size: int
) -> exp.Select:
    """The query of the figures of some columns.

    A set with a key in it is a key: its figures are not counted, but known.

    Parameters
    ----------
    steps, work:
        How tables are made, and how they are named: ``distinction_...``, ``packed_...``.
    relation, columns:
        The rows, and the columns.
    names:
        What the columns are called.
    size:
        The greatest number of them in a set.

    Raises
    ------
    PolicyError
        There are too many sets.
    """
    refuse_too_many(len(columns), size, "size")
    packed = pack(steps, work, relation, columns, singles_apart=False)
    rows = steps.figures(uniques_and_pairs(packed.combinations))["rows"]
    sets = figures = None
    keys: set[tuple[int, ...]] = set()
    first = 0
    for level in range(1, min(size, len(columns)) + 1):
        numbered = dict(enumerate(subsets_of_size(len(columns), level), first))
        first += len(numbered)
        by_subset = {one: number for number, one in numbered.items()}
        known = {number for number, one in numbered.items() if any(set(key) <= set(one) for key in keys)}
        listed = list(numbered)
        for i in range(0, len(listed), _LISTED):
            query = dq.listed_sets(names, {number: numbered[number] for number in listed[i : i + _LISTED]})
            sets = _into(steps, work("distinction_sets"), query, sets)
        for batch in packed.batches([one for number, one in numbered.items() if number not in known]):
            query = dq.set_figures(packed.keys, packed.packing, {by_subset[one]: one for one in batch})
            figures = _into(steps, work("distinction_figures"), query, figures)
        some = sorted(known)
        for i in range(0, len(some), _LISTED):
            figures = _into(steps, work("distinction_figures"), dq.key_figures(some[i : i + _LISTED], rows), figures)
        if level < size and figures is not None and rows:
            keys = {numbered[one] for (one,) in steps.ask(dq.keys_among(figures, rows), []) if one in numbered}
    assert sets is not None
    assert figures is not None
    return dq.distinction(sets, figures, rows)


def _into(steps: Steps, target: exp.Table, query: exp.Select, made: exp.Table | None) -> exp.Table:
    """Make a table of a query, or add its rows to it."""
    if made is None:
        return steps.make(target, query)
    steps.add(made, query)
    return made
