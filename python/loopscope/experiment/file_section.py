"""The base of every section of the experiment file."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Discriminator

if TYPE_CHECKING:
    from .place import Place

ITEM: Final = 0
"""Stands for any index of a list in the place of a section."""
NAME: Final = "NAME"
"""Stands for any key of a mapping in the place of a section."""


class Section(BaseModel):
    """A mapping with fixed keys.

    Each key is defined by its annotation (type, unit, what is allowed), its default and its
    description; ``check`` has what concerns several keys.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def check(cls, at: Place) -> None:
        """Reports what is wrong with the section's values together, as far as they can be read."""

    @classmethod
    def keys(cls) -> list[str]:
        """The fixed keys as the file has them."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def sections(cls) -> Iterator[tuple[str, tuple[str | int, ...], type[Section]]]:
        """The sections below: the key that leads there, what is below that key, and the section.

        Other keys than the fixed ones are NAME.
        """
        hints = get_type_hints(cls, include_extras=True)
        for name, field in cls.model_fields.items():
            for place, section in _within(hints[name]):
                yield field.alias or name, place, section
        if cls.model_config.get("extra") == "allow":
            for place, section in _within(get_args(hints["__pydantic_extra__"])[1]):
                yield NAME, place, section


def _within(annotation: Any) -> Iterator[tuple[tuple[str | int, ...], type[Section]]]:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _within(parts[0])
    elif origin in (Union, types.UnionType):
        for part in parts:
            yield from _within(part)
    elif origin in (list, dict):
        step: str | int = ITEM if origin is list else NAME
        for place, section in _within(parts[-1]):
            yield (step, *place), section
    elif isinstance(annotation, type) and issubclass(annotation, Section):
        yield (), annotation


def word_or_mapping(form: str) -> Discriminator:
    """The tag of a value: ``<word>`` of text, ``<mapping>`` of a mapping.

    ``form`` refuses anything else.
    """
    return _word_or("<mapping>", dict, form)


def word_or_list(form: str) -> Discriminator:
    """The tag of a value: ``<word>`` of text, ``<list>`` of a list.

    ``form`` refuses anything else.
    """
    return _word_or("<list>", list, form)


def _word_or(tag: str, other: type, form: str) -> Discriminator:
    def kind(value: object) -> str | None:
        return "<word>" if isinstance(value, str) else tag if isinstance(value, other) else None

    return Discriminator(kind, custom_error_type="wrong", custom_error_message=form)
