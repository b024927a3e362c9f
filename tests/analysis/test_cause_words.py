"""Causes of one kind, which differ in processors and threads, and components of threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from loopscope.analysis.cause_words import Named, Words, by_kind, cause_words, summed_up, text_of
from loopscope.analysis.causes import Causes
from loopscope.analysis.critical_path import Part
from loopscope.analysis.kernel_causes import WhyPart
from loopscope.analysis.ranking import rank, without
from loopscope.analysis.threads import Threads
from loopscope.analysis.why import WhyHop, WhyMessage
from loopscope.experiment import MessagePath, PathEvent
from loopscope.timeline.exits import Exit

SECOND = 1_000_000_000
WAITER, CC1, AS, KWORKER, SHELL = 20, 31, 32, 41, 5


class Compiled:
    """A node and the programs of a component that compiles."""

    def name(self, tid: int) -> str:
        names = {
            WAITER: "python",
            CC1: "cc1",
            AS: "as",
            KWORKER: "kworker/0:1",
            42: "kworker/u8:2H",
        }
        return names.get(tid, "sh")

    def component(self, tid: int, at: int) -> str | None:
        del at
        return {WAITER: "node of h2", CC1: "compiler of h1", AS: "compiler of h1"}.get(tid)

    def named(self, tid: int, name: str, *, at: int) -> str:
        component = self.component(tid, at)
        return name if component is None else f"{component} ({name})"


def part(name: str, ns: int, cpu: int | None, by: int | None = None, **more: Any) -> WhyPart:
    known: Any = Compiled()
    causes = Causes(known, known, *[None] * 4, "", "h1", "h2")  # type: ignore[arg-type]
    return WhyPart(name, ns, causes.of(Part(name, 0, ns, WAITER, cpu, by, **more)))


def held(number: int, *parts: WhyPart) -> WhyMessage:
    ns = sum(each.ns for each in parts)
    return WhyMessage(1, number, ns, 10, False, (WhyHop("a", "b", ns, 10, parts, None),))


def test_one_cause_on_several_processors_and_of_several_threads_counts_once() -> None:
    late = [
        # It would be in time without both, which are one cause.
        held(1, part("runnable", 60, 0, CC1), part("runnable", 70, 1, CC1)),
        held(2, part("runnable", 90, 1, AS), part("runnable", 20, 1, CC1)),
    ]
    (found,) = rank(late, 100)
    assert (found.in_time, found.messages, found.ns) == (2, 2, 240)
    assert found.cause == "node of h2 (python) waited behind compiler of h1"
    assert found.several == (("cpu1", "cpu0"), ("cc1", "as"))
    assert str(found) == f"runnable: {found.cause} [cpu1, cpu0; cc1, as]"
    # What a message's own evidence says is as exact as it was.
    first, second = (each.cause for each in late[0].parts())
    assert first == "node of h2 (python) waited on cpu0 behind compiler of h1 (cc1)"
    assert second == "node of h2 (python) waited on cpu1 behind compiler of h1 (cc1)"
    assert late[0].to_dict()["hops"][0]["parts"][0] == {
        "name": "runnable",
        "ns": 60,
        "cause": first,
    }


def test_what_is_always_the_same_is_named() -> None:
    (one,) = rank([held(1, part("runnable", 200, 1, CC1))], 100)
    assert one.cause == "node of h2 (python) waited on cpu1 behind compiler of h1 (cc1)"
    assert "several" not in one.to_dict()
    of_programs = [part("runnable", 100, 1, each) for each in (CC1, AS)]
    (one,) = rank([held(1, *of_programs)], 100)
    assert one.cause == "node of h2 (python) waited on cpu1 behind compiler of h1"
    assert one.to_dict()["several"] == [["cc1", "as"]]


def test_other_components_and_other_programs_are_other_causes() -> None:
    others = [part("runnable", 100, 0, each) for each in (CC1, SHELL, KWORKER, 42)]
    causes = {each.cause for each in rank([held(1, *others)], 100)}
    waited = "node of h2 (python) waited on cpu0 behind"
    assert causes == {
        f"{waited} compiler of h1 (cc1)",
        f"{waited} sh",
        # The number of a worker of the kernel says nothing.
        "node of h2 (python) waited on cpu0 behind kworker",
    }


@pytest.mark.parametrize(
    ("name", "more", "text"),
    [
        ("running", {}, "node of h2 (python)"),
        ("wake-up", {}, "node of h2 (python) waited for an idle processor to wake up"),
        ("softirq", {"what": "NET_RX"}, "NET_RX, in node of h2 (python)"),
        (
            "softirq",
            {"what": "NET_RX", "by": CC1},
            "node of h2 (python) waited while its processor served NET_RX",
        ),
        (
            "pending",
            {"what": "NET_RX", "by": CC1},
            "NET_RX on its processor waited while compiler of h1 (cc1) was on it",
        ),
    ],
)
def test_the_text_names_no_processor_where_there_are_several(
    name: str, more: dict[str, Any], text: str
) -> None:
    known: Any = Compiled()
    faults: Any = type("Faults", (), {"recorded": False})
    causes = Causes(known, known, None, faults, None, None, "", "h1", "h2")  # type: ignore[arg-type]
    parts = [Part(name, 0, 100, WAITER, cpu, **more) for cpu in (0, 3)]
    words = [causes.of(each) for each in parts]
    assert all(f"cpu{each.cpu}" in text_of(of) for each, of in zip(parts, words, strict=True))
    assert summed_up(dict.fromkeys(words, 1)) == (text, (("cpu0", "cpu3"),))


def test_a_long_list_is_cut() -> None:
    on = [cause_words("it waited", Named(f" on cpu{cpu}", "", f"cpu{cpu}")) for cpu in range(4)]
    causes: dict[Words, int] = {of: 10 + place for place, of in enumerate(on)}
    assert str(summed_up(causes)) == "it waited [cpu3, cpu2, cpu1, …]"


def test_times_without_a_cause_are_without_all_of_its_kind() -> None:
    found = [
        held(1, part("runnable", 100, 0, CC1), part("wake-up", 7, 0)),
        held(2, part("runnable", 200, 1, AS)),
        held(3, part("runnable", 300, 1, SHELL)),
    ]
    late = rank(found[:2], 50)[0]
    waited = "runnable: node of h2 (python) waited"
    for text in (
        "behind compiler",
        str(late),
        f"{late.name}: {late.cause}",
        f"{waited} on cpu0 behind compiler of h1",
        f"{waited} behind compiler of h1 (as)",
    ):
        result = without(found, text)
        assert result.held == 2 and result.without_it["max"] == 300, text
        assert result.without_it["p50"] == 7, text
    assert without(found, "behind sh").held == 1
    # No message was held by that program on that processor.
    with pytest.raises(ValueError, match="on cpu0 behind sh"):
        without(found, "on cpu0 behind sh")


def test_parts_are_of_kinds_by_their_names_too() -> None:
    same: Words = ("it waited",)
    assert len(by_kind([WhyPart(name, 1, same) for name in ("ring", "late", "late")])) == 2


@dataclass
class Recorded:
    """A run with the events of a path, and a kernel's forks and exits."""

    seen: list[dict[str, Any]]
    forks: list[tuple[int, int, int]] = field(default_factory=list)
    """When, the parent, and the child."""
    ended: list[tuple[int, int]] = field(default_factory=list)
    exits: tuple[Exit, ...] = ()

    def __post_init__(self) -> None:
        self._con = duckdb.connect()
        here = {"repeat": 1, "host": "_kernel"}
        names = ("ts", "parent_tid", "child_tid")
        forks = [{**here, **dict(zip(names, each, strict=True))} for each in self.forks]
        exits = [{**here, "ts": ts, "tid": tid} for ts, tid in self.ended]
        rows = {
            "msg.done": self.seen,
            "kernel.sched_process_fork": forks,
            "kernel.sched_process_exit": exits,
        }
        self._rows = {name: pa.Table.from_pylist(each) for name, each in rows.items() if each}
        self.tables = list(self._rows)

    @property
    def specification(self) -> Any:
        events = tuple(PathEvent(each, "h2", "msg", "done") for each in ("node", "other"))
        paths = (MessagePath("loop", "id", events, ((0, 1),)),)  # type: ignore[arg-type]
        return type("Specification", (), {"paths": paths})

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        return self._con.from_arrow(self._rows[name])

    def threads(self, kernel: str = "_kernel") -> Threads:
        return Threads(self, 1, kernel)  # type: ignore[arg-type]


