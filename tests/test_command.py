"""The `dzflow` command: its help, its errors, and the demo."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from api.start.settings.sources import load
from tests.command import run_dzflow
from tests.support import until_sync

COMMAND = Path(sys.executable).parent / "dzflow"
LIMIT = 300


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=LIMIT)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "nothing"], "there is no benchmark 'nothing'; choose from engine"),
        (["bench", "[/x] [red]"], "there is no benchmark '[/x] [red]'"),
        (["bench", "all", "--json", "x"], "name one benchmark"),
        (["bench", "control", "--only", "x"], "no section 'x'; choose from centralised, sna, sea"),
        (["bench", "control", "--keep"], "--keep needs --only"),
        (["bench", "control", "--plots", "x"], "only balance has plots"),
        (["lab", "up", "--topology", "mesh:3"], "mesh:3"),
        (["up", "--topology", "mesh:3"], "mesh:3"),
        (["up", "--listen", "192.0.2.1"], "set tokens.operator or tokens.hosts"),
        (["up", "--config", "none.toml"], "none.toml: No such file"),
        (["up", "--data-dir", "/dev/null/x"], "/dev/null/x cannot be used"),
        (["up", "--data-plane", "onos"], "prefixes only; choose lpm"),
        (["demo", "--data-plane", "external"], "choose --data-plane emulated or ovs"),
        (["status", "--url", "http://127.0.0.1:1"], "is the control plane running there?"),
    ],
)
def test_a_mistake_is_an_error_in_one_line(words: list[str], message: str) -> None:
    done = run_dzflow(*words)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('tokens = { hosts = { h1 = "a token of host h1" } }', "set one of tokens.operator, too"),
        ('tls = { cert = "c.pem", key = "k.pem" }', "start it without tls.cert"),
    ],
)
def test_the_demo_names_the_settings_that_it_does_not_support(
    settings: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "s.toml"
    file.write_text(settings)
    done = run_dzflow("demo", "--config", file)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())


def test_tokens_are_long_enough_and_differ() -> None:
    first, second = (run("token").stdout.strip() for _ in range(2))
    assert first != second
    assert load(None, {"stream_token": first}, {}).stream_token is not None


def test_help_lists_the_subcommands() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name in ("up", "demo", "lab", "bench", "publish", "listen", "status", "flows", "backup"):
        assert f" {name} " in done.stdout


def test_the_demo_delivers_every_quote() -> None:
    done = run("demo", "--events", "300", "--topology", "line:3", "--subscriptions", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was missed" in done.stdout
    assert "300 quotes published" in " ".join(done.stdout.split())
    assert "--keep" in done.stderr


def test_the_demo_can_be_kept_running_for_the_dashboard() -> None:
    words = ("--keep", "--events", "50", "--topology", "line:3", "--subscriptions", "2")
    with subprocess.Popen(
        [COMMAND, "demo", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = ""
        while not (found := re.search("See them at (.*);", said)):
            line = process.stderr.readline()
            assert line, said
            said += line
        url = found[1]
        assert httpx.get(url, timeout=LIMIT).headers["content-type"].startswith("text/html")
        before = subscriptions(url)
        until_sync(lambda: subscriptions(url) - before)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, out + err
    assert "nothing was missed" in out


def subscriptions(dashboard: str) -> set[str]:
    """The ids of all active subscriptions."""
    url = f"{dashboard.removesuffix('/dashboard')}/subscriptions?state=active"
    return {record["id"] for record in httpx.get(url, timeout=LIMIT).json()["items"]}
