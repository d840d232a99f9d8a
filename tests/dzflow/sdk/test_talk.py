"""Conversations with the control plane, played by hand: no network, no waiting."""

from typing import Any

import pytest

from dzflow.sdk.errors import BadAnswer, NotAcknowledged, RequestFailed, Unreachable
from dzflow.sdk.talk import Call, Lost, Pause, Reply, Steps, Talk

RECORD = {"id": "s1-77", "state": "active", "filter": "price > 1"}
PENDING = {**RECORD, "state": "pending"}


class Play:
    """Plays the control plane: answers calls in turn, and lets the time of pauses pass."""

    def __init__(self, *replies: Reply | Lost) -> None:
        self.replies = list(replies)
        self.calls: list[Call] = []
        self.pauses: list[float] = []
        self.now = 0.0
        self.talk = Talk(lambda: self.now, timeout=10.0)

    def run(self, steps: Steps[Any]) -> Any:
        outcome: Reply | Lost | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                return end.value
            outcome = None
            if isinstance(step, Pause):
                self.pauses.append(step.seconds)
                self.now += step.seconds
            else:
                assert isinstance(step, Call)
                self.calls.append(step)
                outcome = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def begin(play: Play) -> Any:
    return play.run(play.talk.begin("subscription", "h1", "stocks", "price > 1", None, 60.0))


def test_the_control_plane_says_when_to_try_again() -> None:
    play = Play(Reply(503, None, 3.0), Reply(429, None, 2.0), Lost("gone"), Reply(201, RECORD))
    assert begin(play) == RECORD
    assert play.pauses[:2] == [3.0, 2.0]
    assert play.pauses[2] < 1
    assert len(play.calls) == 4
    assert len({call.key for call in play.calls}) == 1


def test_it_is_given_up_when_the_next_try_would_be_too_late() -> None:
    play = Play(Lost("no answer from there"))
    with pytest.raises(Unreachable, match="no answer from there"):
        begin(play)
    assert play.now <= 10.0
    assert max(play.pauses) <= 2.0
    assert len(play.calls) < 20


def test_a_request_under_way_is_looked_after_until_it_is_done() -> None:
    play = Play(Reply(202, PENDING), Reply(200, PENDING), Reply(200, RECORD))
    assert begin(play) == RECORD
    assert [call.path for call in play.calls] == ["/subscribe", *["/requests/s1-77"] * 2]


def test_a_request_that_fails_later_is_told() -> None:
    failed = {**RECORD, "state": "failed", "reason": "s3: table full"}
    play = Play(Reply(202, PENDING), Reply(200, failed))
    with pytest.raises(RequestFailed, match="table full"):
        begin(play)


def test_what_is_not_acknowledged_in_time_is_withdrawn() -> None:
    play = Play(Reply(202, {**PENDING, "reason": "s3 is down"}))
    with pytest.raises(NotAcknowledged, match="s3 is down"):
        begin(play)
    assert play.calls[-1].path == "/unsubscribe"
    assert play.calls[-1].body == {"id": "s1-77", "wait": False}


@pytest.mark.parametrize(("timeout", "wait"), [(5.0, 2.5), (30.0, 10.0)])
def test_the_switches_are_waited_for_less_long_than_the_answer(timeout: float, wait: float) -> None:
    play = Play(Reply(200, RECORD))
    play.talk = Talk(lambda: play.now, timeout)
    begin(play)
    play.run(play.talk.update("subscription", "s1-77", "price > 1"))
    play.replies = [Reply(200, {**RECORD, "state": "removed"})]
    play.run(play.talk.end("subscription", "s1-77"))
    assert [call.body["wait"] for call in play.calls] == [wait] * 3
    play.replies = [Reply(207, [{"status": 200}])]
    play.run(play.talk.end_all("subscription", ["s1-77"], patience=4.0))
    assert play.calls[-1].body == [{"id": "s1-77", "wait": 2.0}]


def test_an_update_that_was_refused_later_is_told() -> None:
    updating = {**RECORD, "updating": True}
    refused = {**RECORD, "reason": "s3: table full"}
    play = Play(Reply(202, updating), Reply(200, refused))
    with pytest.raises(RequestFailed, match="table full"):
        play.run(play.talk.update("subscription", "s1-77", "price > 2"))
    done = {**RECORD, "filter": "price > 2"}
    play = Play(Reply(202, updating), Reply(200, done))
    assert play.run(play.talk.update("subscription", "s1-77", "price > 2")) == done


def test_lists_are_read_page_by_page() -> None:
    play = Play(Reply(200, {"items": [1, 2], "next": "b"}), Reply(200, {"items": [3]}))
    assert play.run(play.talk.items("/subscriptions", {"host": "h1", "space": None})) == [1, 2, 3]
    assert [call.params for call in play.calls] == [{"host": "h1"}, {"host": "h1", "after": "b"}]


def test_many_are_ended_in_batches() -> None:
    ids = [f"s1-{n}" for n in range(2_500)]
    play = Play(Reply(207, [{"status": 200}, {"status": 404}]))
    play.run(play.talk.end_all("subscription", ids, patience=5.0))
    assert [len(call.body) for call in play.calls] == [1_000, 1_000, 500]


@pytest.mark.parametrize("body", [None, [], "text", {"state": "active"}])
def test_an_answer_of_something_else_is_told(body: object) -> None:
    with pytest.raises(BadAnswer, match="URL"):
        begin(Play(Reply(200, body)))


def test_answers_are_read() -> None:
    assert Reply.read(503, {"retry-after": "7"}, b"<html>") == Reply(503, None, 7.0)
    assert Reply.read(429, {"retry-after": "Mon, 16 Nov"}, b"{}") == Reply(429, {})
    assert Reply.read(202, {"location": "/requests/1"}, b"[1]").location == "/requests/1"
    with pytest.raises(BadAnswer, match="not JSON"):
        Reply.read(200, {}, b"<html>")
