"""What cannot be extended: policies, releases, sources."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sqlanon.errors import PolicyError, Problem, ReleaseError, SourceError
from sqlanon.hierarchies import Hierarchy
from sqlanon.ledger import Places, Publication, publications
from sqlanon.ledger import extension_statements as ex
from sqlanon.measures import MEASURES
from sqlanon.policy import Policy
from sqlanon.policy.problems import join
from sqlanon.recode.recoding import Recoding
from sqlanon.release.manifest import Manifest
from sqlanon.requirements import estimated
from sqlanon.search.preparation import SearchInput
from sqlanon.sources.run import Run


def refuse_policy(policy: Policy) -> None:
    """Refuse what an extended release cannot keep, all at once."""
    asked = {
        "source.key": (not policy.source.key, "is missing: name the columns that tell rows apart, which stay the same"),
        "source.person": (policy.source.person is not None, "a release does not tell whose its rows are: leave it out"),
        "population": (policy.population is not None, "is as it was when the release was made: anonymize anew"),
        "search.strategy": (policy.search.is_local, "recodes below the full domain: new rows have no level to be at"),
        "search.measure": (
            MEASURES[policy.search.measure].of_one_source,
            "is of one source, and here rows of several are released",
        ),
        "catalog": (policy.catalog is None, "is missing: the ledger, which knows what was released, is in it"),
        "release": (
            policy.release is None or not (policy.release.database or policy.release.file),
            "names no file: only a release in a file can be extended",
        ),
        "attributes": (bool(policy.noisy), "noise is drawn once for all rows of a class: leave it out"),
        **{
            join("privacy", key): (True, "is estimated from one source: leave it out")
            for key in estimated(policy.privacy)
        },
    }
    if policy.release is not None:
        asked["release.suppressed"] = (
            policy.release.suppressed == "mask",
            'masked rows cannot be taken back: use "drop"',
        )
        asked["release.keep"] = (
            policy.release.keep > 1,
            "an extended release has the rows of the one before: leave it out",
        )
        asked["release.decoys"] = (policy.release.decoys, "decoys cannot be told from rows: leave it out")
    problems = [Problem(place, message) for place, (wrong, message) in asked.items() if wrong]
    if problems:
        raise PolicyError(problems)


def publication_to_extend(run: Run, policy: Policy) -> Publication:
    """The release that is to be extended, as the ledger has it."""
    assert policy.catalog is not None
    assert policy.release is not None
    place = Path(os.path.realpath(policy.release.database or policy.release.file or ""))
    known = publications(run.engine, policy.catalog.database, Places.of(policy))
    found = [one for one in known if one.path == place and one.source == run.identity]
    if not found:
        raise ReleaseError(
            f"the ledger in {policy.catalog.database} has no release of this source at {place}: publish one first, "
            "with sqlanon anonymize"
        )
    return found[-1]


def refuse_others(policy: Policy, manifest: Manifest, publication: Publication) -> None:
    """Only what was made by this policy can be extended by it."""
    if manifest.policy_hash != policy.fingerprint():
        raise ReleaseError(
            f"{publication.path} was made by another policy: extend it with that one, or anonymize anew with "
            "[release] after"
        )


def refuse_changes(
    run: Run, prepared: SearchInput, trees: Mapping[str, Hierarchy], manifest: Manifest, levels: Mapping[str, int]
) -> None:
    """New rows must be labelled as those of the release are, and be of the same types."""
    problems = []
    policy, source = prepared.policy, prepared.source
    recoding = Recoding(source.relation, prepared.released, prepared.attributes, (), (*levels.values(), 0))
    found = [(one.name, recoding.released_type(one, source.columns[one.name])) for one in prepared.released]
    if found != [(one.name, one.type) for one in manifest.columns]:
        problems.append(Problem("source", "its columns are not those of the release: anonymize anew"))
    for i, name in enumerate(policy.generalized):
        then = trees.get(name.lower())
        if levels[name] == 0 or then is None:
            continue
        query = ex.changed_labels(then.table, prepared.hierarchies[i].table, min(levels[name], then.height))
        if changed := run.engine.rows(query)[0][0]:
            told = f"{changed:,} values have another label than when the release was made (by a longer text under a "
            told += "mask, a number with more digits, an edited file): anonymize anew"
            problems.append(Problem(join("attributes", name), told))
    if problems:
        raise SourceError("; ".join(map(str, problems)))
