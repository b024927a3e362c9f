"""Serialisation of results as JSON.

Pydantic serialises the dataclasses by their fields, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    WrapSerializer,
    model_serializer,
)

INTERNAL = Field(exclude=True)
"""Marks a field that is not in the JSON."""
OPTIONAL = Field(exclude_if=lambda value: value is None)
"""Marks a field that is in the JSON unless it is None."""
UNLESS_EMPTY = Field(exclude_if=lambda value: not value)
"""Marks a field that is in the JSON unless it is empty, 0 or False."""


class Document:
    """A dataclass that is a JSON object.

    Its field `times`, a mapping of statistics, becomes one entry `<name>_ns` for each statistic.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        arbitrary_types_allowed=True, ser_json_inf_nan="constants"
    )

    @model_serializer(mode="wrap")
    def _with_times(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for key, each in serialise(self).items():
            document |= {f"{n}_ns": ns for n, ns in each.items()} if key == "times" else {key: each}
        return document

    @classmethod
    def prepare(cls) -> None:
        """Makes what serialises these, which takes some time, before there is one."""
        kind: Any = cls
        _adapter(kind)

    def to_dict(self) -> dict[str, Any]:
        """The fields as an object that `json.dumps` takes."""
        kind: Any = type(self)
        made: dict[str, Any] = _adapter(kind).dump_python(self, mode="json", by_alias=True)
        return made


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def keyed_by(key: str) -> WrapSerializer:
    """Marks a tuple of results that is an object in the JSON: `key` of each result to the result.

    `key` is the name of an attribute.
    """

    def document(
        results: Sequence[Any], serialise: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        return {getattr(e, key): made for e, made in zip(results, serialise(results), strict=True)}

    return WrapSerializer(document)
