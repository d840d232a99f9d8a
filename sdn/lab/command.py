"""`dzflow lab exec`: a command in a host of a lab that another process runs."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from sdn.lab.errors import (
    CommandNotFound,
    LabUnavailable,
    NoLab,
    SeveralLabs,
    UnknownLabHost,
)
from sdn.lab.namespaces import path_of
from sdn.lab.registry import Record, default_root, running
from sdn.lab.run import find, located


def run_in_host(
    host: str, argv: Sequence[str], lab: str | None = None, root: Path | None = None
) -> int:
    """Run a command in a host, with this process's input and output, and give its exit code.

    `lab` names the lab if several are running.
    """
    if os.geteuid() != 0:
        raise LabUnavailable("only root can enter a host of a lab; use sudo")
    record = _choose(running(root or default_root()), lab)
    namespace = namespace_of(record, host)
    if not argv:
        raise CommandNotFound("say which command to run, as in: dzflow lab exec h1 -- ip address")
    if find(argv[0]) is None:
        raise CommandNotFound(f"there is no command {argv[0][:80]!r} on this machine")
    # The command is the user's own, run with the rights that the user has.
    command = located(["ip", "netns", "exec", namespace, *argv])
    with subprocess.Popen(command) as child, _signals_to(child):  # noqa: S603
        code = child.wait()
    return code if code >= 0 else 128 - code


def _choose(labs: Sequence[Record], name: str | None) -> Record:
    known = ", ".join(f"{lab.tag} (process {lab.owner.pid})" for lab in labs)
    if not labs:
        raise NoLab("no lab is running on this machine; start one with `dzflow lab up`")
    if name is None:
        if len(labs) > 1:
            raise SeveralLabs(f"several labs are running, say which one is meant: {known}")
        return labs[0]
    for lab in labs:
        if lab.tag == name:
            return lab
    raise NoLab(f"no lab {name[:64]!r} is running; there is {known}")


def namespace_of(lab: Record, host: str) -> str:
    """The namespace of a host; UnknownLabHost or NoLab if there is none."""
    namespace = lab.namespaces.get(host)
    if namespace is None:
        names = list(lab.namespaces)
        shown = ", ".join(names[:50]) + ", …" * (len(names) > 50)
        raise UnknownLabHost(f"lab {lab.tag} has no host {host[:64]!r}; it has {shown or 'none'}")
    if not path_of(namespace).exists():
        raise NoLab(f"lab {lab.tag} is still starting, or about to end; try again")
    return namespace


@contextmanager
def _signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave it to the command to react to signals."""

    def forward(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    def leave(_number: int, _: FrameType | None) -> None:
        """The terminal has sent it to the command as well."""

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {
        signal.SIGINT: leave,
        signal.SIGQUIT: leave,
        signal.SIGTERM: forward,
        signal.SIGHUP: forward,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
