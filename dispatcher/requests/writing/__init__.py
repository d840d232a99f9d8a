"""Writes records to etcd and reads them: first write, settling write, why a request waits."""
