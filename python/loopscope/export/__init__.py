"""A run in the forms of other tools."""

from loopscope.export.bundle import write_bundle
from loopscope.export.perfetto import write_perfetto
from loopscope.export.tables import FORMATS, write_batches, write_tables

__all__ = ["FORMATS", "write_batches", "write_bundle", "write_perfetto", "write_tables"]
