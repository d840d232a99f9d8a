"""The real service with TLS on its streams: what can be seen on the wire between its processes."""

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from api.start.up import Service
from configurators.store import keys
from configurators.store.documents import decode_process
from configurators.store.etcd.client import Etcd
from configurators.streams.addresses import split_address
from dzflow.sdk import Rest
from tests.certificates import Keys, make_keys
from tests.service import SCHEMA, eventually, running

_ALL = 3  # ETH_P_ALL
_TCP = 6
_RCVBUFFORCE = 33  # as Linux numbers it; Python has no name for it

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can read packets")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


def ports_of(service: Service) -> set[int]:
    """The ports at which the workers accept streams."""

    async def read() -> set[int]:
        async with Etcd(service.access) as etcd:
            items = [
                item
                for prefix in (keys.CONFIGURATORS, keys.SOUTHBOUND)
                for item in (await etcd.range(prefix)).items
            ]
        return {split_address(decode_process(item.value).address)[1] for item in items}

    return asyncio.run(read())


@contextmanager
def sniffing(ports: set[int]) -> Iterator[bytearray]:
    """All bytes of TCP packets on loopback from or to these ports."""
    seen = bytearray()
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
    raw.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, 1 << 26)  # other tests send packets, too
    raw.bind(("lo", 0))
    raw.settimeout(0.1)
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                frame = raw.recv(1 << 17)
            except TimeoutError:
                continue
            packet = frame[14:]
            if packet[0] >> 4 == 4 and packet[9] == _TCP:
                segment = packet[(packet[0] & 15) * 4 :]
                if ports & set(struct.unpack_from("!HH", segment)):
                    seen.extend(segment)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield seen
    finally:
        done.set()
        reader.join()
        raw.close()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_tasks_are_in_the_clear_between_processes_unless_there_is_tls(
    encrypted: bool, pair: Keys, tmp_path: Path
) -> None:
    files = {"cert": pair.certificate, "key": pair.key, "ca": pair.authority}
    options: dict[str, Any] = {"streams": files} if encrypted else {}
    with running(tmp_path, **options) as service, Rest(service.url) as rest:
        rest.put_space("stocks", SCHEMA)
        with sniffing(ports_of(service)) as seen:
            rest.begin("advertisement", "h3", "stocks", "price >= 0")
            made = rest.begin("subscription", "h1", "stocks", "price > 100")
            assert made["state"] == "active"
            eventually(lambda: len(seen) > 1_000, "packets were seen")
            if not encrypted:
                eventually(lambda: made["id"].encode() in seen, "the packet with the id was seen")
        assert (made["id"].encode() in seen) is not encrypted
        assert (b"tasks" in seen) is not encrypted
