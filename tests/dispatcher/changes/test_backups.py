"""What is no backup, or one that cannot come back, is refused before anything is changed."""

import msgspec
import pytest

from configurators.state.spaces import new_space
from configurators.store.model import RecordKind
from dispatcher.changes.backups import Backup, BadBackup, SavedRecord, read_backup
from tests.dispatcher.support import SCHEMA


def saved(id: str, kind: RecordKind = "subscription", space: str = "stocks") -> bytes:
    record = SavedRecord(id, kind, "h1", space, {}, 1.0)
    doc = new_space("stocks", 10, SCHEMA, "legs", 5)
    return msgspec.json.encode(Backup("dzflow backup 1", 1.0, [doc], [], [record]))


def test_a_backup_is_read() -> None:
    [record] = read_backup(saved("sa-0123456789abcdef")).records
    assert record.id == "sa-0123456789abcdef"


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        saved("../spaces/stocks"),
        saved(""),
        saved("s1-0123456789abcdef"),
        saved("aa-0123456789abcdef"),
        saved("sa-0123456789abcdef", "advertisement"),
        saved("sa-0123456789abcdef", space="sports"),
    ],
)
def test_ids_that_records_cannot_have_are_refused(data: bytes) -> None:
    with pytest.raises(BadBackup):
        read_backup(data)
