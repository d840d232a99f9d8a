"""The service does what its OpenAPI document says, whatever is sent to it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import schemathesis

from api.http.app import OPERATIONS
from api.http.openapi import make_document
from tests.etcd import TestEtcd
from tests.rest import SCHEMA, advertisement, subscription
from tests.stack import Stack

CONFIG = Path(__file__).with_name("schemathesis.toml")


def test_the_document_is_valid_openapi() -> None:
    for guarded in (False, True):
        schemathesis.openapi.from_dict(make_document(OPERATIONS, "1", guarded)).validate()


def test_every_operation_has_an_example_of_its_body() -> None:
    for operation in OPERATIONS:
        assert operation.body is None or operation.examples or operation.media != "application/json"


@pytest.fixture
def own_stack(etcd_server: TestEtcd) -> Iterator[Stack]:
    """A control plane of the test's own, with what the examples of the document are about."""
    with Stack(etcd_server.access()) as stack, httpx.Client(base_url=stack.url, timeout=60) as api:
        api.put("/spaces/stocks", json=SCHEMA).raise_for_status()
        # They keep space and hosts from being deleted.
        api.post("/advertise", json=advertisement("stocks")).raise_for_status()
        api.post("/subscribe", json=subscription("stocks")).raise_for_status()
        yield stack


def test_schemathesis_finds_nothing(own_stack: Stack, tmp_path: Path) -> None:
    """All checks in all phases, with a bounded number of cases that are always the same."""
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run"),
        f"{own_stack.url}/openapi.json",
        *("--checks", "all", "--max-examples", "6", "--generation-deterministic"),
        # How long an answer takes is not the matter here.
        *("--request-timeout", "300", "--max-response-time", "300"),
        *("--no-color", "--continue-on-failure"),
    ]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
    )
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2_000:]
    record = httpx.get(f"{own_stack.url}/subscriptions", params={"space": "stocks"}, timeout=60)
    assert record.status_code == 200
