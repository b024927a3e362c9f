"""Each kind of entity: what the program did is what the tables and babeltrace2 say."""

from __future__ import annotations

import json
import re
import struct

from python_programs import Programs

EVERY_TYPE = """
    from loopscope_trace import event

    every = event(
        "t", "every", a="u8", b="u16", c="u32", d="i8", e="i16", f="i32", g="f32", h="f64"
    )
    wide = event("t", "wide", a="u64", b="i64", s="str", y="bytes", last="u8")
    every(-1, 255, 65535, 2**32 - 1, -128, -(2**15), -(2**31), 0.5, -0.1)
    every(1, 0, 0, 0, 127, 2**15 - 1, 2**31 - 1, -2, 3)
    wide(2**64 - 1, 2**64 - 1, -(2**63), "grün €", b"\\0\\xff", 7)
    wide(3, 0, 2**63 - 1, "", b"", 8)
    wide(id=4, y=memoryview(b"abcd")[1:3], s="x" * 3000, b=-1, last=9, a=True)
    wide(5, 1, b=2, last=10, y=bytearray(1000), s="positional, then by name")
"""


def test_values_of_every_type(programs: Programs) -> None:
    recorded = programs.record(EVERY_TYPE)
    names = "id a b c d e f g h".split()
    assert [tuple(row[n] for n in names) for row in recorded.rows("t:every")] == [
        (-1, 255, 65535, 2**32 - 1, -128, -(2**15), -(2**31), 0.5, -0.1),
        (1, 0, 0, 0, 127, 2**15 - 1, 2**31 - 1, -2.0, 3.0),
    ]
    names = "id a b s y last".split()
    assert [tuple(row[n] for n in names) for row in recorded.rows("t:wide")] == [
        (-1, 2**64 - 1, -(2**63), "grün €", b"\0\xff", 7),
        (3, 0, 2**63 - 1, "", b"", 8),
        (4, 1, -1, "x" * 3000, b"bc", 9),
        (5, 1, 2, "positional, then by name", bytes(1000), 10),
    ]
    assert recorded.counts() == {"t:every": 2, "t:wide": 4}
    (first,) = (line for line in recorded.lines() if "id = -1, a = 255" in line)
    single = struct.unpack("f", struct.pack("f", 0.5))[0]
    assert f"g = {single:g}, h = -0.1" in first


def test_what_a_field_cannot_hold_is_refused_and_not_recorded(programs: Programs) -> None:
    recorded = programs.record("""
        from loopscope_trace import event

        plain = event("t", "plain")
        full = event("t", "full", size="u8", load="f32", note="str", data="bytes")
        right = dict(size=1, load=1.0, note="", data=b"")

        def refused(call, *arguments, **named):
            try:
                call(*arguments, **named)
            except Exception as error:
                print(type(error).__name__, error)
            else:
                print("taken", arguments, named)

        refused(plain)
        refused(plain, "1")
        refused(plain, 1.0)
        refused(plain, 2**64)
        refused(full, 1)
        refused(full, 1, **{**right, "size": 256})
        refused(full, 1, **{**right, "size": -1})
        refused(full, 1, **{**right, "size": "1"})
        refused(full, 1, **{**right, "load": "1"})
        refused(full, 1, **{**right, "load": 1e39})
        refused(full, 1, **{**right, "note": b""})
        refused(full, 1, **{**right, "note": "a\\0b"})
        refused(full, 1, **{**right, "note": "\\ud800"})
        refused(full, 1, **{**right, "data": ""})
        refused(full, 1, 2, 3.0, "", note="")
        refused(full, 1, 2, 3.0, "", date=b"")
        plain(1)
        full(1, **right)
    """)
    wanted = [
        "TypeError .*argument",
        "TypeError t:plain: id must be an int, not str",
        "TypeError t:plain: id must be an int, not float",
        "OverflowError t:plain: id is 18446744073709551616",
        "TypeError t:full takes 5 arguments",
        "OverflowError t:full: size is 256, which is not in u8",
        "OverflowError t:full: size is -1, which is not in u8",
        "TypeError t:full: size must be an int, not str",
        "TypeError t:full: load must be a float, not str",
        r"OverflowError t:full: load is 1e\+39, which is not in f32",
        "TypeError t:full: note must be a str, not bytes",
        "ValueError t:full: note has a NUL",
        "ValueError t:full: note has .* surrogate",
        "TypeError t:full: data must be bytes, not str",
        "TypeError t:full: note is no field",
        "TypeError t:full: date is no field",
    ]
    said = recorded.stdout.splitlines()[: len(wanted)]
    for line, pattern in zip(said, wanted, strict=True):
        assert re.match(pattern, line), (line, pattern)
    assert recorded.counts() == {"t:plain": 1, "t:full": 1}


