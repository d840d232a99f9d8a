"""The OpenFlow errors with which an emulated switch refuses messages."""

from typing import NamedTuple

from dzflow.errors import DzflowError
from sdn.openflow.protocol.constants import ErrorType
from sdn.openflow.protocol.refusals import in_words


class ErrorCode(NamedTuple):
    """Type and code of an OpenFlow error."""

    kind: int
    code: int


class Refused(DzflowError):
    """A message that the switch does not carry out; the controller gets this error for it."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(in_words(*error))
        self.error = error


BAD_VERSION = ErrorCode(ErrorType.BAD_REQUEST, 0)
BAD_TYPE = ErrorCode(ErrorType.BAD_REQUEST, 1)
BAD_MULTIPART = ErrorCode(ErrorType.BAD_REQUEST, 2)
BAD_LEN = ErrorCode(ErrorType.BAD_REQUEST, 6)
BUFFER_UNKNOWN = ErrorCode(ErrorType.BAD_REQUEST, 8)
BAD_REQUEST_TABLE = ErrorCode(ErrorType.BAD_REQUEST, 9)
IS_SLAVE = ErrorCode(ErrorType.BAD_REQUEST, 10)
BAD_PORT = ErrorCode(ErrorType.BAD_REQUEST, 11)

BAD_ACTION_TYPE = ErrorCode(ErrorType.BAD_ACTION, 0)
BAD_ACTION_LEN = ErrorCode(ErrorType.BAD_ACTION, 1)
BAD_OUT_PORT = ErrorCode(ErrorType.BAD_ACTION, 4)
BAD_OUT_GROUP = ErrorCode(ErrorType.BAD_ACTION, 9)
BAD_SET_TYPE = ErrorCode(ErrorType.BAD_ACTION, 13)
BAD_SET_LEN = ErrorCode(ErrorType.BAD_ACTION, 14)

UNKNOWN_INSTRUCTION = ErrorCode(ErrorType.BAD_INSTRUCTION, 0)
UNSUPPORTED_INSTRUCTION = ErrorCode(ErrorType.BAD_INSTRUCTION, 1)
BAD_GOTO = ErrorCode(ErrorType.BAD_INSTRUCTION, 2)
BAD_INSTRUCTION_LEN = ErrorCode(ErrorType.BAD_INSTRUCTION, 7)
DUPLICATE_INSTRUCTION = ErrorCode(ErrorType.BAD_INSTRUCTION, 9)

BAD_MATCH_TYPE = ErrorCode(ErrorType.BAD_MATCH, 0)
BAD_MATCH_LEN = ErrorCode(ErrorType.BAD_MATCH, 1)
BAD_WILDCARDS = ErrorCode(ErrorType.BAD_MATCH, 5)
BAD_FIELD = ErrorCode(ErrorType.BAD_MATCH, 6)
BAD_MASK = ErrorCode(ErrorType.BAD_MATCH, 8)
BAD_PREREQUISITE = ErrorCode(ErrorType.BAD_MATCH, 9)
DUPLICATE_FIELD = ErrorCode(ErrorType.BAD_MATCH, 10)

TABLE_FULL = ErrorCode(ErrorType.FLOW_MOD_FAILED, 1)
BAD_TABLE = ErrorCode(ErrorType.FLOW_MOD_FAILED, 2)
NO_PERMISSION = ErrorCode(ErrorType.FLOW_MOD_FAILED, 4)
BAD_TIMEOUT = ErrorCode(ErrorType.FLOW_MOD_FAILED, 5)
BAD_COMMAND = ErrorCode(ErrorType.FLOW_MOD_FAILED, 6)
BAD_FLAGS = ErrorCode(ErrorType.FLOW_MOD_FAILED, 7)

GROUP_EXISTS = ErrorCode(ErrorType.GROUP_MOD_FAILED, 0)
INVALID_GROUP = ErrorCode(ErrorType.GROUP_MOD_FAILED, 1)
OUT_OF_GROUPS = ErrorCode(ErrorType.GROUP_MOD_FAILED, 3)
NO_CHAINING = ErrorCode(ErrorType.GROUP_MOD_FAILED, 5)
UNKNOWN_GROUP = ErrorCode(ErrorType.GROUP_MOD_FAILED, 8)
BAD_GROUP_TYPE = ErrorCode(ErrorType.GROUP_MOD_FAILED, 10)
BAD_GROUP_COMMAND = ErrorCode(ErrorType.GROUP_MOD_FAILED, 11)

STALE_GENERATION = ErrorCode(ErrorType.ROLE_REQUEST_FAILED, 0)
BAD_ROLE = ErrorCode(ErrorType.ROLE_REQUEST_FAILED, 2)

FIXED_TABLE_FEATURES = ErrorCode(13, 5)
BAD_PROPERTY = ErrorCode(14, 0)

MONITOR_EXISTS = ErrorCode(16, 1)
UNKNOWN_MONITOR = ErrorCode(16, 3)
BAD_MONITOR_COMMAND = ErrorCode(16, 4)
BAD_MONITOR_FLAGS = ErrorCode(16, 5)
BAD_MONITOR_TABLE = ErrorCode(16, 6)
