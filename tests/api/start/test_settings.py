"""Settings: where they come from, what is refused, and that secrets stay secret."""

from pathlib import Path

import pytest

from api.start.parts.api import api_settings, balancer_options, balancing_policy, dispatcher_options
from api.start.parts.configurator import make_configurator
from api.start.parts.southbound import southbound_options
from api.start.roles import Only
from api.start.settings.checks import check_settings, find_hints
from api.start.settings.secret_values import secrets_of
from api.start.settings.settings import BadSettings, Part, Settings
from api.start.settings.sources import find_exposed_secrets, load, restore
from api.start.settings.table import table
from configurators.streams.tls import BadCertificates
from dispatcher.changes.damping import Patience
from dispatcher.knowledge.usage import Quotas
from dispatcher.options import DispatcherOptions
from dispatcher.requests.intake.permissions import Permission
from monitor.balancing.balancer import BalancerOptions
from monitor.balancing.draining import DrainFirst
from monitor.balancing.policy import ProposedMove
from monitor.balancing.predictive import PredictivePolicy
from monitor.balancing.thesis import ThesisPolicy
from tests.monitor.balancing.situations import part, situation

EVERYWHERE = "0.0.0.0"  # noqa: S104
UNEVEN = situation(
    lambda age: [
        part("a", "c1", arrived=100, work=0.4, queued=400 - age, active=100, entries=100),
        part("b", "c1", arrived=100, work=0.4, queued=400 - age, active=100, entries=100),
        part("c", "c2", arrived=100, work=0.1, queued=100, active=100, entries=100),
    ]
)
SECRETS = {
    "DZFLOW_ETCD__PASSWORD": "etcd-geheim",
    "DZFLOW_STREAM_TOKEN": "stream-geheim-stream",
    "DZFLOW_TOKENS__OPERATOR": "one-geheim-operator,two-geheim-operator",
    "DZFLOW_TOKENS__HOSTS": '{"h1": "host-geheim-host"}',
    "DZFLOW_ONOS__PASSWORD": "onos-geheim",
}


def test_without_any_source_the_defaults_hold() -> None:
    found = load(None, {}, {})
    assert found == Settings()
    assert (found.data_plane, found.port, found.configurators) == ("emulated", 8080, 2)


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
        ({"southbound": 2, "openflow": {"role": "equal"}}, {}, "switches do not keep 2 southbound"),
        ({"openflow": {"other_traffic": "normal"}}, {}, "emulated switches carry events only"),
        (
            {"data_plane": "onos", "plan": "lpm", "openflow": {"other_traffic": "normal"}},
            {},
            "ONOS decides about other traffic",
        ),
        ({"tls": {"cert": "c.pem"}}, {}, "cert and key belong together"),
        ({"etcd": {"cert": "c.pem"}}, {}, "cert and key belong together"),
        ({"openflow": {"cert": "c.pem", "key": "k.pem"}}, {}, "cert, key and ca belong together"),
        ({"openflow": {"ca": "ca.pem"}}, {}, "cert, key and ca belong together"),
        ({"tokens": {"operator": [""]}}, {}, "a token is empty"),
        ({"tokens": {"hosts": {"h1": " geheim"}}}, {}, "blanks around it"),
        ({"tokens": {"operator": ["x"]}}, {}, "operator: a token of fewer than 16 characters"),
        ({"tokens": {"hosts": {"h1": "geheim-15-signs"}}}, {}, "hosts.h1: a token of fewer than"),
        ({}, {"DZFLOW_STREAM_TOKEN": "geheim"}, "stream_token: a token of fewer than 16"),
        ({"stream_token": ""}, {}, "stream_token: a token is empty"),
        ({"tokens": {"operator": ["a geheim with é in it"]}}, {}, "letters, digits and signs of"),
        ({"tokens": {"operator": ["a geheim with a\nbreak"]}}, {}, "letters, digits and signs of"),
        ({"tokens": {"operator": ["x"]}}, {}, "`dzflow token` prints a good one"),
        ({"streams": {"cert": "c.pem", "key": "k.pem"}}, {}, "cert, key and ca belong together"),
        (
            {"tokens": {"operator": ["geheim" * 3], "hosts": {"h1": "geheim" * 3}}},
            {},
            "two callers have the same token",
        ),
        ({"southbound": 2, "openflow": {"ports": [1]}}, {}, "give one for each"),
        ({"dispatchers": 2}, {"DZFLOW_HTTP__PROCESS_PORTS": "9001"}, "http.process_ports: there"),
        ({"switches": {"rate": -1}}, {}, "switches.rate: "),
        ({"switches": {"window": 0}}, {}, "switches.window: "),
        ({}, {"DZFLOW_SWITCHES__TIMEOUT": "0"}, "switches.timeout: "),
        ({"listen": EVERYWHERE}, {}, "set tokens.operator or tokens.hosts"),
        ({"listen": "::"}, {}, "--insecure"),
        ({"http": {"names": ["http://a.example"]}}, {}, "not a name such as dzflow.example"),
        ({"http": {"names": ["*.example"]}}, {}, "not a name such as dzflow.example"),
        ({}, {"DZFLOW_HTTP__NAMES": "a.example:80"}, "without port"),
        ({"http": {"origins": ["ops.example"]}}, {}, "not an origin such as https://ops.example"),
        ({"http": {"origins": ["https://ops.example/"]}}, {}, "not an origin such as"),
        ({"http": {"proxies": ["proxy.example"]}}, {}, "http.proxies: 'proxy.example'"),
        ({}, {"DZFLOW_HTTP__CONNECTIONS": "0"}, "http.connections: "),
        ({"balancing": {"mode": "on"}}, {}, "balancing.mode: "),
        ({"balancing": {"threshold": 1}}, {}, "balancing.threshold: "),
        ({"balancing": {"window": 9}}, {}, "twice the period, 10 s, or a shorter period"),
        ({"balancing": {"min_configurators": 17}}, {}, "above max_configurators; swap them"),
        ({"balancing": {"busy_target": 0.7}}, {}, "busy_target must be below busy_limit"),
        ({}, {"DZFLOW_BALANCING__REST": "3601"}, "balancing.rest: "),
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
        ("a.yaml", "port: [", "a.yaml: this is not YAML at line 1"),
        (
            "a.yaml",
            "tokens:\n  operator: [geheim\n  x: 'geheim",
            "a.yaml: this is not YAML at line 3",
        ),
        ("a.yaml", "stream_token: *geheim", "a.yaml: this is not YAML at line 1, column 15"),
        ("a.yaml", "stream_token: geheim\0", "a.yaml: this is not YAML"),
        ("a.toml", 'stream_token = "geheim', "a.toml: "),
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
    assert "geheim" not in str(refused.value)
    with pytest.raises(BadSettings, match="No such file"):
        load(tmp_path / "none.toml", {}, {})


