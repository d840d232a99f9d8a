"""Waits until a service that was started is ready, according to its own `/readyz`."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from api.start.children import ChildProcess
from dzflow.errors import DzflowError

START_SECONDS = 120.0
_LOOK_EVERY = 0.1
_ALONE_SECONDS = 10.0  # for other parts, which may be started later
_WHOLE_SECONDS = 60.0  # for our own switches to connect, and to be brought up to date


class StartFailed(DzflowError):
    """The service did not get ready."""


class ReadyWait:
    """Waits for `/readyz`; fails as soon as a child has ended."""

    def __init__(
        self,
        url: str,
        children: Sequence[ChildProcess],
        tell: Callable[[str], None],
        *,
        own_switches: bool,
        alone: bool = False,
        token: str | None = None,
    ) -> None:
        """With `own_switches`, the service starts the switches itself, and waits for them.

        A part that is started `alone` does not fail because others are not there yet.
        An operator's `token` gets the reasons why processes cannot be used.
        """
        self._url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._children = children
        self._tell = tell
        self._own_switches = own_switches
        self._alone = alone
        self._answer = "no answer"

    async def wait(self) -> str:
        """Wait until requests are served, and for a while until nothing is impaired any more.

        Gives what is still impaired, as a text. StartFailed if no request can be served in time.
        """
        async with httpx.AsyncClient(
            base_url=self._url,
            headers=self._headers,
            verify=False,  # noqa: S501 - ourselves
            trust_env=False,
        ) as client:
            return await self._poll(client)

    async def _poll(self, client: httpx.AsyncClient) -> str:
        loop = asyncio.get_running_loop()
        seconds = _ALONE_SECONDS if self._alone else START_SECONDS
        until, served = loop.time() + seconds, False
        while True:
            found = await self._ask(client)
            if found is not None:
                if not served:
                    served = True
                    until = loop.time() + (_ALONE_SECONDS if self._alone else _WHOLE_SECONDS)
                impaired = self._impaired(found)
                if not impaired or loop.time() > until:
                    return impaired
                self._tell(impaired)
            elif loop.time() > until:
                break
            for child in self._children:
                if child.exited.is_set():
                    raise StartFailed(f"{child.name}: {child.last_words()}")
            await asyncio.sleep(_LOOK_EVERY)
        if self._alone:
            return f"not ready yet, see /readyz: {self._answer}"
        raise StartFailed(f"not ready within {seconds:.0f} s: {self._answer}")

    async def _ask(self, client: httpx.AsyncClient) -> Any:
        """The answer of `/readyz`, None if requests cannot be served yet."""
        try:
            got = await client.get("/readyz")
        except httpx.TransportError as error:
            self._answer = str(error) or type(error).__name__
            return None
        self._answer = "; ".join(_reasons(got)) or got.text[:1000]
        if got.status_code not in (200, 503):
            raise StartFailed(f"/readyz answers {got.status_code}: {self._answer}")
        return got.json() if got.status_code == 200 else None

    def _impaired(self, found: dict[str, Any]) -> str:
        """The impairments that should end soon after a start."""
        texts = [
            f"{each['id']}: {each['reason']}"
            for each in found.get("impaired", ())
            if each["kind"] == "process"
        ]
        if not texts and (down := found["impaired_counts"]["processes"]):
            texts.append(f"{down} processes cannot be used")  # there is no operator's token
        if self._own_switches:  # others may connect at any time
            counts = (
                (found["switches_up"], found["switches"], "switches are up"),
                (found["partitions_ready"], found["partitions"], "partitions are ready"),
            )
            texts += [f"{now} of {all_} {what}" for now, all_, what in counts if now < all_]
        return ", ".join(texts)


def _reasons(got: httpx.Response) -> list[str]:
    """Why no request can be served, as an operator is told."""
    return list(got.json().get("reasons") or ()) if got.status_code == 503 else []
