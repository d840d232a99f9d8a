"""Options and signal handling of the commands that talk to a running control plane."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dzflow.sdk import ControlPlane, Rest

URL = "http://127.0.0.1:8080"

Host = Annotated[str, typer.Option(envvar="DZFLOW_HOST", help="The host, such as h1.")]
Space = Annotated[str, typer.Option(help="The event space.")]
Filter = Annotated[
    str, typer.Option(help="The filter, such as 'price >= 420 and symbol == \"ACME\"'.")
]
Interface = Annotated[
    str | None, typer.Option(help="The network interface, if the machine has several.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class ServiceOptions:
    """The options that say which control plane a command calls, and with what rights."""

    url: Annotated[str, typer.Option(envvar="DZFLOW_URL", help="The URL of the control plane.")] = (
        URL
    )
    token: Annotated[
        str | None,
        typer.Option(
            envvar="DZFLOW_TOKEN",
            help="The access token. Others can read command lines: better set the variable.",
        ),
    ] = field(default=None, repr=False)
    ca: Annotated[
        Path | None,
        typer.Option(
            envvar="DZFLOW_CA",
            help="A file with the CA certificates to trust, instead of the system's.",
        ),
    ] = None

    def rest(self) -> "Rest":
        """The SDK's client of its REST interface."""
        from dzflow.sdk import Rest

        return Rest(self.url, self.token, ca=self.ca)

    def control_plane(self, host: str, interface: str | None) -> "ControlPlane":
        """The SDK for one of its hosts, which sends and receives events on this machine."""
        from dzflow.sdk import ControlPlane

        return ControlPlane(self.url, host, self.token, ca=self.ca, interface=interface)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into an orderly exit with the usual exit code."""
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None
    except _Terminated:
        raise typer.Exit(128 + signal.SIGTERM) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


class _Terminated(BaseException):
    """The process received SIGTERM."""


def _terminate(*_: object) -> None:
    raise _Terminated
