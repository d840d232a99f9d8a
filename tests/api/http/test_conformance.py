"""The service does what its OpenAPI document says, whatever is sent to it."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis

from api.http.app import make_app
from api.http.app_settings import ApiSettings, Token
from api.http.border.auth import ACCESS
from api.http.context import Backend
from tests.etcd import TestEtcd
from tests.rest import SCHEMA, advertisement, subscription
from tests.stack import Stack

CONFIG = Path(__file__).with_name("schemathesis.toml")


def document(*tokens: Token) -> dict[str, Any]:
    """The OpenAPI document of a service that knows these tokens."""

    @asynccontextmanager
    async def not_opened() -> AsyncIterator[Backend]:
        raise AssertionError("the document needs no backend")
        yield

    return make_app(ApiSettings(tokens=tokens), not_opened).openapi()


def test_the_document_is_valid_openapi() -> None:
    for tokens in ((), (Token("secret", "operator"),)):
        schemathesis.openapi.from_dict(document(*tokens)).validate()


def test_every_endpoint_is_in_the_document() -> None:
    found = [f"{m.upper()} {path}" for path, item in document()["paths"].items() for m in item]
    assert sorted(found) == sorted(ACCESS)


def test_every_reference_of_the_document_leads_to_a_component() -> None:
    found = document()
    names = set(re.findall(r'"\$ref": "([^"]*)"', json.dumps(found)))
    assert names == {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}


def test_every_body_in_json_has_an_example() -> None:
    for path, item in document()["paths"].items():
        for operation in item.values():
            content = operation.get("requestBody", {}).get("content", {})
            assert "application/json" not in content or content["application/json"]["examples"], (
                path
            )


@pytest.fixture
def own_stack(etcd_server: TestEtcd) -> Iterator[Stack]:
    """A control plane of the test's own, with the space and hosts of the document's examples."""
    with Stack(etcd_server.access()) as stack, httpx.Client(base_url=stack.url, timeout=60) as api:
        api.put("/spaces/stocks", json=SCHEMA).raise_for_status()
        # These records keep the space and the hosts from being deleted.
        api.post("/advertise", json=advertisement("stocks")).raise_for_status()
        api.post("/subscribe", json=subscription("stocks")).raise_for_status()
        yield stack


def test_schemathesis_finds_nothing(own_stack: Stack, tmp_path: Path) -> None:
    """All checks in all phases, with a bounded number of cases that are always the same."""
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run"),
        f"{own_stack.url}/openapi.json",
        *("--checks", "all", "--max-examples", "6", "--generation-deterministic"),
        # Answers may take long on a busy machine.
        *("--request-timeout", "300", "--max-response-time", "300"),
        *("--no-color", "--continue-on-failure"),
    ]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
    )
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2_000:]
    record = httpx.get(f"{own_stack.url}/subscriptions", params={"space": "stocks"}, timeout=60)
    assert record.status_code == 200
