"""Text of others is shown without steering the terminal, by functions and by every command."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.text import printable, printable_json
from tests.command import run_dzflow

EVIL = "\x1b[31mred\x1b]0;title\x07\x9b2J\r\nfake\u202e\u2028\x7f[bold]"
HIDDEN = ("\x1b", "\x07", "\x9b", "\r", "\u202e", "\u2028", "\x7f")


def test_hidden_characters_become_escapes_and_others_stay() -> None:
    assert printable("Übung 東京 🙂 price") == "Übung 東京 🙂 price"
    assert printable("a\x1b[0m\n\u202e\ud800") == r"a\x1b[0m\n\u202e\ud800"


@given(st.text())
def test_everything_printable_is_on_one_line_and_without_controls(text: str) -> None:
    assert printable(text).isprintable() or any(not c.isascii() for c in printable(text))
    assert len(printable(text).splitlines()) <= 1
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in printable(text))


@given(st.recursive(st.text() | st.integers(), lambda part: st.dictionaries(st.text(), part)))
def test_json_keeps_its_meaning(value: Any) -> None:
    shown = printable_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(shown) == value
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown)


# All answers of a control plane that repeats what evil callers have given it.

_RECORD = {"id": EVIL, "host": EVIL, "space": EVIL, "filter": EVIL, "state": EVIL, "label": EVIL}
_LINK = {"a": EVIL, "a_port": 1, "b": EVIL, "b_port": 2, "up": True, "lldp": True}
_WORK = dict.fromkeys(
    (
        *("queued", "oldest_s", "undefined", "arrivals_per_s", "done_per_s", "wait_ms"),
        *("decide_ms", "push_ms", "flow_ops_per_s", "active", "entries", "utilisation"),
        *("partitions", "memory", "cpu"),
    ),
    1,
)
_LOAD = {
    "at": 0.0,
    "total": _WORK,
    "configurators": [{"id": EVIL, **_WORK}],
    "partitions": [{"id": EVIL, "configurator": EVIL, **_WORK}],
}
_ANSWERS: dict[str, Any] = {
    "/readyz": {
        "status": EVIL,
        "ready": True,
        "impaired_counts": {"total": 1},
        "impaired": [{"kind": "switch", "id": EVIL, "reason": EVIL, "since": 0.0}],
        "switches_up": 1,
        "switches": 1,
        "partitions_ready": 1,
        "partitions": 1,
        "parts": [{"name": EVIL, "ok": True, "reason": EVIL}],
        "reasons": [EVIL],
    },
    "/topology": {
        "hosts": [{"id": EVIL, "switch": EVIL, "port": 1, "wire": EVIL}],
        "links": [_LINK],
        "trees": [{"number": 0, "root": EVIL, "links": [_LINK], "whole": False, "broken": [EVIL]}],
        "differences": [{"kind": EVIL, "text": EVIL}],
    },
    "/hosts": {
        "items": [
            {"id": "h1", "switch": EVIL, "port": 1, "wire": None, "unreachable": None},
            {"id": EVIL, "switch": EVIL, "port": 1, "wire": EVIL, "unreachable": EVIL},
        ]
    },
    "/host-proposals": {
        "mode": "propose",
        "items": [
            {
                "id": EVIL,
                "switch": EVIL,
                "port": 1,
                "mac": EVIL,
                "ipv6": EVIL,
                "since": 0.0,
                "state": "proposed",
                "problem": EVIL,
                "doubt": None,
            }
        ],
    },
    "/switches": {"items": [{"id": EVIL, "state": EVIL, "reason": EVIL}]},
    "/switches/s1/flows": {"items": [{"match": EVIL, "actions": [EVIL]}]},
    "/partitions": {
        "items": [{"id": EVIL, "reason": EVIL}],
        "moves": [{"partition": EVIL, "source": EVIL, "target": EVIL, "phase": EVIL}],
    },
    "/configurators": {
        "items": [{"id": EVIL, "address": EVIL, "state": "up", "leaving": False, "reason": EVIL}],
        "wanted": 1,
    },
    "/load": {"items": [_LOAD], "next": None},
    "/subscriptions": {"items": [_RECORD], "next": None},
    "/advertisements": {"items": [_RECORD], "next": None},
    "/spaces": {
        "items": [{"name": EVIL, "attributes": [{"name": EVIL, "type": EVIL}]}],
        "next": None,
    },
    "/explain": {
        "regions": [EVIL],
        "cells": [EVIL],
        "event": {
            "address": EVIL,
            "tree": 0,
            "admitted": True,
            "reason": EVIL,
            "hops": [
                {"switch": EVIL, "in_port": 1, "from": EVIL, "to": [{"port": 2, "host": EVIL}]}
            ],
            "delivered": [EVIL],
            "unwanted": [EVIL],
            "missed": [EVIL],
        },
        "false_share": 0.5,
        "flows": [{"switch": EVIL}],
        "note": EVIL,
    },
    "/subscribe": {"id": EVIL, "state": "active"},
}
_FILTER = ["--space", "x", "--filter", "x > 1"]
COMMANDS = [
    ["status"],
    ["topology"],
    ["hosts"],
    ["hosts", "proposals"],
    ["switches"],
    ["flows", "s1"],
    ["partitions"],
    ["configurators"],
    ["top", "--once"],
    ["subscriptions"],
    ["advertisements"],
    ["space", "list"],
    ["explain", *_FILTER, "--host", "h1"],
    ["explain", "--space", "x", "--event", "{}", "--host", "h1"],
]
TEXT_ONLY = [
    ["subscribe", "--host", "h1", *_FILTER],
    ["unsubscribe", "s1-77"],  # refused
    ["space", "put", "x", "-"],  # refused
    ["listen", "--host", "h1", *_FILTER],  # refused
]


class Echoing(BaseHTTPRequestHandler):
    """Answers with evil texts, errors included."""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = _ANSWERS.get(self.path.partition("?")[0])
        body = json.dumps(found or {"title": EVIL, "detail": EVIL}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echoing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    "words",
    [*COMMANDS, *([*words, "--json"] for words in COMMANDS), *TEXT_ONLY],
    ids=lambda words: " ".join(words),
)
def test_no_command_prints_control_characters_of_others(url: str, words: list[str]) -> None:
    done = run_dzflow(
        *words,
        "--url",
        url,
        stdin='{"attributes": []}',
        env={"COLUMNS": "400", "PATH": "/usr/bin:/bin"},
    )
    shown = done.stdout + done.stderr
    assert "Traceback" not in shown
    assert "title" in shown  # a part of the evil text
    assert not any(character in shown for character in HIDDEN), shown
    assert "[bold]" in shown  # markup has no effect
    if "--json" in words:
        assert EVIL in _texts(json.loads(shown))


def _texts(found: Any) -> list[str]:
    if isinstance(found, dict):
        return [text for value in found.values() for text in _texts(value)]
    if isinstance(found, list):
        return [text for value in found for text in _texts(value)]
    return [found] if isinstance(found, str) else []
