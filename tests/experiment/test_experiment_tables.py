"""Files in the experiment file's folder: message tables and texts for programs."""

import pytest

from loopscope import experiment
from loopscope.experiment import format_problem

FILE = """\
name: bed
hosts: [h1, h2]
components:
  p: {host: h1, run: loopscope-host pattern produce, with: {table: {file: bed.csv}}}
  c1: {host: h2, run: own, with: {table: {file: bed.csv}, x: [{file: t}]}}
phases:
  - {name: run, timeout: 60s}
trace: {user: ["pattern:*"]}
measure:
  patterns:
    bed: {table: bed.csv}
"""
TABLE = """\
# comment
name, transport,     group,          size,  period, target, producers, consumers
a,    tcp,           ,               1.5kB, 200ms,  100ms,  p,         c1
b,    udp-multicast, 239.1.1.1:7000, 10B,   10ms,   ,       p,         c1
"""


@pytest.fixture
def bed(tmp_path):
    """Writes experiment and table with texts replaced; gives the experiment's path."""

    def write(file=(), table=()):
        for name, text, changes in (("bed.yaml", FILE, file), ("bed.csv", TABLE, table)):
            for old, new in changes:
                assert old in text, old
                text = text.replace(old, new, 1)
            (tmp_path / name).write_text(text)
        (tmp_path / "t").write_text("a $text, as it is\n")
        return tmp_path / "bed.yaml"

    return write


def test_a_table_becomes_types_and_a_programs_text(bed, tmp_path):
    loaded = experiment.load(bed())
    (pattern,) = loaded.patterns
    assert (pattern.name, pattern.table) == ("bed", "bed.csv")
    assert (pattern.sent, pattern.received) == ("pattern:sent", "pattern:received")
    a, b = pattern.types
    assert (a.name, a.transport, a.size, a.period_ns) == ("a", "tcp", 1500, 200_000_000)
    assert (a.target_ns, b.target_ns) == (100_000_000, None)
    assert (b.producers, b.consumers) == (("p",), ("c1",))
    given = {"file": "bed.csv", "text": TABLE}
    assert loaded.components[0].config == {"table": given, "seed": 1}
    text = {"file": "t", "text": "a $text, as it is\n"}
    assert loaded.components[1].config == {"table": given, "x": [text]}
    # A manifest holds everything: what is run again needs no file.
    for file in tmp_path.iterdir():
        file.unlink()
    assert experiment.from_manifest(loaded.to_manifest()) == loaded


def test_a_table_in_yaml_says_the_same(bed, tmp_path):
    (tmp_path / "bed.yml").write_text(
        "- {name: a, transport: tcp, size: 1.5kB, period: 200ms, target: 100ms, producers: p,\n"
        "   consumers: [c1]}\n"
        "- {name: b, transport: udp-multicast, group: '239.1.1.1:7000', size: 10B, period: 10ms,\n"
        "   producers: [p], consumers: [c1]}\n"
    )
    (yaml,) = experiment.load(bed([("table: bed.csv", "table: bed.yml")])).patterns
    (csv,) = experiment.load(bed()).patterns
    assert yaml.types == csv.types


# What to replace in the table and by what; line, message and hint.
MISTAKES = {
    "transport": ("tcp,", "tpc,", 3, "there is no `tpc`; there are tcp, tcp-nodelay", None),
    "unit": ("200ms", "200", 3, "`period`: `200` is not a duration: it has no unit", None),
    "unit of target": ("100ms", "100", 3, "`target`: `100` is not a duration", None),
    "unit of size": ("1.5kB", "1.5KB", 3, "`KB` is no unit of it", None),
    "name twice": ("b,  ", "a,  ", 4, "the name `a` is given twice: first on line 3", None),
    "consumer": ("c1\nb", "c2\nb", 3, "'a': the experiment has no component 'c2'", "c1"),
    "producer": ("p,         c1\nb", "h1,        c1\nb", 3, "no component 'h1'", None),
    "column": ("size,", "seize,", 2, "there is no column `seize`; there are name, ", None),
    "no rows": (TABLE[10:], "name\n", 1, "the table has no rows", None),
}


@pytest.mark.parametrize(("old", "new", "line", "message", "hint"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_table_is_told_at_its_line(bed, old, new, line, message, hint):
    path = bed(table=[(old, new)])
    found = experiment.check(path)
    assert found
    problem = next(each for each in found if message in each.message)
    assert (problem.line, problem.severity) == (line, "error")
    assert problem.hint == hint or hint is None
    table = path.parent / "bed.csv"
    assert format_problem(problem).startswith(f"{table}:{line}:1: ")


def test_mistakes_of_both_files_are_told_the_experiments_first(bed):
    path = bed(file=[("timeout: 60s", "timeout: 60")], table=[("200ms", "200"), ("10B", "10")])
    found = [(each.file, each.line) for each in experiment.check(path)]
    table = str(path.parent / "bed.csv")
    assert found == [(str(path), 7), (table, 3), (table, 4)]


# What to replace in the experiment and by what; line and message.
WRONG = {
    "no table": ("bed: {table: bed.csv}", "bed: {}", 11, "the key 'table' is missing"),
    "no such table": ("table: bed.csv}", "table: no.csv}", 11, "cannot read 'no.csv', which"),
    "no such file": ("{file: t}", "{file: u}", 5, "cannot read 'u', which should be beside"),
    "a folder": ("{file: t}", "{file: .}", 5, "cannot read '.'"),
    "not recorded": ("pattern:*", "pattern:sent", 11, "records pattern:received: add pattern:*"),
}


@pytest.mark.parametrize(("old", "new", "line", "message"), WRONG.values(), ids=WRONG)
def test_a_mistake_around_a_table_is_told_in_the_experiment(bed, old, new, line, message):
    path = bed(file=[(old, new)])
    (problem,) = experiment.check(path)
    assert message in problem.message
    assert (problem.file, problem.line) == (str(path), line)


def test_other_events_can_be_named(bed):
    change = ("table: bed.csv}", "table: bed.csv, sent: pattern:out, received: other}")
    (problem,) = experiment.check(bed(file=[change]))
    assert "'other' is no event: write group:name" in problem.message


def test_what_does_not_fit_into_a_message_is_refused(bed, tmp_path):
    path = bed()
    (tmp_path / "t").write_text("x" * 50_000)
    (problem,) = experiment.check(path)
    assert "'t' is longer than the 49152 bytes that a program can be given" in problem.message


def test_the_shipped_test_bed_is_the_slides(root):
    loaded = experiment.load(root / "experiments" / "testbed-48.yaml")
    (bed,) = loaded.patterns
    kinds = [each.transport for each in bed.types]
    assert kinds == ["tcp"] * 24 + ["udp-multicast"] * 12 + ["tcp-nodelay"] * 12
    assert all(each.target_ns for each in bed.types)
    # The two extremes, and what the four kinds carry together, in bytes a second.
    sizes = {each.name: (each.size, each.period_ns) for each in bed.types}
    assert sizes["1-02"] == (640_000, 80_000_000)
    assert sizes["3-01"] == (10, 200_000_000)
    rates = [
        sum(each.size * 1e9 / each.period_ns for each in bed.types[first : first + 12])
        for first in (0, 12, 24, 36)
    ]
    assert rates == pytest.approx([5_938_100, 9_940_600, 244_200, 18_110])
