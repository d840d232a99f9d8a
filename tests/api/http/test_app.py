"""The application: errors inside the framework, and what the framework may not do."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import pytest

from api.http.app import make_app
from api.http.app_settings import ApiSettings
from api.http.border import route
from api.http.context import Backend


@asynccontextmanager
async def not_opened() -> AsyncIterator[Backend]:
    raise AssertionError("these tests do not start the application")
    yield


async def test_an_internal_error_while_a_body_is_read_is_not_the_callers_mistake(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_raw: bytes, _settings: ApiSettings) -> Any:
        raise RuntimeError("a secret")

    monkeypatch.setattr(route, "decode", fail)
    app = make_app(ApiSettings(), not_opened)
    app.state.backend = Backend(cast("Any", None), cast("Any", None))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        with caplog.at_level(logging.ERROR):
            answer = await client.post("/subscribe", json={})
    problem = answer.json()
    assert answer.status_code == problem["status"] == 500
    assert problem["type"] == "/problems/internal"
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert "secret" not in answer.text
    assert any(record.exc_info for record in caplog.records)


def test_the_framework_sends_no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    telemetry = make_app(ApiSettings(), not_opened)._telemetry
    assert not any(value for value in telemetry.values())
