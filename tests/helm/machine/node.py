"""What a node of a cluster does, in a network namespace: probes of pods, and addresses of Services.

It is stricter than Kubernetes in one respect: a pod that is told to end gets new connections until
its readiness probe has failed, instead of until the cluster knows that it ends. It is simpler in
others: startup probes and the limits of their time do not count, a pod whose liveness probe fails
is not restarted, and a Service is a relay, so a pod sees the relay's address as its peer's.

Reads a line of JSON (`Config`) at the start and whenever there are other pods, and writes a line
for each change: `{"pod": …, "ready": …}`.
"""

import asyncio
import os
import ssl
import sys
from functools import partial

import grpc
import httpx
import msgspec
from msgspec import Struct

_LATEST = 0.5  # seconds between two probes of a pod that is not ready, at the most


class Probe(Struct):
    """A probe of a pod: `kind` is httpGet, tcpSocket or grpc."""

    kind: str
    port: int
    path: str = "/"
    scheme: str = "HTTP"
    period: float = 1.0
    failures: int = 1


class Endpoint(Struct):
    """A pod with its address, and whether it is alive and ready."""

    name: str
    address: str
    liveness: Probe
    readiness: Probe


class Service(Struct):
    """An address that leads to the ready ones of some pods."""

    address: str
    port: int
    target: int
    pods: list[str]


class Config(Struct):
    """Everything on the node."""

    pods: list[Endpoint]
    services: list[Service]


class Node:
    """The node, and which pods are ready."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._address: dict[str, str] = {}
        self._ready: dict[str, bool] = {}
        self._watched: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._pods: dict[tuple[str, int], list[str]] = {}  # of each Service, who is next first
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # as the kubelet does
        self._http = httpx.AsyncClient(verify=context, timeout=5, trust_env=False)

    async def apply(self, config: Config) -> None:
        """Go over to other pods, from none at first; the Services stay."""
        there = {(pod.name, pod.address): pod for pod in config.pods}
        for gone in self._watched.keys() - there.keys():
            self._watched.pop(gone).cancel()
            self._note(gone[0], False)
        self._address = {pod.name: pod.address for pod in config.pods}
        for new in there.keys() - self._watched.keys():
            self._watched[new] = self._group.create_task(self._watch(there[new]))
        for service in config.services:
            at = service.address, service.port
            is_new = at not in self._pods
            self._pods[at] = list(service.pods)
            if is_new:
                await asyncio.start_server(partial(self._pass_on, at, service.target), *at)

    def _note(self, name: str, ready: bool) -> None:
        """Note whether a pod is ready, and tell of a change."""
        if ready != self._ready.get(name, False):
            self._ready[name] = ready
            said = {"pod": name, "ready": ready}
            sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
            sys.stdout.buffer.flush()

    async def _watch(self, pod: Endpoint) -> None:
        """A pod becomes ready when both probes succeed, and stays so until readiness has failed."""
        readiness, failed = pod.readiness, 0
        while True:
            good = await self._succeeds(pod.address, readiness)
            before = self._ready.get(pod.name, False)
            if good and not before:
                good = await self._succeeds(pod.address, pod.liveness)
            failed = 0 if good else failed + 1
            ready = good or (before and failed < readiness.failures)
            self._note(pod.name, ready)
            await asyncio.sleep(readiness.period if ready else min(readiness.period, _LATEST))

    async def _succeeds(self, address: str, probe: Probe) -> bool:
        try:
            if probe.kind == "httpGet":
                url = f"{probe.scheme.lower()}://{address}:{probe.port}{probe.path}"
                return (await self._http.get(url)).status_code < 400
            if probe.kind == "grpc":
                async with grpc.aio.insecure_channel(f"{address}:{probe.port}") as channel:
                    check = channel.unary_unary("/grpc.health.v1.Health/Check")
                    return bool(await check(b"", timeout=5) == b"\x08\x01")
            _, writer = await asyncio.wait_for(
                asyncio.open_connection(address, probe.port), timeout=5
            )
            writer.close()
        except (OSError, TimeoutError, httpx.HTTPError, grpc.aio.AioRpcError):
            return False
        return True

    async def _pass_on(
        self,
        at: tuple[str, int],
        target: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass a connection to a Service on to its next ready pod."""
        names = self._pods[at]
        name = next((each for each in names if self._ready.get(each)), None)
        try:
            if name is None:
                return
            names.append(names.pop(names.index(name)))
            other = await asyncio.open_connection(self._address[name], target)
        except OSError:  # the caller meets it: nobody tries the next pod in a cluster either
            return
        else:
            await asyncio.gather(_copy(reader, other[1]), _copy(other[0], writer))
        finally:
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def main() -> None:
    """Run until the input ends."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            node = Node(group)
            while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
                await node.apply(msgspec.json.decode(line, type=Config))
            os._exit(0)  # connections that are open do not matter

    asyncio.run(run())


if __name__ == "__main__":
    main()
