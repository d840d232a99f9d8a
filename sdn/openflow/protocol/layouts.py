"""The layouts of the frequent messages, for encoder and decoder."""

import struct
from struct import Struct

from dzflow.address import DELIVERY, DELIVERY_MAC
from sdn.openflow.protocol.constants import ANY, ETH_IPV6, ActionType, Oxm
from sdn.openflow.protocol.wire import TYPE_LENGTH

# Version, type and length of a flow-mod are packed as one number; so are both time-outs when read,
# and buffer, port and group when written.
FLOW_MOD = Struct("!IIQQBB4xH12s4x")
FLOW_MOD_READ = Struct("!BBHIQQBBIH4xIIH2x")
FLOW_STAT = Struct("!HBx8xHI6xQQQ")

IN_PORT = Struct("!II")
IPV6 = struct.pack("!IH", Oxm.ETH_TYPE, ETH_IPV6)
EXACT = IPV6 + struct.pack("!I", Oxm.IPV6_DST)
MASKED = IPV6 + struct.pack("!I", Oxm.IPV6_DST_MASKED)
# By far the most frequent match: an address with a mask on any port.
MASKED_MATCH = TYPE_LENGTH.pack(1, 46) + MASKED
MASKED_MATCH_SIZE = 48

APPLY = Struct("!HH4x")
GOTO = Struct("!HHB3x")
OUTPUT = Struct("!HHIH6x")
TO_GROUP = Struct("!HHI")

GROUP_MOD = Struct("!BBHIHBxI")
GROUP_DESC = Struct("!HBxI")
BUCKET = Struct("!HHII4x")
BUCKET_PORT = Struct("!I8x")  # the rest of an output action after DELIVER
# What every host's bucket does: rewrite the copy to where all subscribers listen, and send it out.
DELIVER = (
    struct.pack(
        "!HHI6s2x",
        ActionType.SET_FIELD,
        16,
        Oxm.ETH_DST,
        bytes.fromhex(DELIVERY_MAC.replace(":", "")),
    )
    + struct.pack("!HHI16s", ActionType.SET_FIELD, 24, Oxm.IPV6_DST, DELIVERY.to_bytes(16, "big"))
    + TYPE_LENGTH.pack(ActionType.OUTPUT, OUTPUT.size)
)
BUCKET_SIZE = BUCKET.size + len(DELIVER) + BUCKET_PORT.size
BUCKET_HEAD = BUCKET.pack(BUCKET_SIZE, 0, ANY, ANY) + DELIVER
