"""Logs: one line for each record, with its fields, and without secrets."""

import json
import logging
import os
import sys
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import pytest

from api.http.border.request_ids import request_id
from api.start import logs
from api.start.parts.southbound import southbound_options
from api.start.settings.settings import Settings
from api.start.settings.sources import load


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, as it was before in the end."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logging.captureWarnings(False)
    for handler in logger.handlers:
        if handler not in handlers:
            handler.close()
    logger.handlers[:] = handlers
    logger.setLevel(level)


def settings(folder: Path, **log: str) -> Settings:
    variables = {
        "DZFLOW_TOKENS__HOSTS": '{"h1": "geheim-1-of-host-h1"}',
        "DZFLOW_ETCD__PASSWORD": "geheim-2",
    }
    return load(None, {"data_dir": folder, "log": log}, variables)


def record(text: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("part", logging.INFO, __file__, 1, text, (), None)
    vars(made).update(extra)
    return made


def messages(lines: str) -> list[str]:
    """What the tests have logged; control planes of other tests may log, too."""
    found = [json.loads(line) for line in lines.splitlines()]
    return [each["message"] for each in found if each["logger"] == "root"]


def test_a_line_is_json_with_all_that_belongs_to_it() -> None:
    token = request_id.set("call-7")
    try:
        line = logs.Lines("api-1", "json").format(record("two\nlines", record="s1-22", ms=1.5))
    finally:
        request_id.reset(token)
    assert "\n" not in line
    said = json.loads(line)
    assert said.pop("time").endswith("Z")
    assert said == {
        "level": "info",
        "process": "api-1",
        "logger": "part",
        "message": "two\nlines",
        "record": "s1-22",
        "ms": 1.5,
        "request_id": "call-7",
    }


def test_what_json_lacks_is_written_as_text() -> None:
    odd = {"path": Path("a/b"), "huge": 1 << 80, "half": "\ud800", "when": complex(1, 2)}
    for name, value in odd.items():
        said = json.loads(logs.Lines("x", "json").format(record("odd", **{name: value})))
        assert said["message"] == "odd"
        assert said[name] in (value, str(value))


def test_a_full_file_is_put_aside(tmp_path: Path, root: logging.Logger) -> None:
    logs.configure(settings(tmp_path, size="65536", files="2"), "w")
    for number in range(300):
        root.warning("%d %s", number, "x" * 1_000)
    files = {path.name: path for path in (tmp_path / "logs").iterdir()}
    assert set(files) == {"w.log", "w.log.1", "w.log.2"}
    assert all(path.stat().st_size < 68_000 for path in files.values())
    last = messages(files["w.log.1"].read_text() + files["w.log"].read_text())
    assert last[-1].startswith("299 ")


def test_an_error_is_a_field_of_its_line() -> None:
    made = record("it failed")
    try:
        raise ValueError("on purpose")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = logs.Lines("x", "json").format(made)
    assert "\n" not in line
    assert "ValueError: on purpose" in json.loads(line)["error"]


def test_the_console_format_is_text() -> None:
    line = logs.Lines("api-1", "console").format(record("it\nis so", record="s1-22"))
    assert line.endswith("INFO api-1 it is so record=s1-22")


@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_are_not_written(form: str, tmp_path: Path, root: logging.Logger) -> None:
    logs.configure(settings(tmp_path, format=form), "api-1")
    root.warning("with geheim-1-of-host-h1", extra={"header": "Bearer geheim-2"})
    written = (tmp_path / "logs" / "api-1.log").read_text()
    assert "geheim" not in written
    assert "****" in written


def test_only_the_owner_can_read_the_files(tmp_path: Path, root: logging.Logger) -> None:
    before = os.umask(0)
    try:
        logs.configure(settings(tmp_path / "new"), "api-1")
        (handler,) = root.handlers
        assert isinstance(handler, RotatingFileHandler)
        handler.doRollover()
        root.warning("after")
    finally:
        os.umask(before)
    folder = tmp_path / "new" / "logs"
    found = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert found == {"api-1.log": 0o600, "api-1.log.1": 0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_password_of_onos_is_not_shown() -> None:
    access = southbound_options(load(None, {"onos": {"password": "geheim"}}, {}), "n")
    assert "geheim" not in repr(access)


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("secret", ['ge"heim', "ge\\heim", "ge'\"heim", "gehéim"])
def test_secrets_with_odd_characters_are_not_written(form: Any, secret: str) -> None:
    lines = logs.Lines("api-1", form, [secret])
    for text in (secret, json.dumps({"token": secret}, ensure_ascii=False)):
        line = lines.format(record(f"with {text}", header=f"Bearer {secret}"))
        assert "heim" not in line
        assert line.count("****") == 2


def test_what_is_below_the_level_is_not_written(tmp_path: Path, root: logging.Logger) -> None:
    logs.configure(settings(tmp_path, level="warning"), "w")
    root.info("no")
    root.warning("yes")
    assert messages((tmp_path / "logs" / "w.log").read_text()) == ["yes"]


def test_logs_can_go_to_stderr(
    tmp_path: Path, root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(settings(tmp_path, to="stderr"), "w")
    root.warning("here")
    assert messages(capsys.readouterr().err) == ["here"]
    assert not (tmp_path / "logs").exists()
