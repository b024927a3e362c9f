"""Every mistake is told before anything runs, with its place and the nearest right spelling."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_run import pipeline, with_tables
from typer.testing import CliRunner

from loopscope.cli import app
from loopscope.timeline import open_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = pipeline(tmp_path_factory.mktemp("mistakes") / "run", messages=20).write()
    with_tables(open_run(path))
    return path


# The text under `analyse`, with « where the one mistake must be told; its message and its hint.
MISTAKES = {
    "unknown step": ("a: {from: hops, steps: [{«wher: x > 1}]}", "unknown key 'wher'", "where"),
    "unknown option": ("a: {from: hops, steps: [{trim: {«frist: 1s}}]}", "unknown key", "first"),
    "no unit": ("a: {from: hops, steps: [{trim: «30}]}", "has no unit", None),
    "no step": ("a: {from: hops, steps: [«trim]}", "should be a mapping", None),
    "two steps": ("a: {from: hops, steps: [«{trim: 1s, where: id > 1}]}", "item of its own", None),
    "no begin": ("«a: {steps: [{trim: 1s}]}", "no table to begin with", None),
    "path later": ("a: {from: hops, steps: [{path: «loop}]}", "path begins a pipeline", None),
    "cycle": ("«a: {from: b}\nb: {from: c}\nc: {from: a}", "a from b from c from a", None),
    "cycle by a step": (
        "«a: {from: hops, steps: [{join: {with: b, on: id}}]}\nb: {from: a}",
        "take each other: a from b from a",
        None,
    ),
    "takes itself": ("«hops: {from: hops}", "'hops' takes itself", None),
    "unknown table": ("a: {from: «paths.lop}", "no table 'paths.lop'", "paths.loop"),
    "unknown event": ("a: {from: «pipe.snt}", "no table 'pipe.snt'", "pipe.sent"),
    "unknown pipeline": (
        "loops: {steps: [path: loop]}\na: {from: hops, steps: [{join: {with: «lops, on: id}}]}",
        "no table 'lops'",
        "loops",
    ),
    "table's name": ("a: {from: hops}\nhosts: «{from: hops}", "call the pipeline something", None),
    "unknown path": ("a: {steps: [path: «lop]}", "no path 'lop'", "loop"),
    "unknown event of a path": (
        "a: {steps: [path: {name: loop, last: «sink/pipe:recieved}]}",
        "no event",
        "sink/pipe:received",
    ),
    "path backwards": (
        "a: {steps: [path: {name: loop, first: «sink/pipe:received}]}",
        "does not come before",
        None,
    ),
    "missing column": ("a: {from: hops, steps: [where: «duratoin > 5ms]}", "no column", "duration"),
    "missing column later": (
        "a: {from: hops, steps: [{select: [id]}, {where: «duration > 5ms}]}",
        "no column 'duration' (it has: id)",
        None,
    ),
    "renamed away": (
        "a: {from: hops, steps: [{rename: {id: n}}, {derive: {m: «id + 1}}]}",
        "no column 'id'",
        None,
    ),
    "wrong type": ("a: {from: hops, steps: [where: «path > 3]}", "whole number with text", None),
    "not a truth": ("a: {from: hops, steps: [where: «id + 1]}", "not true or false", None),
    "formula": ("a: {from: hops, steps: [where: «id >> ]}", "cannot be read", None),
    "function": ("a: {from: hops, steps: [{derive: {x: «rund(id)}}]}", "no function", "round"),
    "no group": ("a: {from: hops, steps: [where: «max(id) > 1]}", "of several rows", None),
    "unit in formula": ("a: {from: hops, steps: [where: «id > 5mss]}", "no quantity", "5ms"),
    "space in formula": ("a: {from: hops, steps: [where: «id > 5 ms]}", "space before", "5ms"),
    "C in formula": ("a: {from: hops, steps: [where: «id > 5 && id < 9]}", "has && in it", "and"),
    "null": (
        "a: {from: hops, steps: [where: «id = null]}",
        "nothing is = null",
        "is null or is not null",
    ),
    "many values": (
        "a: {from: hops, steps: [{group: {by: hop, derive: {n: «id}}}]}",
        "many values in a group",
        None,
    ),
    "sum of reals": (
        "a: {from: pipe.sent, steps: [{group: {derive: {n: «sum(size)}}}]}",
        "sum() is of whole numbers",
        None,
    ),
    "statistic": (
        "a: {from: hops, steps: [{statistics: {of: id, statistics: «[men]}}]}",
        "no statistic 'men'",
        "mean",
    ),
    "tenth percent": (
        "a: {from: hops, steps: [{statistics: {of: id, statistics: «[p100]}}]}",
        "no statistic 'p100'",
        "max",
    ),
    "trim without repeats": (
        "a: {from: pipe.sent, steps: [{select: [ts]}, {trim: «1s}]}",
        "no column 'run' any more",
        None,
    ),
    "window without repeats": (
        "a: {from: pipe.sent, steps: [{select: [run, point, ts]}, "
        "{window: «{rows: 2, derive: {d: ts - lag(ts)}}}]}",
        "no column 'repeat' any more",
        None,
    ),
    "resample without repeats": (
        "a: {from: pipe.sent, steps: [{rename: {point: p}}, "
        "{resample: «{every: 1s, derive: {n: count()}}}]}",
        "no column 'point' any more",
        None,
    ),
    "pair without repeats": (
        "b: {from: pipe.received, steps: [{select: [ts, err_ns, id]}]}\n"
        "a: {from: pipe.sent, steps: [{pair: «{with: b, key: id}}]}",
        "b has no column 'run' any more",
        None,
    ),
    "as-of without repeats": (
        "a: {from: pipe.sent, steps: [{select: [ts]}, {as-of: «{with: pipe.received}}]}",
        "no column 'run' any more",
        None,
    ),
    "bin": ("a: {from: hops, steps: [{histogram: {of: id, bin: «5km}}]}", "neither", None),
    "join's types": (
        "b: {from: hops, steps: [{derive: {id: text(id)}}]}\n"
        "a: {from: hops, steps: [{join: {with: b, on: «id}}]}",
        "whole number here and text in b",
        None,
    ),
    "merge's types": (
        "b: {from: hops, steps: [{derive: {id: text(id)}}]}\n"
        "a: {from: hops, steps: [{merge: {with: «b}}]}",
        "rename one",
        None,
    ),
    "figure's column": (
        "a: {from: hops, steps: [{plot: {kind: ccdf, columns: {x: «duratoin}}}]}",
        "no column 'duratoin'",
        "duration",
    ),
    "two figures": (
        "a: {from: hops, steps: [{plot: {kind: ccdf, columns: {x: id}}}, "
        "{plot: «{kind: ccdf, columns: {x: id}}}]}",
        "give this one a name",
        None,
    ),
    "window": (
        "a: {from: hops, steps: [{window: «{rows: 3, time: 1s, derive: {n: count()}}}]}",
        "give one of the two",
        None,
    ),
    "python file": ("a: {from: hops, steps: [python: «nix:f]}", "cannot read 'nix.py'", None),
    "python function": ("a: {from: hops, steps: [python: «own:douled]}", "no function", "doubled"),
    "python error": ("a: {from: hops, steps: [python: «own:broken]}", "own.py, line 6", None),
    "python leaves": ("a: {from: hops, steps: [python: «own:leaves]}", "SystemExit: 3", None),
    "python's options": (
        "a: {from: hops, steps: [python: «{call: own:doubled, options: {k: 1}}]}",
        "own.py: TypeError: doubled() got an unexpected",
        None,
    ),
    "python's result": ("a: {from: hops, steps: [python: «own:nothing]}", "gave NoneType", None),
}
OWN = """\
def doubled(table):
    return table.mutate(id=table.id * 2)


