"""A configurator of mode `sea` in a process of its own, for tests that stop, pause or kill it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import json

from configurators.ownership.locked import SharedConfigurator
from configurators.process import ConfiguratorOptions
from configurators.store.etcd.client import Access

ROOT = Path(__file__).parents[2]


class Lone:
    """A process that may be ended in any way."""

    def __init__(self, access: Access, token: bytes, id: str, options: ConfiguratorOptions) -> None:
        given = [json.encode(access).decode(), token.decode(), id, json.encode(options).decode()]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.id = id
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.configurators.lone", *given], cwd=ROOT, env=environment
        )

    def kill(self) -> None:
        """Let it be gone without a word."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Let it stand still, connections and all."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on as if nothing had happened."""
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def lone(
    access: Access, token: bytes, id: str, options: ConfiguratorOptions | None = None
) -> Iterator[Lone]:
    """A configurator in a process of its own; whatever is left of it is killed."""
    quick = ConfiguratorOptions(tune_gc=False, load_every_s=0.2, lease_s=3)
    process = Lone(access, token, id, options or quick)
    try:
        yield process
    finally:
        process.kill()


def _main(access: str, token: str, id: str, options: str) -> None:
    process = SharedConfigurator(
        json.decode(access, type=Access),
        token.encode(),
        id,
        options=json.decode(options, type=ConfiguratorOptions),
    )
    asyncio.run(process.run(asyncio.Event()))


if __name__ == "__main__":
    _main(*sys.argv[1:])
