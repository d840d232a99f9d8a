"""What is refused, and what is remarked upon, before anything is started."""

from pathlib import Path

import pytest

from api.start.parts.api import dispatcher_options, job_options
from api.start.parts.southbound import southbound_options
from api.start.settings import checks
from api.start.settings.checks import check_settings, find_hints
from api.start.settings.settings import BadSettings, Part, Settings
from api.start.settings.sources import load, restore

WITH_PASSWORD = {"user": "dzflow", "password": "geheim"}


def settings(**etcd: object) -> Settings:
    return load(None, {"etcd": etcd}, {})


@pytest.mark.parametrize("endpoint", ["m1:2379", "10.0.0.1:2379", "[fe80::1]:2379", "dns:///m1:1"])
@pytest.mark.parametrize("login", [WITH_PASSWORD, {}])
def test_etcd_on_another_machine_needs_tls_or_a_word(
    endpoint: str, login: dict[str, object]
) -> None:
    found = settings(endpoints=["127.0.0.1:1", endpoint], **login)
    with pytest.raises(BadSettings, match=r"^etcd\.ca: .*etcd\.plain = true") as refused:
        check_settings(found, None)
    assert endpoint in str(refused.value)
    assert ("password" in str(refused.value)) == bool(login)
    assert "geheim" not in str(refused.value)
    trusted = settings(endpoints=[endpoint], plain=True, **login)
    check_settings(trusted, None)
    assert any("without TLS" in hint for hint in find_hints(trusted))


@pytest.mark.parametrize(
    "etcd",
    [
        {},
        {"endpoints": ["127.0.0.1:2379", "localhost:1", "[::1]:1"], **WITH_PASSWORD},
        {"endpoints": ["unix:/run/etcd/socket"], **WITH_PASSWORD},
        {"endpoints": ["m1:2379"], "ca": "ca.pem", **WITH_PASSWORD},
        {"endpoints": ["m1:2379"], "cert": "c.pem", "key": "k.pem"},
    ],
)
def test_etcd_on_this_machine_or_with_tls_is_accepted(etcd: dict[str, object]) -> None:
    found = settings(**etcd)
    check_settings(found, None)
    assert find_hints(found) == []


def test_workers_elsewhere_need_an_etcd_that_they_can_reach() -> None:
    ray = {"ray": {"address": "127.0.0.1:6379"}}
    (hint,) = find_hints(load(None, ray, {}))
    assert "etcd.endpoints" in hint
    assert find_hints(load(None, {**ray, "etcd": {"endpoints": ["127.0.0.1:1"]}}, {})) == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("traces", "traces.to: this is no address; write file:///… for a folder"),
        ("nosuch://u:geheim@b/f", "traces.to: pyarrow has no file system for nosuch://…; it has"),
        ("s3://u:geheim@b/a b", "traces.to: pyarrow does not understand s3://b/a b: "),
    ],
)
def test_an_address_for_traces_that_cannot_work_is_refused(address: str, said: str) -> None:
    with pytest.raises(BadSettings) as refused:
        check_settings(load(None, {"traces": {"to": address}}, {}), None)
    assert said in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_the_address_for_traces_is_secret_and_reaches_the_api_only() -> None:
    address = "s3://KEY:geheim@bucket/folder"
    found = load(None, {}, {"DZFLOW_TRACES__TO": address})
    check_settings(found, None)
    assert "geheim" not in repr(found)
    assert restore(found.revealed()) == found
    assert dispatcher_options(found.for_part("api"), "n1").traces == address
    others: tuple[Part, ...] = ("network", "workers", "configurator", "southbound")
    assert {found.for_part(part).traces.to for part in others} == {None}


def test_traces_are_in_the_data_folder_by_default() -> None:
    found = load(None, {"data_dir": "somewhere"}, {})
    assert dispatcher_options(found, "n1").traces == "somewhere/traces"


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ({"every": 5}, "jobs: every: take at least 60 seconds"),
        (
            {"every": 600, "time_limit": 601},
            "jobs: time_limit: a run must end before the next one; take at most 600",
        ),
        ({"mode": "guess"}, "jobs.mode: "),
    ],
)
def test_a_schedule_that_cannot_work_is_refused(jobs: dict[str, object], said: str) -> None:
    with pytest.raises(BadSettings) as refused:
        load(None, {"jobs": jobs}, {})
    assert said in str(refused.value)


