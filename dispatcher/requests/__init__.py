"""The way of a request: take in, write to etcd, deliver to partitions, settle, reply."""
