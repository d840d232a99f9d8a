import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from sdn.network.switch_limits import SwitchLimits
from sdn.network.topologies import topology
from sdn.network.topology import Host, Link, NotConnected, PortTaken, Switch, Topology
from sdn.network.topology_file import (
    MAX_FILE_BYTES,
    BadTopologyFile,
    FreePorts,
    TopologyFileBroken,
    TopologyFileTooLarge,
    TopologyFileUnreadable,
    YamlMissing,
    dump_topology,
    load_topology,
    parse_topology,
)
from tests.strategies import topologies

EXAMPLE = """
switches: [s1, s2, {id: s3, dpid: 7}]
links: [[s1, s2], {a: s1, a_port: 4, b: s3, b_port: 1}]
hosts: [{id: h1, switch: s1}, {id: h2, switch: s2, port: 9, mac: "02:00:00:00:00:01"}]
"""


def written(path: Path, content: str | bytes, name: str = "net.yaml") -> Path:
    file = path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_a_file_says_as_much_as_it_wants_to(tmp_path: Path) -> None:
    assert load_topology(written(tmp_path, EXAMPLE)) == Topology.build(
        [Switch("s1", 1), Switch("s2", 2), Switch("s3", 7)],
        [Link("s1", 1, "s2", 1), Link("s1", 4, "s3", 1)],
        [Host("h1", "s1", 2), Host("h2", "s2", 9, mac="02:00:00:00:00:01")],
    )


def test_a_json_file_says_the_same(tmp_path: Path) -> None:
    as_json = written(tmp_path, json.dumps(yaml.safe_load(EXAMPLE)), "net.json")
    assert load_topology(as_json) == load_topology(written(tmp_path, EXAMPLE))


def test_chosen_ports_and_dpids_keep_clear_of_given_ones() -> None:
    net = parse_topology(
        {
            "switches": ["a", {"id": "b", "dpid": 1}, "c"],
            "links": [["a", "b"], ["a", "b"], {"a": "a", "b": "c", "a_port": 1}],
            "hosts": [{"id": "h1", "switch": "a"}, {"id": "h2", "switch": "a", "port": 3}],
        }
    )
    assert [s.dpid for s in net.switches] == [2, 1, 3]
    assert net.links == (Link("a", 1, "c", 1), Link("a", 2, "b", 1), Link("a", 4, "b", 2))
    assert net.host("h1").port == 5


def test_ports_are_handed_out_lowest_first_and_once() -> None:
    ports = FreePorts([("s1", 2), ("s2", 1)])
    assert [ports.take("s1"), ports.take("s1"), ports.take("s2")] == [1, 3, 2]


def test_links_and_hosts_may_be_left_out_or_empty(tmp_path: Path) -> None:
    alone = Topology.build([Switch("s1", 1)], [], [])
    assert parse_topology({"switches": ["s1"]}) == alone
    assert load_topology(written(tmp_path, "switches: [s1]\nlinks:\nhosts:\n")) == alone


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert load_topology(written(tmp_path, b"\xef\xbb\xbfswitches: [s1]")).switch("s1").dpid == 1


@given(topologies())
def test_what_is_dumped_comes_back_exactly(net: Topology) -> None:
    assert parse_topology(dump_topology(net)) == net
    assert parse_topology(json.loads(json.dumps(dump_topology(net)))) == net


def test_addresses_of_hosts_come_back_and_absent_ones_stay_absent(tmp_path: Path) -> None:
    host = Host("h1", "s1", 1, mac="12:00:00:00:00:01", ipv6="fd00::1")
    net = Topology.build([Switch("s1", 2**64 - 1)], [], [host, Host("h2", "s1", 2)])
    dumped = dump_topology(net)
    assert load_topology(written(tmp_path, yaml.safe_dump(dumped))) == net
    assert dumped["hosts"][1] == {"id": "h2", "switch": "s1", "port": 2}