def done(tid: int | None, *at: int, host: str = "h2", repeat: int = 1) -> list[dict[str, Any]]:
    common = {"repeat": repeat, "host": host, "process": "node", "tid": tid}
    return [{**common, "ts": ts} for ts in at]


def test_a_thread_of_the_path_is_known_by_its_events() -> None:
    seen = [
        *done(50, 100, 900),
        *done(51, 100, repeat=2),
        *done(None, 100),
        *done(52, 5, host="h3"),
    ]
    stranger = {**done(53, 100)[0], "process": "unasked"}
    threads = Recorded([*seen, stranger]).threads()
    assert threads.named(50, "python", at=0) == "node of h2 (python)"
    assert threads.named(51, "python") == threads.named(53, "python") == "python"
    assert threads.component(52) == "node of h3"
    assert threads.are_of_one(50, 50, 5) and not threads.are_of_one(50, 52, 5)
    assert Recorded(seen).threads("h3").component(50) is None


def test_a_number_that_another_thread_has_later_is_not_of_the_path() -> None:
    """After a fork it is at once another's, and after an exit when the thread has surely gone."""
    for later in ({"forks": [(2_000, 7, 50)]}, {"ended": [(2_000, 50)]}):
        threads = Recorded(done(50, 100, 900), **later).threads()  # type: ignore[arg-type]
        assert threads.component(50, 1_999) == "node of h2"
        assert threads.component(50, 2_001 + SECOND) is None
        assert threads.component(50, 2_001) == (None if "forks" in later else "node of h2")


def test_what_a_thread_of_the_path_starts_is_of_its_component() -> None:
    seen = done(50, 100, 900)
    threads = Recorded(seen, forks=[(10, 1, 50), (200, 50, 60), (300, 60, 61)]).threads()
    assert threads.component(50, 5) is None
    assert threads.component(50, 10) == threads.component(61, 300) == "node of h2"
    assert threads.component(61, 299) is None and threads.component(61) == "node of h2"
    # The number's later thread started others.
    threads = Recorded(seen, forks=[(2_000, 1, 50), (2_100, 50, 60)]).threads()
    assert threads.component(60) is None


def test_the_first_process_of_a_component_is_named_by_it_alone() -> None:
    first = Exit(1, "h2", "node", 0, None, None, 70)
    threads = Recorded(done(70, 100), forks=[(5, 1, 70), (9, 70, 71)], exits=(first,)).threads()
    assert threads.named(70, "python", at=50) == "node of h2"
    assert threads.named(71, "python", at=50) == "node of h2 (python)"
