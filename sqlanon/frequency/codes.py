"""The codes of a large table's rows, from which its frequency sets are counted.

One pass over the source replaces its values by small integers. Attributes with few values share a column, a *pack*,
whose code has one digit for each of them. So counting a frequency set reads few, narrow columns and joins small tables
by integers.

Columns of the codes: ``pack_0``, ..., one per pack, and ``sensitive_0``, ... for the sensitive values that requirements
refer to. Columns of a pack's table: ``code``, and the codes of its attributes at all levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.distribution import ValuePairs
from sqlanon.frequency.statements import group_and_sum
from sqlanon.requirements.base import SHARE, VALUE
from sqlanon.support.coding import (
    KNOWN,
    ROW_COUNT,
    CodedAttribute,
    Levels,
    code_column,
    distinct_codes,
    inner_column,
    level_codes,
    pack_column,
    quasi_column,
    sensitive_column,
)
from sqlanon.support.expressions import (
    Namer,
    aliased,
    all_of,
    as_column,
    cast,
    col,
    mark_repeatable,
    null_safe_equal,
    number,
    select,
    subquery,
    template,
)

MAX_PACK_CODES = 2**15
"""Maximum number of codes of a pack: they fit a SMALLINT."""

ROWS_PER_CODE = 64
"""Minimum number of rows of the table per code of a pack, since each frequency set reads all codes."""

_HALF = template("SELECT :codes FROM :coded AS c WHERE :code % 2 = :remainder")

PACK_CODE = "code"
EXAMPLE_COUNT = 100
"""The number of values of an attribute in a dry run."""


@dataclass(frozen=True)
class Pack:
    """Attributes that share a column: factors of their codes by attribute, and the table of the pack's codes.

    A pack of a single attribute has no table.
    """

    factors: Mapping[int, int]
    table: exp.Table | None = None

    def code(self, codes: Mapping[int, exp.Expr]) -> exp.Expr:
        """The pack's code from codes of its attributes; the digits of missing attributes are 0."""
        parts = [cast(code, "INTEGER") * number(self.factors[i]) for i, code in codes.items()]
        return cast(reduce(add, parts), "SMALLINT")


