"""Settings: where they come from, what is refused, and that secrets stay secret."""

from pathlib import Path

import pytest

from api.start import parts
from api.start.settings.checks import check_settings
from api.start.settings.settings import BadSettings, Settings
from api.start.settings.sources import load, restore
from api.start.settings.table import table
from dispatcher.changes.damping import Patience
from dispatcher.knowledge.usage import Quotas
from dispatcher.options import DispatcherOptions
from dispatcher.requests.intake.permissions import Permission

EVERYWHERE = "0.0.0.0"  # noqa: S104
SECRETS = {
    "DZFLOW_ETCD__PASSWORD": "etcd-geheim",
    "DZFLOW_STREAM_TOKEN": "stream-geheim",
    "DZFLOW_TOKENS__OPERATOR": "one-geheim,two-geheim",
    "DZFLOW_TOKENS__HOSTS": '{"h1": "host-geheim"}',
    "DZFLOW_ONOS__PASSWORD": "onos-geheim",
}


def test_without_any_source_the_defaults_hold() -> None:
    found = load(None, {}, {})
    assert found == Settings()
    assert (found.data_plane, found.port, found.configurators) == ("emulated", 8080, 2)
    assert found.partition_count == 8


@pytest.mark.parametrize("name", ["s.toml", "s.yaml"])
def test_a_file_is_overridden_by_variables_and_these_by_options(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.endswith("toml"):
        path.write_text(
            'port = 1\ntrees = 2\nplan = "lpm"\n[etcd]\nendpoints = ["a:1"]\nuser = "u"'
        )
    else:
        path.write_text("port: 1\ntrees: 2\nplan: lpm\netcd: {endpoints: ['a:1'], user: u}")
    variables = {"DZFLOW_PORT": "2", "DZFLOW_TREES": "3", "DZFLOW_ETCD__ENDPOINTS": "b:1, c:2"}
    found = load(path, {"port": 4}, variables)
    assert (found.port, found.trees, found.plan) == (4, 3, "lpm")
    assert (found.etcd.endpoints, found.etcd.user) == (("b:1", "c:2"), "u")
    assert found.model_fields_set >= {"port", "trees", "plan", "etcd"}
    assert "topology" not in found.model_fields_set


@pytest.mark.parametrize(
    ("options", "variables", "said"),
    [
        ({"prt": 1}, {}, "prt: there is no such setting; did you mean port?"),
        ({"etcd": {"endpoint": []}}, {}, "did you mean etcd.endpoints?"),
        ({}, {"DZFLOW_TOPOLGY": "x"}, "did you mean DZFLOW_TOPOLOGY?"),
        ({}, {"DZFLOW_ETCD__PASWORD": "geheim"}, "did you mean etcd.password?"),
        ({}, {"DZFLOW_QQQQ": "geheim"}, "docs/reference/configuration.md"),
        ({"port": 65536}, {}, "port: "),
        ({}, {"DZFLOW_CONFIGURATORS": "many"}, "configurators: "),
        ({}, {"DZFLOW_TOKENS__HOSTS": "geheim"}, "tokens.hosts: this is not JSON"),
        ({"data_plane": "onos"}, {}, "prefixes only; choose lpm"),
        ({"tls": {"cert": "c.pem"}}, {}, "cert and key belong together"),
        ({"etcd": {"cert": "c.pem"}}, {}, "cert and key belong together"),
        ({"openflow": {"cert": "c.pem", "key": "k.pem"}}, {}, "cert, key and ca belong together"),
        ({"openflow": {"ca": "ca.pem"}}, {}, "cert, key and ca belong together"),
        ({"tokens": {"operator": [""]}}, {}, "a token is empty"),
        ({"tokens": {"hosts": {"h1": " geheim"}}}, {}, "blanks around it"),
        (
            {"tokens": {"operator": ["geheim"], "hosts": {"h1": "geheim"}}},
            {},
            "two callers have the same token",
        ),
        ({"southbound": 2, "openflow": {"ports": [1]}}, {}, "give one for each"),
        ({"switches": {"rate": -1}}, {}, "switches.rate: "),
        ({"switches": {"window": 0}}, {}, "switches.window: "),
        ({}, {"DZFLOW_SWITCHES__TIMEOUT": "0"}, "switches.timeout: "),
        ({"listen": EVERYWHERE}, {}, "set tokens.operator or tokens.hosts"),
        ({"listen": "::"}, {}, "--insecure"),
    ],
)
def test_invalid_settings_are_refused_by_name(
    options: dict[str, object], variables: dict[str, str], said: str
) -> None:
    with pytest.raises(BadSettings) as refused:
        load(None, options, variables)
    assert said in str(refused.value)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "port = ", "a.toml: "),
        ("a.yaml", "port: [", "a.yaml: "),
        ("a.yaml", "- 1", "`name: value`"),
        ("a.ini", "", "name it .toml, .yaml or .yml"),
        ("a.toml", "ports = 1", "did you mean port?"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadSettings) as refused:
        load(tmp_path / name, {}, {})
    assert said in str(refused.value)
    with pytest.raises(BadSettings, match="No such file"):
        load(tmp_path / "none.toml", {}, {})


