"""Where the control plane is, and the options of the HTTP client that talks to it."""

import ssl
from pathlib import Path
from typing import Any

import httpx
from msgspec import Struct

from dzflow.errors import BadInput


class ApiAccess(Struct, frozen=True):
    """The control plane's URL, the token to show, and the certificates to trust."""

    url: str
    token: str | None = None
    verify: bool = True
    ca: str | Path | None = None  # certificates to trust instead of the machine's
    timeout: float = 30.0

    def __repr__(self) -> str:
        return f"ApiAccess({self.url!r})"  # without the token, which must not reach a log

    def http_options(self) -> dict[str, Any]:
        """Options for `httpx.Client` or `httpx.AsyncClient`; BadInput if one of ours is wrong."""
        if not self.url.startswith(("http://", "https://")):
            text = f"the control plane's URL begins with http:// or https://, got {self.url!r}"
            raise BadInput(text)
        headers = {"Accept": "application/json"}
        if self.token is not None:
            # The HTTP client's own error would repeat the token.
            if not (self.token.isascii() and self.token.isprintable()):
                raise BadInput("the token has a line break, or signs that are not ASCII")
            headers["Authorization"] = f"Bearer {self.token}"
        verify: ssl.SSLContext | bool = self.verify
        if self.ca is not None and self.verify:
            try:
                verify = ssl.create_default_context(cafile=str(self.ca))
            except OSError as error:
                raise BadInput(f"cannot read certificates from {self.ca}: {error}") from error
        return {
            "base_url": self.url,
            "headers": headers,
            "verify": verify,
            "timeout": self.timeout,
            "trust_env": False,  # a proxy between hosts and their control plane is a mistake
            "limits": httpx.Limits(max_connections=64, max_keepalive_connections=16),
        }

    def no_answer(self, error: httpx.HTTPError) -> str:
        """The message for a call that got no answer."""
        what = str(error) or type(error).__name__
        return f"no answer from {self.url} ({what}); is the control plane running there?"
