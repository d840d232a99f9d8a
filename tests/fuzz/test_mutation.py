"""Inputs: a seed decides them, they differ from each other, and many are nearly valid."""

import json
from random import Random

from tests.fuzz.mutation import MAX_INPUT, ByteInputs, JsonInputs, mutate_bytes, mutate_json

SEEDS = [b"GET / HTTP/1.1\r\n\r\n", bytes(range(64))]
VALUE = {"name": "x", "list": [1, 2, {"deep": True}], "number": 3.5}


def test_a_seed_decides_all_inputs() -> None:
    def drawn(seed: int) -> list[bytes]:
        source = ByteInputs(Random(seed), SEEDS, [b"word"])
        return [source.next() for _ in range(200)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_inputs_differ_and_some_are_seeds() -> None:
    source = ByteInputs(Random(1), SEEDS)
    found = [source.next() for _ in range(1_000)]
    assert len(set(found)) > 500
    assert set(SEEDS) <= set(found)
    assert max(map(len, found)) <= MAX_INPUT


def test_what_was_learnt_becomes_a_seed() -> None:
    source = ByteInputs(Random(1), SEEDS)
    source.learn(b"something new")
    assert any(b"something new" in source.next() for _ in range(300))


def test_words_are_put_in() -> None:
    random = Random(1)
    found = [mutate_bytes(random, SEEDS[1], SEEDS, [b"<word>"]) for _ in range(300)]
    assert any(b"<word>" in data for data in found)


def test_json_values_are_changed_in_a_copy() -> None:
    before = json.dumps(VALUE)
    random = Random(1)
    found = [mutate_json(random, VALUE, [VALUE], ["word"]) for _ in range(500)]
    assert json.dumps(VALUE) == before
    assert sum(value != VALUE for value in found) > 450
    assert any(isinstance(value, dict) and "name" not in value for value in found)


def test_most_json_inputs_are_json_and_all_can_be_encoded() -> None:
    source = JsonInputs(Random(1), [VALUE])
    found = [source.next() for _ in range(500)]
    valid = 0
    for data in found:
        try:
            json.loads(data)
            valid += 1
        except ValueError:
            continue
    assert 300 < valid < 500
