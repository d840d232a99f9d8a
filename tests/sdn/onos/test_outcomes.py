"""The outcome of a batch that goes wrong: the operations that failed, or that it is unknown."""

from msgspec.structs import replace

from sdn.emulator.model import SOFTWARE
from sdn.onos.wire import ADDED, FAILED, PENDING_ADD
from sdn.outcomes import Acknowledged, Failed
from tests.onos_standin import Behaviour
from tests.sdn.onos.support import (
    DELIVER,
    IMPATIENT,
    LET_IN,
    LINE,
    ON,
    PIPELINE,
    QUICK,
    add,
    delete,
    forward,
    modify,
    out,
    put,
    stage,
    undefined,
    wired,
)
from tests.support import until


async def test_a_rule_that_fails_is_named_and_what_follows_is_not_sent() -> None:
    async with stage(LINE) as on:
        await wired(on)
        on.onos.set_behaviour("s1", Behaviour.FAILING)
        fine = forward(PIPELINE, "00", *out(1))
        outcomes = await on.driver.apply(
            "p7", 1, {"s1": [*add(fine), *delete(ON)], "s2": add(fine)}
        )
        failed = outcomes["s1"]
        assert isinstance(failed, Failed)
        assert failed.refused.keys() == {0, 1}
        assert "FAILED" in failed.refused[0]
        assert "not sent" in failed.refused[1]
        assert outcomes["s2"] == Acknowledged()
        # What the switch should hold is what it was; the rule that failed goes.
        on.onos.set_behaviour("s1", Behaviour.NORMAL)
        assert await on.driver.audit("s1") == {"s1": Acknowledged()}
        assert {rule.state for rule in on.onos.rules("s1")} == {ADDED}
        assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN, ON)


async def test_rules_that_do_not_fit_into_the_table_fail() -> None:
    async with stage(LINE) as on:
        on.network.switches["s1"].model = replace(SOFTWARE, table_capacity=2)
        entries = [forward(PIPELINE, f"{n:02b}", *out(1)) for n in range(4)]
        failed = await put(on, "s1", *add(*entries))
        assert isinstance(failed, Failed)
        assert len(failed.refused) == 2
        kept = [e for place, e in enumerate(entries) if place not in failed.refused]
        assert set(await on.driver.read("s1")) == on.expected("s1", *kept)


async def test_a_rule_that_failed_before_can_be_added_later() -> None:
    async with stage(LINE) as on:
        on.onos.set_behaviour("s1", Behaviour.FAILING)
        assert isinstance(await put(on, "s1", *add(ON)), Failed)
        assert FAILED in {rule.state for rule in on.onos.rules("s1")}
        on.onos.set_behaviour("s1", Behaviour.NORMAL)
        assert await put(on, "s1", *add(ON)) == Acknowledged()


async def test_a_request_that_onos_refuses_fails_all_its_rules() -> None:
    async with stage(LINE, replace(QUICK, chunk=2)) as on:
        entries = [forward(PIPELINE, f"{n:02b}", *out(1)) for n in range(4)]
        on.onos.fail(400, method="POST")
        failed = await put(on, "s1", *add(*entries))
        assert isinstance(failed, Failed)
        assert failed.refused.keys() == {0, 1}  # the others were carried out
        assert "answers 400" in failed.refused[0]
        assert set(await on.driver.read("s1")) == on.expected("s1", *entries[2:])


async def test_a_switch_that_never_confirms_is_undefined_and_others_are_not() -> None:
    async with stage(LINE, IMPATIENT) as on:
        on.onos.set_behaviour("s1", Behaviour.STUCK)
        outcomes = await on.driver.apply("p7", 1, {"s1": add(ON), "s2": add(DELIVER)})
        assert "switch s1" in undefined(outcomes["s1"])
        assert PENDING_ADD in undefined(outcomes["s1"])
        assert outcomes["s2"] == Acknowledged()
        # It is safe to try again.
        on.onos.set_behaviour("s1", Behaviour.NORMAL)
        assert await put(on, "s1", *add(ON)) == Acknowledged()
        assert set(await on.driver.read("s1")) == on.expected("s1", ON)


async def test_a_deletion_that_is_never_confirmed_is_undefined() -> None:
    async with stage(LINE, IMPATIENT) as on:
        await wired(on)
        on.onos.set_behaviour("s1", Behaviour.STUCK)
        assert "PENDING_REMOVE" in undefined(await put(on, "s1", *delete(ON)))
        assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN, ON)


async def test_rules_that_onos_forgets_are_undefined() -> None:
    async with stage(LINE, IMPATIENT) as on:
        on.onos.set_behaviour("s1", Behaviour.FORGETFUL)
        assert "not listed" in undefined(await put(on, "s1", *add(ON)))


async def test_what_is_not_there_can_be_deleted() -> None:
    async with stage(LINE) as on:
        assert await put(on, "s1", *delete(ON)) == Acknowledged()
        assert on.writes() == {"POST": 0, "DELETE": 0}


async def test_questions_are_repeated_but_changes_are_not() -> None:
    async with stage(LINE, attempts=3) as on:
        on.onos.fail(500, times=2, method="GET")
        assert await put(on, "s1", *add(ON)) == Acknowledged()
        assert on.writes() == {"POST": 1, "DELETE": 0}
        on.onos.fail(500, method="POST")
        assert "answers 500" in undefined(await put(on, "s1", *add(LET_IN)))
        assert sum(request.method == "POST" for request in on.onos.requests) == 1
        on.onos.fail(500, times=3, method="GET")
        assert "answers 500" in undefined(await put(on, "s1", *modify(ON)))


async def test_an_answer_that_takes_too_long_is_undefined_and_its_late_effect_is_repaired() -> None:
    async with stage(LINE, read=1.0) as on:
        on.onos.hold()
        assert "no answer" in undefined(await put(on, "s1", *add(ON)))
        on.onos.release()
        await until(lambda: len(on.onos.rules("s1")) > len(on.expected("s1")))
        assert await on.driver.audit("s1") == {"s1": Acknowledged()}
        assert set(await on.driver.read("s1")) == on.expected("s1")
