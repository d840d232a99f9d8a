"""A section of the page: a headline that the list of contents leads to, and what is below it."""

from collections.abc import Sequence
from dataclasses import dataclass

from spark.report.drawing.markup import Html, element


@dataclass(frozen=True)
class Section:
    """A section; `id` is the anchor of its headline."""

    id: str
    title: str
    parts: Sequence[Html]

    def draw(self) -> Html:
        """The section as markup."""
        title = element("h2", self.title, id=f"{self.id}-title")
        return element(
            "section", title, *self.parts, id=self.id, aria_labelledby=f"{self.id}-title"
        )


def lead(*text: str) -> Html:
    """A paragraph that says what a section shows."""
    return element("p", *text, class_="lead")


def nothing(text: str) -> Html:
    """A line in place of a section's content."""
    return element("p", text, class_="nothing")
