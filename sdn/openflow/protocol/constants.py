"""The numbers of OpenFlow 1.3 and 1.4 that we use, under the names of the specification."""

from enum import IntEnum

from sdn.tables.flows import COOKIE_MARK

V1_3 = 4
V1_4 = 5
VERSIONS = (V1_3, V1_4)

OUR_COOKIES = COOKIE_MARK << 48
OUR_COOKIE_MASK = 0xFFFF << 48

NO_BUFFER = 0xFFFFFFFF
ANY = 0xFFFFFFFF  # of ports and of groups
CONTROLLER_PORT = 0xFFFFFFFD
MAX_PORT = 0xFFFFFF00  # ports above it are not real ones
ALL_TABLES = 0xFF
MAX_XID = 0xFFFFFFFF


class Type(IntEnum):
    """The type of a message."""

    HELLO = 0
    ERROR = 1
    ECHO_REQUEST = 2
    ECHO_REPLY = 3
    EXPERIMENTER = 4
    FEATURES_REQUEST = 5
    FEATURES_REPLY = 6
    GET_CONFIG_REPLY = 8
    PACKET_IN = 10
    FLOW_REMOVED = 11
    PORT_STATUS = 12
    PACKET_OUT = 13
    FLOW_MOD = 14
    GROUP_MOD = 15
    MULTIPART_REQUEST = 18
    MULTIPART_REPLY = 19
    BARRIER_REQUEST = 20
    BARRIER_REPLY = 21
    ROLE_REQUEST = 24
    ROLE_REPLY = 25
    GET_ASYNC_REPLY = 27
    SET_ASYNC = 28
    ROLE_STATUS = 30
    TABLE_STATUS = 31
    REQUEST_FORWARD = 32


class Multipart(IntEnum):
    """The type of a multipart message."""

    FLOW = 1
    GROUP_DESC = 7
    GROUP_FEATURES = 8
    TABLE_FEATURES = 12
    PORT_DESC = 13
    FLOW_MONITOR = 16  # 1.4 only


MORE = 1  # the flag of a multipart message that is not the last


class FlowCommand(IntEnum):
    """What a flow-mod does."""

    ADD = 0
    MODIFY = 1
    MODIFY_STRICT = 2
    DELETE = 3
    DELETE_STRICT = 4


class GroupCommand(IntEnum):
    """What a group-mod does."""

    ADD = 0
    MODIFY = 1
    DELETE = 2


GROUP_ALL = 0  # the type of group that hands a copy to every bucket


class InstructionType(IntEnum):
    """Instructions that we write."""

    GOTO_TABLE = 1
    APPLY_ACTIONS = 4


class ActionType(IntEnum):
    """Actions that we write."""

    OUTPUT = 0
    GROUP = 22
    SET_FIELD = 25


class Oxm(IntEnum):
    """The whole headers (class, field, mask flag, length) of match fields that we write."""

    IN_PORT = 0x80000004
    ETH_DST = 0x80000606
    ETH_TYPE = 0x80000A02
    IPV6_DST = 0x80003610
    IPV6_DST_MASKED = 0x80003720


ETH_IPV6 = 0x86DD


class Role(IntEnum):
    """The role of a controller for a switch."""

    NO_CHANGE = 0
    EQUAL = 1
    MASTER = 2
    SLAVE = 3


class FlowEvent(IntEnum):
    """What a flow monitor reports (1.4)."""

    INITIAL = 0
    ADDED = 1
    REMOVED = 2
    MODIFIED = 3
    ABBREV = 4
    PAUSED = 5
    RESUMED = 6


class ErrorType(IntEnum):
    """The kinds of error that we send or act on."""

    HELLO_FAILED = 0
    BAD_REQUEST = 1
    BAD_ACTION = 2
    BAD_INSTRUCTION = 3
    BAD_MATCH = 4
    FLOW_MOD_FAILED = 5
    GROUP_MOD_FAILED = 6
    ROLE_REQUEST_FAILED = 11


class BadRequest(IntEnum):
    """Codes of `ErrorType.BAD_REQUEST` that we send or act on."""

    BAD_VERSION = 0
    BAD_TYPE = 1
    BAD_EXPERIMENTER = 3
    BAD_LEN = 6
    IS_SLAVE = 10


HELLO_INCOMPATIBLE = 0
TABLE_FULL = 1
OUT_OF_GROUPS = 3
STALE_GENERATION = 0
