"""The published schemas, made from the models.

``python -m loopscope.experiment.schema FOLDER`` writes them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from loopscope.strict_json import to_json

from .graph_file import GraphFile
from .model import ExperimentFile
from .plan import Experiment

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _WithoutNull(GenerateJsonSchema):
    """In the file, what has no value is left out; titles would only repeat the keys.

    Defaults of whole sections are those of their keys.
    """

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        if isinstance(made.get("default"), dict | type(None)):
            made.pop("default", None)
        return made

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def experiment_schema() -> dict[str, Any]:
    """The JSON Schema of the experiment file, for editors."""
    schema = ExperimentFile.model_json_schema(schema_generator=_WithoutNull)
    return {"$schema": _DIALECT, **schema, "title": "loopscope experiment"}


def graph_schema() -> dict[str, Any]:
    """The JSON Schema of a file of pipelines."""
    schema = GraphFile.model_json_schema(schema_generator=_WithoutNull)
    return {"$schema": _DIALECT, **schema, "title": "loopscope graph"}


def manifest_schema() -> dict[str, Any]:
    """The JSON Schema of a resolved experiment; a manifest may hold more keys."""
    schema = TypeAdapter(Experiment).json_schema(mode="serialization")
    return {"$schema": _DIALECT, **schema, "title": "loopscope manifest"}


def write(folder: Path) -> None:
    """Writes all schemas."""
    for name, schema in published().items():
        (folder / name).write_text(schema, encoding="utf-8")


def published() -> dict[str, str]:
    """The schemas' texts by file name."""
    schemas = {
        "experiment.schema.json": experiment_schema(),
        "graph.schema.json": graph_schema(),
        "manifest.schema.json": manifest_schema(),
    }
    return {name: to_json(schema, indent=2) + "\n" for name, schema in schemas.items()}


if __name__ == "__main__":
    write(Path(sys.argv[1]))