def test_intervals_nest_recur_and_cross_threads(programs: Programs) -> None:
    recorded = programs.record("""
        import threading
        from loopscope_trace import event, interval

        outer, inner = interval("t", "outer"), interval("t", "inner")
        job = interval("t", "job")
        long = interval("t", "long", over=10**15)
        between = event("t", "between")

        def recur(depth):
            with outer(depth):
                if depth:
                    recur(depth - 1)

        recur(3)
        for i in range(10):
            outer.start()
            with inner(i):
                between(i)
            outer.end(100 + i)
            with long(i):
                pass
        job.start(key=77)
        other = threading.Thread(target=lambda: job.end(key=77))
        other.start()
        other.join()
        with job(key=78):
            pass
        try:
            with inner(id=99):
                raise KeyError
        except KeyError:
            pass
    """)
    outer = {row["id"]: row for row in recorded.rows("t:outer")}
    inner = {row["id"]: row for row in recorded.rows("t:inner")}
    assert sorted(outer) == [*range(4), *range(100, 110)]
    assert sorted(inner) == [*range(10), 99]
    for inside, around in [(outer[d], outer[d + 1]) for d in range(3)] + [
        (inner[i], outer[100 + i]) for i in range(10)
    ]:
        assert around["start"] <= inside["start"] <= inside["ts"] <= around["ts"]
    for row in [*outer.values(), *inner.values()]:
        assert row["ts"] - row["start"] == row["duration"] >= 0
    for row in recorded.rows("t:between"):
        assert inner[row["id"]]["start"] <= row["ts"] <= inner[row["id"]]["ts"]
    assert recorded.column("t:job", "id") == [77, 78]
    assert recorded.rows("t:long") == []


def test_decorated_functions(programs: Programs) -> None:
    recorded = programs.record("""
        import asyncio
        from loopscope_trace import interval

        @interval("t", "fibonacci", id="n")
        def fibonacci(n, *, base=1):
            "As ever."
            return base if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

        @interval("t", "plain")
        def plain():
            raise LookupError

        @interval("t", "waits", id="frame")
        async def waits(turns, frame=40):
            for turn in range(turns):
                await asyncio.sleep(0)
            return frame

        @interval("t", "calls")
        async def calls():
            await asyncio.sleep(0)

        @interval("t", "yields")
        def yields():
            got = yield 1
            return got

        @interval("t", "stream", id="k")
        async def stream(k):
            try:
                yield 1
            except ValueError:
                yield 2
            yield 3

        async def main():
            print(await asyncio.gather(waits(3, 50), waits(1), waits(2, frame=60)))
            await asyncio.gather(calls(), calls())
            print([item async for item in stream(1)])
            thrown = stream(2)
            await thrown.__anext__()
            print(await thrown.athrow(ValueError()))
            await thrown.aclose()

        print(fibonacci(5), fibonacci.__doc__)
        try:
            plain()
        except LookupError:
            pass
        asyncio.run(main())
        running = yields()
        next(running)
        try:
            running.send("sent")
        except StopIteration as stop:
            print(stop.value)
        try:
            interval("t", "none", id="absent")(plain)
        except ValueError as error:
            print(error)
    """)
    assert recorded.stdout.splitlines()[:6] == [
        "8 As ever.",
        "[50, 40, 60]",
        "[1, 3]",
        "2",
        "sent",
        "plain has no argument 'absent' that could be the id",
    ]
    calls = {5: 1, 4: 1, 3: 2, 2: 3, 1: 5, 0: 3}
    ids = recorded.column("t:fibonacci", "id")
    assert {n: ids.count(n) for n in set(ids)} == calls
    assert recorded.column("t:plain", "id") == [0]
    # In the order of their ends: the one with the fewest turns first.
    assert recorded.column("t:waits", "id") == [40, 60, 50]
    # Each has its own start, though they end in another order than they began.
    began = {row["id"]: row["start"] for row in recorded.rows("t:waits")}
    assert began[50] < began[40] < began[60]
    assert len(set(recorded.column("t:calls", "id"))) == 2
    assert len(recorded.rows("t:yields")) == 1
    assert recorded.column("t:stream", "id") == [1, 2]