@pytest.mark.parametrize("listen", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_needs_no_tokens(listen: str) -> None:
    assert load(None, {"listen": listen}, {}).listen == listen


def test_beyond_loopback_tokens_or_insecure_are_needed() -> None:
    everywhere = {"listen": EVERYWHERE}
    assert load(None, everywhere, {"DZFLOW_TOKENS__OPERATOR": "t" * 16}).tokens.given
    assert load(None, {**everywhere, "allow_anonymous": True}, {}).allow_anonymous


def test_openflow_beyond_loopback_needs_tls_or_an_explicit_flag() -> None:
    beyond = {"DZFLOW_DATA_PLANE": "external", "DZFLOW_OPENFLOW__HOST": EVERYWHERE}
    with pytest.raises(BadSettings, match=r"openflow\.allow_plain = true"):
        load(None, {}, beyond)
    assert load(None, {}, {**beyond, "DZFLOW_OPENFLOW__ALLOW_PLAIN": "true"}).openflow.allow_plain
    tls = {f"DZFLOW_OPENFLOW__{name}": "file.pem" for name in ("CERT", "KEY", "CA")}
    assert load(None, {}, beyond | tls).openflow.named_certificates
    onos = {"DZFLOW_DATA_PLANE": "onos", "DZFLOW_PLAN": "lpm"}
    assert load(None, {}, beyond | onos).data_plane == "onos"  # nobody listens there


def test_emulated_switches_of_a_ray_cluster_need_the_flag_too() -> None:
    cluster = {"DZFLOW_RAY__ADDRESS": "m1:6379", "DZFLOW_RAY__ALLOW_ANONYMOUS": "true"}
    with pytest.raises(BadSettings, match=r"openflow\.allow_plain"):
        check_settings(load(None, {}, cluster), None)
    check_settings(load(None, {}, {**cluster, "DZFLOW_OPENFLOW__ALLOW_PLAIN": "1"}), None)
    check_settings(load(None, {}, {**cluster, "DZFLOW_RAY__NODE_HOST": "127.0.0.1"}), None)


def test_emulated_switches_of_an_own_ray_beyond_loopback_need_the_flag_too() -> None:
    beyond = {"DZFLOW_RAY__NODE_HOST": "192.0.2.5"}
    with pytest.raises(BadSettings, match=r"openflow\.allow_plain"):
        check_settings(load(None, {}, beyond), None)
    check_settings(load(None, {}, {**beyond, "DZFLOW_OPENFLOW__ALLOW_PLAIN": "1"}), None)
    check_settings(load(None, {}, {}), None)


def test_a_hint_says_that_certificates_name_nobody() -> None:
    tls = {f"DZFLOW_OPENFLOW__{name}": "file.pem" for name in ("CERT", "KEY", "CA")}
    found = load(None, {}, {**tls, "DZFLOW_OPENFLOW__NAMED_CERTIFICATES": "false"})
    assert any("named_certificates" in hint for hint in find_hints(found))
    assert find_hints(load(None, {}, tls)) == []


def test_variables_of_clients_are_left_alone() -> None:
    variables = {"DZFLOW_URL": "http://x", "DZFLOW_TOKEN": "t"}
    of_tests = {"DZFLOW_EXAMPLES": "3000"}
    assert load(None, {}, variables | of_tests) == Settings()


def test_secrets_are_not_shown_but_reach_the_processes() -> None:
    found = load(None, {}, SECRETS)
    assert "geheim" not in repr(found) + str(found) + str(found.model_dump())
    assert restore(found.revealed()) == found
    assert found.revealed()["tokens"]["operator"] == [
        "one-geheim-operator",
        "two-geheim-operator",
    ]


@pytest.mark.parametrize(
    ("part", "secrets"),
    [
        ("api", {"etcd", "stream", "one", "two", "host"}),
        ("network", {"etcd"}),
        ("workers", {"etcd", "stream", "onos"}),
        ("configurator", {"etcd", "stream"}),
        ("southbound", {"etcd", "stream", "onos"}),
    ],
)
def test_each_process_gets_the_secrets_that_it_needs(part: Part, secrets: set[str]) -> None:
    found = load(None, {"listen": EVERYWHERE}, SECRETS)
    told = restore(found.for_part(part).revealed())
    assert {secret.partition("-")[0] for secret in secrets_of(told) if secret} == secrets
    assert told.etcd == found.etcd


def test_a_file_with_secrets_that_others_can_read_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('port = 1\n[tokens]\noperator = ["a token of the operator"]\n')
    path.chmod(0o600)
    settings = load(path, {}, {})
    assert find_exposed_secrets(path, settings) is None
    path.chmod(0o644)
    assert "everybody can read" in str(find_exposed_secrets(path, settings))
    path.write_text("port = 1\n")
    assert find_exposed_secrets(path, load(path, {}, SECRETS)) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ray": {"address": "192.0.2.1:6379"}}, "streams between machines are not encrypted"),
        ({"ray": {"node_host": "192.0.2.1"}}, "streams between machines are not encrypted"),
        ({"data_plane": "onos", "plan": "lpm"}, "the one that everybody knows"),
        (
            {"data_plane": "onos", "plan": "lpm", "onos": {"url": "http://m1:8181"}},
            "onos.password travels unencrypted",
        ),
    ],
)
def test_what_is_open_is_said(options: dict[str, object], said: str) -> None:
    assert any(said in hint for hint in find_hints(load(None, options, {})))
    assert not any(said in hint for hint in find_hints(Settings()))


