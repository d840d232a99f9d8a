"""Logs: one line for each record, in every process of the service, without secrets.

The `extra` of a record (`logger.info("…", extra={"record": id})`) becomes fields of its line. The
id of the HTTP request that is being served is added.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Iterable
from functools import lru_cache
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from api.http.border.request_ids import request_id
from api.start.settings.secret_values import secrets_of
from api.start.settings.settings import Settings
from dzflow.process.private_files import private_opener

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_HIDDEN = "****"
_encode = msgspec.json.Encoder(enc_hook=str).encode
# Below these levels, the libraries log details that operators do not need.
_QUIET = {"asyncio": "error", "httpx": "warning", "httpcore": "warning", "uvicorn": "error"}


class Lines(logging.Formatter):
    """Formats a record as a line: JSON, or text for people."""

    def __init__(
        self, process: str, form: Literal["json", "console"], secrets: Iterable[str] = ()
    ) -> None:
        super().__init__()
        self._process = process
        self._form = form
        given = {secret for secret in secrets if secret}
        # In strings of JSON (or Python), some characters of a secret have a backslash before them.
        escaped = {json.dumps(secret, ensure_ascii=False)[1:-1] for secret in given}
        twice = {json.dumps(secret, ensure_ascii=False)[1:-1] for secret in escaped}
        self._secrets = sorted(given | escaped | twice, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        extra = {k: v for k, v in vars(record).items() if k not in _STANDARD}
        call = request_id.get()
        if call:
            extra.setdefault("request_id", call)
        if record.exc_info:
            extra["error"] = self.formatException(record.exc_info)
        line = self._json(record, extra) if self._form == "json" else self._words(record, extra)
        for secret in self._secrets:
            line = line.replace(secret, _HIDDEN)
        return line

    def _json(self, record: logging.LogRecord, extra: dict[str, Any]) -> str:
        fields = {
            "time": _moment(record.created),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
            **extra,
        }
        try:
            return _encode(fields).decode()
        except (ValueError, TypeError, OverflowError):  # half a surrogate pair, a huge number
            return json.dumps(fields, default=str)

    def _words(self, record: logging.LogRecord, extra: dict[str, Any]) -> str:
        error = extra.pop("error", None)
        said = f"{_moment(record.created)} {record.levelname:7} {self._process}"
        said += f" {record.getMessage()}"
        said += "".join(f" {key}={value}" for key, value in extra.items())
        # Line breaks in messages become blanks.
        return " ".join(said.split()) + (f"\n{error}" if error else "")


class PrivateFile(RotatingFileHandler):
    """Log files that only their owner can read."""

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: ARG002, N802
        """Whether the file is full. The base class would format each record once more to know."""
        stream = self.stream
        return stream is not None and os.fstat(stream.fileno()).st_size >= self.maxBytes > 0

    def _open(self) -> IO[Any]:  # type: ignore[override]
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=private_opener)


def configure(settings: Settings, process: str, folder: Path | None = None) -> None:
    """Configure the logging of this process as the settings say.

    Files are in `folder`, by default `logs/` of the data folder.
    """
    handler: logging.Handler
    if settings.log.to == "files":
        place = folder or log_folder(settings)
        for each in (place.parent, place):  # `parents` would make them readable by others
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = PrivateFile(
            place / f"{process}.log",
            maxBytes=settings.log.size,
            backupCount=settings.log.files,
            encoding="utf-8",
        )
    else:
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(process, settings.log.format, secrets_of(settings)))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(settings.log.level.upper())
    logging.captureWarnings(True)
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level.upper())


def log_folder(settings: Settings) -> Path:
    """The folder of the log files."""
    return settings.data_dir / "logs"


def _moment(seconds: float) -> str:
    return f"{_second(int(seconds))}.{int(seconds % 1 * 1e6):06d}Z"


@lru_cache(2)  # of the present second and the one before
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
