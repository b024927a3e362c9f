import pytest

from loopscope import experiment
from loopscope.experiment import ExperimentErrors, format_problem


def errors(path, **overrides):
    return [p for p in experiment.check(path, overrides) if p.severity == "error"]


def test_five_mistakes_of_different_kinds_are_told_at_once(write):
    path = write(
        """\
name: five
hosts: [h1, h2]
components:
  a:
    host: h3
    run: prog
    env: {A: $nothing}
  b: {host: h2, runn: prog}
phases:
  - name: run
    timeout: 5
expect:
  - loop.p99 < 5ms
"""
    )
    found = [(p.line, p.column, p.path, p.hint) for p in experiment.check(path)]
    assert found == [
        (5, 11, "components.a.host", "h2"),
        (7, 14, "components.a.env.A", None),
        (8, 17, "components.b.runn", "run"),
        (11, 14, "phases[0].timeout", None),
        (13, 5, "expect[0]", None),
    ]
    with pytest.raises(ExperimentErrors) as refused:
        experiment.load(path)
    assert refused.value.problems == experiment.check(path)
    assert f"{path}:5:11: there is no host 'h3' (did you mean h2?)" in str(refused.value)


def test_the_right_file_has_no_problem(changed):
    assert experiment.check(changed()) == []


# What to replace in the right file and by what, with « where the one error must be told; its
# message and its hint.
MISTAKES = {
    "unknown key": ("hosts: [", "«hots: [h1]\nhosts: [", "unknown key 'hots'", "hosts"),
    "missing key": ("{name: run, timeout: 60s,", "«{name: run,", "'timeout' is missing", None),
    "no value": ("host: h1,", "host:« ,", "host has no value", None),
    "not text": ("name: right", "name: «5", "should be text", '"5"'),
    "not a list": ("[h1, h2]\n", "«h1\n", "hosts should be a list", None),
    "not a mapping": ("{count: $count, period: $period}", "«$count", "a mapping", None),
    "host name": ("[h1, h2]", "[h1, h2, «h.3]", "cannot name a host", None),
    "host name length": ("[h1, h2]", "[h1, h2, «hhhhhhhhhhhhhhhhhhhhh]", "at most 20", None),
    "host twice": ("[h1, h2]", "[h1, h2, «h1]", "given twice: first on line 2", None),
    "no hosts": ("[h1, h2]", "«[]", "at least 1 entry", None),
    "counter of no host": (
        "hosts: [",
        "clock: {counters: {«h3: cycles}}\nhosts: [",
        "no host 'h3'",
        "h2",
    ),
    "no kind of counter": (
        "hosts: [",
        "clock: {counters: {h2: «tsc}}\nhosts: [",
        "'tsc' is not known here: write cycles or monotonic-raw",
        None,
    ),
    "unknown host": ("host: h2", "host: «h22", "no host 'h22'", "h2"),
    "testbed": ("hosts: [", "testbed: «shh\nhosts: [", "'shh' is not known here", "ssh"),
    "clocks word": ("hosts: [", "clocks: «sythetic\nhosts: [", "not known", "synthetic"),
    "clocks key": (
        "hosts: [",
        "clocks: {synthetic: {«sed: 1}}\nhosts: [",
        "unknown key 'sed'",
        "seed",
    ),
    "clocks host": (
        "hosts: [",
        "clocks: {synthetic: {realtime: {«h3: {at: 1s, by: 22ms}}}}\nhosts: [",
        "no host 'h3'",
        "h2",
    ),
    "clocks step": (
        "hosts: [",
        "clocks: {synthetic: {realtime: {h2: {at: 1s, by: «22}}}}\nhosts: [",
        "such as",
        None,
    ),
    "clocks list": ("hosts: [", "clocks: «[x]\nhosts: [", "{synthetic: {seed: N}}", None),
    "clock rate": ("hosts: [", "clock: {rate: «10}\nhosts: [", "such as 10Hz", None),
    "clock messages of no path": (
        "hosts: [",
        "clock: {messages: [«lop]}\nhosts: [",
        "no path 'lop'",
        "loop",
    ),
    "clock range": ("hosts: [", "clock: {rate: «1MHz}\nhosts: [", "at most 1kHz", None),
    "wander": ("hosts: [", "clock: {wander: «1ms}\nhosts: [", "is a duration", None),
    "mtu range": ("1400B", "«9001B", "at most 9000B", None),
    "link to nowhere": ("h1 -> h2", "«h1 -> h3", "no host 'h3'", "h2"),
    "link to itself": ("h1 -> h2", "«h1 -> h1", "itself", None),
    "link twice": (
        "h1 -> h2: {loss: 0%}",
        "h1 -> h2: {}\n  «h1->h2: {}",
        "twice: first on line 6",
        None,
    ),
    "link misspelt": ("h1 -> h2: {loss", "«defualt: {los", "unknown key 'defualt'", "default"),
    "subnet": ("network:", "network:\n  data: «10.0.0.1/24", "an address within", "10.0.0.0/24"),
    "subnet text": ("network:", "network:\n  data: «10.0.0.0/33", "not an IPv4 network", None),
    "subnet prefix": ("network:", "network:\n  data: «10.0.0.0", "no prefix", "10.0.0.0/24"),
    "subnet public": ("network:", "network:\n  data: «8.8.8.0/24", "not a private", None),
    "subnet room": (
        "network:",
        "network:\n  data: «10.0.0.0/31",
        "has 0 addresses for 2 hosts",
        None,
    ),
    "overlap": ("network:", "network:\n  clock: «10.77.0.0/16", "networks overlap", None),
    "unknown parameter": ("$period}", "«$perod}", "no parameter 'perod'", "$period"),
    "dollar": ("period: $period}", "period: $period, x: «$1}", "$$ for a dollar sign", None),
    "parameter list": ("count: 10,", "count: «[10],", "a parameter is a single value", None),
    "parameter name": ("count: 10,", "count: 10, «a-b: 1,", "cannot name a parameter", None),
    "parameter of parameter": ("count: 10,", "count: «$period,", "another one", None),
    "component name": (
        "  b: {",
        "  «b.c: {host: h1, run: x}\n  b: {",
        "cannot name a component",
        None,
    ),
    "component twice": (
        "  b: {",
        "  «a: {host: h1, run: x}\n  b: {",
        "given twice: first on line 8",
        None,
    ),
    "empty command": ("run: [client, --to, a]", 'run: «""', "names no program", None),
    "shell": ("run: [client, --to, a]", "run: «client > log", "'>' needs a shell", None),
    "open quote": ("run: [client, --to, a]", "run: «client 'a", "no closing quot", None),
    "command mapping": ("run: [client, --to, a]", "run: «{a: b}", "a command line or", None),
    "with without phases": (
        "run: [client, --to, a]",
        "run: client, with: «{}, ready: started",
        "phase protocol",
        None,
    ),
    "phases without protocol": (
        "run: [client, --to, a]",
        "run: client, phases: «[run]",
        "ready: phases",
        None,
    ),
    "variable name": ("--to, a]}", "--to, a], env: {«1a: x}}", "environment variable", None),
    "variable taken": (
        "--to, a]}",
        "--to, a], env: {«LOOPSCOPE_PHASE_FD: 3}}",
        "loopscope's own",
        None,
    ),
    "trace shape": ("--to, a]}", "--to, a], traces: [«5]}", "a path or {path: PATH", None),
    "trace elsewhere": ("--to, a]}", "--to, a], traces: [«/tmp/t]}", "have it write to a", None),
    "trace above": ("--to, a]}", "--to, a], traces: [{path: «../t}]}", "what is below it", None),
    "trace's clock": (
        "--to, a]}",
        "--to, a], traces: [{path: t, clock: «CLOCK_REALTIM}]}",
        "no clock 'CLOCK_REALTIM'",
        "realtime",
    ),
    "trace's key": ("--to, a]}", "--to, a], traces: [{path: t, «clok: x}]}", "'clok'", "clock"),
    "trace twice": ("--to, a]}", "--to, a], traces: [t, {path: «t}]}", "given twice", None),
    "ready word": ("--to, a]}", "--to, a], ready: «startd}", "not known here", "started"),
    "ready rule": ("--to, a]}", "--to, a], ready: «{prt: 5}}", "{port: N}", None),
    "ready port": ("--to, a]}", "--to, a], ready: {port: «0}}", "from 1 to 65535", None),
    "start": ("--to, a]}", "--to, a], start: «runn}", "no phase 'runn'", "run"),
    "no phases": (
        "  - {name: connect, timeout: 5s}\n  - {name: run, timeout: 60s, measured: true}",
        "  «[]",
        "at least 1 entry",
        None,
    ),
    "phase twice": ("name: run,", "name: «connect,", "given twice: first on line 11", None),
    "phase unknown": (
        "measured: true",
        "after: [«conect]",
        "no phase 'conect' to come after",
        "connect",
    ),
    "phase cycle": (
        "5s}",
        "5s, after: «[run]}",
        "the phases wait for each other: connect after run after connect",
        None,
    ),
    "phase after itself": ("measured: true", "after: «[run]", "run after run", None),
    "timeout": ("60s", "«60", "'60' has no unit: write a duration such as 5ms", None),
    "timeout zero": ("60s", "«0s", "too small", None),
    "measured": ("measured: true", "measured: «yes", "true or false", "true"),
    "kernel": (
        '["s:*"]',
        '["s:*"], kernel: ["!sched:*", «"sched:sched_swich"]',
        "there is no kernel event 'sched:sched_swich'",
        "sched:sched_switch",
    ),
    "kernel class": ('["s:*"]', '["s:*"], kernel: [«"shed:*"]', "no kernel event", "sched:*"),
    "kernel pattern": ('["s:*"]', '["s:*"], kernel: [«sched]', "pattern is on", "sched:*"),
    "messages by no port": (
        '["s:*"]',
        '["s:*"], messages: {«m: {protocol: udp}}',
        "by which port they are known: to or from",
        None,
    ),
    "messages of datagrams in order": (
        '["s:*"]',
        '["s:*"], messages: {m: {protocol: udp, to: 7, number: «order}}',
        "datagrams may be lost",
        None,
    ),
    "messages of a name of loopscope's": (
        '["s:*"]',
        '["s:*"], messages: {«kernel: {protocol: udp, to: 7}}',
        "group of loopscope's own events",
        None,
    ),
    "datagrams with a length": (
        '["s:*"]',
        '["s:*"], messages: {m: {protocol: udp, to: 7, «length: {}}}',
        "a datagram is a message",
        None,
    ),
    "messages of one port with two numbers": (
        '["s:*"]',
        '["s:*"], messages: {l: {protocol: udp, to: 7}, m: {protocol: udp, to: 7, '
        "number: «{offset: 4B}}, n: {protocol: tcp, to: 7, number: {offset: 2B}}}",
        "other messages to port 7 have their number or length at another place",
        None,
    ),
    "messages without the kernel": (
        '["s:*"]',
        '["s:*"], kernel: "off", «messages: {m: {protocol: udp, to: 7}}',
        "told from the kernel's events",
        None,
    ),
    "pattern": ('["s:*"]', '["s:*", «t]', "a pattern is on group:name", "t:*"),
    "pattern text": ('["s:*"]', '["s:*", «"a:b:c"]', "not a pattern", None),
    "one event": ("[a/s:out, b/s:in, b/s:out]", "«[a/s:out]", "at least 2 entries", None),
    "event form": ("b/s:in", "«b/in", "component/group:name", None),
    "event component": ("b/s:in", "«bb/s:in", "no component 'bb'", "b"),
    "event twice": ("b/s:in", "«a/s:out", "twice", None),
    "event not recorded": ("b/s:in", "«b/t:in", "no pattern of trace.user records t:in", None),
    "path name": (
        "    loop: {",
        "    «l.p: {events: [a/s:out, b/s:in]}\n    loop: {",
        "cannot name a path",
        None,
    ),
    "expectation verb": (
        "loop.lost == 0",
        "\u00abloop is fast",
        "comes a comparison or one of every, in order, complete",
        None,
    ),
    "expectation nothing": (
        "loop.lost == 0",
        "\u00ab'loop.'",
        "is not PATH.STAT OP VALUE",
        None,
    ),
    "expectation age": (
        "loop.lost == 0",
        "\u00abloop.agee < 5ms",
        "there is no statistic 'agee'",
        "age",
    ),
    "expectation value kind": (
        "loop.lost == 0",
        "\u00abloop.p99 < 5Hz",
        "p99 is a time: 5Hz is a frequency",
        None,
    ),
    "expectation deadline unit": (
        "loop.lost == 0",
        "\u00abloop < 10",
        "a message's time is a time: '10' has no unit",
        None,
    ),
    "expectation deadline path": (
        "loop.lost == 0",
        "\u00ablop < 10ms",
        "there is no path 'lop'",
        "loop",
    ),
    "expectation equality": (
        "loop.lost == 0",
        "\u00abloop == 10ms",
        "would hold by chance only",
        None,
    ),
    "expectation age from below": (
        "loop.lost == 0",
        "\u00abloop.age > 10ms",
        "an age is bounded from above",
        None,
    ),
    "expectation verb word": (
        "loop.lost == 0",
        "\u00abloop complet",
        "after 'loop' comes",
        "complete",
    ),
    "expectation order word": (
        "loop.lost == 0",
        "\u00abloop in ordr",
        "after 'loop' comes",
        "in order",
    ),
    "expectation no share": (
        "loop.lost == 0",
        "\u00abloop < 10ms for 99",
        "should be a share",
        "for 99%",
    ),
    "expectation whole share": (
        "loop.lost == 0",
        "\u00abloop < 10ms for 100%",
        "leave it out",
        None,
    ),
    "expectation share of what": (
        "loop.lost == 0",
        "\u00abloop.p99 < 5ms for 99%",
        "'for' does not go with p99",
        "loop < TIME",
    ),
    "expectation late window": (
        "loop.lost == 0",
        "\u00abloop < 10ms for 99% after 3s",
        "'for' comes after 'after'",
        "loop < 10ms after 3s for 99%",
    ),
    "expectation two windows": (
        "loop.lost == 0",
        "\u00abloop < 10ms after 3s after 4s",
        "is too much",
        None,
    ),
    "expectation window": (
        "loop.lost == 0",
        "\u00abloop < 10ms after 3",
        "after 'after' comes a time",
        None,
    ),
    "expectation whole run": ("loop.lost == 0", "«loop < 1ms after 0s", "is the whole run", None),
    "expectation empty window": (
        "loop.lost == 0",
        "\u00abloop < 10ms between 4s and 3s",
        "leaves no time",
        "between 3s and 4s",
    ),
    "expectation no window": (
        "loop.lost == 0",
        "\u00abloop < 10ms between 3s and 3s",
        "leaves no time",
        None,
    ),
    "expectation row": (
        "loop.lost == 0",
        "\u00ab'loop < 10ms, no misses'",
        "is not 'no N misses in a row'",
        None,
    ),
    "expectation row of one": (
        "loop.lost == 0",
        "\u00ab'loop < 10ms, no 1 misses in a row'",
        "allows no miss at all",
        "loop < 10ms",
    ),
    "expectation row number": (
        "loop.lost == 0",
        "\u00ab'loop < 10ms, no zwei misses in a row'",
        "'zwei' in 'no zwei misses in a row'",
        None,
    ),
    "expectation plainer row": (
        "loop.lost == 0",
        "\u00ab'loop < 10ms, at most 2 misses in any 3'",
        "a plainer form",
        "loop < 10ms, no 3 misses in a row",
    ),
    "expectation comma": (
        "loop.lost == 0",
        "\u00abloop < 10ms no two misses in a row",
        "a comma is missing",
        "loop < 10ms, no two misses in a row",
    ),
    "expectation no comma": (
        "loop.lost == 0",
        "\u00ab'loop < 10ms, for 99%'",
        "no comma goes before 'for'",
        "loop < 10ms for 99%",
    ),
    "expectation lone clause": (
        "loop.lost == 0",
        "\u00abno two misses in a row",
        "belongs to the statement before it",
        None,
    ),
    "expectation brackets": (
        "loop.lost == 0",
        "\u00abloop[a/s:out] < 1ms",
        "two events: [EVENT -> EVENT]",
        None,
    ),
    "expectation part": (
        "loop.lost == 0",
        "\u00abloop[a/s:oot -> b/s:in] < 1ms",
        "has no event 'a/s:oot'",
        "a/s:out",
    ),
    "expectation before itself": (
        "loop.lost == 0",
        "\u00abloop[a/s:out before a/s:out]",
        "is one event",
        None,
    ),
    "expectation before more": (
        "loop.lost == 0",
        "\u00abloop[a/s:out before b/s:in] < 5ms",
        "nothing but clauses",
        None,
    ),
    "expectation pathless before": (
        "loop.lost == 0",
        "\u00aba/s:out before b/s:in",
        "are those of a path",
        "PATH[a/s:out before b/s:in]",
    ),
    "expectation no legs": (
        "loop.lost == 0",
        "\u00abloop symmetric within 5us",
        "goes from one component to another and back",
        None,
    ),
    "expectation period": (
        "loop.lost == 0",
        "\u00aba/s:out every 2ms",
        "should be COMPONENT/GROUP:NAME every",
        None,
    ),
    "expectation wide period": (
        "loop.lost == 0",
        "\u00aba/s:out every 2ms within 2ms",
        "the tolerance is less than the period",
        None,
    ),
    "expectation event's component": (
        "loop.lost == 0",
        "\u00abx/s:out every 2ms within 1ms",
        "there is no component 'x'",
        None,
    ),
    "expectation event's statistic": (
        "loop.lost == 0",
        "\u00aba/s:out.rat > 2Hz",
        "there is no 'rat' of an event",
        "rate",
    ),
    "expectation event's order": (
        "loop.lost == 0",
        "\u00aba/s:out in order",
        "is said of PATH",
        None,
    ),
    "expectation unrecorded": (
        "loop.lost == 0",
        "\u00aba/t:out.rate > 2Hz",
        "no pattern of trace.user records t:out",
        None,
    ),
    "expectation rate": (
        "loop.lost == 0",
        "\u00aba/s:out.rate > 2ms",
        "rate is a frequency",
        None,
    ),
    "expectation mapping": ("loop.lost == 0", "«loop.lost: 0", "is a text", None),
    "path unknown": ("loop.lost", "«lop.lost", "no path 'lop'", "loop"),
    "statistic": ("loop.lost", "«loop.losst", "no statistic 'losst'", "lost"),
    "asymmetry": ("loop.lost == 0", "«loop.asymmetry < 1ms", "to another and back", None),
    "operator": ("loop.lost ==", "«loop.lost =", "not a comparison", "=="),
    "count with unit": ("loop.lost == 0", "«loop.lost == 0ms", "without unit", "0"),
    "time without unit": ("loop.p99 < 5ms", "«loop.p99 < 5", "has no unit", None),
    "time of size": ("loop.p99 < 5ms", "«loop.p99 < 5kB", "is a size", None),
    "hop event": ("loop.p99", "«loop[a/s:out -> b/s:inn].p99", "no event 'b/s:inn'", "b/s:in"),
    "hop order": ("loop.p99", "«loop[b/s:in -> a/s:out].p99", "does not come before", None),
    "clock of no host": ("loop.lost == 0", "«h3.realtime.offset < 9us", "no host 'h3'", "h2"),
    "clock without origin": (
        "loop.lost == 0",
        "«h2.monotonic.offset < 9us",
        "monotonic counts from its host's start, so it has no offset from another host's",
        "h2.realtime.offset",
    ),
    "clock unknown": (
        "loop.lost == 0",
        "«h2.realtim.offset < 9us",
        "no clock 'realtim'",
        "h2.realtime.offset",
    ),
    "rate of a clock": (
        "loop.lost == 0",
        "«h2.realtime.rate < 9us",
        "of a clock only the offset is judged",
        "h2.realtime.offset",
    ),
    "clock without unit": ("loop.lost == 0", "«h2.realtime.offset < 9", "has no unit", None),
    "clock operator": ("loop.lost == 0", "«hosts.realtime.offset = 9us", "a comparison", "=="),
    "repeat": ("hosts: [", "repeat: «0\nhosts: [", "from 1 to", None),
    "repeat text": ("hosts: [", "repeat: «2x\nhosts: [", "a whole number", None),
    "syntax": ("[h1, h2]\nparams: {", "[h1, h2\nparams«: {", "not valid YAML", None),
    "key true": ("hosts: [", "«true: 1\nhosts: [", "reads as true or false", None),
    "tag": ("name: right", "name: «!!python/name:os.system x", "has no meaning here", None),
    "number": ("count: 10,", "count: «99999999999999999999,", "64 bits", None),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_mistake_one_problem(changed, mistake):
    old, new, message, hint = MISTAKES[mistake]
    before = changed((old, new)).read_text(encoding="utf-8").partition("«")[0]
    place = (before.count("\n") + 1, len(before) - before.rfind("\n"))
    path = changed((old, new.replace("«", "")))
    found = [p for p in errors(path) if (p.line, p.column) == place and message in p.message]
    assert found, "\n".join(map(format_problem, errors(path)))
    assert found[0].hint == hint
    # An error that only follows from another is no help.
    assert errors(path) == found, "\n".join(map(format_problem, errors(path)))


def test_a_key_given_twice_names_both_lines(write):
    path = write("name: a\nhosts: [h1]\nname: b\n")
    duplicate = experiment.check(path)[-1]
    assert (duplicate.line, duplicate.path) == (3, "name")
    assert "first on line 1" in duplicate.message


def test_an_empty_file_and_no_file(write, tmp_path):
    for text in ("", "# nothing\n", "---\n"):
        assert len(experiment.check(write(text))) == 1
    (missing,) = experiment.check(tmp_path / "missing.yaml")
    assert "No such file" in missing.message
    (folder,) = experiment.check(tmp_path)
    assert "cannot read" in folder.message


def test_bytes_that_are_no_text_have_a_place(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes("name: a\ndescription: é".encode("latin-1"))
    (problem,) = experiment.check(path)
    assert (problem.line, problem.column) == (2, 14)


def test_phases_behind_a_cycle_can_never_begin(changed):
    path = changed(
        ("5s}", "5s, after: [run]}"),
        ("measured: true}", "measured: true}\n  - {name: end, timeout: 1s}"),
    )
    (problem,) = errors(path)
    assert "so end can never begin" in problem.message


def test_a_value_from_a_parameter_names_it(changed):
    path = changed(("period: 2ms}", "period: 2ms, limit: 5}"), ("60s", "$limit"))
    (problem,) = errors(path)
    assert (problem.line, problem.column) == (12, 26)
    assert problem.message.endswith("(from $limit)")


def test_what_is_only_doubtful_is_a_warning(changed):
    path = changed(("[h1, h2]", "[h1, h2, h3]"), ("period: 2ms}", "period: 2ms, spare: 1}"))
    warnings = experiment.load(path).warnings
    assert [(w.line, w.column, w.severity) for w in warnings] == [
        (2, 17, "warning"),
        (3, 34, "warning"),
    ]
    assert "no component runs on the host 'h3'" in format_problem(warnings[0])
    assert "nothing uses the parameter 'spare'" in format_problem(warnings[1])


def test_many_hosts_without_a_component_are_one_warning(changed):
    hosts = ", ".join(f"h{number}" for number in range(1, 101))
    (warning,) = experiment.load(changed(("[h1, h2]", f"[{hosts}]"))).warnings
    assert (warning.line, warning.column) == (2, 17)
    assert warning.message == "no component runs on 98 of 100 hosts: h3, h4, h5, …"


def test_a_mistake_that_an_alias_repeats_is_told_once(changed):
    path = changed(
        ("period: $period}}", "period: $period}, env: &env {A: !odd x, B: $nothing, 1A: x}}"),
        ("--to, a]}", "--to, a], env: *env}"),
    )
    found = [(p.line, p.message[:24]) for p in errors(path)]
    assert found == [
        (8, "the tag !odd has no mean"),
        (8, "there is no parameter 'n"),
        (8, "'1A' cannot name an envi"),
    ]


def test_an_alias_that_holds_itself_and_one_that_explodes(write):
    (problem,) = [p for p in experiment.check(write("name: &a [*a]\n")) if "itself" in p.message]
    assert problem.line == 1
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for i in range(1, 9):
        lines.append(f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 10) + "]")
    assert any("more than" in p.message for p in experiment.check(write("\n".join(lines))))
