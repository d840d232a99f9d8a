"""Ready, degraded or not ready, and since when something is impaired."""

from typing import cast

import msgspec

from api.http.readiness import MAX_IMPAIRED, Readiness
from api.http.schema.service import ImpairedCounts, ReadyOut
from configurators.environment import Clock
from dispatcher.dispatcher import Dispatcher
from dispatcher.views import Health, Impairment, Part

ETCD = Part("etcd", True)


class Reported:
    """Stands in for a dispatcher: reports the health that the test sets."""

    def __init__(self) -> None:
        self.impaired: list[Impairment] = []
        self.reasons: list[str] = []

    def health(self) -> Health:
        down = sum(each.kind == "switch" for each in self.impaired)
        return Health(
            not self.reasons, self.reasons, self.impaired, ETCD, [], [], [], 3 - down, 3, 4, 4
        )


class Observed:
    """A readiness whose clock and parts the test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.more: list[Part] = []
        self.reported = Reported()
        self._readiness = Readiness(self._more_parts, Clock(wall=lambda: self.now))

    async def _more_parts(self) -> list[Part]:
        return self.more

    def drain(self) -> None:
        self._readiness.draining = True

    async def read(self) -> tuple[str, bool, dict[str, float]]:
        """Status, whether requests are served, and since when what is impaired."""
        found = await self.answer()
        return found.status, found.ready, {each.id: each.since for each in found.impaired or ()}

    async def answer(self, *, details: bool = True) -> ReadyOut:
        return await self._readiness.read(cast("Dispatcher", self.reported), details=details)


async def test_nothing_impaired_is_ready() -> None:
    assert await Observed().read() == ("ready", True, {})


async def test_a_switch_that_is_down_degrades_the_service_since_it_was_first_seen_down() -> None:
    seen = Observed()
    seen.reported.impaired = [Impairment("switch", "s1", "it is not connected")]
    assert await seen.read() == ("degraded", True, {"s1": 100.0})
    seen.now = 105.0
    seen.reported.impaired.append(Impairment("partition", "1.0/0", "loading"))
    assert await seen.read() == ("degraded", True, {"s1": 100.0, "1.0/0": 105.0})


async def test_an_impairment_that_comes_back_has_a_new_beginning() -> None:
    seen = Observed()
    down = [Impairment("switch", "s1", "it is not connected")]
    seen.reported.impaired = down
    await seen.read()
    seen.reported.impaired = []
    assert await seen.read() == ("ready", True, {})
    seen.now, seen.reported.impaired = 110.0, down
    assert await seen.read() == ("degraded", True, {"s1": 110.0})


async def test_without_ray_the_service_is_degraded() -> None:
    seen = Observed()
    seen.more = [Part("ray", ok=False, reason="it is gone")]
    assert await seen.read() == ("degraded", True, {"ray": 100.0})


async def test_with_a_reason_the_service_is_not_ready_whatever_else_is_impaired() -> None:
    seen = Observed()
    seen.reported.reasons = ["no configurator can be used"]
    seen.reported.impaired = [Impairment("process", "c1", "it is not alive")]
    assert await seen.read() == ("not ready", False, {"c1": 100.0})


async def test_not_all_impairments_are_named_but_all_are_counted() -> None:
    seen = Observed()
    seen.more = [Part("ray", ok=False, reason="it is gone")]
    seen.reported.impaired = [
        *(Impairment("switch", f"s{n}", "it is not connected") for n in range(150)),
        *(Impairment("partition", f"1.0/{n}", "loading") for n in range(7)),
    ]
    found = await seen.answer()
    assert found.impaired is not None
    assert len(found.impaired) == MAX_IMPAIRED == 100
    assert found.impaired[0].id == "ray"
    assert found.impaired_counts == ImpairedCounts(150, 7, 1, 158)


async def test_without_details_there_are_only_numbers() -> None:
    seen = Observed()
    seen.reported.reasons = ["etcd: it is gone"]
    seen.reported.impaired = [Impairment("switch", "s1", "it is not connected")]
    assert msgspec.to_builtins(await seen.answer(details=False)) == {
        "status": "not ready",
        "ready": False,
        "impaired_counts": {"switches": 1, "partitions": 0, "processes": 0, "total": 1},
        "switches_up": 2,
        "switches": 3,
        "partitions_ready": 4,
        "partitions": 4,
    }


async def test_an_impairment_keeps_its_beginning_whoever_asks() -> None:
    seen = Observed()
    seen.reported.impaired = [Impairment("switch", "s1", "it is not connected")]
    await seen.answer(details=False)
    seen.now = 105.0
    assert await seen.read() == ("degraded", True, {"s1": 100.0})


async def test_a_process_that_is_about_to_end_is_not_ready() -> None:
    seen = Observed()
    seen.drain()
    found = await seen.answer()
    assert (found.status, found.ready) == ("not ready", False)
    assert found.reasons == ["this API process is about to end"]
