"""The parts of the service and their options, from the settings: one module per kind of process.

A process imports only its own module, because a worker that is restarted has to be back soon.
"""
