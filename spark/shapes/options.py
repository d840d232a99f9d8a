"""What is asked of the job `shapes`; without Spark."""

from msgspec import Struct


class ShapesOptions(Struct, frozen=True):
    """Which space, and which time."""

    space: str = ""  # only this one; all if empty
    since_us: int | None = None
    until_us: int | None = None
