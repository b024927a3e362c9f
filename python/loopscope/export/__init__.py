"""A run in the forms of other tools."""

from loopscope.export.bundle import write_bundle
from loopscope.export.ctf import write_ctf
from loopscope.export.perfetto import write_perfetto
from loopscope.export.tables import FORMATS, printable, write_batches, write_tables

__all__ = [
    "FORMATS",
    "printable",
    "write_batches",
    "write_bundle",
    "write_ctf",
    "write_perfetto",
    "write_tables",
]