@pytest.mark.parametrize("listen", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_needs_no_tokens(listen: str) -> None:
    assert load(None, {"listen": listen}, {}).listen == listen


def test_beyond_loopback_tokens_or_insecure_are_needed() -> None:
    everywhere = {"listen": EVERYWHERE}
    assert load(None, everywhere, {"DZFLOW_TOKENS__OPERATOR": "t"}).tokens.given
    assert load(None, {**everywhere, "allow_anonymous": True}, {}).allow_anonymous


def test_variables_of_clients_are_left_alone() -> None:
    variables = {"DZFLOW_URL": "http://x", "DZFLOW_TOKEN": "t", "DZFLOW_EXAMPLES": "3000"}
    assert load(None, {}, variables) == Settings()


def test_secrets_are_not_shown_but_reach_the_processes() -> None:
    found = load(None, {}, SECRETS)
    assert "geheim" not in repr(found) + str(found) + str(found.model_dump())
    assert restore(found.revealed()) == found
    assert found.revealed()["tokens"]["operator"] == ["one-geheim", "two-geheim"]


def test_workers_do_not_get_the_tokens_of_callers() -> None:
    found = load(None, {"listen": EVERYWHERE}, SECRETS)
    told = restore(found.for_workers().revealed())
    assert not told.tokens.given
    assert (told.etcd, told.stream_token, told.onos) == (found.etcd, found.stream_token, found.onos)


def test_times_reach_the_parts_that_they_are_for() -> None:
    given = {
        "DZFLOW_SEA__AT_ONCE": "7",
        "DZFLOW_SEA__PATIENCE_MS": "250",
        "DZFLOW_TIMES__CONFIGURATOR_LEASE": "3",
        "DZFLOW_TIMES__DISPATCHER_LEASE": "4",
        "DZFLOW_TIMES__TAKE_OVER_AFTER": "1.5",
        "DZFLOW_TIMES__SWITCH_LOST_AFTER": "8",
        "DZFLOW_TIMES__GRACE": "0.5",
        "DZFLOW_TIMES__SOUTHBOUND_LEASE": "6",
        "DZFLOW_TIMES__TAKE_OVER_FIRST": "11",
        "DZFLOW_TIMES__SWITCH_ABSENT_AFTER": "12",
        "DZFLOW_TIMES__BACK_AFTER": "13",
        "DZFLOW_TIMES__BACK_AFTER_LONGEST": "14",
        "DZFLOW_LIMITS__HOST_WINDOW": "15",
    }
    settings = load(None, {"mode": "sea", "stream_token": "t"}, given)
    asks = parts.dispatcher_options(settings, "n")
    assert (asks.lease_ttl, asks.grace, asks.window_per_host) == (4, 0.5, 15)
    assert asks.patience == Patience(down_after=8, absent_after=12, back_after=13, longest=14)
    found = parts.configurator(settings, "c1", "n", "127.0.0.1:0").options
    assert (found.at_once, found.patience_s, found.lease_s) == (7, 0.25, 3)
    assert (found.take_over_after_s, found.take_over_first_s) == (1.5, 11)
    assert parts.southbound_options(settings, "n").ttl == 6


def test_limits_of_callers_reach_the_dispatcher() -> None:
    given = {
        "DZFLOW_LIMITS__WORK": "0",
        "DZFLOW_LIMITS__HOST_WORK": "20",
        "DZFLOW_LIMITS__FILTER": "2000",
        "DZFLOW_LIMITS__RECORD": "5000",
        "DZFLOW_LIMITS__PAGE": "3000",
        "DZFLOW_LIMITS__HOST_RECORDS": "7",
        "DZFLOW_LIMITS__SPACE_BYTES": "0",
    }
    asks = parts.dispatcher_options(load(None, {}, given), "n")
    assert (asks.work, asks.work_per_host) == (None, 20.0)
    assert (asks.max_filter, asks.max_record, asks.max_page) == (2000, 5000, 3000)
    assert asks.quotas == Quotas(7, 256 << 20, 2_000_000, None)
    assert parts.dispatcher_options(Settings(), "n").quotas == DispatcherOptions().quotas


RULES = """
[tokens]
hosts = { h1 = "geheim" }

[[permissions.rules]]
hosts = "h1"
spaces = "stocks"
subscribe = "price < 500"
advertise = true
"""


def test_permissions_reach_the_dispatcher(tmp_path: Path) -> None:
    file = tmp_path / "dzflow.toml"
    file.write_text(RULES)
    settings = load(file, {}, {})
    check_settings(settings, None)
    wanted = (Permission("h1", "stocks", "price < 500", True),)
    assert parts.dispatcher_options(settings, "n").permissions == wanted
    again = restore(settings.revealed())
    assert parts.dispatcher_options(again, "n").permissions == wanted
    assert parts.dispatcher_options(Settings(), "n").permissions == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RULES.replace("price < 500", "price <"), r"permissions.rules\[0\].subscribe: expected"),
        (RULES.replace("h1 = ", "").replace('"geheim"', ""), "set tokens.hosts"),
    ],
)
def test_permissions_that_cannot_work_are_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "dzflow.toml"
    file.write_text(text)
    with pytest.raises(BadSettings, match=said):
        check_settings(load(file, {}, {}), None)


def test_the_treatment_of_switches_reaches_the_southbound_process() -> None:
    given = {
        "DZFLOW_SWITCHES__RATE": "500",
        "DZFLOW_SWITCHES__WINDOW": "21",
        "DZFLOW_SWITCHES__QUEUE": "22",
        "DZFLOW_SWITCHES__TIMEOUT": "2.5",
        "DZFLOW_SWITCHES__ECHO_EVERY": "3.5",
        "DZFLOW_SWITCHES__AUDIT_EVERY": "4.5",
    }
    found = parts.southbound_options(load(None, {}, given), "n")
    assert (found.rate, found.window, found.queue) == (500, 21, 22)
    assert (found.timeout, found.echo_every, found.audit_every) == (2.5, 3.5, 4.5)
    assert found.onos_options is not None
    assert (found.onos_options.queue, found.onos_options.audit_every) == (22, 4.5)
    assert parts.southbound_options(load(None, {}, {}), "n").rate is None


def test_the_documentation_lists_all_settings() -> None:
    page = Path("docs/reference/configuration.md").read_text()
    assert table() in page, (
        "run: .venv/bin/python -m api.start.settings_table docs/reference/configuration.md"
    )
