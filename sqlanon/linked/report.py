"""The report of a release of linked tables: its claims, its tables, and what an attacker with known rows can do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sqlanon.disclosure.residual_risk import format_percent
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.linked.anonymize import LinkedResult, publish_result
from sqlanon.linked.attacks.attack import LinkedAttack, attack_linked
from sqlanon.linked.publish.targets.base import LinkedLocation, verify_tables
from sqlanon.linked.release.manifest import LinkedManifest, TableClaims
from sqlanon.linked.release.sentences import describe_claim, describe_column, describe_known
from sqlanon.linked.release.verification import LinkedVerification
from sqlanon.release.sentences import join_names
from sqlanon.report import check_target, refuse_without_charts, write_page
from sqlanon.support.markup import StyledText, html_table
from sqlanon.support.notices import count_noun
from sqlanon.support.workdir import spill_directory

_RESULTS = {
    True: StyledText("passed", "holds"),
    False: StyledText("FAILED", "fails"),
    None: StyledText("not checked", "unsure"),
}
_SECTIONS = {
    "attackers": "What an attacker can do",
    "checks": "Does it hold?",
    "tables": "What was released",
    "columns": "What happened to each column",
    "verify": "Check it yourself",
    "versions": "Versions and hashes",
}


def report_linked(
    location: LinkedLocation, path: str | os.PathLike[str], limits: Limits = NO_LIMITS
) -> LinkedVerification:
    """Write the report of a release as one HTML page, from the release alone.

    Raises
    ------
    MissingLibraryError
        ``pip install '.[report]'`` is needed.
    ReleaseError
        The release does not exist, or the report cannot be written.
    """
    target = check_target(path)
    refuse_without_charts()
    from sqlanon.report.page import render_plain_page  # noqa: PLC0415 - it loads slowly

    verification = verify_tables(location, limits)
    attack = attack_linked(location, limits=limits) if verification.verified else None
    write_page(target, render_plain_page("linked.html", LinkedView(verification, attack)), private=False)
    return verification


def report_result(result: LinkedResult, path: str | os.PathLike[str]) -> None:
    """Write the report of the release that a result would make: it is written to a private folder, and removed.

    Raises
    ------
    ReleaseError
        The report cannot be written.
    AuditError
        The written tables do not meet the policy.
    """
    target = check_target(path)
    refuse_without_charts()
    from sqlanon.report.page import render_plain_page  # noqa: PLC0415 - it loads slowly

    with spill_directory() as folder:
        release = publish_result(result, folder / "release.duckdb", is_recorded=False)
        attack = attack_linked(release.location, limits=release.limits)
        view = LinkedView(release.verification, attack, is_published=False)
        write_page(target, render_plain_page("linked.html", view), private=False)


@dataclass(frozen=True)
class LinkedView:
    """The values that the page shows. Without an attack, the release is not what it claims."""

    verification: LinkedVerification
    attack: LinkedAttack | None
    is_published: bool = True

    @property
    def manifest(self) -> LinkedManifest:
        """The claims of the release."""
        return self.verification.manifest

    @property
    def title(self) -> str:
        """The heading of the page."""
        names = join_names([claims.name for claims in self.manifest.tables])
        return f"{names}: how the people in them are protected"

    @property
    def verdict(self) -> str:
        """Whether the release holds."""
        if not self.is_published:
            return f"Nothing was published: this is what the policy would release. {describe_claim(self.manifest)}"
        if self.verification.verified:
            return f"All checks passed. {describe_claim(self.manifest)}"
        return f"NOT verified: {'; '.join(self.verification.failures)}"

    @property
    def key_figures(self) -> Mapping[str, str]:
        """The figures in the head of the page."""
        manifest = self.manifest
        return {
            "people released": f"{manifest.released_persons:,}",
            "people left out": f"{manifest.persons - manifest.released_persons:,}",
            "tables": f"{len(manifest.tables):,}",
            "child rows an attacker may know": str(manifest.known),
            "smallest group": count_noun(manifest.smallest_group, "person"),
        }

    @property
    def sections(self) -> Mapping[str, str]:
        """The anchors and titles of the sections."""
        if not self.is_published:
            return {anchor: title for anchor, title in _SECTIONS.items() if anchor not in ("verify", "versions")}
        if self.attack is not None:
            return _SECTIONS
        return {anchor: _SECTIONS[anchor] for anchor in ("checks", "verify", "versions")}

    def sentences(self, anchor: str) -> Iterator[str]:
        """The text of a section."""
        manifest = self.manifest
        if anchor == "attackers" and self.attack is not None:
            persons = count_noun(self.attack.after[0].persons, "person")
            attacked = f"a random sample of {persons} of the release" if self.attack.is_sample else f"all {persons}"
            yield (
                "The attacker knows a person's quasi-identifiers and some of the person's rows in other tables, the "
                "worst ones, and looks for the people who have the same. A row is known with the rows that it belongs "
                f"to. Attacked: {attacked}."
            )
            yield (
                f"The release protects against an attacker who knows {describe_known(manifest.known)}. One who "
                "knows more may single out people; the last lines show how many."
            )
            if names := [claim.condition.name for claim in manifest.requirements]:
                yield f"The people who share what such an attacker may know also meet, as a group: {', '.join(names)}."
        if anchor == "checks":
            yield "All figures were computed again from the released tables."
        if anchor == "tables":
            yield (
                "A row is left out with its person if too few people share what an attacker may know about the person, "
                "or alone if too few share the row. All keys are new: they only link the tables with one another."
            )
        if anchor == "verify":
            yield "Run `sqlanon verify` with the path of the release, or in a DuckDB file the statements below."

    def tables(self, anchor: str) -> Sequence[Markup]:
        """The tables of a section."""
        make = {
            "attackers": self._attackers,
            "checks": self._checks,
            "tables": self._tables,
            "columns": self._columns,
            "versions": self._versions,
        }.get(anchor)
        return [] if make is None else [Markup(text) for text in make()]

    def _attackers(self) -> Iterator[str]:
        assert self.attack is not None
        rows: list[list[object]] = []
        for matches in self.attack.after:
            share = f" ({format_percent(matches.share)})" if matches.unique_persons else ""
            fewest = "" if matches.fewest_matches is None else f"{matches.fewest_matches:,}"
            average = format_percent(matches.average_risk)
            rows.append([describe_known(matches.known), f"{matches.unique_persons:,}{share}", fewest, average])
        headings = ["known of a person", "people who are unique", "fewest people who match", "average risk"]
        yield html_table("Matches of an attacker in the release", headings, rows, range(1, 4))

    def _checks(self) -> Iterator[str]:
        rows = [[check.name, _RESULTS[check.passed], check.message] for check in self.verification.checks]
        yield html_table("Checks of the release", ["check", "result", "finding"], rows)

    def _tables(self) -> Iterator[str]:
        rows: list[list[object]] = []
        for claims in self.manifest.tables:
            share = (
                f" ({format_percent(claims.suppressed_rows / max(claims.rows, 1))})" if claims.suppressed_rows else ""
            )
            counts = [f"{claims.released_rows:,}", f"{claims.suppressed_rows:,}{share}"]
            rows.append([claims.name, claims.parent or "people", *counts])
        headings = ["table", "its rows belong to", "rows released", "rows left out"]
        yield html_table("The released tables", headings, rows, range(2, 4))

    def _columns(self) -> Iterator[str]:
        for claims in self.manifest.tables:
            yield html_table(
                f"The columns of {claims.name}", ["column", "role", "type", "what happened"], [*self._rows_of(claims)]
            )

    def _rows_of(self, claims: TableClaims) -> Iterator[list[object]]:
        roles = {"quasi": "quasi-identifier"}
        for column in claims.columns:
            role, treatment = roles.get(column.role, column.role), describe_column(self.manifest, claims, column)
            yield [column.name, role, column.type, treatment]

    def _versions(self) -> Iterator[str]:
        manifest = self.manifest
        rows: list[list[object]] = [
            ["published", f"{manifest.published_at:%Y-%m-%d %H:%M} UTC"],
            ["version", manifest.version],
            ["sqlanon", manifest.sqlanon_version],
            ["engine", manifest.engine],
            ["strategy", manifest.policy.get("search", {}).get("strategy", "")],
            ["proven optimal", "yes" if manifest.optimal else "no"],
            ["policy (SHA-256)", manifest.policy_hash],
        ]
        rows += [[f"digest of {claims.name}", claims.digest] for claims in manifest.tables]
        yield html_table("Versions and identifiers", ["name", "value"], rows)

    @property
    def verification_sql(self) -> str:
        """The statements that a reader can run in a DuckDB file."""
        if self.manifest.known == "all":
            return "FROM sqlanon.relational_k('whole_rows');"
        return f"FROM sqlanon.km_anonymity('known_rows', {int(self.manifest.known)});"
