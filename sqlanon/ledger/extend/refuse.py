"""What cannot be extended: policies, releases, sources."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sqlanon.errors import PolicyError, Problem, ReleaseError, SourceError
from sqlanon.hierarchies import Hierarchy
from sqlanon.ledger import Publication, publications
from sqlanon.ledger.trees import changed_labels
from sqlanon.policy import Policy
from sqlanon.policy.compatibility import EXTENSIONS, asked_of, conflicts
from sqlanon.policy.problems import join
from sqlanon.recode.recoding import FullDomainRecoding
from sqlanon.release.manifest import Manifest
from sqlanon.release.target import Reach
from sqlanon.search.preparation import SearchInput
from sqlanon.sources.run import Run


def refuse_policy(policy: Policy) -> None:
    """Refuse what an extended release cannot keep, all at once."""
    if found := list(conflicts(EXTENSIONS, asked_of(dict(policy)))):
        raise PolicyError(found)


def publication_to_extend(run: Run, policy: Policy) -> Publication:
    """The release that is to be extended, as the ledger has it."""
    assert policy.catalog is not None
    assert policy.release is not None
    place = Path(os.path.realpath(policy.release.database or policy.release.file or ""))
    known = publications(run.engine, policy.catalog.database, Reach(policy))
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
    wrong = []
    policy, source = prepared.policy, prepared.source
    recoding = FullDomainRecoding(source.relation, prepared.released, prepared.attributes, (), (*levels.values(), 0))
    found = [(one.name, recoding.released_type(one, source.columns[one.name])) for one in prepared.released]
    if found != [(one.name, one.type) for one in manifest.columns]:
        wrong.append(Problem("source", "its columns are not those of the release: anonymize anew"))
    for i, name in enumerate(policy.generalized):
        then = trees.get(name.lower())
        if levels[name] == 0 or then is None:
            continue
        query = changed_labels(then.table, prepared.hierarchies[i].table, min(levels[name], then.height))
        if changed := run.engine.rows(query)[0][0]:
            message = f"{changed:,} values have another label than when the release was made (by a longer text under a "
            message += "mask, a number with more digits, an edited file): anonymize anew"
            wrong.append(Problem(join("attributes", name), message))
    if wrong:
        raise SourceError("; ".join(map(str, wrong)))
