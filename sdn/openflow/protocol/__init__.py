"""The OpenFlow 1.3 and 1.4 protocol without I/O: messages, codec, and the session state machine."""
