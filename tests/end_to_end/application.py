"""An application on a host that carries out the commands of a test.

Run as `python -m tests.end_to_end.application URL HOST`. It reads one command per line, as JSON,
and answers each with a line.
"""

import itertools
import json
import sys
import threading
from base64 import b64decode
from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from dzflow import ControlPlane
from dzflow.errors import DzflowError
from dzflow.sdk import Advertisement, Subscription
from dzflow.sdk.events import datagrams
from dzflow.sdk.events.datagrams import Datagram, EventIds, encode
from dzflow.sdk.events.links import open_link
from dzflow.sdk.events.tags import Signer

GAP = 0.008  # seconds between the events of a stream: Open vSwitch carries some thousand a second


class Streaming:
    """Publishes events one after the other until it is stopped; each has a number of its own."""

    def __init__(self, advertisement: Advertisement, events: list[dict[str, Any]]) -> None:
        self.sent: list[dict[str, Any]] = []
        self._advertisement = advertisement
        self._events = events
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> list[dict[str, Any]]:
        self._stop.set()
        self._thread.join()
        return self.sent

    def _run(self) -> None:
        for number, event in enumerate(itertools.cycle(self._events)):
            if self._stop.wait(GAP):
                return
            numbered = {**event, "n": event["n"] + number}
            self._advertisement.publish(numbered)
            self.sent.append(numbered)


class Arrivals:
    """The numbers of all events that arrive, wanted or not, by the number of their space."""

    def __init__(self) -> None:
        self.numbers: dict[int, list[int]] = {}
        decode = datagrams.decode

        def noted(payload: bytes) -> Datagram | None:
            found = decode(payload)
            if found is not None:
                self.numbers.setdefault(found.space, []).append(found.event["n"])
            return found

        datagrams.decode = noted


class Application:
    """Holds subscriptions and advertisements under the names that the test gave them."""

    def __init__(self, control_plane: ControlPlane, host: str) -> None:
        self._control_plane = control_plane
        self._host = host
        self._arrivals = Arrivals()
        self._subscriptions: dict[str, Subscription] = {}
        self._advertisements: dict[str, Advertisement] = {}
        self._streams: dict[str, Streaming] = {}

    def subscribe(self, name: str, space: str, filter: Any) -> str:
        made = self._control_plane.subscribe(space, filter, queue=100_000)
        self._subscriptions[name] = made
        return made.id

    def advertise(self, name: str, space: str, filter: Any) -> str:
        self._advertisements[name] = made = self._control_plane.advertise(space, filter)
        return made.id

    def update(self, name: str, filter: Any) -> None:
        (self._subscriptions | self._advertisements)[name].update(filter)

    def close(self, name: str) -> None:
        (self._subscriptions | self._advertisements)[name].close()

    def publish(self, name: str, events: list[dict[str, Any]]) -> int:
        return self._advertisements[name].publish_many(events)

    def smuggle(self, name: str, event: dict[str, Any]) -> None:
        """Send an event outside of all advertisements, as a broken application might."""
        view = self._advertisements[name].view
        hosts = self._control_plane.rest.hosts()
        link = open_link(next(host for host in hosts if host["id"] == self._host))
        event_id = EventIds().next(view.number, view.version)
        link.send(view.address(view.space.keys(event), event_id), encode(event_id, event))
        link.close()

    def forge(self, name: str, events: list[dict[str, Any]], behind: dict[str, Any]) -> None:
        """Send events to the address of another one: without a tag, under its own name, and
        under the name of h1."""
        advertisement = self._advertisements[name]
        view = advertisement.view
        key = self._control_plane.rest.get(f"/advertisements/{advertisement.id}/key")
        signers = [
            Signer(host, key["key"], b64decode(key["secret"]), key["stream"])
            for host in (self._host, "h1")
        ]
        hosts = self._control_plane.rest.hosts()
        link = open_link(next(host for host in hosts if host["id"] == self._host))
        ids = EventIds()
        to = view.address(view.space.keys(behind), 0)
        for event in events:
            for send in (encode, *(signer.encode for signer in signers)):
                link.send(to, send(ids.next(view.number, view.version), event))
        link.close()

    def stream(self, name: str, events: list[dict[str, Any]]) -> None:
        self._streams[name] = Streaming(self._advertisements[name], events)

    def halt(self, name: str) -> list[dict[str, Any]]:
        return self._streams.pop(name).stop()

    def take(self, name: str, count: int, timeout: float) -> list[dict[str, Any]]:
        """The next events, so many of them or all that come until the time is up."""
        found: list[dict[str, Any]] = []
        try:
            while len(found) < count:
                found.append(self._subscriptions[name].get(timeout))
        except TimeoutError:
            return found
        return found

    def arrived(self, number: int) -> list[int]:
        """The numbers of all events of a space that have arrived."""
        return list(self._arrivals.numbers.get(number, ()))

    def counters(self, space: str) -> dict[str, int]:
        return asdict(self._control_plane.counters()[space])


def main() -> None:
    url, host = sys.argv[1:]
    with ControlPlane(url, host, timeout=60.0) as control_plane:
        application = Application(control_plane, host)
        for line in sys.stdin:
            asked = json.loads(line)
            call: Callable[..., Any] = getattr(application, asked.pop("do"))
            try:
                answer = {"answer": call(**asked)}
            except DzflowError as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
