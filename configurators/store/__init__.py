"""State in etcd: the keys, the documents stored under them, locks, and process registration."""
