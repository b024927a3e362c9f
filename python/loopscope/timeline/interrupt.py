"""Interrupts as DuckDB tells them."""

from __future__ import annotations


def is_interrupt(error: Exception) -> bool:
    """Whether DuckDB noticed Ctrl-C before Python did. Its threads compute on until they are told
    (`interrupt` of the connection), and the end of the program would wait for them."""
    return isinstance(error, RuntimeError) and str(error) == "Query interrupted"
