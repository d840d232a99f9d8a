"""`dzflow publish`, `listen`, `space` and the commands for records, run as processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import run_dzflow
from tests.dzflow.sdk.fake_service import FakeService
from tests.dzflow.sdk.support import at, prices
from tests.support import WAIT

COMMAND = Path(sys.executable).parent / "dzflow"
EVENT = '{"price": 500, "volume": 10}'


def environment(service: FakeService | None) -> dict[str, str]:
    url = service.url if service else "http://127.0.0.1:1"
    return {**os.environ, "COLUMNS": "80", "DZFLOW_URL": url}


def run(
    service: FakeService | None, *words: str, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    return run_dzflow(*words, stdin=stdin, env=environment(service))


def listening(service: FakeService, *words: str) -> "subprocess.Popen[str]":
    """A listener that has subscribed."""
    child = subprocess.Popen(
        [COMMAND, "listen", "--host", "h3", "--space", "stocks", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(service),
    )
    assert child.stderr
    assert child.stderr.readline().startswith("listening as s")
    return child


def test_listen_prints_what_publish_sends(service: FakeService) -> None:
    with listening(service, "--filter", "price > 100", "--count", "3", "--json") as listener:
        done = run(service, "publish", "--host", "h1", "--space", "stocks", EVENT)
        assert (done.returncode, done.stderr) == (0, "published 1 event\n")
        lines = "".join(f'{{"price": {price}, "volume": 1}}\n\n' for price in (50, 200, 300))
        done = run(service, "publish", "--host", "h1", "--space", "stocks", "-", stdin=lines)
        assert (done.returncode, done.stderr) == (0, "published 3 events\n")
        out, _ = listener.communicate(timeout=WAIT)
        assert listener.returncode == 0
    assert [json.loads(line)["price"] for line in out.splitlines()] == [500, 200, 300]
    assert service.records == {}
    filters = [body["filter"] for path, body in service.bodies if path == "/advertise"]
    assert filters == [{"price": {"eq": 500}, "volume": {"eq": 10}}, {}]


def test_listen_shows_control_characters_as_escapes(service: FakeService) -> None:
    service.put_space("texts", {"attributes": [{"name": "text", "type": "string"}]})
    evil = "\x1b[2Jgone\r\nfake\u202e"
    for words, shown in (((), r"text=\x1b[2Jgone\r\nfake\u202e"), (("--json",), None)):
        options = ["--space", "texts", "--filter", "text != 'x'", "--count", "1"]
        with listening(service, *options, *words) as listener:
            event = json.dumps({"text": evil})
            done = run(service, "publish", "--host", "h1", "--space", "texts", event)
            assert done.returncode == 0
            out, _ = listener.communicate(timeout=WAIT)
        assert out.removesuffix("\n").isprintable()
        if shown:
            assert out == f"{shown}\n"
        else:
            assert json.loads(out) == {"text": evil}


def test_publish_uses_the_advertisements_of_the_host(service: FakeService) -> None:
    advertise = ["advertise", "--host", "h1", "--space", "stocks", "--filter", "price > 400"]
    done = run(service, *advertise)
    assert done.returncode == 0
    with at(service, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", {})
        assert run(service, "publish", "--host", "h1", "--space", "stocks", EVENT).returncode == 0
        assert prices(subscription, 1) == [500]
    assert service.count("POST", "/advertise") == 1
    assert run(service, "unadvertise", done.stdout.strip()).returncode == 0
    assert service.records == {}


def test_records_are_created_and_ended(service: FakeService) -> None:
    done = run(service, "subscribe", "--host", "h1", "--space", "stocks", "--filter", "price > 4")
    assert done.returncode == 0
    (record,) = service.records.values()
    assert done.stdout == f"{record['id']}\n"
    assert (record["host"], record["filter"], record["ttl"]) == ("h1", "price > 4", None)
    assert run(service, "unsubscribe", record["id"]).returncode == 0
    assert service.records == {}
    done = run(service, "explain", "--space", "stocks", "--filter", "price > 4")
    assert done.returncode == 0
    assert "unwanted: 0.0%" in done.stdout
    done = run(service, "explain", "--space", "stocks", "--filter", "price > 4", "--json")
    assert json.loads(done.stdout)["flows"] == []


def test_spaces_are_created_and_listed(service: FakeService, tmp_path: Path) -> None:
    file = tmp_path / "space"
    file.write_text("attributes:\n- {name: level, type: int, min: 0, max: 9}\n")
    done = run(service, "space", "put", "from-yaml", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == service.control.spaces["from-yaml"]
    schema = '{"attributes": [{"name": "colour", "type": "enum", "values": ["x", "y"]}]}'
    assert run(service, "space", "put", "from-json", "-", stdin=schema).returncode == 0
    shown = run(service, "space", "list").stdout
    assert all(name in shown for name in ("from-yaml", "level (int)", "colour (enum)"))
    found = json.loads(run(service, "space", "list", "--json").stdout)
    assert [space["name"] for space in found["items"]] == ["stocks", "from-yaml", "from-json"]


@pytest.mark.parametrize(
    ("file", "stdin", "message"),
    [
        ("no-such-file", "", "cannot read no-such-file: No such file"),
        ("-", "{", "standard input is neither JSON nor YAML"),
        ("-", "[]", "standard input does not contain an object such as"),
        ("-", "", "standard input does not contain an object such as"),
    ],
)
def test_an_invalid_schema_is_an_error(
    service: FakeService, file: str, stdin: str, message: str
) -> None:
    done = run(service, "space", "put", "new", file, stdin=stdin)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert "new" not in service.control.spaces


def test_records_are_listed(service: FakeService) -> None:
    with at(service, "h1") as here, at(service, "h3") as there:
        ids = [here.subscribe("stocks", "price > 4").id, there.subscribe("stocks", {}).id]
        advertised = here.advertise("stocks", {}).id
        shown = run(service, "subscriptions", "--space", "stocks").stdout
        assert all(word in shown for word in (*ids, "price > 4", "{}", "active"))
        assert advertised not in shown
        shown = run(service, "subscriptions", "--host", "h3").stdout
        assert ids[0] not in shown
        assert ids[1] in shown
        found = json.loads(run(service, "advertisements", "--json").stdout)
        assert [record["id"] for record in found["items"]] == [advertised]


def test_listen_fails_if_too_few_events_arrive(service: FakeService) -> None:
    words = ["--filter", "price > 1", "--count", "2", "--timeout", "0.3"]
    with listening(service, *words) as listener:
        out, err = listener.communicate(timeout=WAIT)
    assert (listener.returncode, out, err) == (1, "", "0 of 2 events arrived within 0.3 s\n")
    with listening(service, "--filter", "price > 1", "--timeout", "0.1") as listener:
        assert listener.wait(WAIT) == 0


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_listener_unsubscribes(
    service: FakeService, sent: signal.Signals, code: int
) -> None:
    with listening(service, "--filter", "price > 100") as listener:
        assert run(service, "publish", "--host", "h1", "--space", "stocks", EVENT).returncode == 0
        assert listener.stdout
        assert listener.stdout.readline() == "price=500  volume=10\n"
        listener.send_signal(sent)
        _, err = listener.communicate(timeout=WAIT)
    assert (listener.returncode, err) == (code, "")
    assert service.records == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["publish", "--host", "h1", "--space", "stocks", "{"], "event 1 is not JSON"),
        (["publish", "--host", "h1", "--space", "stocks", "3"], "event 1 is not an object"),
        (["publish", "--host", "h1", "--space", "stocks", '{"price": 1}'], "lacks volume"),
        (["publish", "--host", "h9", "--space", "stocks", EVENT], "no host 'h9'"),
        (["listen", "--host", "h1", "--space", "nothing", "--filter", "x > 1"], "no space"),
        (["listen", "--host", "h1", "--space", "stocks", "--filter", "x > 1"], "attribute 'x'"),
        (["unsubscribe", "s1-77"], "there is no s1-77"),
    ],
)
def test_a_mistake_is_an_error_in_one_line(
    service: FakeService, words: list[str], message: str
) -> None:
    done = run(service, *words)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert service.records == {}
