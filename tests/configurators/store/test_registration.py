"""How processes make themselves known."""

import pytest

from configurators.store.etcd.client import Access, Etcd, StoreUnavailable
from configurators.store.keys import DISPATCHERS
from configurators.store.model import Process
from configurators.store.registration import Registration


def test_one_that_was_never_registered_does_not_stand() -> None:
    # Revision 0 would be that of a key that is not there, which holds.
    etcd = Etcd(Access(("127.0.0.1:1",)))
    registration = Registration(etcd, DISPATCHERS + "d1", Process("d1", "", 1, "n"))
    with pytest.raises(StoreUnavailable, match="not registered"):
        registration.stands()
    registration.revision = 7
    assert registration.stands().revision == 7
