"""Carries out requests: takes them in, stores them, has partitions do them, answers callers."""