def test_a_large_topology_comes_back() -> None:
    net = topology("fat-tree:102")
    assert parse_topology(dump_topology(net)) == net


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "a mapping with switches, links, hosts is expected, not nothing"),
        ([], "a mapping .* not a value of type list"),
        ({}, "switches: there is no switch"),
        ({"switch": []}, "unknown section 'switch'; there are switches, links, hosts"),
        ({"switches": ["s1"], 1: []}, "unknown section a value of type int"),
        ({"switches": "s1"}, "switches: a list is expected, not a value of type str"),
        ({"switches": ["s1", 2]}, r"switches\[1\]: an id or a mapping is expected"),
        ({"switches": [{"id": 1}]}, r"switches\[0\]: .*`str`.*id.*quotes"),
        ({"switches": [{"dpid": 1}]}, r"switches\[0\]: .*missing.*`id`"),
        ({"switches": [{"id": "s1", "dpid": True}]}, r"switches\[0\]: .*`int"),
        ({"switches": [{"id": "s1", "dpids": 1}]}, r"switches\[0\]: .*unknown field `dpids`"),
        ({"switches": [{"id": "s1", 2: 1}]}, r"switches\[0\]: "),
        ({"switches": ["s1", "s 2"]}, r"switches\[1\]: 'switch s 2': an id is"),
        ({"switches": ["s1", "s1"]}, r"switches\[1\]: switch s1 is there twice"),
        ({"switches": ["s1"], "links": [["s1"]]}, r"links\[0\]: a list must be of two"),
        ({"switches": ["s1"], "links": [["s1", 2]]}, r"links\[0\]: a list must be of two"),
        ({"switches": ["s1"], "links": ["s1"]}, r"links\[0\]: two switch ids or a mapping"),
        ({"switches": ["s1"], "links": [{"a": "s1"}]}, r"links\[0\]: .*missing.*`b`"),
        ({"switches": ["s1"], "links": [["s1", "s2"]]}, r"links\[0\]: .*no switch 's2'"),
        ({"switches": ["s1", "s2"]}, r"links: .*2 parts.*\(s1\), \(s2\)"),
        ({"switches": ["s1"], "hosts": ["h1"]}, r"hosts\[0\]: a mapping is expected"),
        ({"switches": ["s1"], "hosts": [{"id": "h1"}]}, r"hosts\[0\]: .*missing.*`switch`"),
        (
            {"switches": ["s1"], "hosts": [{"id": "h1", "switch": "s1", "port": "1"}]},
            r"hosts\[0\]: .*`int.*port",
        ),
        (
            {"switches": ["s1"], "hosts": [{"id": "h1", "switch": "s1", "mac": 43200}]},
            r"hosts\[0\]: .*mac.*quotes",
        ),
        (
            {"switches": ["s1"], "hosts": [{"id": "h1", "switch": "s1", "ipv6": "x"}]},
            r"hosts\[0\]: host h1: 'x' is no IPv6 address",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place(document: Any, message: str) -> None:
    with pytest.raises(BadTopologyFile, match=f"^net: {message}"):
        parse_topology(document, "net")


def test_the_second_of_two_equal_elements_is_the_one_at_fault() -> None:
    link = {"a": "s1", "a_port": 1, "b": "s2", "b_port": 1}
    with pytest.raises(BadTopologyFile, match=r"links\[1\]: link s1:1 - s2:1") as caught:
        parse_topology({"switches": ["s1", "s2"], "links": [link, link]})
    assert isinstance(caught.value.__cause__, PortTaken)


def test_the_named_error_is_kept_as_the_cause() -> None:
    with pytest.raises(BadTopologyFile) as caught:
        parse_topology({"switches": ["s1", "s2"]})
    assert isinstance(caught.value.__cause__, NotConnected)


def test_a_mistake_in_a_file_is_reported_with_its_name(tmp_path: Path) -> None:
    path = written(tmp_path, "switches: [s1, 2]")
    with pytest.raises(BadTopologyFile, match=r"net\.yaml: switches\[1\]"):
        load_topology(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("switches: [s1]\nlinks: [[s1, s2]\nhosts: []", "line 3: "),
        ("switches: [s1]\nlinks: @", "line 2: "),
        ("switches: [s1]\n\nhosts: \x07", "line 3: "),
        ("switches: !!python/object:os.system [s1]", "line 1: "),
        ("switches: [*nobody]", "line 1: .*nobody"),
        (b"switches: [s1]\nhosts: [\xff]", "line 2: not UTF-8"),
        ("switches: [2020-13-45]", "a value cannot be understood"),
        ("switches: [!!int '']", "a value cannot be understood"),
        ("switches: [!!bool s1]", "a value cannot be understood"),
        ("switches: [!!timestamp s1]", "a value cannot be understood"),
        ("[" * 1_000, "line 1 is nested too deeply"),
        # The parser's time grows with the square of the depth.
        ("switches:\n- [" + "{a: [" * 16 + "]}" * 16 + "]", "line 2 is nested too deeply"),
    ],
)
def test_what_is_not_yaml_is_said_to_be_broken(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(TopologyFileBroken, match=rf"net\.yaml: {message}"):
        load_topology(written(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"switches": ["s1"],\n"hosts": [}', "line 2: "),
        ("", "line 1: "),
        ('{"switches": [' + "9" * 5000 + "]}", "Exceeds the limit"),
        ("[" * 1_000, "nested too deeply"),
    ],
)
def test_what_is_not_json_is_said_to_be_broken(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(TopologyFileBroken, match=rf"net\.json: {message}"):
        load_topology(written(tmp_path, content, "net.json"))


@pytest.mark.parametrize("name", ["net.yaml", "net.json"])
@pytest.mark.parametrize(
    "content",
    [
        r'{"switches": [{"id": "s1", "dpid": "\ud83d"}]}',
        r'{"switches": ["s1"], "links": [["s1", "\ud83d"]]}',
        r'{"switches": ["s1"], "hosts": [{"id": "h1", "switch": "s1", "\ud83d": 1}]}',
    ],
)
def test_halves_of_surrogate_pairs_are_refused_with_a_text_that_can_be_printed(
    tmp_path: Path, content: str, name: str
) -> None:
    with pytest.raises(BadTopologyFile) as refused:
        load_topology(written(tmp_path, content, name))
    assert str(refused.value).encode()


def test_aliases_that_explode_do_no_harm(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    nested = "".join(f"- &b{n} [{', '.join([f'*b{n - 1}'] * 10)}]\n" for n in range(1, 30))
    with pytest.raises(BadTopologyFile, match="unknown section 'a0'"):
        load_topology(written(tmp_path, "\n".join(lines)))
    with pytest.raises(BadTopologyFile, match=r"switches\[0\]: an id or a mapping is expected"):
        load_topology(written(tmp_path, f"switches:\n- &b0 [x, x]\n{nested}"))


def test_merges_that_explode_are_refused(tmp_path: Path) -> None:
    lines = ["k0: &k0 {x: 1, y: 2}"]
    lines += [f"k{n}: &k{n} {{<<: [{', '.join([f'*k{n - 1}'] * 8)}]}}" for n in range(1, 12)]
    with pytest.raises(TopologyFileBroken, match=r"line \d merges too many members"):
        load_topology(written(tmp_path, "\n".join(lines)))


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(TopologyFileUnreadable, match=r"net\.json: there is no such file"):
        load_topology(tmp_path / "net.json")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").mkdir()
    with pytest.raises(TopologyFileUnreadable, match=r"net\.yaml: cannot be read"):
        load_topology(tmp_path / "net.yaml")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTopologyFile, match=r"must end in \.yaml, \.yml or \.json"):
        load_topology(tmp_path / "net.toml")


def test_a_file_that_is_too_large_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    with pytest.raises(TopologyFileTooLarge, match="4,194,304 bytes"):
        load_topology(written(tmp_path, b"#" * (MAX_FILE_BYTES + 1)))


def test_a_file_of_just_the_largest_size_is_read(tmp_path: Path) -> None:
    content = b'{"switches": ["s1"]}'
    path = written(tmp_path, content.ljust(MAX_FILE_BYTES), "net.json")
    assert load_topology(path).switch("s1").dpid == 1


def test_yaml_without_pyyaml_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(YamlMissing, match=r"install dzflow\[control\]"):
        load_topology(written(tmp_path, EXAMPLE))


def test_json_needs_no_pyyaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert load_topology(written(tmp_path, '{"switches": ["s1"]}', "net.json")).links == ()


LIMITED = """
switches:
- {id: s1, rate: 45, window: 10, timeout: 30, echo_every: 5.5, capacity: 2000}
- {id: s2, tables: [10, 40], groups: [1, 500], rate: 0}
- {id: s3, label: "rack 3, top"}
links: [[s1, s2], {a: s2, b: s3, lldp: false}]
"""


def test_a_switch_may_have_limits_and_a_label_of_its_own_and_a_link_no_lldp(tmp_path: Path) -> None:
    net = load_topology(written(tmp_path, LIMITED))
    first = SwitchLimits(rate=45, window=10, timeout=30, echo_every=5.5, capacity=2000)
    assert net.switch("s1").limits == first
    assert net.switch("s2").limits == SwitchLimits(tables=(10, 40), groups=(1, 500), rate=0)
    assert net.switch("s3").limits == SwitchLimits()
    assert net.switch("s3").label == "rack 3, top"
    assert net.unprobed == {net.links[1]}
    shown = dump_topology(net)
    assert shown["switches"][2] == {"id": "s3", "dpid": 3, "label": "rack 3, top"}
    assert [link.get("lldp") for link in shown["links"]] == [None, False]
    assert parse_topology(json.loads(json.dumps(shown))) == net


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("rate: -1", r"switches\[0\]: Expected `float` >= 0.0 - at `\$\.rate`"),
        ("rate: fast", r"switches\[0\]: Expected .* - at `\$\.rate`"),
        ("window: 0", r">= 1 - at `\$\.window`"),
        ("timeout: 0", r"> 0.0 - at `\$\.timeout`"),
        ("echo_every: -3", r"at `\$\.echo_every`"),
        ("capacity: 1.5", r"at `\$\.capacity`"),
        ("tables: [0, 254]", r"<= 253 - at `\$\.tables\[1\]`"),
        ("tables: 7", r"at `\$\.tables`"),
        ("tables: [9, 8]", r"tables: the first number, 9, is above the last"),
        ("groups: [5, 1]", r"groups: the first number, 5, is above the last"),
        ("groups: [1]", r"at `\$\.groups`"),
        ("speed: 1", r"unknown field `speed`"),
    ],
)
def test_a_bad_limit_is_refused_by_its_name(tmp_path: Path, given: str, said: str) -> None:
    with pytest.raises(BadTopologyFile, match=said):
        load_topology(written(tmp_path, f"switches: [{{id: s1, {given}}}]"))
