"""What the desk side needs done to many events, in Rust. Results cross as JSON, tables as files."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

def build_run(
    repeat_dir: str | PathLike[str],
    reference: str,
    wander: float,
    messages: Mapping[str, Sequence[tuple[bool, int, int]]],
    foreign: Sequence[Mapping[str, Any]],
    out: str | PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> str: ...
def solve_run(
    repeat_dir: str | PathLike[str],
    reference: str,
    wander: float,
    messages: Mapping[str, Sequence[tuple[bool, int, int]]],
    out: str | PathLike[str],
) -> None: ...
def stream_files(repeat_dir: str | PathLike[str], draft: str | PathLike[str]) -> list[str]: ...
def decode_stream(
    repeat_dir: str | PathLike[str],
    draft: str | PathLike[str],
    index: int,
    out: str | PathLike[str],
) -> None: ...
def conclude_run(
    repeat_dir: str | PathLike[str],
    draft: str | PathLike[str],
    foreign: Sequence[Mapping[str, Any]],
    out: str | PathLike[str],
) -> str: ...
def export_ctf(
    tables: Sequence[tuple[str, Sequence[str | PathLike[str]]]],
    reference: str | PathLike[str],
    out: str | PathLike[str],
    uuid: str,
    env: Mapping[str, str],
    progress: Callable[[int, int], None],
) -> str: ...
def check_foreign(
    repeat_dir: str | PathLike[str], source: Mapping[str, Any], path: str | PathLike[str]
) -> None: ...
def build_record(
    dir: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> str: ...
def synthetic_counters(seed: int, host: str, counters: list[int]) -> list[int]: ...
def synthetic_inverse(seed: int, host: str, counters: list[int]) -> list[int]: ...
def frequencies(repeat_dir: str | PathLike[str]) -> dict[str, int]: ...
def check_predicate(text: str) -> tuple[int, str] | None: ...
def check_link(settings: str) -> tuple[str, str] | None: ...
def check_netem(settings: str) -> tuple[str, str] | None: ...
def link_longest_ns(settings: str, netem: bool) -> int: ...
def check_link_trace(kind: str, path: str | PathLike[str]) -> tuple[int | None, str] | None: ...
def read_messages(text: str, file: str) -> str: ...
def import_ctf(
    dir: str | PathLike[str],
    out: str | PathLike[str] | None,
    progress: Callable[[int, int], None],
) -> str: ...
