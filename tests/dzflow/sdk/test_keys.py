"""Which records a process asks for its keys, with a control plane that only gives keys."""

from base64 import b64encode
from typing import Any

import pytest

from dzflow.event_keys import oldest_stream, publisher_key
from dzflow.sdk.errors import Closed, Conflict, NotFound
from dzflow.sdk.events.datagrams import decode
from dzflow.sdk.events.sorter import Sorter
from dzflow.sdk.key_follower import KeyFollower
from dzflow.sdk.renewals import OwnRecord
from dzflow.sdk.rest.api_protocol import ApiProtocol, Kind
from tests.dzflow.sdk.test_tags import IDS, NOW, SECRET, STREAM, VIEW

SPACE = VIEW.space.name


class Keys(ApiProtocol):
    """Gives keys for active records, and for each call another stream."""

    def __init__(self, *active: str) -> None:
        self.active = list(active)
        self.suspended: set[str] = set()  # known, but not active
        self.asked: list[str] = []
        self._streams = 0

    async def get(self, path: str, /, **_: str | int | None) -> Any:
        kinds, id, what = path.strip("/").split("/")
        self.asked.append(id)
        if id in self.suspended:
            raise Conflict(409, {})
        if id not in self.active:
            raise NotFound(404, {})
        if what == "publishers":
            return {"items": [], "next": None}
        if kinds == "subscriptions":
            key = {"key": 5, "secret": b64encode(SECRET)}
            return {"keys": [key], "current": 5, "oldest_stream": oldest_stream(NOW)}
        self._streams += 1
        secret = b64encode(publisher_key(SECRET, "h1"))
        return {"host": "h1", "key": 5, "secret": secret, "stream": STREAM + self._streams}

    async def records(self, kind: Kind, /, **query: str | int | None) -> list[dict[str, Any]]:
        assert (kind, query) == (
            "advertisement",
            {"host": "h1", "space": SPACE, "state": "active"},
        )
        return [{"id": id, "host": "h1"} for id in self.active]


@pytest.fixture(autouse=True)
def keys_are_always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dzflow.sdk.key_follower.KEY_FOR", -1.0)


def follow(rest: Keys) -> KeyFollower:
    sorter = Sorter()
    sorter.replace_view(VIEW, NOW)
    follower = KeyFollower(rest, sorter)
    follower.space_changed(VIEW)
    return follower


def own(kind: Kind, id: str) -> OwnRecord:
    return OwnRecord(kind, "h1", SPACE, {}, None, None, id)


def stream(follower: KeyFollower) -> int:
    """The stream to which the next event belongs, counted from the first one."""
    signer = follower.signer(VIEW.number)
    assert signer is not None
    sent = decode(signer.encode(IDS.next(VIEW.number, 1), {"price": 1}))
    assert sent is not None
    assert sent.proof is not None
    return sent.proof.stream - STREAM


@pytest.mark.parametrize("ended", ["removed", "suspended"])
async def test_a_process_gets_its_key_under_another_advertisement_of_the_host_when_one_ends(
    ended: str,
) -> None:
    rest = Keys("a", "b")
    follower = follow(rest)
    await follower.add_host(SPACE, "h1", "a")
    assert stream(follower) == 1
    rest.active.remove("a")
    if ended == "suspended":
        rest.suspended.add("a")
    await follower.renew()
    assert stream(follower) == 2
    await follower.renew()
    assert stream(follower) == 3
    assert rest.asked == ["a", "a", "b", "b"]  # the one that has ended is not asked for again


async def test_a_host_without_an_advertisement_gets_its_key_again_when_it_advertises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rest = Keys("a")
    follower = follow(rest)
    await follower.add_host(SPACE, "h1", "a")
    rest.active.remove("a")
    await follower.renew()
    assert "host h1 has no active advertisement in space stocks" in caplog.text
    assert stream(follower) == 1
    rest.active.append("c")
    await follower.renew()
    assert stream(follower) == 2


async def test_a_host_whose_last_advertisement_has_just_ended_gets_no_key() -> None:
    with pytest.raises(Closed, match="no active advertisement"):
        await follow(Keys()).add_host(SPACE, "h1", "a")


async def test_a_space_is_followed_once_however_often_its_advertisements_are_read() -> None:
    rest = Keys("a", "b", "c")
    follower = follow(rest)
    for id in ("a", "b", "c"):
        await follower.add_host(SPACE, "h1", id)
    rest.asked.clear()
    rest.active.clear()
    await follower.renew()
    assert rest.asked == ["c"]


async def test_the_own_advertisements_of_a_process_come_first() -> None:
    rest = Keys("a", "mine")
    follower = follow(rest)
    await follower.add_host(SPACE, "h1", "a")
    record = own("advertisement", "mine")
    await follower.add(record)
    rest.asked.clear()
    await follower.renew()
    assert rest.asked == ["mine"]
    follower.remove(record)
    await follower.renew()
    assert rest.asked == ["mine", "a"]


async def test_an_advertisement_that_has_ended_does_not_keep_subscriptions_from_their_keys() -> (
    None
):
    rest = Keys("a", "s")
    follower = follow(rest)
    await follower.add(own("advertisement", "a"))
    rest.active.remove("a")
    await follower.add(own("subscription", "s"))
    rest.asked.clear()
    await follower.renew()
    assert "s" in rest.asked
    rest.asked.clear()
    await follower.read_again({VIEW.number})
    assert set(rest.asked) == {"s"}