def test_keys_that_others_can_read_are_reported(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.touch(0o600)
    for section in ({"tls": {"cert": key, "key": key}}, {"ray": {"token_path": key}}):
        key.chmod(0o600)
        assert find_hints(load(None, section, {})) == []
        key.chmod(0o640)
        assert f"its group can read {key}" in find_hints(load(None, section, {}))[0]


def test_a_ray_cluster_without_a_token_is_refused_beyond_loopback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)

    def check(only: Only | None = None, **ray: object) -> None:
        check_settings(load(None, {"ray": ray, "openflow": {"allow_plain": True}}, {}), only)

    for address in ("192.0.2.1:6379", "m1:6379", "[2001:db8::1]:6379", "ray://m1:10001", "auto"):
        with pytest.raises(BadSettings, match=r"ray\.token_path: .*ray\.allow_anonymous"):
            check(address=address)
    check(address="127.0.0.1:6379")
    check(address="[::1]:6379")
    check(address="m1:6379", allow_anonymous=True)
    check(address="m1:6379", token_path=tmp_path / "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a token that Ray itself reads")
    check(address="m1:6379")


def test_each_role_needs_the_settings_that_it_works_with() -> None:
    shared = {"etcd": {"endpoints": "127.0.0.1:2379"}, "stream_token": "t" * 16}

    def check(only: Only | None, **settings: object) -> None:
        check_settings(load(None, {**shared, **settings}, {}), only)

    without_ray: tuple[Only, ...] = ("southbound", "configurators")
    for only in without_ray:
        with pytest.raises(BadSettings, match=r'southbound_placed = "outside" for all parts'):
            check(only)
    with pytest.raises(BadSettings, match=r"southbound_placed: .* leave it out"):
        check(None, southbound_placed="outside")
    with pytest.raises(BadSettings, match=r"ray\.address: .* on a Ray cluster"):
        check("configurators", southbound_placed="outside")
    with pytest.raises(BadSettings, match=r"data_plane: .* those switches are yours"):
        check("network", data_plane="external")
    others: tuple[Only, ...] = ("api", "dashboard", "workers", "southbound", "network")
    for each in others:
        check(each, southbound_placed="outside")
    check("configurators", southbound_placed="outside", ray={"address": "ray://127.0.0.1:10001"})


