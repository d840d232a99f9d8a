"""The errors of OpenFlow in words."""

_BAD_REQUEST = (
    "the version is not supported",
    "this type of message is not supported",
    "this type of multipart request is not supported",
    "this experimenter is not supported",
    "this type of experimenter message is not supported",
    "no permission",
    "the length of the message is wrong",
    "the buffer has already been used",
    "the buffer does not exist",
    "the table does not exist",
    "refused because this controller is a slave; another one is the master",
    "the port does not exist",
    "the packet in the packet-out is invalid",
    "the multipart request is too long for the switch's buffer",
    "the rest of the multipart request did not come in time",
    "the multipart reply could not be sent in time",
)

_BAD_ACTION = (
    "the type of action is unknown",
    "the length of the action is wrong",
    "the experimenter is unknown",
    "the experimenter's action is unknown",
    "the output port does not exist",
    "an argument of the action is bad",
    "no permission",
    "more actions than the switch can handle",
    "the output queue does not exist",
    "the group does not exist",
    "the action does not fit the match",
    "the order of actions is not supported",
    "an action has an unsupported tag",
    "the field to set is not supported",
    "the length of the field to set is wrong",
    "the value to set is bad",
)

_BAD_INSTRUCTION = (
    "the instruction is unknown",
    "the instruction is not supported in this table",
    "the table to go to does not exist or is not a later one",
    "this metadata mask is not supported",
    "this metadata value mask is not supported",
    "the experimenter is unknown",
    "the experimenter's instruction is unknown",
    "the length of the instruction is wrong",
    "no permission",
    "the instruction is there twice",
)

_BAD_MATCH = (
    "the type of match is not supported",
    "the length of the match is wrong",
    "a tag or encapsulation in the match is not supported",
    "this mask of a data link address is not supported",
    "this mask of a network address is not supported",
    "the combination of fields left out is not supported",
    "a field of the match is not supported",
    "a value of the match is not supported",
    "this mask is not supported",
    "a field lacks one that it needs beside it",
    "a field is there twice",
    "no permission",
)

_FLOW_MOD_FAILED = (
    "unknown reason",
    "the table is full",
    "the table does not exist",
    "the entry overlaps another one",
    "no permission",
    "the time-outs are not supported",
    "the command is unknown",
    "the flags are not supported",
    "synchronised tables cannot take the entry",
    "the priority is not supported",
)

_GROUP_MOD_FAILED = (
    "the group exists already",
    "the group is invalid",
    "weights are not supported",
    "there is no room for more groups",
    "there is no room for more buckets",
    "groups that lead to groups are not supported",
    "watching is not supported for this group",
    "the group would make a loop",
    "the group does not exist",
    "another group leads to this one",
    "the type of group is not supported",
    "the command is unknown",
    "a bucket is bad",
    "the watched port or group is bad",
    "no permission",
)

_TYPES: dict[int, tuple[str, tuple[str, ...]]] = {
    0: ("hello", ("there is no common version", "no permission")),
    1: ("request", _BAD_REQUEST),
    2: ("action", _BAD_ACTION),
    3: ("instruction", _BAD_INSTRUCTION),
    4: ("match", _BAD_MATCH),
    5: ("flow-mod", _FLOW_MOD_FAILED),
    6: ("group-mod", _GROUP_MOD_FAILED),
    11: (
        "role request",
        (
            "the generation is stale, a later master has asked already",
            "roles are not supported",
            "the role is invalid",
        ),
    ),
    13: (
        "table features",
        (
            "the table does not exist",
            "the metadata mask is not supported",
            "the type of property is unknown",
            "the length of a property is wrong",
            "an argument of a property is bad",
            "no permission",
        ),
    ),
    14: (
        "property",
        (
            "the type of property is unknown",
            "the length of a property is wrong",
            "the value of a property is not supported",
            "more properties than the switch can handle",
            "a property is there twice",
            "the experimenter is unknown",
            "the experimenter's property is unknown",
            "the value of an experimenter's property is not supported",
            "no permission",
        ),
    ),
    15: ("asynchronous messages", ("a mask is invalid", "not supported", "no permission")),
    16: (
        "flow monitor",
        (
            "unknown reason",
            "the monitor exists already",
            "the monitor is invalid",
            "the monitor does not exist",
            "the command is unknown",
            "the flags are not supported",
            "the table does not exist",
            "the output port or group is bad",
        ),
    ),
}

_EXPERIMENTER = 0xFFFF


def in_words(kind: int, code: int) -> str:
    """What an error of this type and code says."""
    if kind == _EXPERIMENTER:
        return f"an experimenter's error, type {code}"
    if kind not in _TYPES:
        return f"error type {kind}, code {code}"
    what, codes = _TYPES[kind]
    return f"{what}: {codes[code]}" if code < len(codes) else f"{what}: code {code}"
