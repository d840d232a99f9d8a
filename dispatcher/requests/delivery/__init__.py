"""Delivers tasks to configurators (pushed or offered), and gathers their answers."""
