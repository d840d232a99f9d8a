"""The truth, kept in etcd: what is stored, under which keys, and how it is read and written."""
