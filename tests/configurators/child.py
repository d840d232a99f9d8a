"""A configurator in a process of its own, for tests that stop, pause or kill it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import json

from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from configurators.store.etcd.client import Access

ROOT = Path(__file__).parents[2]
QUICK_SEA = ConfiguratorOptions(tune_gc=False, load_every_s=0.2, lease_s=3, mode="sea")


class ConfiguratorChild:
    """A child process that may be ended in any way."""

    def __init__(self, access: Access, token: bytes, id: str, options: ConfiguratorOptions) -> None:
        given = [json.encode(access).decode(), token.decode(), id, json.encode(options).decode()]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.id = id
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.configurators.child", *given], cwd=ROOT, env=environment
        )

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Have it stand still, with its connections open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on as if nothing had happened."""
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def configurator_child(
    access: Access, token: bytes, id: str, options: ConfiguratorOptions = QUICK_SEA
) -> Iterator[ConfiguratorChild]:
    """A configurator in a child process, which is killed at the end."""
    child = ConfiguratorChild(access, token, id, options)
    try:
        yield child
    finally:
        child.kill()


def _main(access: str, token: str, id: str, options: str) -> None:
    process = ConfiguratorProcess(
        json.decode(access, type=Access),
        token.encode(),
        id,
        options=json.decode(options, type=ConfiguratorOptions),
    )
    asyncio.run(process.run(asyncio.Event()))


if __name__ == "__main__":
    _main(*sys.argv[1:])
