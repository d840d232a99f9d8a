"""The asyncio etcd client: connections, transactions, watches, and leases."""
