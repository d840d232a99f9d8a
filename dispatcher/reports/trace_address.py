"""Addresses of storage for traces: checked before anything is started, and shown without secrets.

An address may have a password in it (`s3://KEY:SECRET@bucket/folder`), and pyarrow repeats
addresses in its errors. So no error of pyarrow about an address is shown as it is.
"""

import re
from urllib.parse import unquote, urlsplit

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.fs as pa_fs  # type: ignore[import-untyped]

from dzflow.errors import BadInput

_EXAMPLES = "file:///var/lib/dzflow/traces or s3://bucket/folder"
_CLASSES = {
    "file": "LocalFileSystem",
    "s3": "S3FileSystem",
    "gs": "GcsFileSystem",
    "gcs": "GcsFileSystem",
    "abfs": "AzureFileSystem",
    "abfss": "AzureFileSystem",
    "hdfs": "HadoopFileSystem",
    "viewfs": "HadoopFileSystem",
}
_OF_HADOOP = ("hdfs", "viewfs")
_NAMES_OF_SPARK = {"s3": "s3a", "gcs": "gs"}


class BadTraceAddress(BadInput):
    """An address that traces cannot be written to; the message has no secrets."""


def check_address(address: str) -> None:
    """BadTraceAddress if pyarrow has no such file system, or does not understand the address.

    This neither reaches out to the storage nor starts a Java machine (as HDFS needs one).
    """
    scheme = _scheme(address)
    if scheme is None:
        raise BadTraceAddress(f"this is no address such as {_EXAMPLES}")
    if scheme not in _CLASSES:
        known = ", ".join(sorted(_CLASSES))
        near = next((ours for ours, theirs in _NAMES_OF_SPARK.items() if theirs == scheme), None)
        hint = f"; write {near}://… here" if near else ""
        raise BadTraceAddress(f"pyarrow has no file system for {scheme}://…{hint}; it has {known}")
    if not hasattr(pa_fs, _CLASSES[scheme]):
        raise BadTraceAddress(f"this build of pyarrow has no file system for {scheme}://…")
    try:
        folder = _parse(scheme, address)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadTraceAddress(
            f"pyarrow does not understand {shown_address(address)}{_reason(error, address)}"
        ) from None
    if not folder.strip("/"):
        raise BadTraceAddress(
            f"{shown_address(address)} names no folder; write one, as in {_EXAMPLES}"
        )


def shown_address(address: str) -> str:
    """An address for logs: without user name, password and parameters."""
    scheme = _scheme(address)
    if scheme is None:
        return "…"
    rest = address.partition("://")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in rest.removeprefix(authority):
        return f"{scheme}://…"  # perhaps a password with a slash in it
    return f"{scheme}://{re.split('[?#]', rest, maxsplit=1)[0].rpartition('@')[2]}"


def without_secrets(text: str, address: str) -> str:
    """A text of pyarrow for logs; little of it is left if it repeats secrets of the address."""
    shown = shown_address(address)
    text = " ".join(text.replace(address, shown).split())
    if any(secret in text.replace(shown, "") for secret in _secrets(address)):
        return "the error repeats parts of the address, and is not shown"
    return text[:300]


def spark_address(address: str) -> str:
    """What Spark calls the same place. Secrets and parameters of pyarrow's are left out."""
    scheme, _, rest = address.partition("://")
    scheme, rest = scheme.lower(), rest.partition("?")[0]
    user, at, where = rest.rpartition("@")
    if scheme in ("abfs", "abfss"):  # there, the name before the @ is that of the container
        where = f"{user.partition(':')[0]}{at}{where}"
    return f"{_NAMES_OF_SPARK.get(scheme, scheme)}://{unquote(where)}"


def _scheme(address: str) -> str | None:
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", address)
    return found[1].lower() if found else None


def _parse(scheme: str, address: str) -> str:
    """The folder in an address."""
    if scheme in _OF_HADOOP:
        parts = urlsplit(address)
        if not parts.hostname:
            raise ValueError("it names no host")
        return parts.path
    if scheme == "s3" and not re.search(r"[?&]region=", address):
        # Otherwise, pyarrow would ask the storage for it.
        address += ("&" if "?" in address else "?") + "region=unknown"
    _, folder = pa_fs.FileSystem.from_uri(address)
    return str(folder)


def _reason(error: Exception, address: str) -> str:
    text = without_secrets(str(error), address)
    return f": {text}" if text else ""


def _secrets(address: str) -> set[str]:
    """Whatever may be secret in an address."""
    rest = address.partition("://")[2]
    before, at, _ = rest.rpartition("@")
    words = [before, *before.split(":")] if at else []
    if "?" in rest:
        query = rest.partition("?")[2]
        words += [query, *(pair.partition("=")[2] for pair in query.split("&"))]
    return {found for word in words for found in (word, unquote(word)) if found}