def test_a_schedule_needs_spark_where_the_api_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"jobs": {"every": 3600}, "stream_token": "x" * 40, "etcd": {"endpoints": ["[::1]:1"]}}
    found = load(None, given, {})
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    check_settings(found, "workers")
    with pytest.raises(BadSettings, match=r"jobs.every: PySpark is missing; run `make spark`"):
        check_settings(found, "api")


def test_the_job_reads_what_the_service_writes(tmp_path: Path) -> None:
    given = {"data_dir": str(tmp_path), "jobs": {"every": 3600, "mode": "apply"}}
    found = job_options(load(None, given, {}))
    assert found is not None
    assert (found.traces, found.folder) == (str(tmp_path / "traces"), tmp_path / "logs" / "jobs")
    assert (found.every, found.mode, found.longest) == (3600.0, "apply", 1800.0)
    often = job_options(load(None, {"jobs": {"every": 900}}, {}))
    assert often is not None
    assert often.longest == 900.0, "a run ends before the next one"
    short = job_options(load(None, {"jobs": {"every": 900, "time_limit": 60}}, {}))
    assert short is not None
    assert short.longest == 60.0
    remote = job_options(load(None, {**given, "traces": {"to": "s3://K:geheim@b/f?region=x"}}, {}))
    assert remote is not None
    assert remote.traces == "s3a://b/f"
    assert job_options(Settings()) is None


def test_other_traffic_in_a_network_with_loops_is_remarked_upon_and_refused_in_the_lab(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_topology(data_plane: str, **given: str) -> Settings:
        openflow = {"other_traffic": "normal"}
        return load(None, {"data_plane": data_plane, "openflow": openflow, **given}, {})

    monkeypatch.setattr(checks, "missing_prerequisites", list)
    assert not find_hints(with_topology("external"))[1:]  # the stored network is not known yet
    assert not find_hints(with_topology("external", topology="tree:2,2"))[1:]
    hints = find_hints(with_topology("external", topology="ring:3"))
    assert any("docs/how-to/other-traffic.md" in hint for hint in hints)
    check_settings(with_topology("ovs", topology="tree:2,2"), None)
    for given in ({"topology": "ring:3"}, {}):  # the default has loops, too
        with pytest.raises(BadSettings, match=r"^openflow\.other_traffic: .*tree:2,2"):
            check_settings(with_topology("ovs", **given), None)


@pytest.mark.parametrize(("options", "most"), [({}, None), ({"openflow": {"role": "equal"}}, 1)])
def test_with_the_role_equal_there_is_one_southbound_process(
    options: dict[str, object], most: int | None
) -> None:
    limit = dispatcher_options(load(None, options, {}), "n1").southbound_limit
    assert (limit and limit.most) == most


@pytest.mark.parametrize("hosts", ["propose", "accept"])
def test_hosts_are_learned_only_where_links_are_found(hosts: str) -> None:
    for given in (
        {"data_plane": "onos", "plan": "lpm"},
        {"data_plane": "external", "discovery": {"hosts": hosts, "links": "off"}},
        {"data_plane": "emulated"},  # which finds no links unless it is told to
    ):
        found = load(None, {"discovery": {"hosts": hosts}, **given}, {})
        with pytest.raises(BadSettings, match=r"^discovery\.hosts: "):
            check_settings(found, None)
    for given in (
        {"data_plane": "external"},
        {"data_plane": "emulated", "discovery": {"hosts": hosts, "links": "on"}},
    ):
        found = load(None, {"discovery": {"hosts": hosts}, **given}, {})
        check_settings(found, None)
        assert dispatcher_options(found, "").hosts == hosts
        assert southbound_options(found, "").learn_hosts
    assert not southbound_options(load(None, {"data_plane": "external"}, {}), "").learn_hosts
