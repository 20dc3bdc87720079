"""Encodings of text files: check their names, decode, and guess the encoding of bytes."""

from __future__ import annotations

import codecs
import re

from sqlanon.support.fields import in_words

UTF_8 = "utf-8"

_NO_TEXT = ("idna", "mbcs", "oem", "punycode", "raw_unicode_escape", "undefined", "unicode_escape")
_LATIN = ("windows-1252", "latin-1", "windows-1250", "cp437")
_USUAL = re.compile(r"[^\W\d_]|[–—‘’‚“”„…«»]|(?<![^\W\d_])[€£§°](?![^\W\d_])")
_ALPHABETS = {
    "windows-1251": re.compile("[А-ЯЁІЇЄҐ]?[а-яёіїєґ]+|[А-ЯЁІЇЄҐ]+"),
    "windows-1253": re.compile("[Α-ΩΆΈΉΊΌΎΏ]?[α-ωάέήίόύώϊϋΐΰ]+|[Α-ΩΆΈΉΊΌΎΏ]+"),
}
_EASTERN = ("gb18030", "shift-jis", "euc-kr", "big5")
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF_32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_ALONE = re.compile(rb"(?<![\x80-\xff])[\x80-\xff](?![\x80-\xff])")
_WORD = re.compile(r"[^\W\d_]+")
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
    for name in (*_LATIN, *_ALPHABETS, *_EASTERN):
        try:
            text = content.decode(name)
        except UnicodeError:
            continue
        if name in _LATIN:
            shares[name] = alone * _share_of_letters(text)
        elif name in _ALPHABETS:
            shares[name] = _share_in_words(text, _ALPHABETS[name])
        else:
            shares[name] = _share_of_usual_letters(text, name)
    return sorted(shares, key=lambda name: -shares[name])[:_MOST]


def _share_of_letters(text: str) -> float:
    """The share of letters and usual signs among the characters beyond ASCII."""
    usual = sum(not char.isascii() for char in _USUAL.findall(text))
    return usual / (sum(not letter.isascii() for letter in text) or 1)


def _share_in_words(text: str, word: re.Pattern[str]) -> float:
    """The share of the characters beyond ASCII that are in words of one alphabet."""
    fitting = sum(len(match) for match in _WORD.findall(text) if word.fullmatch(match))
    return fitting / (sum(not letter.isascii() for letter in text) or 1)


def is_mostly_utf_8(content: bytes) -> bool:
    """Whether most characters beyond ASCII are valid UTF-8.

    >>> is_mostly_utf_8("Ärzte, Köln, ".encode() + b"M\\xfcnchen"), is_mostly_utf_8(b"M\\xfcnchen")
    (True, False)
    """
    characters = [char for char in content.decode(UTF_8, "replace") if not char.isascii()]
    return 2 * characters.count("\ufffd") < len(characters)


def _share_of_usual_letters(text: str, encoding: str) -> float:
    """The share of letters beyond ASCII that are frequent in texts of an East Asian encoding."""
    letters = [letter for letter in text if not letter.isascii()]
    return sum(_is_usual(letter, encoding) for letter in letters) / (len(letters) or 1)


def _is_usual(letter: str, encoding: str) -> bool:
    match encoding:
        case "gb18030":
            return b"" < letter.encode("gb2312", "ignore")[:1] <= b"\xd7"  # signs and frequent characters
        case "shift-jis":
            return not "\uff61" <= letter <= "\uff9f"  # half-width kana
        case "euc-kr":
            return "\uac00" <= letter <= "\ud7a3"
        case _:  # frequent characters
            return b"\xa4" <= letter.encode("big5", "ignore")[:1] <= b"\xc6"


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
