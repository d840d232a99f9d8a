"""Records with a ttl live as long as their application; counters and samples are reported."""

import asyncio
import logging
import threading
from typing import Any

import pytest

from dzflow import ControlPlane
from dzflow.sdk.errors import NotFound, Unreachable
from dzflow.sdk.events.links import EmulatedLink
from dzflow.sdk.renewals import OwnRecord, Renewals
from dzflow.sdk.rest.api_protocol import ApiProtocol, Kind
from tests.dzflow.sdk.fake_service import FakeService
from tests.dzflow.sdk.support import EVENT, at, prices
from tests.support import WAIT, until, until_sync


def renewals(service: FakeService) -> list[int]:
    return [record["renewed"] for record in list(service.records.values())]


def reported(service: FakeService, name: str) -> int:
    """What all reports so far say of a counter."""
    counters = [report["counters"].get("stocks", {}) for report in list(service.reports)]
    return sum(found.get(name, 0) for found in counters)


def test_records_are_renewed_while_the_application_lives(service: FakeService) -> None:
    with at(service, "h1") as application:
        application.subscribe("stocks", {}, ttl=0.06)
        application.advertise("stocks", {}, ttl=0.06)
        until_sync(lambda: min(renewals(service)) >= 2)
    assert service.records == {}


def test_without_a_ttl_nothing_is_renewed_and_the_default_is_a_minute(service: FakeService) -> None:
    with at(service, "h1") as application:
        application.subscribe("stocks", {}, ttl=None)
        application.advertise("stocks", {}, label="mine")
        found = {r["kind"]: (r["ttl"], r["label"]) for r in service.records.values()}
        assert found == {"subscription": (None, None), "advertisement": (60.0, "mine")}


def test_a_record_that_expired_is_created_again(
    service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "dzflow.sdk")
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", {}, ttl=0.06)
        advertisement = publisher.advertise("stocks", {}, ttl=0.06)
        expired = {subscription.id, advertisement.id}
        for name in expired:
            service.expire(name)
        until_sync(lambda: expired.isdisjoint({subscription.id, advertisement.id}))
        advertisement.publish(EVENT)
        assert prices(subscription, 1) == [500]
    assert service.records == {}
    assert "has expired; creating it again" in caplog.text


async def test_records_are_renewed_while_many_others_are_created_again() -> None:
    renewed: list[str] = []
    begun: list[str] = []

    class Stalled(ApiProtocol):
        def __init__(self) -> None:
            """Without a transport: only the two calls below are made."""

        async def renew(self, kind: Kind, record: str) -> dict[str, Any]:
            if record.startswith("expired"):
                raise NotFound(404, {})
            renewed.append(f"{kind} {record}")
            return {}

        async def begin(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            begun.append("one")
            await asyncio.Event().wait()
            return {}

    keeper = Renewals(Stalled())
    for number in range(100):
        keeper.add(OwnRecord("subscription", "h1", "stocks", {}, None, 0.06, f"expired {number}"))
    await until(lambda: begun)
    keeper.add(OwnRecord("subscription", "h1", "stocks", {}, None, 0.06, "alive"))
    await until(lambda: len(renewed) >= 3)
    assert len(begun) < 100  # they are created a few at a time
    await keeper.close()


@pytest.mark.parametrize("kind", ["busy", "odd"])
def test_a_failed_renewal_is_repeated(service: FakeService, kind: str) -> None:
    with at(service, "h1") as application:
        application.subscribe("stocks", {}, ttl=0.06)
        times = iter(range(3))
        service.faults.append(
            lambda _, path: (
                kind if path.endswith("/renew") and next(times, None) is not None else None
            )
        )
        until_sync(lambda: min(renewals(service)) >= 2)


def test_a_failed_join_is_repeated(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dzflow.sdk.host_agent.JOIN_EVERY", 0.01)
    with at(service, "h1") as application:
        application.subscribe("stocks", {})
        join, outcomes = EmulatedLink.join, iter([Unreachable("no way"), OSError("none at all")])
        joined = threading.Event()

        def joining(link: EmulatedLink) -> None:
            if error := next(outcomes, None):
                raise error
            join(link)
            joined.set()

        monkeypatch.setattr(EmulatedLink, "join", joining)
        assert joined.wait(WAIT)
    assert "no way" in caplog.text
    assert "none at all" in caplog.text


def test_closing_an_expired_subscription_is_no_error(service: FakeService) -> None:
    with at(service, "h1") as application:
        one = application.subscribe("stocks", {})
        other = application.subscribe("stocks", {})
        for name in (one.id, other.id):
            service.expire(name)
        one.close()


def test_counters_and_sampled_events_are_reported(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dzflow.sdk.reporter.REPORT_EVERY", 0.05)
    counted = ("published", "received", "delivered")
    with at(service, "h1") as application:
        subscription = application.subscribe("stocks", {})
        advertisement = application.advertise("stocks", {})
        advertisement.publish_many([EVENT] * 50)
        prices(subscription, 50)
        # All of them, for at the end there is little time for a report.
        until_sync(lambda: all(reported(service, name) == 50 for name in counted))
    for report in service.reports:
        assert report["host"] == "h1"
        assert len(report["events"]) <= 20
        for sample in report["events"]:
            assert sample["space"] == "stocks"
            assert sample["values"] == EVENT
            assert sample["time_us"] > 1_700_000_000_000_000
    assert {name: reported(service, name) for name in counted} == dict.fromkeys(counted, 50)
    samples = [sample for report in service.reports for sample in report["events"]]
    assert len(samples) >= 20
    assert sum(sample["weight"] for sample in samples) == pytest.approx(50)


def test_reports_can_be_turned_off(service: FakeService) -> None:
    with ControlPlane(service.url, "h1", reports=False) as application:
        application.advertise("stocks", {}).publish(EVENT)
    assert service.reports == []
