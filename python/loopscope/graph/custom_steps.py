"""Steps of a person's own, in a Python file in the folder of the experiment's or the graph's.

The file's text travels with the graph, so that the same step runs again where the file is not, and
on executors.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import ibis
import pyarrow as pa

from loopscope.graph.engine import arrow_schema
from loopscope.graph.mistake import Mistake, column
from loopscope.pandas_import import allow_pandas

if TYPE_CHECKING:
    from loopscope.graph.build import Context
    from loopscope.graph.engine import Batches

    Options = Mapping[str, Any]

_TYPES = {"integer": "int64", "real": "float64", "text": "string", "boolean": "boolean"}


@dataclass(frozen=True)
class UserFunction:
    """A function by the text of its module. Called it raises UserError where it fails."""

    module: str
    name: str
    text: str
    options: Mapping[str, Any]
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of the batches that it gives, with their types."""

    def __call__(self, given: Any) -> Any:
        try:
            return self._function()(given, **self.options)
        except (Exception, SystemExit) as error:
            raise UserError(self.place(error)) from None

    def batches(self, given: Batches) -> Batches:
        """The step's batches for the given ones, one after the other."""
        try:
            for batch in self._function()(given, **self.options):
                yield self._checked(batch)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise UserError(self.place(error)) from None

    def _checked(self, batch: Any) -> pa.RecordBatch:
        call = f"{self.module}:{self.name}"
        if not isinstance(batch, pa.RecordBatch):
            raise UserError(f"{call} gave {type(batch).__name__}, not a record batch of Arrow")
        if batch.schema.names != list(self.columns):
            given, wanted = ", ".join(batch.schema.names), ", ".join(self.columns)
            raise UserError(f"{call} gave the columns {given}, but the step says {wanted}")
        columns = []
        for column_, given in zip(arrow_schema(self.columns), batch.columns, strict=True):
            try:
                columns.append(given.cast(column_.type))
            except pa.ArrowException as error:
                raise UserError(
                    f"{call} gave in the column {column_.name} what is no {column_.type}: {error}"
                ) from None
        return pa.RecordBatch.from_arrays(columns, names=list(self.columns))

    def place(self, error: BaseException) -> str:
        """The innermost line of the module's file that an error came through, and the error."""
        file = f"{self.module}.py"
        frames = traceback.extract_tb(error.__traceback__)
        line = next((f.lineno for f in reversed(frames) if f.filename == file), None)
        what = str(error).strip().splitlines() or [""]
        place = file if line is None else f"{file}, line {line}"
        return f"{place}: {type(error).__name__}: {what[0]}"

    def _function(self) -> Any:
        allow_pandas()
        module = ModuleType(self.module)
        exec(compile(self.text, f"{self.module}.py", "exec"), module.__dict__)
        return getattr(module, self.name)


class UserError(Exception):
    """A person's own function failed. The text says where."""


def python(context: Context, table: ibis.Table, options: Options) -> ibis.Table:
    module, _, name = options["call"].partition(":")
    function = UserFunction(module, name, context.modules[module], options["options"])
    if options["columns"] is None:
        try:
            made = function(table)
        except UserError as error:
            raise Mistake(str(error)) from None
        if not isinstance(made, ibis.Table):
            raise Mistake(
                f"{options['call']} gave {type(made).__name__}, not an Ibis table: for Arrow "
                "batches say which columns it gives"
            )
        return made
    for by in options["by"]:
        column(table, by, ("by",))
    types = {name: _TYPES[kind] for name, kind in options["columns"].items()}
    function = replace(function, columns=types)
    return context.engine.mapped(table, options["by"], function.batches, types)
