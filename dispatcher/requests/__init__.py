"""The path of a request: admission, indexing, the record in etcd, delivery, settling, the reply."""
