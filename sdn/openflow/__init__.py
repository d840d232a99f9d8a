"""OpenFlow 1.3 and 1.4: messages, and the controller's side of a connection."""
