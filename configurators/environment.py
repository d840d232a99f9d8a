"""What a process takes from outside: clock, ids, the store, streams. Simulations pass in others."""

import os
import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from configurators.store.etcd.client import Access, Etcd
from configurators.streams.stream import Listener, Stream, connect

Connect = Callable[..., Coroutine[Any, Any, Stream]]
"""Opens a stream; called as `configurators.streams.stream.connect`."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time in seconds: `monotonic` for durations, `wall` since the epoch."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True)
class Environment:
    """The real environment, unless a field says otherwise."""

    clock: Clock = field(default_factory=Clock)
    new_id: Callable[[int], str] = secrets.token_hex  # random, twice as many hex digits
    pid: int = field(default_factory=os.getpid)
    store: Callable[[Access], Etcd] = Etcd
    listener: type[Listener] = Listener
    connect: Connect = connect