def test_counters_and_histograms(programs: Programs) -> None:
    recorded = programs.record("""
        from loopscope_trace import counter, histogram

        late = counter("t", "late", unit="frames", description="Frames past their deadline")
        range_ = histogram("t", "range", low=-10, high=90, buckets=20)
        wait = histogram("t", "wait", unit="ns")
        for i in range(100):
            late.add()
            late.add(-3)
            range_.add(i * 2 - 50)
            wait.add(i * i)
        late.log()
        range_.log()
        wait.log()
        late.reset()
        late.add(2**40)
        late.log()
    """)
    assert recorded.column("t:late", "value")[:2] == [-200, 2**40]
    values = [i * 2 - 50 for i in range(100)]
    row = recorded.rows("t:range")[0]
    buckets: dict[int, int] = {}
    for value in values:
        if -10 <= value < 90:
            buckets[(value + 10) // 5] = buckets.get((value + 10) // 5, 0) + 1
    assert dict(zip(row["bucket"], row["n"], strict=True)) == buckets
    outside = sum(v < -10 for v in values), sum(v >= 90 for v in values)
    assert (row["below"], row["above"]) == outside
    assert (row["count"], row["sum"]) == (100, sum(values))
    row = recorded.rows("t:wait")[0]
    assert (row["count"], row["sum"]) == (100, sum(i * i for i in range(100)))
    assert sum(row["n"]) == 100
    metadata = (recorded.directory / "trace" / "metadata").read_text(errors="replace")
    assert "Frames past their deadline" in metadata


def test_flows_are_marked(programs: Programs) -> None:
    recorded = programs.record("""
        from loopscope_trace import describe, flow_in, flow_link, flow_out

        out, into = flow_out("t", "out", size="u16"), flow_in("t", "into")
        fused = flow_link("t", "fused")
        describe("t", description="A test's own")
        for i in range(5):
            into(i)
            fused(i, 100 + i // 2)
            out(i, 3)
    """)
    assert list(
        zip(recorded.column("t:fused", "id"), recorded.column("t:fused", "out"), strict=True)
    ) == [(i, 100 + i // 2) for i in range(5)]
    assert recorded.column("t:out", "size") == [3] * 5
    metadata = (recorded.directory / "trace" / "metadata").read_text(errors="replace")
    texts = re.findall(r'(?:event|group)_\w+ = ("(?:[^"\\]|\\.)*")', metadata)
    said = [json.loads(json.loads(text)) for text in texts]
    assert sorted(s["kind"] for s in said if "kind" in s) == ["flow-in", "flow-link", "flow-out"]
    assert {"group": "t", "description": "A test's own"} in said


def test_a_call_site_is_the_line_that_made_it(programs: Programs) -> None:
    recorded = programs.record("""
        from loopscope_trace import event, interval

        def make(round):
            return event("t", "same", round="u8")

        first = make(1)
        step = interval("t", "step")
        print(all(make(i) is first for i in range(5000)))
        first(1, 2)
        with step():
            pass
    """)
    assert recorded.stdout.startswith("True\n")
    program = programs.directory / "program.py"
    assert recorded.sites()["t:same"] == (str(program), 5)
    assert recorded.sites()["t:step"] == (str(program), 8)
