"""Text of others, made safe to print: control characters would otherwise steer the terminal."""

import re
import unicodedata

_PLAIN = re.compile(r"[ -~]*")  # most text is ASCII, and needs no look at each character
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control and format characters (among them those that reverse text), surrogates, characters that
no standard knows, and separators of lines and paragraphs."""


def printable(text: str) -> str:
    """The text with an escape such as `\\x1b` in place of each character that is not visible."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(_escape(each) if _is_hidden(each) else each for each in text)


def printable_json(text: str) -> str:
    """A JSON document of one line that shows all characters, with the same meaning as before."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(_json_escape(each) if _is_hidden(each) else each for each in text)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