def assign_packs(attributes: Sequence[CodedAttribute], counts: Sequence[int], rows: int) -> list[Pack]:
    """Assign attributes to packs, each to the first one with room, attributes with many values first."""
    room = min(MAX_PACK_CODES, rows // ROWS_PER_CODE)
    packs: list[dict[int, int]] = []
    sizes: list[int] = []
    for i in sorted(range(len(attributes)), key=lambda attribute: -counts[attribute]):
        alone = attributes[i].unknown or not attributes[i].height
        p = next((p for p, size in enumerate(sizes) if size * counts[i] <= room and not alone), len(packs))
        if p == len(packs):
            packs.append({})
            sizes.append(1)
        packs[p][i] = sizes[p]
        sizes[p] = room + 1 if alone else sizes[p] * counts[i]
    return [Pack(factors) for factors in packs]


@dataclass(frozen=True)
class Half:
    """A table with half of the codes of an attribute, from `RowCodes.half`."""

    attribute: int
    codes: exp.Table


@dataclass(frozen=True)
class RowCodes:
    table: exp.Table
    packs: tuple[Pack, ...]
    attributes: tuple[CodedAttribute, ...]
    sensitive: int  # number of sensitive attributes

    def frequency(self, levels: Levels) -> exp.Select:
        """The frequency set at some levels: combinations of codes, with the codes of all levels above."""
        query, keys = self._join_codes(self.table, levels)
        return self._count(query, keys, levels)

    def class_sizes(self, levels: Levels, half: Half | None = None) -> exp.Select:
        """The number of rows of each class at some levels, and whether its values are known.

        With ``half``, only of the classes with these codes.
        """
        query, keys = self._join_codes(self.table, levels, half)
        sizes = query.select(
            as_column(keys[KNOWN].copy(), KNOWN), as_column(exp.Count(this=exp.Star()), ROW_COUNT), copy=False
        )
        return sizes.group_by(*keys.values(), copy=False)

    def splittable_attributes(self, levels: Levels) -> list[int]:
        """The attributes below their top with a separate column, which `half` can split."""
        alone = (next(iter(pack.factors)) for pack in self.packs if pack.table is None)
        return [i for i in alone if levels[i] < self.attributes[i].height]

    def half(self, attribute: int, level: int, parity: int) -> exp.Select:
        """The codes of an attribute that are even (``parity`` 0) or odd (1) at a level."""
        coded = self.attributes[attribute]
        codes = [col(name) for name in dict.fromkeys(("code_0", f"code_{level}", KNOWN))]
        return _HALF(codes=codes, coded=distinct_codes(coded), code=col(f"code_{level}"), remainder=parity)

    def distribution(self, pairs: ValuePairs, levels: Levels) -> exp.Select:
        """Count sensitive values by combination of codes; rows have the codes of all levels above, too."""
        query, keys = self._join_codes(pairs.rows, levels)
        on = col("value", "r").eq(col(VALUE if pairs.leaves is None else "leaf", "s"))
        query = query.join(aliased(pairs.values, "s"), on=on, copy=False)
        keys |= {inner_column(i): col(inner_column(i), "r") for i in range(pairs.inner)}
        keys |= {VALUE: col(VALUE, "s"), SHARE: col(SHARE, "s")}
        return self._count(query, keys, levels)

    def pairs(self, number: int, inner: Sequence[int] = ()) -> exp.Subquery:
        """The coded rows with a sensitive value as ``value`` and others as ``inner_0``, ..."""
        output: list[exp.Expr] = [col(pack_column(j)) for j in range(len(self.packs))]
        output += [as_column(col(sensitive_column(s)), inner_column(i)) for i, s in enumerate(inner)]
        return subquery(
            select([*output, as_column(col(sensitive_column(number)), "value")], self.table.copy()), "pairs"
        )

    def _join_codes(
        self, rows: exp.Expr, levels: Levels, half: Half | None = None
    ) -> tuple[exp.Select, dict[str, exp.Expr]]:
        """A query over coded rows ``r``, and the keys of classes at some levels: codes of attributes and packs,
        ``known``."""
        query, keys, flags = exp.Select().from_(aliased(rows, "r"), copy=False), dict[str, exp.Expr](), list[exp.Expr]()
        for j, pack in enumerate(self.packs):
            below = {i: levels[i] for i in pack.factors if levels[i] < self.attributes[i].height}
            code, coded = col(pack_column(j), "r"), f"c{j}"
            if pack.table is not None:
                if any(levels[i] for i in pack.factors) and below:
                    upper = pack.code({i: col(code_column(i, level)) for i, level in below.items()})
                    table = subquery(select([col(PACK_CODE), as_column(upper, "upper")], pack.table.copy()), coded)
                    query = query.join(table, on=code.eq(col(PACK_CODE, coded)), copy=False)
                    code = col("upper", coded)
                keys |= {pack_column(j): code} if below else {}
                continue
            i = next(iter(pack.factors))
            attribute = self.attributes[i]
            codes = distinct_codes(attribute) if half is None or half.attribute != i else half.codes
            if below and not levels[i] and not attribute.unknown and (half is None or half.attribute != i):
                keys[code_column(i, 0)] = code
            elif below or attribute.unknown:
                row_code = col("code_0" if attribute.height else "value", coded)
                on = null_safe_equal(code, row_code, attribute.nullable and not attribute.height)
                query = query.join(aliased(codes, coded), on=on, copy=False)
                keys |= {code_column(i, level): col(f"code_{level}", coded) for i, level in below.items()}
                flags += [col(KNOWN, coded)] if attribute.unknown else []
        return query, keys | {KNOWN: all_of(flags)}

    def _count(self, query: exp.Select, keys: Mapping[str, exp.Expr], levels: Levels) -> exp.Select:
        """Count rows by keys, and add the codes of all levels above; replace codes of packs."""
        query = group_and_sum(query, keys, {ROW_COUNT: exp.Count(this=exp.Star())})
        wide, packed = exp.Select().from_(subquery(query, "g"), copy=False), set[str]()
        output: list[exp.Expr] = []
        for j, pack in enumerate(self.packs):
            below = {i: levels[i] for i in pack.factors if levels[i] < self.attributes[i].height}
            upper = f"u{j}"
            if pack.table is not None and below:
                code = pack.code({i: col(code_column(i, level)) for i, level in below.items()})
                codes = [
                    code_column(i, k) for i, level in below.items() for k in range(level, self.attributes[i].height)
                ]
                table = select([as_column(code, PACK_CODE), *map(col, codes)], pack.table.copy()).distinct(copy=False)
                wide = wide.join(
                    subquery(table, upper), on=col(pack_column(j), "g").eq(col(PACK_CODE, upper)), copy=False
                )
                output += [col(name, upper) for name in codes]
                packed.add(pack_column(j))
            elif pack.table is None and below:
                ((i, level),) = below.items()
                height = self.attributes[i].height
                if level < height - 1:
                    on = col(code_column(i, level), "g").eq(col(f"code_{level}", upper))
                    table = level_codes(self.attributes[i], level)
                    wide = wide.join(subquery(table, upper), on=on, copy=False)
                    output += [as_column(col(f"code_{k}", upper), code_column(i, k)) for k in range(level + 1, height)]
        group_columns: list[exp.Expr] = [col(name, "g") for name in query.named_selects if name not in packed]
        return wide.select(*group_columns, *output, copy=False)


def encode_rows(
    runner: StatementRunner,
    rows: exp.Expr,
    attributes: tuple[CodedAttribute, ...],
    counts: Sequence[int],
    sensitive: Sequence[exp.Table],
    size: int,
    work: Namer,
) -> RowCodes:
    """Replace the values ``quasi_0``, ... and ``sensitive_0``, ... of a large table by codes.

    Creates ``codes``, and ``pack_j`` for each pack of several attributes.
    """
    packs = []
    for j, pack in enumerate(assign_packs(attributes, counts, size)):
        table = None
        if len(pack.factors) > 1:
            table = runner.create_table(work(f"pack_{j}"), _pack_codes(pack, attributes))
        packs.append(Pack(pack.factors, table))
    codes = runner.create_table(work("codes"), mark_repeatable(_row_codes(rows, packs, attributes, sensitive)))
    return RowCodes(codes, tuple(packs), attributes, len(sensitive))


def _pack_codes(pack: Pack, attributes: Sequence[CodedAttribute]) -> exp.Select:
    """All combinations of the codes of a pack's attributes, with the code of the pack."""
    query = exp.Select()
    output = [as_column(pack.code({i: col("code_0", f"c{i}") for i in pack.factors}), PACK_CODE)]
    for position, i in enumerate(pack.factors):
        coded = aliased(distinct_codes(attributes[i]), f"c{i}")
        query = query.join(coded, join_type="cross", copy=False) if position else query.from_(coded, copy=False)
        output += [as_column(col(f"code_{k}", f"c{i}"), code_column(i, k)) for k in range(attributes[i].height)]
    return query.select(*output, copy=False)


def _row_codes(
    rows: exp.Expr, packs: Sequence[Pack], attributes: Sequence[CodedAttribute], sensitive: Sequence[exp.Table]
) -> exp.Select:
    query, output = exp.Select().from_(aliased(rows, "r"), copy=False), list[exp.Expr]()
    for j, pack in enumerate(packs):
        codes: dict[int, exp.Expr] = {}
        for i in pack.factors:
            attribute, value = attributes[i], col(quasi_column(i), "r")
            if not attribute.height:
                codes[i] = value
                continue
            on = null_safe_equal(value, col("value", f"c{i}"), attribute.nullable)
            query = query.join(aliased(attribute.table, f"c{i}"), on=on, copy=False)
            codes[i] = col("code_0", f"c{i}")
        output.append(as_column(pack.code(codes) if len(codes) > 1 else next(iter(codes.values())), pack_column(j)))
    for s, values in enumerate(sensitive):
        on = null_safe_equal(col(sensitive_column(s), "r"), col("value", f"v{s}"))
        query = query.join(aliased(values, f"v{s}"), on=on, copy=False)
        output.append(as_column(col(VALUE, f"v{s}"), sensitive_column(s)))
    return query.select(*output, copy=False)
