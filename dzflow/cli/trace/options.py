"""The options that the commands of `dzflow trace` share, each group as one parameter."""

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dzflow.cli.option_groups import BadOption

if TYPE_CHECKING:
    from spark.session import SparkOptions

_SECONDS_AGO = re.compile(r"-\d{1,10}", re.ASCII)

Traces = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="The data folder of a service, or its traces: a folder, a file, or an address such as"
        " hdfs://… or s3a://… .",
    ),
]
Space = Annotated[str, typer.Option(help="Only this space.")]


@dataclass(frozen=True)
class Period:
    """The options that say which time a job is about."""

    since: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Only requests from then on: 2026-01-31T12:00 (UTC), or, if negative, seconds"
            " before now.",
        ),
    ] = ""
    until: Annotated[str, typer.Option(metavar="TIME", help="Only requests before then.")] = ""

    def times(self) -> tuple[int | None, int | None]:
        """Begin and end, in microseconds since 1970; BadOption if one is not a time."""
        return parse_time(self.since, "--since"), parse_time(self.until, "--until")


@dataclass(frozen=True)
class SparkChoice:
    """The options that say where and how Spark runs."""

    master: Annotated[str, typer.Option(help="The Spark master, such as spark://HOST:7077.")] = (
        "local[*]"
    )
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of Spark (repeatable)."),
    ] = None

    def options(self) -> "SparkOptions":
        """The options of a session; BadOption if a setting is not KEY=VALUE."""
        from spark.session import SparkOptions

        settings = {}
        for text in self.setting or ():
            key, equals, value = text.partition("=")
            if not (key and equals):
                raise BadOption(f"--setting takes KEY=VALUE, got {text[:100]!r}")
            settings[key] = value
        return SparkOptions(self.master, settings)


def check_folders(*files: Path | None) -> None:
    """BadOption if a file that is to be written has no folder."""
    for file in files:
        if file and not file.parent.is_dir():
            raise BadOption(f"{file} cannot be written: there is no folder {file.parent}")


def parse_time(text: str, option: str) -> int | None:
    """A time in microseconds since 1970; None if there is none. Without a zone it is UTC.

    A negative number is a time before now, in seconds.
    """
    if not text:
        return None
    if _SECONDS_AGO.fullmatch(text):
        return round((time.time() + int(text)) * 1_000_000)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(
            f"{option} takes a time such as 2026-01-31T12:00 or -86400, got {text[:40]!r}"
        ) from None
    zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
    return round(zoned.timestamp() * 1_000_000)
