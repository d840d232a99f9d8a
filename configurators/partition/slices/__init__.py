"""Slices of tasks: queues and decides them, pushes them, undoes what a full table refuses."""
