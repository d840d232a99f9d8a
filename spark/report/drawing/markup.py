"""HTML and SVG as text that is escaped once: by default everything is text, and only `Html` is not.

Names, filters and paths in traces are strangers' text, so no section may write a tag by hand:
whatever is not made by `element` is escaped when it becomes a child or an attribute.
"""

from collections.abc import Iterable
from html import escape

from dzflow.text import printable

_VOID = frozenset({"meta", "br"})
_SELF_CLOSED = frozenset({"rect", "line", "path", "circle"})


class Html(str):
    """Markup, which is not escaped again."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: str | float | None) -> Html:
    """An element. `class_` stands for `class`, `aria_label` for `aria-label`; None is left out."""
    parts = [tag]
    parts += [
        f'{_attribute_name(name)}="{_text(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    ]
    head = " ".join(parts)
    if tag in _VOID:
        return Html(f"<{head}>")
    if tag in _SELF_CLOSED and not children:
        return Html(f"<{head}/>")
    return Html(f"<{head}>{joined(children)}</{tag}>")


def joined(parts: Iterable[str]) -> Html:
    """The parts one after the other; those that are no markup are escaped."""
    return Html("".join(part if isinstance(part, Html) else _text(part) for part in parts))


def _text(text: str) -> str:
    # Attributes are in double quotes, so that only these end one.
    return escape(printable(text), quote=False).replace('"', "&quot;")


def _attribute_name(name: str) -> str:
    # `viewBox` and `preserveAspectRatio` are written as they are; HTML has no underscores.
    return name.rstrip("_").replace("_", "-")
