"""Messages about releases that are refused because of earlier ones: the findings of attacks, and what to do."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sqlanon.ledger.joint.noise_intervals import CONFIDENCE, DistinguishedRows
from sqlanon.ledger.joint.overlaps import MAX_LISTED_COMBINATIONS, SharedRows, count_shared_rows
from sqlanon.ledger.joint.part_requirements import NewRows, Part
from sqlanon.ledger.records import Publication
from sqlanon.ledger.same_people import SharedPeople
from sqlanon.places.addresses import format_location
from sqlanon.policy import Policy, ReleaseSection
from sqlanon.policy.compatibility import EARLIER_RELEASES, REMOTE_SOURCES, collect_sections, find_conflicts
from sqlanon.publish.targets.kinds import kind_for_path
from sqlanon.support.notices import count_noun

MaskedRows: TypeAlias = Literal["none", "own class", "left out"]
"""How a comparison of two releases treats masked rows: there are none, they are a separate class, or they are left
out."""


@dataclass(frozen=True)
class Refusal:
    """An earlier release that rules out the new one."""

    publication: Publication
    can_be_base: bool  # whether the new release can be based on it
    breaks: bool  # whether the new release breaks it; otherwise the two cannot be compared
    remedy: str | None = None  # what may help


@dataclass(frozen=True)
class Advice:
    """Advice to the data holder about a release that is refused."""

    policy: Policy
    target: Path  # the location of the new release
    refusals: Sequence[Refusal]  # the earlier releases that rule it out
    is_based: bool  # whether it is based on an earlier release that it breaks
    is_extension: bool  # whether it extends another release
    withdraws: str | None  # the run of the release that it replaces without rows that have left the source
    row_shares: Mapping[str, float]  # the rows that other sources have in common with its source
    shared_people: Mapping[str, SharedPeople]
    has_queries: bool  # whether there is SQL that lists the rows

    def __str__(self) -> str:
        """One remedy a line, and how to list the rows."""
        remedies = [f"    - {remedy}" for remedy in self._remedies()]
        return "\n".join(["    You can:", *remedies, *self._how_to_list()])

    def _remedies(self) -> Iterator[str]:
        if self.is_based:
            yield (
                "release fewer of the columns that both show unchanged: this release is based on the earlier one, and "
                "no generalization hides these rows"
            )
        elif self.withdraws is not None:
            yield (
                "withdraw them later, together with others of their classes, and take the release down until then: "
                "readers who kept a copy learn nothing new"
            )
        elif not self.is_extension:  # an extension replaces the release on which it is based
            yield from dict.fromkeys(refusal.remedy for refusal in self.refusals if refusal.remedy is not None)
            yield from self._base_on_earlier()
            yield from self._replace_earlier()
            yield from self._check_people()
        if not self.is_extension and self.withdraws is None:
            yield "try it out with --draft (in Python publish(draft=True)): a draft is not for sharing"
        yield f"publish it anyway with --force (in Python publish(force=True)): {self._price_of_force()}"

    def _price_of_force(self) -> str:
        losses = []
        if any(refusal.publication.run_id == self.withdraws for refusal in self.refusals):
            losses.append(
                "readers who kept the earlier release find the rows that are gone by comparing the two, and so the "
                "class of the withdrawn persons and the values that both show unchanged"
            )
        elif any(refusal.breaks for refusal in self.refusals):
            losses.append(
                "a reader of both releases can then single out the rows counted above, "
                "for which the policy does not hold"
            )
        if not all(refusal.breaks for refusal in self.refusals):
            losses.append("the risk to rows of releases that were not compared is then unknown")
        return "; ".join([*losses, "the catalog records it"])

    def _base_on_earlier(self) -> Iterator[str]:
        is_local = self.policy.search.traits.is_local
        full_domain = self.policy.search.model_copy(update={"strategy": "optimal"} if is_local else {})
        release = (self.policy.release or ReleaseSection()).model_copy(update={"after": ("all",)})
        sections = dict(self.policy) | {"search": full_domain, "release": release}
        is_refused = any(find_conflicts((*EARLIER_RELEASES, *REMOTE_SOURCES), collect_sections(sections)))
        if is_refused or not all(refusal.can_be_base for refusal in self.refusals):
            return
        first, several = self.refusals[0].publication, len(self.refusals) > 1
        name = first.path.stem if kind_for_path(first.path).in_files else first.table_name
        setting = f"[release] after = {json.dumps('all' if several else name)}"
        if is_local:
            setting += ' and [search] strategy = "optimal"'
        yield f"base this release on {'those' if several else 'that one'}: set {setting}"

    def _replace_earlier(self) -> Iterator[str]:
        if len(self.refusals) != 1:
            return
        path = self.refusals[0].publication.path
        location = format_location(path)
        how = f"--output {shlex.quote(location)}" if kind_for_path(path).in_files else f"publish to {location}"
        if path == self.target:  # a version that would be kept in addition to this one
            how = "set [release] keep = 1"
        yield f"replace that release: {how}. This is safe only if no reader has a copy of it"

    def _check_people(self) -> Iterator[str]:
        """The remedy for sources whose people share keys only by chance."""
        sources = [refusal.publication.source or "" for refusal in self.refusals]
        columns = [
            self.shared_people[source].column
            for source in sources
            if source in self.shared_people and source not in self.row_shares
        ]
        if columns:
            yield (
                f"if {columns[0]} numbers other people in that source (both may count from 1), compare the two tables "
                "first; then publish with --force, or give this policy a separate [catalog] database: releases in it "
                "are never compared with that one. If they are the same people, readers of both can single them out"
            )

    def _how_to_list(self) -> Iterator[str]:
        """The commands that list the rows: attacks on the earlier release and on a draft."""
        broken = [refusal.publication.path for refusal in self.refusals if refusal.breaks]
        if not broken or not self.has_queries:
            return
        name = self.policy.file_name
        if self.is_extension or self.withdraws is not None or name is None or not kind_for_path(broken[0]).in_files:
            yield "    In Python, `queries` of this error has the SQL that lists the rows."
            return
        file, earlier, draft = shlex.quote(name), shlex.quote(format_location(broken[0])), "draft.duckdb"
        yield "    To list the rows, attack that release and a draft of this one:"
        yield f"      sqlanon anonymize {file} --draft --output {draft}"
        yield f"      sqlanon attack {earlier} {draft} --policy {file} --only complementary_release,temporal --sql"


def describe_change(is_new: bool, masked: MaskedRows) -> str:
    """In words, rows that one release shows and the other does not."""
    if masked == "left out":
        return "new, or were masked before" if is_new else "gone, or are masked now"
    return "new" if is_new else "gone"


def describe_few_rows(rows: int, change: str, k: int, classes: int, part: NewRows) -> str:
    match part:
        case "region":
            nouns = "one group of overlapping classes", "groups of overlapping classes"
        case "table":
            nouns = "the whole table", ""
        case _:
            nouns = "one class", "classes"
    location = f"in {nouns[0]}" if classes == 1 else f"in each of {classes:,} {nouns[1]}"
    return f"{count_noun(rows, 'row')} {'is' if rows == 1 else 'are'} {change}, fewer than {k:,} {location}"


def describe_distinguished_rows(distinguished: DistinguishedRows, k: int) -> str:
    """In words, the rows that values with noise distinguish.

    >>> rows = DistinguishedRows(["kg"], 355, 0, 0, 1, 0)
    >>> describe_distinguished_rows(rows, 5)  # doctest: +NORMALIZE_WHITESPACE
    'by intervals around values with noise (kg, 99% confidence), 355 rows of that release can be fewer than 5 rows of
    this one, and 1 row of this one is new, fewer than 5 in one class'
    """
    few, findings = f"fewer than {k:,}", []
    if distinguished.first_linked:
        findings.append(
            f"{count_noun(distinguished.first_linked, 'row')} of that release can be {few} rows of this one"
        )
    if distinguished.second_linked:
        rows = count_noun(distinguished.second_linked, "row")
        findings.append(f"{rows} of this one can be {few} rows of that release")
    for count, change in (
        (distinguished.first_alone, "of that release {} gone"),
        (distinguished.second_alone, "of this one {} new"),
    ):
        if count:
            verb = change.format("is" if count == 1 else "are")
            findings.append(f"{count_noun(count, 'row')} {verb}, {few} in one class")
    if distinguished.combinations:
        verb = "has" if distinguished.combinations == 1 else "have"
        findings.append(f"{count_noun(distinguished.combinations, 'combination')} of values {verb} {few} rows")
    columns = ", ".join(distinguished.columns)
    intervals = f"by intervals around values with noise ({columns}, {CONFIDENCE:.0%} confidence)"
    return f"{intervals}, {', and '.join(findings)}"


def describe_violations(requirement: str, part: Part, change: str, count: int) -> str:
    match part:
        case "joined" | "joined by counts":
            classes = "one class of the two does" if count == 1 else f"{count:,} classes of the two do"
            return f"joined with it, {classes} not have {requirement} (complementary release)"
        case "region":
            location = (
                "one group of overlapping classes" if count == 1 else f"each of {count:,} groups of overlapping classes"
            )
        case "table":
            location = "the whole table"
        case _:
            location = "one class" if count == 1 else f"each of {count:,} classes"
    return f"the rows that are {change} in {location} do not have {requirement} (temporal attack)"


def describe_shared_rows(groups: Sequence[SharedRows], k: int) -> str:
    """In words, the classes whose groups share few rows.

    >>> flu, hiv = (SharedRows(("10-19 & 0-14",), 3, rows, (), (), 0) for rows in (2, 1))
    >>> describe_shared_rows([flu, hiv], 5)
    'by the counts of both, two of their classes share at most 3 rows, fewer than 5 (subtraction)'
    """
    most = count_shared_rows(groups)
    rows = count_noun(sum(most.values()), "row")
    if len(most) == 1:
        return f"by the counts of both, two of their classes share at most {rows}, fewer than {k:,} (subtraction)"
    pairs = f"{len(most):,} pairs of their classes"
    if len(most) >= MAX_LISTED_COMBINATIONS:
        return f"by the counts of both, at least {pairs} share fewer than {k:,} rows each (subtraction)"
    return f"by the counts of both, {pairs} share at most {rows} in all, fewer than {k:,} each (subtraction)"


def explain_required_rows(rows: int, persons: int, most_rows: int) -> str:
    """Explain why a number of persons requires more rows.

    >>> explain_required_rows(105, 5, 26)
    ' (why 105 rows with k = 5: one person has up to 26 rows, so 104 rows can be those of 4 persons)'
    """
    if most_rows == 1:
        return ""
    fewer_persons = f"{rows - 1:,} rows can be those of {count_noun(persons - 1, 'person')}"
    return f" (why {rows:,} rows with k = {persons:,}: one person has up to {most_rows:,} rows, so {fewer_persons})"
