"""The commands that show the state of a running service, and save and restore it."""

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from api.start.up import Service
from dzflow.sdk import Rest
from dzflow.sdk.rest.api_protocol import Kind
from sdn.network.topologies import topology
from sdn.network.topology_file import load_topology
from tests.command import run_dzflow
from tests.service import eventually

SPACE = "of-commands"
SCHEMA = {"attributes": [{"name": "price", "type": "float", "min": 0, "max": 1000}]}


def run(*words: str, url: str, columns: int = 200) -> "subprocess.CompletedProcess[str]":
    environment = {"COLUMNS": str(columns), "PATH": "/usr/bin:/bin"}
    return run_dzflow(*words, "--url", url, env=environment)


def shown_as_json(*words: str, url: str) -> Any:
    done = run(*words, "--json", url=url)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def url(service: Service) -> Iterator[str]:
    """A service with something in it."""
    with Rest(service.url) as rest:

        def configurators() -> list[str]:
            found = rest.get("/configurators")["items"]
            return [each["id"] for each in found if each["state"] == "up"]

        # The service is ready with one of them; each of both is to own some of the partitions.
        eventually(lambda: len(configurators()) == 2, "both configurators are there")
        rest.put_space(SPACE, SCHEMA)
        rest.begin("subscription", "h1", SPACE, "price > 100")
        rest.begin("advertisement", "h3", SPACE, {})
        yield service.url
        end_all(rest)
        rest.delete_space(SPACE)


def end_all(rest: Rest) -> None:
    kinds: tuple[Kind, ...] = ("subscription", "advertisement")
    for kind in kinds:
        for record in rest.records(kind, space=SPACE):
            rest.end(kind, record["id"])


def test_status_shows_every_part(url: str) -> None:
    found = shown_as_json("status", url=url)
    assert found["ready"]
    assert found["switches_up"] == found["switches"] == 3
    assert found["partitions"] > 0
    names = {part["name"] for part in found["parts"]}
    assert {"etcd", "southbound-1", "configurator-1", "configurator-2"} < names
    done = run("status", url=url)
    assert done.returncode == 0
    assert "configurator-2" in done.stdout
    assert "3 of 3 switches are up" in done.stdout
    assert "ready" in done.stdout


def test_the_network_is_shown(url: str) -> None:
    found = shown_as_json("topology", url=url)
    assert {host["id"] for host in found["hosts"]} == {"h1", "h2", "h3"}
    assert len(found["links"]) == 2
    shown = run("topology", url=url).stdout
    assert all(word in shown for word in ("h1", "127.0.0.1:", "s1:", "tree"))
    switches = shown_as_json("switches", url=url)["items"]
    assert {each["state"] for each in switches} == {"up"}
    assert "southbound-1" in run("switches", url=url).stdout


@pytest.mark.parametrize("name", ["network.json", "network.yaml"])
def test_the_network_is_written_to_a_file_that_describes_it(
    url: str, tmp_path: Path, name: str
) -> None:
    done = run("topology", "export", str(tmp_path / name), url=url)
    assert (done.returncode, done.stdout) == (0, "")
    assert "3 switches, 2 links, 3 hosts written" in done.stderr
    assert load_topology(tmp_path / name) == topology("line:3")


def test_a_network_is_not_written_to_any_file(url: str, tmp_path: Path) -> None:
    for file in (tmp_path / "network.txt", tmp_path / "nowhere" / "network.yaml"):
        done = run("topology", "export", str(file), url=url)
        assert done.returncode == 1
        assert str(file) in done.stderr.replace("\n", "")


@pytest.mark.parametrize("source", ["cp", "dp"])
def test_flows_are_shown(url: str, source: str) -> None:
    found = shown_as_json("flows", "s2", "--source", source, url=url)
    ours = [flow for flow in found["items"] if flow["space"] == SPACE]
    assert ours
    shown = run("flows", "s2", "--source", source, url=url).stdout
    assert SPACE in shown


def test_a_filter_is_explained(url: str) -> None:
    words = ["explain", "--space", SPACE, "--filter", "price > 420"]
    without = run(*words, url=url).stdout
    assert "flows: " not in without
    assert "name a host" in without
    assert "flows: " in run(*words, "--host", "h1", url=url).stdout
    flows = run(*words, "--host", "h2", url=url).stdout.splitlines()[-1]
    assert re.fullmatch(r"flows: \d+ on s\d(, s\d)*", flows)


