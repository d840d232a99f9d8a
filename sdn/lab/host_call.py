"""Short work inside a host of a lab that another process of the same service runs."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from sdn.lab.command import namespace_of
from sdn.lab.errors import LabUnavailable, NoLab
from sdn.lab.namespaces import NamespaceThread
from sdn.lab.registry import default_root, running

T = TypeVar("T")


def call_in_host(service: str, host: str, work: Callable[[], T], root: Path | None = None) -> T:
    """Do a short piece of work inside a host of the lab of a service, in a thread of its own.

    LabUnavailable if this process may not enter hosts, NoLab if the service runs no lab on this
    machine, UnknownLabHost if its lab has no such host.
    """
    if os.geteuid() != 0:
        raise LabUnavailable("only root can enter a host of a lab")
    for lab in running(root or default_root()):
        if lab.service == service:
            break
    else:
        raise NoLab("no lab of this service is running on this machine")
    with closing(NamespaceThread()) as thread:
        try:
            return thread.call(work, namespace_of(lab, host))
        except PermissionError as error:
            raise LabUnavailable(f"this process may not enter a host of the lab: {error}") from None
