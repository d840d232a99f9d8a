"""Events on a host: datagrams, the links that carry them, and their delivery to subscriptions."""
