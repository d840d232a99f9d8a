"""The open subscriptions and advertisements of an application."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dzflow.sdk.errors import Closed, OutsideAdvertisement
from dzflow.sdk.events.sorter import Interest
from dzflow.sdk.host_agent import HostAgent
from dzflow.sdk.renewals import OwnRecord
from dzflow.sdk.space_view import Expression, SpaceView


class Handle:
    """A record of this application, with the agent that keeps it alive."""

    def __init__(self, agent: HostAgent, record: OwnRecord) -> None:
        self.agent = agent
        self.record = record
        self._expression = Expression(record.filter)

    @property
    def view(self) -> SpaceView:
        """The space as it is now."""
        return self.agent.spaces.view(self.record.space)

    @contextmanager
    def replace_filter(self, source: object) -> Iterator[None]:
        """Replace the filter if the body, which tells the control plane, succeeds."""
        after = Expression(source)
        yield
        self._expression = after
        self.record.filter = source

    def release(self) -> None:
        """Stop keeping the record alive."""
        self.record.closed = True
        self.agent.renewals.remove(self.record)
        self.agent.keys.remove(self.record)


class SubscriptionHandle(Handle):
    """A subscription: its interest is registered with the sorter."""

    def __init__(self, agent: HostAgent, record: OwnRecord, space: int, interest: Interest) -> None:
        super().__init__(agent, record)
        self._space = space
        self._interest = interest

    @contextmanager
    def replace_filter(self, source: object) -> Iterator[None]:
        """Replace the filter if the body succeeds; during the body both filters count."""
        before, after = self._interest.expressions, Expression(source)
        self._interest.expressions = (*before, after)
        try:
            with super().replace_filter(source):
                yield
        except BaseException:
            self._interest.expressions = before
            raise
        self._interest.expressions = (after,)

    def release(self) -> None:
        """Stop keeping the record alive, and deliver no more events."""
        super().release()
        self.agent.sorter.remove(self._space, self._interest)
        self._interest.inbox.close()


class AdvertisementHandle(Handle):
    """An advertisement, under which events can be published."""

    def publish(self, event: Mapping[str, object]) -> int:
        """Publish an event that matches the advertisement; returns its id. From any thread."""
        if self.record.closed:
            raise Closed("the advertisement is closed; advertise again to publish")
        view = self.view
        keys = view.space.keys(event)
        advertised = self._expression.filter(view)
        if advertised is None or not advertised.matches(keys):
            text = f"the event lies outside what {self.record.id} advertises"
            raise OutsideAdvertisement(f"{text}; the switches would drop it: widen the filter")
        return self.agent.send(view, keys, event)


class Advertised:
    """All that a host had advertised in a space when it was read, by any application."""

    def __init__(self, agent: HostAgent, space: str, expressions: list[Expression]) -> None:
        self._agent = agent
        self._space = space
        self._expressions = expressions

    def publish(self, event: Mapping[str, object]) -> int | None:
        """Publish an event; returns its id, or None if no advertisement matches it."""
        view = self._agent.spaces.view(self._space)
        keys = view.space.keys(event)
        for expression in self._expressions:
            advertised = expression.filter(view)
            if advertised is not None and advertised.matches(keys):
                return self._agent.send(view, keys, event)
        return None
