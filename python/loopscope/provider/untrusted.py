"""What a host's agent sends, made safe to use and to show.

A host is not trusted: its texts reach terminals and files here.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from loopscope.provider.printable import printable

# The longest text, in characters (the agent itself cuts lines there), and list, in elements.
LONGEST_TEXT = 64 * 1024
LONGEST_LIST = 1000
# The largest JSON that a component publishes, in characters, and how deep it is nested.
LARGEST_VALUES = 1 << 20
DEEPEST = 32


class UntrustedError(Exception):
    """A host has sent what no agent sends; the text says what."""


def clean(message: Message) -> None:
    """Makes all texts in a message printable and shortens them and all lists, in place.

    JSON is left as it is: ``json_object`` checks it.
    """
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _clean_map(value, field)
        elif field.is_repeated:
            del value[LONGEST_LIST:]
            for i, each in enumerate(value):
                if isinstance(each, Message):
                    clean(each)
                elif isinstance(each, str):
                    value[i] = _cleaned(each)
        elif isinstance(value, Message):
            clean(value)
        elif isinstance(value, str) and not field.name.endswith("_json"):
            setattr(message, field.name, _cleaned(value))


def _clean_map(entries: Any, field: FieldDescriptor) -> None:
    """Only texts are keys here, and numbers and bytes values."""
    kept = {_cleaned(key): entries[key] for key in list(entries)[:LONGEST_LIST]}
    entries.clear()
    entries.update(kept)


def _cleaned(text: str) -> str:
    return printable(text[:LONGEST_TEXT])


def json_object(text: str) -> dict[str, Any]:
    """The object that a host has sent as JSON. Raises UntrustedError."""
    if len(text) > LARGEST_VALUES:
        raise UntrustedError(f"an object of {len(text)} characters")
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise UntrustedError(f"what is no JSON: {printable(text[:80])}") from None
    if not isinstance(found, dict):
        raise UntrustedError(f"what is no JSON object: {printable(text[:80])}")
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
        if not level:
            return found
    raise UntrustedError(f"an object that is nested more than {DEEPEST} times")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def relative_file(name: str) -> PurePosixPath:
    """A file within a host's folder. Raises UntrustedError for any other place."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or not name.isprintable():
        raise UntrustedError(f"a file outside of its folder: {printable(name[:80])}")
    return path
