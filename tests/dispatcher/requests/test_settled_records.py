from configurators.store.documents import encode
from configurators.store.model import Record
from dispatcher.requests.writing.settled_records import SettledRecords


def record(number: int) -> Record:
    return Record(f"s1-{number:016x}", "subscription", "h1", "stocks", {}, {}, "active", 1, 0.0, "")


def test_a_record_is_remembered_as_it_was_settled_last_until_it_is_forgotten() -> None:
    settled = SettledRecords()
    first, second = record(1), record(2)
    settled.keep(first.id, encode(first), 7)
    settled.keep(first.id, encode(first), 8)
    settled.keep(second.id, encode(second), 9)
    assert settled.get(first.id) == (first, 8)
    settled.forget(first.id)
    settled.forget(first.id)
    assert settled.get(first.id) is None
    assert settled.get(second.id) == (second, 9)


def test_the_oldest_are_forgotten_when_they_are_too_many() -> None:
    settled = SettledRecords(most_bytes=10_000)
    records = [record(number) for number in range(100)]
    for each in records:
        settled.keep(each.id, encode(each), 1)
        settled.keep(each.id, encode(each), 2)  # the same again takes no more room
    known = [each for each in records if settled.get(each.id)]
    assert known == records[-len(known) :]
    assert 10 < len(known) < 40
