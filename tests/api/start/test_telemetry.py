"""Traces leave the service for a collector, from all its processes."""

import socket
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from api.start import telemetry
from api.start.parts import common
from api.start.settings import checks
from api.start.settings.checks import check_settings, find_hints
from api.start.settings.sections.processes import TelemetrySettings
from api.start.settings.settings import BadSettings, Part, Settings
from api.start.settings.sources import load, restore
from api.start.telemetry import open_tracer
from tests.collector import Collector, collecting
from tests.service import SCHEMA, eventually, running
from tests.support import WAIT

CALLER = "00-{:032x}-000000000000abcd-01"
SPANS = {
    ("dzflow-api", "POST /subscribe"),
    ("dzflow-api", "begin subscription"),
    ("dzflow-configurator", "slice"),
    ("dzflow-southbound", "push"),
}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last spans are not given up because the machine is busy."""
    monkeypatch.setattr(telemetry, "_CLOSE_SECONDS", WAIT)


@pytest.mark.usefixtures("patient")
async def test_spans_reach_the_collector_when_a_process_ends() -> None:
    with collecting() as collector:
        settings = TelemetrySettings(
            enabled=True, endpoint=collector.url, headers={"x-key": SecretStr("geheim")}, share=1
        )
        async with open_tracer(settings, "southbound", "southbound-1") as tracer:
            span = tracer.begin("push", {"dzflow.partition": "1.0/0"})
            assert span
            span.end()
        (found,) = collector.spans
        assert (found.service, found.name, found.parent) == ("dzflow-southbound", "push", b"")
        assert [headers["x-key"] for headers in collector.headers] == ["geheim"]


async def test_a_process_ends_although_the_collector_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"
        settings = TelemetrySettings(enabled=True, endpoint=at, share=1)
        async with open_tracer(settings, "api", "d1") as tracer:
            span = tracer.accept("GET", "")
            assert span
            span.end()


@pytest.mark.usefixtures("patient")
async def test_contexts_that_make_no_sense_are_not_sampled() -> None:
    with collecting() as collector:
        settings = TelemetrySettings(enabled=True, endpoint=collector.url, share=0)
        async with open_tracer(settings, "configurator", "c1") as tracer:
            for parent in (b"x", bytes(25), b"\xff" * 24, b"\xff" * 26):
                assert tracer.begin("slice", {}, parent) is None
            sampled = tracer.begin("slice", {}, b"\x01" * 25)
            assert sampled
            assert sampled.context[:16] == b"\x01" * 16
            sampled.end()
    assert [span.parent for span in collector.spans] == [b"\x01" * 8]


def test_a_request_is_one_trace_through_all_processes(tmp_path: Path) -> None:
    trace = 0xFEED
    with collecting() as collector:
        traced = {"enabled": True, "endpoint": collector.url, "share": 0.0}
        with running(tmp_path, telemetry=traced) as service:
            httpx.put(f"{service.url}/spaces/s", json=SCHEMA, timeout=60).raise_for_status()
            body = {"host": "h1", "space": "s", "filter": {}}
            httpx.post(f"{service.url}/advertise", json=body, timeout=60).raise_for_status()
            headers = {"traceparent": CALLER.format(trace)}
            body = {"host": "h3", "space": "s", "filter": "price > 3"}
            made = httpx.post(f"{service.url}/subscribe", json=body, headers=headers, timeout=60)
            assert made.status_code == 201
            eventually(lambda: _seen(collector, trace) == SPANS, "all processes send their spans")
    spans = {span.id: span for span in collector.of(trace)}
    push = next(span for span in spans.values() if span.name == "push")
    names = []
    while push.parent in spans:
        push = spans[push.parent]
        names.append(push.name)
    assert names == ["slice", "begin subscription", "POST /subscribe"]


def _seen(collector: Collector, trace: int) -> set[tuple[str, str]]:
    return {(span.service, span.name) for span in collector.of(trace)}


# Settings


def test_without_the_packages_traces_are_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = load(None, {"telemetry": {"enabled": True}}, {})
    check_settings(settings, None)
    for found in (lambda _: None, _missing):
        monkeypatch.setattr(checks, "find_spec", found)
        with pytest.raises(BadSettings, match=r"telemetry.enabled: .*dzflow-control\[otel\]"):
            check_settings(settings, None)
        check_settings(Settings(), None)


def _missing(name: str) -> None:
    raise ModuleNotFoundError(f"No module named {name!r}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endpoint": "collector:4318"}, "telemetry.endpoint: this is not a URL such as https://"),
        ({"endpoint": "https://u:geheim@c/v1/traces"}, "put user name and password into headers"),
        ({"share": 1.5}, "telemetry.share: "),
    ],
)
def test_settings_of_traces_that_cannot_work_are_refused(
    options: dict[str, object], said: str
) -> None:
    with pytest.raises(BadSettings) as refused:
        load(None, {"telemetry": options}, {})
    assert said in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_headers_are_secret_and_reach_the_processes_that_send_traces() -> None:
    variables = {
        "DZFLOW_TELEMETRY__ENABLED": "true",
        "DZFLOW_TELEMETRY__HEADERS": '{"authorization": "Bearer geheim"}',
        "DZFLOW_TELEMETRY__SHARE": "0.5",
    }
    settings = load(None, {}, variables)
    assert "geheim" not in repr(settings)
    assert restore(settings.revealed()) == settings
    has: dict[Part, bool] = {
        "api": True,
        "configurator": True,
        "southbound": True,
        "workers": True,
        "network": False,
    }
    for part, wanted in has.items():
        assert bool(settings.for_part(part).telemetry.headers) == wanted


def test_headers_without_tls_are_mentioned() -> None:
    options = {"enabled": True, "headers": {"authorization": "geheim"}}
    for endpoint, wanted in (
        ("http://collector.example/v1/traces", True),
        ("https://collector.example/v1/traces", False),
        ("http://localhost:4318/v1/traces", False),
    ):
        hints = find_hints(load(None, {"telemetry": {**options, "endpoint": endpoint}}, {}))
        assert any("telemetry.headers" in hint for hint in hints) == wanted


async def test_traces_are_off_unless_a_setting_turns_them_on() -> None:
    async with common.tracing(Settings(), "api", "d1") as tracer:
        assert tracer is None
    settings = load(None, {"telemetry": {"enabled": True}}, {})
    async with common.tracing(settings, "api", "d1") as tracer:
        assert tracer is not None
        assert common.environment(settings, tracer).tracer is tracer
