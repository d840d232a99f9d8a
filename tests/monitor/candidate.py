"""A candidate for the leadership in a process of its own, for tests that pause or kill it.

It prints when it leads and has got its fence, and when it has lost the leadership. When it is told
to by a line at its standard input, it writes with that fence, whoever leads then, and prints
whether etcd has accepted it.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import json

from configurators.store.etcd.client import Access, Etcd, Put
from monitor.leader import Leadership

ROOT = Path(__file__).parents[2]
ACTED = "acted"


class Candidate:
    """A child process that may be ended in any way."""

    def __init__(self, access: Access, me: str, ttl: int) -> None:
        given = [json.encode(access).decode(), me, str(ttl)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.monitor.candidate", *given],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell_to_act(self) -> None:
        """Have it write with the fence that it got when it began to lead, whoever leads now."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    async def read(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout
        return (await asyncio.to_thread(self._process.stdout.readline)).strip()

    def pause(self) -> None:
        """Have it stand still, with its connections open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on as if nothing had happened."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def candidate(access: Access, me: str, ttl: int) -> Iterator[Candidate]:
    """A candidate in a child process, which is killed at the end."""
    child = Candidate(access, me, ttl)
    try:
        yield child
    finally:
        child.kill()


async def _main(access: Access, me: str, ttl: int) -> None:
    async with Etcd(access) as etcd:
        leadership = Leadership(etcd, me, ttl)

        async def report_loss() -> None:
            await leadership.wait_lost()
            print("lost", flush=True)

        running = asyncio.create_task(leadership.run())
        await leadership.wait_gained()
        fence = leadership.fence()
        print("leads", flush=True)
        reporting = asyncio.create_task(report_loss())
        await asyncio.to_thread(sys.stdin.readline)
        result = await etcd.transact([fence], [Put(ACTED, me.encode())])
        print("written" if result.succeeded else "refused", flush=True)
        await asyncio.gather(running, reporting)


if __name__ == "__main__":
    asyncio.run(_main(json.decode(sys.argv[1], type=Access), sys.argv[2], int(sys.argv[3])))
