"""Tags: what they prove, what is refused, and which numbers of a stream count as seen."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.event_keys import new_stream, oldest_stream, publisher_key
from dzflow.host_protocol import MAX_PAYLOAD
from dzflow.sdk.errors import EventTooLarge
from dzflow.sdk.events import datagrams
from dzflow.sdk.events.datagrams import Proof, RecentIds, copy, decode
from dzflow.sdk.events.inbox import TaskInbox
from dzflow.sdk.events.sorter import Counters, Interest, Sorter
from dzflow.sdk.events.tags import ReplayWindow, Signer
from dzflow.sdk.events.verifier import Streams, Verifier
from dzflow.sdk.space_view import Expression, SpaceView

SECRET, OTHER = b"s" * 32, b"o" * 32
NOW = 1_800_000_000.0
STREAM = new_stream(NOW, 7)
VIEW = SpaceView.from_json(
    {
        "name": "stocks",
        "number": 3,
        "version": 1,
        "prefix": 0xFF1E,
        "trees": [0],
        "attributes": [{"name": "price", "type": "int", "min": 0, "max": 1000}],
        "index": {"kind": "fields"},
        "authentication": "tagged",
        "key": 5,
    }
)
IDS = datagrams.EventIds()


def signer(host: str = "h1", secret: bytes = SECRET, key: int = 5, stream: int = STREAM) -> Signer:
    return Signer(host, key, publisher_key(secret, host), stream)


class Host:
    """A receiver with one subscription to everything."""

    def __init__(self, recent: RecentIds | None = None) -> None:
        self.sorter = Sorter(recent)
        self.sorter.replace_view(VIEW, NOW)
        self.inbox = TaskInbox(10_000)
        self.sorter.add(3, Interest(self.inbox, (Expression({}),)))
        self.verifier.replace_keys({5: SECRET}, 5, oldest_stream(NOW))
        self.verifier.replace_publishers([("h1", "price < 500")], NOW)

    @property
    def verifier(self) -> Verifier:
        return self.sorter.verifiers[3]

    def receive(self, payload: bytes, now: float = NOW) -> None:
        self.sorter.sort(payload, now)

    def ask(self) -> None:
        """The control plane was asked, and had no news."""
        self.sorter.sort_unverified(len(self.sorter.unverified))

    def fates(self) -> dict[str, int]:
        counters = self.sorter.counters().get(3, Counters())
        found = Counter(msgspec.structs.asdict(counters))
        return {name: n for name, n in found.items() if n and name not in ("received", "copies")}


def event(price: int, by: Signer, space: int = 3) -> bytes:
    return by.encode(IDS.next(space, 1), {"price": price})


def test_a_tagged_event_of_a_publisher_is_delivered_once() -> None:
    host, by = Host(), signer()
    payload = event(400, by)
    host.receive(payload)
    host.receive(copy(payload))
    host.receive(event(401, by))
    assert host.fates() == {"delivered": 2, "doubles": 1}


def test_an_event_outside_what_its_publisher_advertises_is_dropped() -> None:
    host, by = Host(), signer()
    host.receive(event(900, by))
    host.receive(event(400, signer("h2")))  # it has a key, and advertises nothing
    assert host.fates() == {}
    host.ask()
    assert host.fates() == {"outside": 2}


def test_an_event_of_a_new_advertisement_waits_until_it_is_known() -> None:
    host, by = Host(), signer()
    host.receive(event(900, by))
    host.verifier.replace_publishers([("h1", "price < 500"), ("h1", "price > 800")], NOW)
    host.ask()
    assert host.fates() == {"delivered": 1}


def test_events_that_arrive_before_the_first_keys_wait_for_them() -> None:
    host, by = Host(), signer()
    host.sorter.replace_view(msgspec.structs.replace(VIEW, tagged=False), NOW)
    host.sorter.replace_view(VIEW, NOW)
    host.receive(event(400, by))
    host.ask()
    host.verifier.replace_keys({5: SECRET}, 5, oldest_stream(NOW))
    host.ask()
    assert host.fates() == {}
    host.verifier.replace_publishers([("h1", {})], NOW)
    host.ask()
    assert host.fates() == {"delivered": 1}


def test_events_may_arrive_a_moment_after_their_advertisement_has_ended() -> None:
    host, by = Host(), signer()
    host.verifier.replace_publishers([], NOW)
    host.receive(event(400, by), NOW + 1)
    host.verifier.replace_publishers([], NOW + 4)  # does not prolong it
    host.receive(event(400, by), NOW + 6)
    host.ask()
    assert host.fates() == {"delivered": 1, "outside": 1}


@pytest.mark.parametrize(
    "payload",
    [
        event(400, Signer("h1", 5, publisher_key(SECRET, "h2"), STREAM)),  # pretends to be h1
        event(400, signer(secret=OTHER)),  # has the key of another space
        event(400, signer(key=9)),
        event(400, signer()) + b"\0",
        event(400, signer())[:-1] + b"\0\0",
    ],
    ids=["pretender", "other secret", "other key", "longer", "changed"],
)
def test_a_wrong_tag_is_a_forgery(payload: bytes) -> None:
    host = Host()
    host.receive(payload)
    assert host.fates().get("forged", 0) + host.sorter.undecodable == 1
    assert not host.sorter.unverified  # who has no key cannot make receivers ask


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_every_byte_but_the_flag_of_copies_is_covered(place: int, change: int) -> None:
    payload = event(400, signer())
    place %= len(payload)
    changed = payload[:place] + bytes((payload[place] ^ change,)) + payload[place + 1 :]
    found = decode(changed)
    if found is None or found.proof is None:
        return
    verifier = Verifier()
    verifier.replace_keys({5: SECRET, found.proof.key: SECRET}, 5, oldest_stream(NOW))
    genuine = (place, change) == (1, datagrams.COPY)
    assert (verifier.check(found.proof, NOW) is None) is genuine


def test_an_event_without_a_tag_is_dropped() -> None:
    host = Host()
    host.receive(datagrams.encode(IDS.next(3, 1), {"price": 400}))
    assert host.fates() == {"untagged": 1}


def test_a_forged_event_does_not_use_up_the_id_or_number_of_a_genuine_one() -> None:
    host, by = Host(), signer()
    payload = event(400, by)
    tagless = datagrams.encode(int.from_bytes(payload[2:10], "big"), {"price": 1})
    for forged in (payload[:-1] + bytes((payload[-1] ^ 1,)), tagless):
        host.receive(forged)
    host.receive(payload)
    assert host.fates() == {"forged": 1, "untagged": 1, "delivered": 1}


def test_a_replay_is_refused_after_the_id_is_forgotten() -> None:
    host, by = Host(RecentIds(size=10)), signer()
    payload = event(400, by)
    host.receive(payload)
    for _ in range(21):  # more ids than are remembered
        host.receive(event(400, by))
    host.receive(payload)
    assert host.fates()["replayed"] == 1
    assert "doubles" not in host.fates()


def test_events_of_old_streams_are_refused_by_receivers_that_have_just_started() -> None:
    host = Host()
    host.receive(event(400, signer(stream=new_stream(NOW - 3_600, 7))))
    assert host.fates() == {"replayed": 1}


def test_a_new_key_is_asked_for_and_a_former_one_ends() -> None:
    host = Host()
    host.receive(event(1, signer(secret=OTHER, key=6, stream=STREAM + 1)))
    assert len(host.sorter.unverified) == 1
    host.verifier.replace_keys({5: SECRET, 6: OTHER}, 6, oldest_stream(NOW))
    host.ask()
    host.receive(event(2, signer()))
    assert host.fates() == {"delivered": 2}
    host.verifier.replace_keys({6: OTHER}, 6, oldest_stream(NOW))
    host.receive(event(3, signer(stream=STREAM + 2)))
    assert host.fates() == {"delivered": 2, "forged": 1}


def test_a_space_that_begins_to_ask_for_tags_is_patient_for_a_moment() -> None:
    host = Host()
    plain = msgspec.structs.replace(VIEW, tagged=False)
    host.sorter.replace_view(plain, NOW)
    host.receive(datagrams.encode(IDS.next(3, 1), {"price": 1}))
    host.receive(event(2, signer()))  # from a publisher that has not heard of it yet
    host.sorter.replace_view(VIEW, NOW)
    host.receive(datagrams.encode(IDS.next(3, 1), {"price": 3}), NOW + 9)
    host.receive(datagrams.encode(IDS.next(3, 1), {"price": 4}), NOW + 11)
    assert host.fates() == {"delivered": 3, "untagged": 1}


def test_processes_without_a_subscription_count_events_of_the_space_only() -> None:
    sorter = Sorter()
    sorter.replace_view(VIEW, NOW)
    sorter.sort(event(400, signer()), NOW)
    assert (len(sorter.unverified), len(sorter.unmatched)) == (0, 1)


def test_a_receiver_of_an_earlier_version_drops_tagged_events_as_undecodable() -> None:
    with pytest.raises(msgspec.DecodeError, match="trailing"):
        msgspec.msgpack.decode(event(400, signer())[10:])


def test_a_tagged_event_is_at_most_as_long_as_any_other() -> None:
    by = signer()
    room = MAX_PAYLOAD - len(by.encode(1, {"price": ""})) - 2
    longest = by.encode(1, {"price": "x" * room})
    assert len(longest) == MAX_PAYLOAD
    assert decode(longest) is not None
    with pytest.raises(EventTooLarge, match="takes 1201 bytes, at most 1200"):
        by.encode(1, {"price": "x" * (room + 1)})


@given(st.lists(st.integers(0, 10_000) | st.integers(0, 2**64 - 1), max_size=300))
def test_a_window_never_takes_a_number_twice(numbers: list[int]) -> None:
    window = ReplayWindow()
    seen: set[int] = set()
    for number in numbers:
        if number in seen or number <= max(seen, default=0) - 4_096:
            assert number in window
        else:
            assert number not in window
            window.add(number)
            seen.add(number)


def test_a_window_takes_numbers_in_any_order_within_its_size() -> None:
    window = ReplayWindow()
    for number in (4_095, 0, 4_094, 1):
        assert number not in window
        window.add(number)
    window.add(4_096)
    assert 0 in window
    assert 2 not in window
    window.add(10**18)
    assert 4_000 in window


def test_the_streams_of_a_host_are_bounded_and_never_seen_twice() -> None:
    streams = Streams()

    def proof(stream: int) -> Proof:
        return Proof("h1", 0, stream, 0, b"", b"")

    for stream in range(2_000):
        assert not streams.has_seen(proof(stream))
        streams.add(proof(stream))
    assert all(streams.has_seen(proof(stream)) for stream in range(2_000))
    assert not streams.forget_before(3_000)
    assert streams.has_seen(proof(2_999))
    assert not streams.has_seen(proof(3_000))


def test_the_key_of_a_host_tells_nothing_of_another() -> None:
    keys = {publisher_key(SECRET, host) for host in ("h1", "h2", "h11", "")}
    assert len(keys) == 4
    assert SECRET not in keys


@pytest.mark.parametrize(("key", "stream"), [(256, 0), (-1, 0), (0, -1), (0, 2**64)])
def test_a_signer_refuses_numbers_that_do_not_fit(key: int, stream: int) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Signer("h1", key, SECRET, stream)
