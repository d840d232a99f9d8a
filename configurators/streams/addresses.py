"""Addresses of processes: `host:port` as one text, and its parts."""

from dzflow.errors import BadInput


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address is written in brackets."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(f"{address!r} is not an address; write host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    """The text `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
