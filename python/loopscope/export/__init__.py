"""A run in the forms of other tools."""

from loopscope.export.perfetto import write_perfetto
from loopscope.export.tables import FORMATS, write_tables

__all__ = ["FORMATS", "write_perfetto", "write_tables"]
