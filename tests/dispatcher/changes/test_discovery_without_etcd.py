"""What is found while etcd is away joins the network when etcd is back."""

import asyncio
from pathlib import Path

import pytest

from configurators.store.documents import decode_network
from configurators.store.keys import NETWORK
from tests.dispatcher.whole import whole
from tests.etcd import running
from tests.support import until


async def test_a_switch_that_is_found_while_etcd_is_away_joins_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as server:
        access = server.access(timeout=2.0)
        async with whole(access, "line:2", configurators=1, discovered=True) as w:
            w.network.agents["s2"].drop()
            async with w.dispatcher(settled_after=3600.0):  # nothing else has it look again

                async def known() -> list[str]:
                    stored = await w.etcd.get(NETWORK)
                    assert stored
                    return [switch.id for switch in decode_network(stored.value).switches]

                async def one() -> bool:
                    return await known() == ["s1"]

                await until(one)
                await asyncio.to_thread(server.kill)
                w.network.agents["s2"].come_back()
                await until(lambda: "what was found cannot join the network yet" in caplog.text)
                await asyncio.to_thread(server.start)

                async def both() -> bool:
                    return await known() == ["s1", "s2"]

                await until(both)