def broken(table):
    return table.nix


def nothing(table):
    pass


def leaves(table):
    raise SystemExit(3)
"""


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake(tmp_path: Path, run: Path, name: str) -> None:
    text, message, hint = MISTAKES[name]
    lines = ("analyse:\n" + "\n".join(f"  {line}" for line in text.splitlines())).split("\n")
    line = next(i for i, each in enumerate(lines, 1) if "«" in each)
    column = lines[line - 1].index("«") + 1
    (tmp_path / "own.py").write_text(OWN)
    file = tmp_path / "graph.yaml"
    file.write_text("\n".join(lines).replace("«", ""))
    done = CliRunner().invoke(
        app, ["analyse", str(run), "--graph", str(file), "-o", str(tmp_path / "out")]
    )
    assert done.exit_code == 2, done.output
    assert not (tmp_path / "out").exists()
    (told,) = done.stderr.splitlines()
    assert told.startswith(f"{file}:{line}:{column}: ")
    assert message in told
    assert told.endswith(f"(did you mean {hint}?)") if hint else "did you mean" not in told


def test_a_file_of_pipelines_alone_is_checked_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "graph.yaml"
    text = "analyse:\n  a: {from: hops, steps: [where: id > 3]}\n  b: {from: a.b}\n"
    file.write_text(text + "  c: {steps: [path: loop]}\n")
    assert CliRunner().invoke(app, ["check", str(file)]).exit_code == 0
    file.write_text(text + "  c: {from: d}\n")
    done = CliRunner().invoke(app, ["check", str(file)])
    assert done.exit_code == 2
    assert f"{file}:4:13: there is no pipeline and no such table of a run 'd'" in done.stderr


BEFORE = """\
name: before
hosts: [h1, h2]
params: {limit: 5ms, count: 10}
components:
  a: {host: h1, run: "sleep $count"}
  b: {host: h2, run: sleep}
phases: [{name: run, timeout: 5s}]
trace: {user: ["s:*"]}
measure: {paths: {loop: {events: [a/s:out, b/s:in]}}}
analyse:
  late: {from: paths.loop, steps: [where: latency > $limit]}
  events: {from: s.out, steps: [where: whatever > 3]}
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "latency >",
            "latncy >",
            "11:43: the table has no column 'latncy' (did you mean latency?)",
        ),
        ("paths.loop,", "paths.lop,", "11:16: there is no pipeline and no such table of a run"),
        ("whatever > 3", "whatever > ", "12:40: the formula 'whatever >' cannot be read"),
        ("s.out,", "late,", "12:39: the table has no column 'whatever'"),
        ("s.out,", "sout,", "12:18: there is no pipeline and no such table of a run 'sout'"),
        (
            "count: 10}",
            "count: 10}\nsweep: {limit: [1ms, 2ms]}",
            "12:43: $limit is swept, and analyse is made of all points together: use the column "
            "point_limit",
        ),
    ],
)
def test_what_a_file_shows_before_there_is_a_run(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    file = tmp_path / "before.yaml"
    file.write_text(BEFORE)
    done = CliRunner().invoke(app, ["check", str(file)])
    assert done.exit_code == 0, done.output
    assert old in BEFORE
    file.write_text(BEFORE.replace(old, new))
    for verb in ("check", "run"):
        done = CliRunner().invoke(app, [verb, str(file)])
        assert done.exit_code == 2
        assert f"{file}:{told}" in done.stderr
