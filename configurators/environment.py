"""What a process takes from outside: clock, ids, etcd, streams, tracer, use of the machine.

Simulations pass in their own.
"""

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from configurators.store.etcd.client import Access, Etcd
from configurators.streams.listener import Connect, Listen, Listener, connect
from configurators.tracing import Tracer

__all__ = ["Clock", "Connect", "Environment", "Listen", "Usage"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Clock:
    """The time in seconds: `monotonic` for durations, `wall` since 1970.

    `cpu` is the processor time that the present thread has used: what a computation costs, whatever
    else the machine does.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    cpu: Callable[[], float] = time.thread_time


def _resident_memory() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE


@dataclass(frozen=True, slots=True)
class Usage:
    """What this process uses of its machine.

    `memory` is in resident bytes; `cpu` is the processor time of all its threads since its start,
    in seconds.
    """

    memory: Callable[[], int] = _resident_memory
    cpu: Callable[[], float] = time.process_time


@dataclass(frozen=True, slots=True)
class Environment:
    """The real environment, unless a field says otherwise."""

    clock: Clock = field(default_factory=Clock)
    usage: Usage = field(default_factory=Usage)
    new_id: Callable[[int], str] = secrets.token_hex  # random hex digits, two per byte
    pid: int = field(default_factory=os.getpid)
    store: Callable[[Access], Etcd] = Etcd
    listener: Listen = Listener
    connect: Connect = connect
    tracer: Tracer | None = None  # off
