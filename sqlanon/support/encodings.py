"""Encodings of text files: check their names, decode, and guess the encoding of bytes."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from contextlib import suppress

from sqlanon.support.fields import in_words

UTF_8 = "utf-8"

_NO_TEXT = ("idna", "mbcs", "oem", "punycode", "raw_unicode_escape", "undefined", "unicode_escape")
_LATIN = ("windows-1252", "latin-1", "windows-1250", "cp437")
_USUAL: Mapping[str, re.Pattern[str] | tuple[str, bytes, bytes]] = {
    **dict.fromkeys(_LATIN, re.compile(r"[^\W\d_]|[–—‘’‚“”„…«»]|(?<![^\W\d_])[€£§°](?![^\W\d_])")),
    "windows-1251": re.compile(r"(?<![^\W\d_])(?:[А-ЯЁІЇЄҐ]?[а-яёіїєґ]+|[А-ЯЁІЇЄҐ]+)(?![^\W\d_])"),
    "windows-1253": re.compile(r"(?<![^\W\d_])(?:[Α-ΩΆΈΉΊΌΎΏ]?[α-ωάέήίόύώϊϋΐΰ]+|[Α-ΩΆΈΉΊΌΎΏ]+)(?![^\W\d_])"),
    "gb18030": ("gb2312", b"\xa1", b"\xd7"),
    "shift-jis": re.compile("[^\x00-\x7f\uff61-\uff9f]"),  # no half-width kana
    "euc-kr": re.compile("[\uac00-\ud7a3]"),
    "big5": ("big5", b"\xa4", b"\xc6"),
}
"""By encoding, what texts in it have beyond ASCII: letters, signs and words, or characters whose first byte in a codec
is in a range."""

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF_32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_ALONE = re.compile(rb"(?<![\x80-\xff])[\x80-\xff](?![\x80-\xff])")
_HIGH = re.compile(rb"[\x80-\xff]")
_MOST = 5


def check_encoding(value: str) -> str:
    try:
        codec = codecs.lookup(value)
    except LookupError:
        codec = None
    # Only a private attribute says that a codec does not encode texts as bytes.
    if codec is None or codec.name in _NO_TEXT or not getattr(codec, "_is_text_encoding", True):
        raise ValueError(
            f"{in_words(value)} is not a text encoding of Python: give utf-8, utf-16, windows-1252, latin-1, "
            "shift-jis, gb18030, ..."
        )
    return value


def decode(content: bytes, encoding: str | None = None) -> str:
    """Decode a file in this encoding; by default in UTF-8, or in UTF-16 or UTF-32 with a byte order mark.

    Raises
    ------
    UnicodeError
        Some bytes are invalid in the encoding.
    """
    if encoding is None:
        encoding = "utf-32" if content.startswith(_UTF_32) else "utf-16" if content.startswith(_UTF_16) else UTF_8
    return content.decode("utf-8-sig" if codecs.lookup(encoding).name == UTF_8 else encoding)


def is_utf_8(content: bytes, encoding: str | None = None) -> bool:
    """Whether `decode` reads a file as UTF-8."""
    if encoding is not None:
        return codecs.lookup(encoding).name == UTF_8
    return not content.startswith((*_UTF_16, *_UTF_32))


def probable_encodings(content: bytes) -> list[str]:
    """The encodings in which all bytes of a text are valid, the most probable one first.

    In Latin texts, letters beyond ASCII stand alone among ASCII letters; Cyrillic and Greek words have only letters of
    their alphabet; East Asian texts use the frequent characters of their encoding.

    >>> probable_encodings("Köln und Orléans".encode("latin-1"))[0], probable_encodings("北京".encode("gb18030"))[0]
    ('windows-1252', 'gb18030')
    >>> probable_encodings("東京".encode("shift-jis"))[0], probable_encodings("Łódź".encode("windows-1250"))[0]
    ('shift-jis', 'windows-1250')
    """
    alone = len(_ALONE.findall(content)) / (len(_HIGH.findall(content)) or 1)
    shares = {}
    for name in _USUAL:
        with suppress(UnicodeError):
            shares[name] = _share_of_usual_letters(content.decode(name), name) * (alone if name in _LATIN else 1)
    return sorted(shares, key=lambda name: -shares[name])[:_MOST]


def _share_of_usual_letters(text: str, encoding: str) -> float:
    """The share of usual characters among those beyond ASCII."""
    letters = [letter for letter in text if not letter.isascii()]
    match _USUAL[encoding]:
        case (codec, low, high):
            usual = sum(low <= letter.encode(codec, "ignore")[:1] <= high for letter in letters)
        case pattern:
            usual = sum(len(match) for match in pattern.findall(text) if not match.isascii())
    return usual / (len(letters) or 1)


def is_mostly_utf_8(content: bytes) -> bool:
    """Whether most characters beyond ASCII are valid UTF-8.

    >>> is_mostly_utf_8("Ärzte, Köln, ".encode() + b"M\\xfcnchen"), is_mostly_utf_8(b"M\\xfcnchen")
    (True, False)
    """
    characters = [char for char in content.decode(UTF_8, "replace") if not char.isascii()]
    return 2 * characters.count("\ufffd") < len(characters)


def describe_bad_byte(content: bytes, error: UnicodeError, encoding: str | None, key: str | None) -> str:
    """Describe the first invalid byte and the remedy; ``key`` is the policy key of the encoding, if there is one."""
    subject = "it"
    if isinstance(error, UnicodeDecodeError):
        line = content.count(b"\n", 0, error.start) + 1
        subject = f"line {line:,} has the byte 0x{content[error.start]:02X}, which"
    if encoding is not None:
        return f"{subject} is not valid in {encoding}; give another {key}"
    if is_mostly_utf_8(content):
        return f"{subject} is not valid UTF-8, unlike most other characters: correct the line"
    remedy = "save it as UTF-8, or as UTF-16 with a byte order mark"
    likely = probable_encodings(content)
    if key is None or not likely:
        return f"{subject} is not valid UTF-8; {remedy}"
    first, *alternatives = likely
    more = f" (or {', '.join(alternatives)})" if alternatives else ""
    return f'{subject} is not valid UTF-8; {remedy}, or name its encoding: {key} = "{first}"{more}'
