"""The catalogue: follows documents, whatever others look like, and shows them to other threads."""

import pytest

from configurators.store.etcd.client import Etcd
from dispatcher.knowledge.catalogue import Catalogue
from tests.dispatcher.support import world
from tests.etcd import TestEtcd
from tests.support import until


async def test_an_unreadable_document_is_left_out_and_others_are_followed(
    etcd_server: TestEtcd, caplog: pytest.LogCaptureFixture
) -> None:
    access = etcd_server.access()
    async with world(access) as w, Etcd(access) as etcd:
        await w.etcd.put("spaces/bad", b"\xc1")
        await w.etcd.put("owners/bad", b"\xff")
        catalogue = Catalogue(etcd)
        await catalogue.start()
        assert catalogue.spaces.get("stocks")
        await w.etcd.put("spaces/worse", b"\xc1")
        await w.space("sports", 2)

        async def known() -> bool:
            return catalogue.spaces.get("sports") is not None

        await until(known)
        assert not any(task.done() for task in catalogue.tasks())
        await catalogue.stop()
    assert caplog.text.count("is left out") == 3


async def test_other_threads_get_a_snapshot_of_the_spaces_that_never_changes(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    async with world(access) as w, Etcd(access) as etcd:
        catalogue = Catalogue(etcd)
        await catalogue.start()
        first = catalogue.space_docs
        await w.space("sports", 2)
        await catalogue.refresh_spaces()
        second = catalogue.space_docs
        await w.etcd.delete("spaces/stocks")
        await catalogue.refresh_spaces()
        snapshots = [[doc.name for doc in docs] for docs in (first, second, catalogue.space_docs)]
        assert snapshots == [["stocks"], ["stocks", "sports"], ["sports"]]
        await catalogue.stop()