def test_a_range_of_ports_is_written_with_its_first_and_last() -> None:
    def ports(text: str) -> tuple[int, int] | None:
        return load(None, {}, {"DZFLOW_STREAMS__PORTS": text}).streams.ports

    assert ports("9650-9681") == (9650, 9681)
    assert ports("9650") == (9650, 9650)
    for wrong in ("", "9681-9650", "0-9", "1-70000", "a-b", "1,2"):
        with pytest.raises(BadSettings, match=r"streams\.ports"):
            ports(wrong)


def test_certificates_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("nothing")
    files = dict.fromkeys(("cert", "key", "ca"), tmp_path / "c.pem")
    with pytest.raises(BadCertificates, match=r"c\.pem holds no certificate"):
        check_settings(load(None, {"streams": files}, {}), None)
    files["cert"] = tmp_path / "none.pem"
    with pytest.raises(BadCertificates, match="No such file"):
        check_settings(load(None, {"streams": files}, {}), None)


def test_times_reach_the_parts_that_they_are_for() -> None:
    given = {
        "DZFLOW_SLICES__AT_ONCE": "7",
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
    settings = load(None, {"mode": "sea", "stream_token": "t" * 16}, given)
    asks = dispatcher_options(settings, "n")
    assert (asks.lease_ttl, asks.grace, asks.window_per_host) == (4, 0.5, 15)
    assert asks.patience == Patience(down_after=8, absent_after=12, back_after=13, longest=14)
    found = make_configurator(settings, "c1", "n", "127.0.0.1:0").options
    assert (found.at_once, found.patience_s, found.lease_s) == (7, 0.25, 3)
    assert (found.take_over_after_s, found.take_over_first_s) == (1.5, 11)
    assert southbound_options(settings, "n").ttl == 6


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
    asks = dispatcher_options(load(None, {}, given), "n")
    assert (asks.work, asks.work_per_host) == (None, 20.0)
    assert (asks.max_filter, asks.max_record, asks.max_page) == (2000, 5000, 3000)
    assert asks.quotas == Quotas(7, 256 << 20, 2_000_000, None)
    assert dispatcher_options(Settings(), "n").quotas == DispatcherOptions().quotas


RULES = """
[tokens]
hosts = { h1 = "geheim, und lang genug" }

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
    assert dispatcher_options(settings, "n").permissions == wanted
    again = restore(settings.revealed())
    assert dispatcher_options(again, "n").permissions == wanted
    assert dispatcher_options(Settings(), "n").permissions == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RULES.replace("price < 500", "price <"), r"permissions.rules\[0\].subscribe: expected"),
        (RULES.replace("h1 = ", "").replace('"geheim, und lang genug"', ""), "set tokens.hosts"),
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
    found = southbound_options(load(None, {}, given), "n")
    assert (found.rate, found.window, found.queue) == (500, 21, 22)
    assert (found.timeout, found.echo_every, found.audit_every) == (2.5, 3.5, 4.5)
    assert found.onos_options is not None
    assert (found.onos_options.queue, found.onos_options.audit_every) == (22, 4.5)
    assert southbound_options(load(None, {}, {}), "n").rate is None


def test_limits_of_connections_reach_the_api() -> None:
    given = {
        "DZFLOW_HTTP__ORIGINS": "https://ops.example",
        "DZFLOW_HTTP__PROXIES": "192.0.2.1,2001:db8::/32",
        "DZFLOW_HTTP__CONNECTIONS": "31",
        "DZFLOW_HTTP__ADDRESS_CONNECTIONS": "32",
        "DZFLOW_HTTP__RESERVE": "33",
        "DZFLOW_HTTP__HEAD_TIMEOUT": "34",
        "DZFLOW_HTTP__BODY_TIMEOUT": "35",
        "DZFLOW_HTTP__SEND_TIMEOUT": "36",
        "DZFLOW_HTTP__IDLE_TIMEOUT": "37",
    }
    found = api_settings(load(None, {}, given))
    assert found.origins == ("https://ops.example",)
    assert found.proxies == ("192.0.2.1", "2001:db8::/32")
    assert (found.max_connections, found.max_address_connections, found.reserve) == (31, 32, 33)
    assert (found.head_timeout, found.body_timeout, found.send_timeout) == (34, 35, 36)
    assert found.idle_timeout == 37


@pytest.mark.parametrize(
    ("options", "names", "any_address"),
    [
        ({}, ("127.0.0.1",), False),
        ({"http": {"names": ["a.example"]}}, ("127.0.0.1", "a.example"), False),
        ({"tokens": {"operator": ["a token of tests"]}}, (), False),
        (
            {"tokens": {"operator": ["a token of tests"]}, "http": {"names": ["a.example"]}},
            ("127.0.0.1", "a.example"),
            False,
        ),
        ({"listen": "big.example", "allow_anonymous": True}, ("big.example",), True),
    ],
)
def test_the_names_of_the_api_follow_from_where_it_listens(
    options: dict[str, object], names: tuple[str, ...], any_address: bool
) -> None:
    found = api_settings(load(None, options, {}))
    assert (found.names, found.any_address) == (names, any_address)


def test_settings_of_balancing_reach_the_balancer() -> None:
    given = {
        "DZFLOW_BALANCING__MODE": "apply",
        "DZFLOW_BALANCING__PERIOD": "2",
        "DZFLOW_BALANCING__WINDOW": "11",
        "DZFLOW_BALANCING__MIN_CONFIGURATORS": "3",
        "DZFLOW_BALANCING__MAX_CONFIGURATORS": "5",
        "DZFLOW_BALANCING__BUSY_TARGET": "0.3",
        "DZFLOW_BALANCING__BUSY_LIMIT": "0.4",
    }
    found = balancer_options(load(None, {}, given))
    assert (found.mode, found.policy, found.period) == ("apply", "predictive", 2)
    sizing = found.sizing
    assert (sizing.smallest, sizing.largest, sizing.forecast.window) == (3, 5, 11)
    assert (sizing.target, sizing.grow_at) == (0.3, 0.4)


def test_the_defaults_of_balancing_are_those_of_the_policies() -> None:
    defaults = load(None, {}, {})
    assert balancer_options(defaults) == BalancerOptions()
    assert balancing_policy(defaults).propose(UNEVEN) == PredictivePolicy().propose(UNEVEN)
    thesis = balancing_policy(load(None, {"balancing": {"policy": "thesis"}}, {}))
    assert thesis.propose(UNEVEN) == DrainFirst(ThesisPolicy()).propose(UNEVEN)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("imbalance", 0.9),
        ("floor", 1.0),
        ("horizon", 0.01),
        ("move_ms", 1e6),
        ("record_us", 1e6),
        ("entry_us", 1e6),
        ("window", 100.0),
    ],
)
def test_each_setting_of_our_policy_can_keep_a_partition_where_it_is(
    option: str, value: float
) -> None:
    assert balancing_policy(load(None, {}, {})).propose(UNEVEN)
    settings = load(None, {"balancing": {option: value}}, {})
    assert balancing_policy(settings).propose(UNEVEN) == []


def test_the_threshold_of_the_thesiss_policy_is_a_setting() -> None:
    def proposals(threshold: float) -> list[ProposedMove]:
        options = {"balancing": {"policy": "thesis", "threshold": threshold}}
        return balancing_policy(load(None, options, {})).propose(UNEVEN)

    assert proposals(1.2)
    assert not proposals(1.9)


def test_with_tokens_the_openness_of_the_emulated_network_is_mentioned() -> None:
    tokens = {"tokens": {"operator": ["a token of tests"]}}
    hints = find_hints(load(None, tokens, {}))
    assert any("emulated network" in hint for hint in hints)
    for options in ({}, {**tokens, "data_plane": "external"}):
        assert not any("emulated network" in hint for hint in find_hints(load(None, options, {})))


def test_the_documentation_lists_all_settings() -> None:
    page = Path("docs/reference/configuration.md").read_text()
    assert table() in page, (
        "run: .venv/bin/python -m api.start.settings.table docs/reference/configuration.md"
    )
