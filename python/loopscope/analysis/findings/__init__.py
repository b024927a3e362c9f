"""Patterns in the times of a path's messages, each with its evidence, found by tests on series."""
