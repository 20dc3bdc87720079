"""Checking a release with decoys against its source, which cannot tell them; and against the catalog, which can."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from sqlanon.anonymization import Chosen
from sqlanon.decoys.draw import Decoys, count, figures_of_all
from sqlanon.preparation import Prepared
from sqlanon.queries import decoy_check as dc
from sqlanon.queries.names import Namer
from sqlanon.queries.recode import Recoding
from sqlanon.release.check import AGAINST, Check
from sqlanon.release.manifest import Manifest
from sqlanon.steps import Steps


def filled_again(steps: Steps, prepared: Prepared, chosen: Chosen, work: Namer) -> tuple[Decoys, Chosen]:
    """How many decoys a generalization needs; and what is released of the source: all but the decoys.

    Makes ``decoy_classes`` in the work schema.
    """
    plain = chosen.recoding
    assert isinstance(plain, Recoding)  # policies with decoys ask for nothing else
    missing, _ = count(steps, prepared, plain, work)
    if not missing["classes"]:
        return Decoys(0, 0, chosen.smallest_class), chosen
    told = Decoys(missing["decoys"], missing["classes"], missing["smallest"])
    figures = figures_of_all(steps, prepared, plain)
    return told, replace(chosen, figures=figures, recoding=replace(plain, suppressed=None))


def claims_check(manifest: Manifest, told: Decoys) -> Check:
    """Whether a release has as many decoys as its source needs."""
    claimed = (manifest.decoys, manifest.decoy_classes, manifest.smallest_class_without_decoys)
    message = f"{told.rows} are needed in {told.classes} classes; without them the smallest has "
    right = claimed == (told.rows, told.classes, told.smallest_class_without)
    return _check("decoys", right, f"{message}{told.smallest_class_without} rows")


def decoy_checks(steps: Steps, manifest: Manifest, real: exp.Table, released: exp.Table, work: Namer) -> list[Check]:
    """Check that a release has all real rows, and decoys where they belong and nowhere else.

    Makes ``decoys_found`` in the work schema: the rows of the release that are no real ones. (A decoy may read like a
    real row. Then it does not matter which of them is the decoy.)

    Parameters
    ----------
    real, released:
        The source, recoded, and the rows of the release: relations that can be read several times.
    """
    names, quasi, k = [column.name for column in manifest.columns], manifest.quasi, manifest.policy["privacy"]["k"]
    rest = steps.make(work("decoys_found"), dc.minus(released, real, names))
    found, own = steps.count(rest), steps.count(real)
    checks = [
        # What the release has beside the rest are rows of both.
        _check("recoded source", steps.count(released) - found == own, "its rows are in the release"),
        _check("rows of nobody", found == manifest.decoys, f"{found} rows are not the source's: decoys"),
    ]
    wrong = steps.ask(dc.misplaced(rest, released, quasi, k), [(0,)])[0][0]
    checks.append(_check("filled classes", not wrong, f"decoys are in classes of {k} rows, beside real ones"))
    others = {name.lower() for name in quasi}
    values = [name for name in names if name.lower() not in others]
    strange = found and [one for one in values if steps.ask(dc.strangers(rest, real, quasi, k, one), [(0,)])[0][0]]
    checks.append(_check("values of decoys", not strange, "they are those of rows in classes that need none"))
    return checks


def catalog_check(steps: Steps, manifest: Manifest, recorded: exp.Table | None, work: Namer) -> Check:
    """Whether the rows that are no real ones are those that the catalog has.

    Parameters
    ----------
    recorded:
        The decoys in the catalog, after `decoy_checks`.
    """
    if recorded is None:
        message = "not recorded: the catalog has no decoys of this release, or cannot be read now"
        return Check(f"{AGAINST}decoys in the catalog", None, message)
    names, rest = [column.name for column in manifest.columns], work("decoys_found")
    pairs = ((rest, recorded), (recorded, rest))
    wrong = sum(steps.ask(dc.surplus(*pair, names), [(0,)])[0][0] for pair in pairs)
    return _check("decoys in the catalog", not wrong, "they are the rows that are not the source's")


def _check(name: str, passed: bool, claim: str) -> Check:
    return Check(f"{AGAINST}{name}", passed, claim if passed else f"not so: {claim}")
