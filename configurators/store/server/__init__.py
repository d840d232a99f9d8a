"""The embedded etcd server: finding a trustworthy binary, starting it, and stopping it."""
