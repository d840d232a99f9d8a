"""Calls with idempotency keys: what a key stands for, and what has become of it before."""

from collections.abc import Collection, Mapping, Sequence

from configurators.environment import Clock
from configurators.store.documents import decode_key_use
from configurators.store.etcd.client import Etcd
from configurators.store.model import KeyUse, Record, RecordKind
from configurators.store.upkeep import SharedLeases
from dispatcher.calls import Answer, RecordSpec
from dispatcher.errors import Conflict, Problem, QuotaReached
from dispatcher.requests.calls.idempotency import claim, fingerprint, removed_until
from dispatcher.requests.calls.pending_reply import PendingReply
from dispatcher.requests.calls.record_view import RecordViews
from dispatcher.requests.calls.replies import Replies
from dispatcher.requests.intake.intake import Intake
from dispatcher.requests.operation import Action
from dispatcher.requests.writing.stored_records import StoredRecord, read_many
from dzflow.aio import PauseByTime
from dzflow.errors import DzflowError

_FORGOTTEN = (
    "this idempotency key was used before, and the record that it began, if any, has ended and is"
    " no longer kept; use a new key for a new call"
)


class KeyedCalls:
    """Claims keys for calls; for a repeated call, finds what the earlier one has begun or ended."""

    def __init__(
        self,
        etcd: Etcd,
        intake: Intake,
        views: RecordViews,
        replies: Replies,
        leases: SharedLeases,
        finished_ttl: float,
        clock: Clock,
    ) -> None:
        self._etcd = etcd
        self._intake = intake
        self._views = views
        self._replies = replies
        self._leases = leases
        self._surely_known = finished_ttl / 2  # seconds after its beginning
        self._clock = clock
        self._hosts_in_debt: set[str] = set()  # a call with a key indexes filters of these now

    async def claim_begin(
        self,
        kind: RecordKind,
        specs: Sequence[RecordSpec | Problem],
        reply: PendingReply,
        wanted: dict[int, RecordSpec],
        name: str,
        restricted: bool,
    ) -> Mapping[int, str]:
        """The ids that a key stands for; elements that were begun before leave `wanted`.

        TooManyRequests if the filters of earlier calls took too much time: then the key is not
        used. It is not used either if quotas leave no room for any element.
        """
        tagged = [["Refused" if isinstance(spec, Problem) else "Ask", spec] for spec in specs]
        mark = fingerprint(kind, tagged)
        use = await self._earlier_use(name, mark)
        if use is None:
            ids = await self._new_ids(kind, reply, wanted, restricted)
            self._refuse_all_beyond_quota(reply, wanted)
            if not wanted:
                return ids  # a call of which nothing is left does not use up its key
            claimed = KeyUse(
                mark, tuple(ids.get(n, "") for n in range(len(specs))), self._clock.wall()
            )
            use = await claim(self._etcd, self._leases, name, claimed)
            if use is None:
                return ids
        known = await self._read_any(use.ids)
        old = not all(use.ids[place] in known for place in wanted) and await self._is_old(use)
        for place, spec in list(wanted.items()):
            id = use.ids[place]
            if id in known:
                self._answer_again(reply, place, "begin", known[id].record)
            elif not id:
                reply.refuse(place, self._refusal(kind, spec, restricted))
            elif old:
                reply.refuse(place, Conflict(_FORGOTTEN))
            else:
                continue
            del wanted[place]
        for host in {spec.host for spec in wanted.values()}:
            self._intake.check_work(host)
        return dict(enumerate(use.ids))

    async def _new_ids(
        self,
        kind: RecordKind,
        reply: PendingReply,
        wanted: dict[int, RecordSpec],
        restricted: bool,
    ) -> dict[int, str]:
        """Ids for the elements that can be begun; the others are refused and leave `wanted`.

        A call may take more time than its hosts have left, or a large one could never succeed; but
        only one at a time for each host.
        """
        hosts = {spec.host for spec in wanted.values()}
        for host in hosts:
            self._intake.check_work(host)
        first = hosts - self._hosts_in_debt
        self._hosts_in_debt |= first
        ids: dict[int, str] = {}
        pause = PauseByTime(self._clock.monotonic)
        try:
            for place, spec in list(wanted.items()):
                if spec.host not in first:
                    self._intake.check_work(spec.host)
                try:
                    ids[place] = self._intake.new_record_id(kind, spec, restricted)
                except DzflowError as error:
                    reply.refuse(place, error)
                    del wanted[place]
                if pause.due:
                    await pause.let_others_run()
        finally:
            self._hosts_in_debt -= first
        return ids

    def _refuse_all_beyond_quota(self, reply: PendingReply, wanted: dict[int, RecordSpec]) -> None:
        """Refuse all elements if there is no room for any of them, so that the key stays unused."""
        refused: dict[int, QuotaReached] = {}
        for place, spec in wanted.items():
            try:
                self._intake.check_quota(spec)
            except QuotaReached as error:
                refused[place] = error
            else:
                return
        for place, reason in refused.items():
            reply.refuse(place, reason)
        wanted.clear()

    async def _is_old(self, use: KeyUse) -> bool:
        """Whether a record that this use of a key began may have finished and been removed."""
        if self._clock.wall() - use.made > self._surely_known:
            return True
        return use.made <= await removed_until(self._etcd)

    def _refusal(self, kind: RecordKind, spec: RecordSpec, restricted: bool) -> DzflowError:
        """Why an element is refused that was refused when its key was first used."""
        try:
            self._intake.check_work(spec.host)
            self._intake.new_record_id(kind, spec, restricted)
        except DzflowError as error:
            return error
        return Conflict("this element was refused when the key was first used; use a new key")

    async def claim_end(
        self,
        kind: RecordKind,
        ids: Sequence[str | Problem],
        wanted: Mapping[int, str],
        live: Collection[str],
        name: str,
    ) -> dict[str, StoredRecord]:
        """The records that an earlier call under this key has ended, as far as they are kept."""
        mark = fingerprint(f"end {kind}", ids)
        if any(id in live for id in wanted.values()):
            used = tuple(wanted.get(place, "") for place in range(len(ids)))
            use = KeyUse(mark, used, self._clock.wall())
            earlier = await claim(self._etcd, self._leases, name, use)
        else:
            earlier = await self._earlier_use(name, mark)
        if not earlier:
            return {}
        return await read_many(self._etcd, list(wanted.values()), finished=True)

    async def _read_any(self, ids: Sequence[str]) -> dict[str, StoredRecord]:
        finished = await read_many(self._etcd, ids, finished=True)
        return finished | await read_many(self._etcd, ids)

    async def _earlier_use(self, name: str, mark: bytes) -> KeyUse | None:
        """The use of a key by an equal call, if there was one; Conflict if it was another."""
        stored = await self._etcd.get(name)
        if stored is None:
            return None
        use = decode_key_use(stored.value)
        if use.fingerprint != mark:
            raise Conflict("this idempotency key was used for another call", "key-reused")
        return use

    def _answer_again(
        self, reply: PendingReply, place: int, action: Action, record: Record
    ) -> None:
        """Answer with what has become of a record that an earlier call began."""
        if record.open and not record.reindexing:
            self._replies.follow(reply.element(place), action, record)
        elif record.state == "removed":
            reply.answer(place, Answer(200, self._views.view(record)))
        else:
            reply.answer(place, self._replies.answer_for(action, record))
