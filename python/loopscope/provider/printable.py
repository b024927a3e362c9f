"""Text that is safe to show on a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with all escaped that a terminal would act on, but tabs and the ends of lines."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text
    )