def test_an_event_is_followed(url: str) -> None:
    words = ["explain", "--space", SPACE, "--event", '{"price": 420}', "--host"]
    shown = run(*words, "h3", url=url).stdout
    assert re.search(r"1 +│ s3 +│ h3 \(port \d+\) +│ s2 \(port \d+\)", shown)
    assert re.search(r"3 +│ s1 +│ s2 \(port \d+\) +│ h1 \(port \d+\)", shown)
    assert "delivered: h1" in shown
    assert "not admitted: switch s2 drops it" in run(*words, "h2", url=url).stdout
    refused = run(*words, "h3", "--filter", "price >", url=url)
    assert refused.returncode != 0


def test_partitions_and_configurators_are_shown(url: str) -> None:
    def shown() -> list[dict[str, Any]]:
        items = shown_as_json("partitions", url=url)["items"]
        return [each for each in items if each["space"] == SPACE]

    owners = {"configurator-1", "configurator-2"}
    eventually(lambda: {each["configurator"] for each in shown()} == owners, "each owns some")
    partitions = shown()
    assert 1 < len(partitions) <= 8
    assert {each["id"] for each in shown_as_json("configurators", url=url)["items"]} == owners
    assert partitions[0]["id"] in run("partitions", url=url).stdout
    assert "configurator-1" in run("configurators", url=url).stdout


@pytest.mark.parametrize("words", [["partitions"], ["configurators"], ["flows", "s2"]])
def test_ids_can_be_read_on_narrow_terminals(url: str, words: list[str]) -> None:
    key = "partition" if words[0] == "flows" else "id"
    ids = {each[key] for each in shown_as_json(*words, url=url)["items"] if each[key]}
    assert ids
    shown = run(*words, url=url, columns=80).stdout
    assert all(f" {name} " in shown for name in ids)
    assert "…" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "…" not in run(*words, url=url, columns=40).stdout


def test_an_unknown_switch_is_an_error_in_one_line(url: str) -> None:
    done = run("flows", "s99", url=url)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "s99" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["status"], ["topology"], ["backup", "/nowhere/x"]])
def test_a_service_that_does_not_answer_is_an_error(command: list[str]) -> None:
    done = run(*command, url="http://127.0.0.1:1")
    assert done.returncode == 1
    assert "is the control plane running there?" in " ".join(done.stderr.split())


def test_a_restore_brings_back_the_records_of_the_backup(url: str, tmp_path: Path) -> None:
    file = tmp_path / "state"
    done = run("backup", str(file), url=url)
    assert done.returncode == 0, done.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    refused = run("restore", str(file), url=url)
    assert refused.returncode == 1
    assert "restore into an empty state" in refused.stderr
    with Rest(url) as rest:
        (record,) = rest.records("subscription", space=SPACE)
        end_all(rest)
        done = run("restore", str(file), url=url)
        assert done.returncode == 0, done.stderr
        assert "restored" in done.stderr
        back = rest.records("subscription", space=SPACE)
    assert [(each["id"], each["state"]) for each in back] == [(record["id"], "active")]


def test_a_missing_backup_file_is_an_error(url: str, tmp_path: Path) -> None:
    done = run("restore", str(tmp_path / "none"), url=url)
    assert done.returncode == 1
    assert "cannot read" in done.stderr


class Refusing(BaseHTTPRequestHandler):
    """A control plane that restores three of five records."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"spaces": 1, "records": 5, "failed": 2}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_restore_counts_the_records_that_switches_refused(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = run("restore", str(tmp_path / "state"), url=url)
        server.shutdown()
    assert done.returncode == 1
    assert "the switches refused 2 records" in done.stderr


def test_status_says_how_full_etcd_is(url: str) -> None:
    store = shown_as_json("status", url=url)["store"]
    assert 0 < store["in_use"] <= store["size"] < store["quota"] == 4 << 30
    assert store["level"] == "normal"
    done = run("status", url=url)
    assert "etcd has" in done.stdout
    assert "of 4,096 MiB (" in done.stdout


def test_etcd_is_compacted_on_demand(url: str) -> None:
    found = shown_as_json("etcd", "compact", url=url)
    assert not found["full"]
    assert found["size"] <= found["size_before"]
    done = run("etcd", "compact", url=url)
    assert done.returncode == 0
    assert "quota: 4,096 MiB" in done.stdout
