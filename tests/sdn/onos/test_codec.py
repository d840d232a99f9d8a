"""Entries become ONOS's rules and come back the same."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.address import ALL, Match, Scope
from dzflow.region import Region
from sdn.onos.codec import NOBODY, UnsupportedEntry, canonical, decode, encode
from sdn.onos.wire import (
    Criterion,
    Flow,
    Instruction,
    NewFlow,
    Selector,
    Treatment,
    device_id,
    dpid_of,
    port_number,
)
from sdn.tables.flows import Action, FlowEntry, Output, ToGroup

DEVICE = "of:00000000000000d2"
PORTS: dict[int, int | None] = {100: 5, 101: 6, 102: 7, 103: None}
GROUPS = {port: group for group, port in PORTS.items() if port is not None}
REWRITE = (
    Instruction("L2MODIFICATION", "ETH_DST", mac="33:33:00:00:00:D2"),
    Instruction("L3MODIFICATION", "IPV6_DST", ip="ff1e:0:0:0:0:0:0:d2"),
)

dzs = st.text("01", max_size=96).map(Region.parse)
scopes = st.builds(lambda *numbers: Scope(*numbers), st.integers(1, 1023), st.integers(0, 3))
prefixes = st.builds(lambda s, dz, tree: s.match(dz, tree), scopes, dzs, st.integers(0, 15))
matches = st.one_of(
    prefixes, st.just(Match(0, 0)), st.just(Match(0xFF1E << 112, ALL ^ (ALL >> 16))), st.none()
)
ports = st.integers(1, 0xFEFF)
legs = st.sets(
    st.one_of(st.builds(Output, ports), st.builds(ToGroup, st.sampled_from([100, 101, 102]))),
    max_size=6,
)


def ordered(actions: set[Action]) -> tuple[Action, ...]:
    return tuple(sorted(actions, key=repr))


@st.composite
def entries(draw: st.DrawFn) -> FlowEntry:
    actions = ordered(draw(legs))
    hosts = any(isinstance(action, ToGroup) for action in actions)
    return FlowEntry(
        draw(st.integers(0, 253)),
        draw(st.integers(0, 0xFFFF)),
        draw(matches),
        actions,
        None if hosts else draw(st.none() | st.integers(1, 253)),
        draw(st.none() | ports),
    )


def reported(sent: NewFlow) -> Flow:
    """A rule as ONOS reports it once it has been sent, through JSON."""
    said = {**msgspec.to_builtins(sent), "id": "1", "appId": "org.dzflow", "state": "ADDED"}
    return msgspec.json.decode(msgspec.json.encode(said), type=Flow)


def rule(*instructions: Instruction, criteria: tuple[Criterion, ...] = ()) -> Flow:
    return flow(Selector(criteria), Treatment(instructions))


def flow(selector: object, treatment: object, table: int | str = 1) -> Flow:
    raw = (msgspec.Raw(msgspec.json.encode(part)) for part in (selector, treatment))
    return Flow("1", "org.dzflow", "ADDED", 5, table, *raw)


@given(entries())
def test_what_is_sent_comes_back(entry: FlowEntry) -> None:
    assert decode(reported(encode(entry, DEVICE, PORTS)), GROUPS) == entry


def test_a_rule_is_the_json_that_onos_takes() -> None:
    match = Scope(1).match(Region.parse("1"), 2)
    entry = FlowEntry(1, 101, match, (Output(2), ToGroup(100), ToGroup(101)), in_port=9)
    assert msgspec.json.decode(msgspec.json.encode(encode(entry, DEVICE, PORTS))) == {
        "deviceId": DEVICE,
        "priority": 101,
        "tableId": 1,
        "timeout": 0,
        "isPermanent": True,
        "selector": {
            "criteria": [
                {"type": "IN_PORT", "port": 9},
                {"type": "ETH_TYPE", "ethType": "0x86dd"},
                {"type": "IPV6_DST", "ip": "ff1e:42:8000::/33"},
            ]
        },
        "treatment": {
            "instructions": [
                {"type": "OUTPUT", "port": "2"},
                {"type": "L2MODIFICATION", "subtype": "ETH_DST", "mac": "33:33:00:00:00:d2"},
                {"type": "L3MODIFICATION", "subtype": "IPV6_DST", "ip": "ff1e::d2"},
                {"type": "OUTPUT", "port": "5"},
                {"type": "OUTPUT", "port": "6"},
            ],
            "deferred": [],
        },
    }


def test_a_rule_that_does_nothing_says_so() -> None:
    drop = FlowEntry(0, 100, Match(0xFF1E << 112, ALL ^ (ALL >> 16)))
    assert encode(drop, DEVICE, {}).treatment == Treatment((Instruction("NOACTION"),))


@given(entries())
def test_copies_for_switches_leave_before_the_packet_is_rewritten(entry: FlowEntry) -> None:
    sent = encode(entry, DEVICE, PORTS).treatment.instructions
    rewrites = [place for place, step in enumerate(sent) if step.type.startswith("L")]
    first = min(rewrites, default=len(sent))
    ports = [(place < first, port_number(s.port)) for place, s in enumerate(sent) if s.port]
    assert sorted(ports) == sorted(
        (True, a.port) if isinstance(a, Output) else (False, PORTS[a.group]) for a in entry.actions
    )


def test_releases_may_write_numbers_names_and_drops_in_their_own_way() -> None:
    criteria = (
        Criterion("ETH_TYPE", eth_type=0x86DD),
        Criterion("IPV6_DST", ip="ff1e:0042:8000:0:0:0:0:0/33"),
        Criterion("IN_PORT", port="[s1-eth3](3)"),
    )
    steps = (
        Instruction("OUTPUT", port=4),
        *REWRITE,
        Instruction("OUTPUT", port="[h1](5)"),
        *REWRITE,
        Instruction("OUTPUT", port="6"),
    )
    match = Scope(1).match(Region.parse("1"), 2)
    expected = (Output(4), ToGroup(100), ToGroup(101))
    assert decode(rule(*steps, criteria=criteria), GROUPS) == FlowEntry(
        1, 5, match, expected, in_port=3
    )
    assert decode(rule(Instruction("DROP")), GROUPS) == FlowEntry(1, 5, None)
    assert decode(rule(), GROUPS) == FlowEntry(1, 5, None)
    assert decode(rule(Instruction("TABLE", table_id="2")), GROUPS) == FlowEntry(1, 5, None, (), 2)


@pytest.mark.parametrize(
    "steps",
    [
        (Instruction("OUTPUT", port="CONTROLLER"),),
        (Instruction("OUTPUT"),),
        (Instruction("GROUP"),),
        (Instruction("TABLE"),),
        (REWRITE[0], Instruction("OUTPUT", port="5")),
        (*REWRITE, Instruction("OUTPUT", port="5"), Instruction("TABLE", table_id=2)),
        (Instruction("L2MODIFICATION", "ETH_DST", mac="02:00:00:00:00:01"),),
        (Instruction("L3MODIFICATION", "IPV6_DST", ip="ff1e::d3"),),
        (Instruction("L3MODIFICATION", "IPV6_DST", ip="nonsense"),),
        (Instruction("L3MODIFICATION", "IPV6_SRC", ip="ff1e::d2"),),
    ],
)
def test_treatments_that_we_never_write_are_not_taken_for_ours(
    steps: tuple[Instruction, ...],
) -> None:
    assert decode(rule(*steps), GROUPS) is None


@pytest.mark.parametrize(
    "criteria",
    [
        (Criterion("IPV6_DST", ip="ff1e::/16"),),
        (Criterion("ETH_TYPE", eth_type="0x800"),),
        (Criterion("ETH_TYPE", eth_type="0x86dd"), Criterion("IPV6_DST", ip="nonsense")),
        (Criterion("ETH_TYPE", eth_type="0x86dd"), Criterion("IPV6_DST")),
        (Criterion("ETH_TYPE", eth_type="0x86dd"),) * 2,
        (Criterion("IN_PORT", port="LOCAL"),),
        (Criterion("VLAN_VID"),),
    ],
)
def test_matches_that_we_never_write_are_not_taken_for_ours(
    criteria: tuple[Criterion, ...],
) -> None:
    assert decode(rule(criteria=criteria), GROUPS) is None


def test_deferred_instructions_and_tables_with_names_are_not_ours() -> None:
    deferred = Treatment((), (Instruction("OUTPUT", port=1),))
    assert decode(flow(Selector(), deferred), GROUPS) is None
    assert decode(flow(Selector(), Treatment(), "ingress"), GROUPS) is None


@pytest.mark.parametrize("nonsense", [[], {"criteria": 7}, {"criteria": [{}]}, None, 7, "x"])
def test_matches_of_any_other_form_are_not_ours(nonsense: object) -> None:
    assert decode(flow(nonsense, Treatment()), GROUPS) is None


def test_a_host_that_is_gone_gets_nothing() -> None:
    entry = FlowEntry(1, 100, Match(0, 0), (Output(1), ToGroup(103)))
    without = FlowEntry(1, 100, Match(0, 0), (Output(1),))
    assert canonical(entry, PORTS) == without
    assert decode(reported(encode(entry, DEVICE, PORTS)), GROUPS) == without


def test_a_copy_for_a_port_without_a_host_is_for_nobody() -> None:
    found = decode(rule(*REWRITE, Instruction("OUTPUT", port="77")), GROUPS)
    assert found == FlowEntry(1, 5, None, (NOBODY,))


def test_what_no_rule_can_say_is_refused() -> None:
    gap = Match(0, 1)
    with pytest.raises(UnsupportedEntry, match="prefixes of addresses only"):
        encode(FlowEntry(1, 100, gap), DEVICE, PORTS)
    with pytest.raises(UnsupportedEntry, match="no host has group 0x7"):
        encode(FlowEntry(1, 100, None, (ToGroup(7),)), DEVICE, PORTS)
    with pytest.raises(UnsupportedEntry, match="only the plan lpm"):
        encode(FlowEntry(1, 100, None, (ToGroup(100),), 2), DEVICE, PORTS)


@given(st.integers(1, 2**64 - 1))
def test_devices_are_named_by_their_datapath_id(dpid: int) -> None:
    assert dpid_of(device_id(dpid)) == dpid


@pytest.mark.parametrize("name", ["netconf:10.0.0.1:830", "of:1", "of:00000000000000zz", ""])
def test_other_devices_have_no_datapath_id(name: str) -> None:
    assert dpid_of(name) is None
