"""The benchmark of the user-mode TCP stack: what it makes of rounds."""

from __future__ import annotations

import resource
from types import ModuleType

import stack.exchange
import stack.many
import stack.others
import stack.table
from pytest import MonkeyPatch
from targets import rows, verdicts


def _answers(monkeypatch: MonkeyPatch, values: dict[str, dict[str, list[float]]]) -> None:
    found = {"rounds": 3, "values": values, "skipped": {}}
    monkeypatch.setattr(stack.exchange, "_measured", lambda *_: found)


def _times(p50: list[float], p999: float) -> dict[str, list[float]]:
    many = len(p50)
    rest = {"p99_us": [9.0] * many, "cpu_us": [1.0] * many, "max_us": [99.0] * many}
    return {"p50_us": p50, "p999_us": [p999] * many, **rest}


def test_a_round_trip_is_compared_within_its_round(monkeypatch: MonkeyPatch) -> None:
    values = {
        "blocking": _times([50, 100, 50], 100),
        "spinning": _times([10, 20, 10], 100),
        "stack": _times([8, 20, 9], 26),
    }
    _answers(monkeypatch, values)
    found = stack.exchange.round_trips()
    ratio = found["ratios"]["stack"]["blocking"]["p50_us"]
    assert ratio == {"median": 0.18, "min": 0.16, "max": 0.2}
    assert verdicts(rows(stack.table.PARTS, {"stack-round-trip": found})) == {
        "64 B there and back over TCP, stack: p50 of stack": "met",
        "64 B there and back over TCP, stack: p99.9 of stack": "MISSED",
        "64 B there and back over TCP, stack: p50 of stack (2)": "MISSED",
    }


def test_a_stream_is_judged_by_the_kernel_without_offload_alone(monkeypatch: MonkeyPatch) -> None:
    values = {
        "blocking-bulk": {"gbit_per_s": [18.0, 18.0], "cpus": [1.5, 1.5]},
        "unsegmented-bulk": {"gbit_per_s": [8.0, 6.0], "cpus": [1.5, 1.5]},
        "stack-bulk": {"gbit_per_s": [8.0, 9.0], "cpus": [2.0, 2.0]},
    }
    _answers(monkeypatch, values)
    found = stack.exchange.bulk()
    assert found["ratios"]["stack-bulk"]["unsegmented-bulk"]["gbit_per_s"]["median"] == 1.25
    assert verdicts(rows(stack.table.PARTS, {"stack-bulk": found})) == {
        "one stream, stack-bulk: stack-bulk": "met"
    }


def test_what_was_left_out_is_not_judged(monkeypatch: MonkeyPatch) -> None:
    _answers(monkeypatch, {"stack": _times([8], 26)})
    found = stack.exchange.round_trips() | {"skipped": {"blocking": "why"}}
    assert verdicts(rows(stack.table.PARTS, {"stack-round-trip": found})) == {}
    assert list(stack.table.notes({"stack-round-trip": found})) == ["blocking was left out: why"]
    skipped = {"stack-bulk": {"skipped": "no root"}}
    (row,) = rows(stack.table.PARTS, skipped)
    assert row.measured == "not measured" and not list(stack.table.notes(skipped))


def test_many_connections_are_judged_by_the_most_of_them(monkeypatch: MonkeyPatch) -> None:
    kernel, mine = ({"per_s": [rate] * 2, **_times([300] * 2, 900)} for rate in (100.0, 90.0))
    values = {"kernel 10": mine, "unmodified 10": kernel, "kernel 900": kernel}
    values["unmodified 900"] = mine
    _is_root(monkeypatch, stack.many, values)
    monkeypatch.setattr(stack.many, "numbers", lambda _: [10, 900])
    found = stack.many.many()
    assert found["ratios"]["900"]["per_s"]["median"] == 0.9
    assert verdicts(rows(stack.table.PARTS, {"stack-many": found})) == {
        "requests over many connections, unmodified 900: rate of unmodified 900": "MISSED"
    }


def test_as_many_connections_as_descriptors_allow() -> None:
    assert stack.many.numbers(resource.RLIM_INFINITY) == [10, 100, 1000, 10_000]
    assert stack.many.numbers(1 << 20) == [10, 100, 1000, 10_000]
    assert stack.many.numbers(20_000) == [10, 100, 1000, 9900]
    assert stack.many.numbers(1024) == [10, 100, 412]
    assert stack.many.numbers(200) == []


def test_traffic_of_others_is_judged_by_a_program_that_passes_all(
    monkeypatch: MonkeyPatch,
) -> None:
    values = {
        kind: {"ns": [ns] * 2, "gbit_per_s": [8.0] * 2}
        for kind, ns in {"none": 90.0, "xdp": 100.0, "service": 102.0}.items()
    }
    _is_root(monkeypatch, stack.others, values)
    monkeypatch.setattr("shutil.which", lambda _: "clang")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: None)
    found = stack.others.others()
    assert verdicts(rows(stack.table.PARTS, {"stack-others": found})) == {
        "traffic of others, service: datagram with the service": "met"
    }


def _is_root(
    monkeypatch: MonkeyPatch, module: ModuleType, values: dict[str, dict[str, list[float]]]
) -> None:
    """A figure of a module has these values, and needs no program."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for name in ("build", "example"):
        monkeypatch.setattr(module, name, lambda *_: "program", raising=False)
    found = {"rounds": 2, "values": values, "skipped": {}}
    monkeypatch.setattr(module, "in_turns", lambda *_: found)
