"""What the commands share that talk to a running control plane."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

URL = "http://127.0.0.1:8080"

Url = Annotated[str, typer.Option(envvar="DZFLOW_URL", help="Where the control plane is.")]
Token = Annotated[
    str | None, typer.Option(envvar="DZFLOW_TOKEN", help="The token to get in with, if needed.")
]
Ca = Annotated[
    Path | None,
    typer.Option(envvar="DZFLOW_CA", help="Certificates to trust instead of the machine's."),
]
Host = Annotated[str, typer.Option(envvar="DZFLOW_HOST", help="The host, as h1.")]
Space = Annotated[str, typer.Option(help="The event space.")]
Filter = Annotated[
    str, typer.Option(help="Which events, as 'price >= 420 and symbol == \"ACME\"'.")
]
Interface = Annotated[
    str | None, typer.Option(help="The network interface, if the machine has several.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for machines.")]


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end what is inside in order, with the exit code that tells so."""
    previous = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None
    except _Terminated:
        raise typer.Exit(128 + signal.SIGTERM) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


class _Terminated(BaseException):
    """Somebody wants this process to end."""


def _terminated(*_: object) -> None:
    raise _Terminated
