"""The stamps of a host's clock probes, from its clock log (`schema/clock-log.md`)."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from loopscope._native import import_ctf
from loopscope.layout import event_files
from loopscope.timeline.table_error import RunError

if TYPE_CHECKING:
    import pyarrow as pa

MOMENTS = ("probe_sent", "probe_received", "reply_sent", "reply_received")
"""The events of an exchange, in order."""
_FREQUENCY = re.compile(r"\bfreq = (\d+);")
_SECOND = 1_000_000_000


def read_probe_log(directory: Path) -> dict[str, pa.Table]:
    """The rows of each of `MOMENTS`, in the order of logging.

    Columns: `peer` and `id`, which name the probe; `lo` and `hi`, between which values of the
    host's counter it was stamped; `source`, of the stamp; `logged` (int64), the value at which the
    host's thread wrote it down, as exactly as 1 ns. Raises `RunError` where the log cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = directory / "metadata"
    found = {}
    with tempfile.TemporaryDirectory(prefix="loopscope-probes-") as spool:
        try:
            frequency = _FREQUENCY.search(metadata.read_text(encoding="utf-8"))
            import_ctf(directory, spool, lambda _done, _all: None)
        except (OSError, ValueError) as error:
            raise RunError(f"the clock log {directory} cannot be read: {error}") from error
        if frequency is None:
            raise RunError(f"{metadata} does not say at which frequency the counter runs")
        types = {"ts": pa.int64(), "peer": pa.uint32(), "id": pa.int64()}
        types |= {"lo": pa.uint64(), "hi": pa.uint64(), "source": pa.uint8()}
        schema = pa.schema(list(types.items()))
        hz = int(frequency[1])
        for name in MOMENTS:
            files = event_files(Path(spool), "clock", name)
            parts = [pq.read_table(file, columns=list(types)).cast(schema) for file in files]
            rows = pa.concat_tables(parts) if parts else schema.empty_table()
            seconds, rest = divmod(rows["ts"].to_numpy(), _SECOND)
            logged = pa.array(seconds * hz + rest * hz // _SECOND)
            found[name] = rows.drop_columns(["ts"]).append_column("logged", logged)
    return found
