"""Kinds of columns: identifiers of HIPAA's Safe Harbor, quasi-identifiers and sensitive attributes.

``column_kinds.toml`` has the patterns of their names and values.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlanon.policy.models import toml_parser

Role = Literal["identifying", "quasi", "sensitive", "insensitive"]

_GERMAN = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"})
_DATA = toml_parser().loads(Path(__file__).with_name("column_kinds.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Kind:
    """A kind of column, recognized by the words of its name or by its values; ``column_kinds.toml`` has the fields."""

    name: str
    role: Role
    words: str | None = None
    content: str | None = None
    share: float = 0.5
    many: bool = False


def _fill_parts(pattern: str) -> str:
    """Replace ``<NAME>`` by a part, and remove line ends."""
    return re.sub("<([A-Z_]+)>", lambda match: _fill_parts(_DATA["parts"][match[1]]), pattern).replace("\n", "")


NAME, PLACE, ZIP = "names", "geographic subdivisions", "geographic subdivisions: a ZIP or postal code"
BIRTH, DATE, YEAR, AGE = "dates: of birth", "dates", "dates: a year", "age"
SEX, RACE, FAMILY, WORK = "sex or gender", "race, ethnicity, nationality", "family", "education and work"
ICD, HEALTH, BELIEF = "ICD-10 codes", "health", "belief, politics, sexual life, crime"
HOUSEHOLD = "household numbers, which all members of a household share"
SURVEY_WEIGHT = "sampling weights, which reveal the stratum of a person"
OTHER_CODE = "any other unique number or code"

KINDS = tuple(
    Kind(**kind | ({"words": _fill_parts(kind["words"])} if "words" in kind else {})) for kind in _DATA["kinds"]
)
"""The kinds in order: the first match of a column's name decides."""

MENTION_PATTERNS: Mapping[str, tuple[str, float]] = {
    mention["name"]: (mention["content"], mention["share"]) for mention in _DATA["mentions"]
}
"""Identifiers that texts may mention among other words: a pattern, and the share of values above which the column is
identifying."""

HOUSEHOLD_WORDS = re.compile(r"hh|house_?hold|family|fam|haushalt|familie|menage|hogar|famiglia|huishouden|agregado")
"""Names of columns that may number households; their values decide."""

NUMBER_WORDS = re.compile(_fill_parts("(?:[a-z0-9]+_)*(?:<NUMBER>)|[a-z]+(?:nummer|nr)|id_[a-z_]+"))
"""Names of columns that may number persons or wards; their values decide."""

_NUMBER_OF_A_PERSON = re.compile(
    _fill_parts("(?:[a-z]+_)?(?:<DATA_SUBJECT>)_?(?:<NUMBER>)|ssn|social_security_(?:<NUMBER>)")
)


def is_person_number(name: str) -> bool:
    """Whether a column is named like an identifier of the persons in a table, not of those who serve them.

    >>> [is_person_number(name) for name in ("PatientID", "customer_no", "doctor_id", "id")]
    [True, True, False, False]
    """
    return _NUMBER_OF_A_PERSON.fullmatch(split_words(name)) is not None


def find_special_category(name: str) -> str | None:
    """Find the kind of a column named like health, or like belief, politics, sexual life or crime; None for others.

    Others of GDPR's articles 9 and 10, such as ethnicity, are quasi-identifiers to `suggest`.

    >>> [find_special_category(name) for name in ("HbA1c", "religion", "health_insurance")]
    ['health', 'belief, politics, sexual life, crime', None]
    """
    kind = find_kind(name)
    return kind.name if kind is not None and kind.name in (HEALTH, BELIEF) else None


def split_words(name: str) -> str:
    """Split the name of a column into words, in lower case, without accents, joined by ``_``.

    >>> split_words("Geburts-Datum"), split_words("ZIPCode2"), split_words("Straße"), split_words("prénom")
    ('geburts_datum', 'zip_code_2', 'strasse', 'prenom')
    """
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFC", name).translate(_GERMAN))
    plain = "".join(character for character in plain if not unicodedata.combining(character))
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)", "_", plain)
    return re.sub(r"[^0-9a-z]+", "_", plain.lower()).strip("_")


def find_kind(name: str) -> Kind | None:
    """Find the kind of a column by its name.

    >>> find_kind("PatientName").name, find_kind("plz").role, find_kind("Geburtsdatum").name
    ('names', 'quasi', 'dates: of birth')
    >>> find_kind("flag") is None
    True
    """
    words = split_words(name)
    if (kind := _match_kind(words)) is not None:
        return kind
    kinds = (_match_kind(part) for part in _without_affixes(words))
    return next((kind for kind in kinds if kind is not None and kind.role in _ROLES_OF_PARTS), None)


def _match_kind(words: str) -> Kind | None:
    spellings = {words, re.sub(r"_\d+$", "", words), words.replace("_", "")}
    for kind in KINDS:
        if kind.words is not None and any(re.fullmatch(kind.words, spelling) for spelling in spellings):
            return kind
    return None


_ROLES_OF_PARTS = ("identifying", "quasi")
"""The roles that a part of a name may indicate. Other roles, which are released unchanged, require the whole name."""

_PREFIXES = re.compile(
    _fill_parts(
        "(?:<PERSON>|my|the|home|current|primary|main|own|last|first|raw|orig|original|new|old|ref|src|dim|col|"
    )
    + "fld|c|p|x)_"
)
_SUFFIXES = re.compile(
    r"_(?:code|cd|value|val|text|txt|desc|description|cat|category|class|grp|group|raw|clean|recoded|key)"
)
_LETTER = re.compile(r"[insfvc](?=[a-z]{3})")
"""A letter for the type before a name: `iage`, `sCity`."""


def _without_affixes(words: str) -> Iterator[str]:
    """Strip common prefixes and suffixes from a name.

    >>> [*_without_affixes("patient_sex_cd")], [*_without_affixes("isex")]
    (['sex_cd', 'patient_sex', 'sex'], ['sex'])
    """
    before = _PREFIXES.match(words)
    after = re.search(rf"(?:{_SUFFIXES.pattern})$", words)
    start, end = before.end() if before else 0, after.start() if after else len(words)
    if start:
        yield words[start:]
    if end < len(words):
        yield words[:end]
    if start and start < end < len(words):
        yield words[start:end]
    if _LETTER.match(words):
        yield words[1:].lstrip("_")
