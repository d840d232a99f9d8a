"""The workers as Ray actors. Ray places and restarts them; no data goes through Ray.

Each actor runs its service in a thread with an event loop of its own. If the service fails, the
actor's process ends, and Ray starts another one, which loads its state from etcd.

Each kind of worker has its own module, so that its process imports nothing of the others. Ray takes
a class with coroutine methods for an actor whose calls are coroutines, so these have none. Their
names are those of the workers.
"""
