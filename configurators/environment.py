"""What a process takes from outside: clock, ids, etcd, streams. Simulations pass in their own."""

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from configurators.store.etcd.client import Access, Etcd
from configurators.streams.listener import Connect, Listen, Listener, connect

__all__ = ["Clock", "Connect", "Environment", "Listen"]


@dataclass(frozen=True, slots=True)
class Clock:
    """The time in seconds: `monotonic` for durations, `wall` since 1970.

    `cpu` is the processor time that the present thread has used: what a computation costs, whatever
    else the machine does.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    cpu: Callable[[], float] = time.thread_time


@dataclass(frozen=True, slots=True)
class Environment:
    """The real environment, unless a field says otherwise."""

    clock: Clock = field(default_factory=Clock)
    new_id: Callable[[int], str] = secrets.token_hex  # random hex digits, two per byte
    pid: int = field(default_factory=os.getpid)
    store: Callable[[Access], Etcd] = Etcd
    listener: Listen = Listener
    connect: Connect = connect
