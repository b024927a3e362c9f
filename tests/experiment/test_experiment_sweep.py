"""What a sweep stands for, and how its mistakes are told."""

import itertools

import pytest

from loopscope import experiment

GRID = "sweep: {period: [1ms, 2ms, 40ms], count: [10, 20]}\ncomponents:"


def points(path, **overrides):
    return experiment.load(path, overrides).points


def test_a_grid_is_the_cross_product_in_the_file_s_order(changed):
    found = points(changed(("components:", GRID)))
    assert [point.params for point in found] == [
        {"period": period, "count": count}
        for period, count in itertools.product(["1ms", "2ms", "40ms"], [10, 20])
    ]
    assert [point.name for point in found][:2] == ["period=1ms,count=10", "period=1ms,count=20"]
    for point in found:
        config = point.experiment.components[0].config
        assert config == {key: point.params[key] for key in ("count", "period")}
        assert point.experiment.points == ()


def test_a_list_sets_what_it_names_and_leaves_the_rest(changed):
    listed = "sweep:\n  - {period: 5ms, count: 20}\n  - {count: 30}\ncomponents:"
    found = points(changed(("components:", listed)))
    assert [point.experiment.params for point in found] == [
        {"count": 20, "period": "5ms"},
        {"count": 30, "period": "2ms"},
    ]
    assert [point.name for point in found] == ["period=5ms,count=20", "count=30"]


def test_a_list_puts_grids_together_each_point_once(changed):
    listed = "sweep: [{count: [1, 2], period: 5ms}, {count: 2, period: [4ms, 5ms]}]\ncomponents:"
    found = points(changed(("components:", listed)))
    assert [tuple(point.params.values()) for point in found] == [(1, "5ms"), (2, "5ms"), (2, "4ms")]


def test_nothing_swept_is_no_points(changed):
    assert points(changed()) == ()


def test_an_override_of_a_swept_parameter_is_its_list(changed):
    path = changed(("components:", GRID))
    found = points(path, period="7ms,8ms", count="5")
    assert [point.params for point in found] == [
        {"period": "7ms", "count": 5},
        {"period": "8ms", "count": 5},
    ]


def test_names_are_fit_for_folders_and_never_the_same(write):
    text = """\
name: names
hosts: [h1]
params: {word: x}
sweep: {word: [a/b, a b, "ä", 10.5%, ..]}
components: {c: {host: h1, run: prog $word}}
phases: [{name: run, timeout: 1s}]
"""
    names = [point.name for point in points(write(text))]
    assert len(set(names)) == 5
    assert names == ["word=a_b", "word=a_b~2", "word=_", "word=10.5%", "word=.."]
    long = text.replace("a/b", "x" * 300).replace("a b", "x" * 301)
    assert all(len(point.name) < 200 for point in points(write(long)))


def test_a_sweep_survives_the_manifest(changed):
    figures = (
        "figures: {f: {x: period, y: loop.mean, error: loop.deviation, only: {count: 10}}}\n"
        "components:"
    )
    path = changed(("components:", GRID), ("components:", figures))
    loaded = experiment.load(path)
    read = experiment.from_manifest(loaded.to_manifest())
    assert read.points == loaded.points
    assert read.figures == loaded.figures
    assert [each.text for each in read.table] == ["loop.p50", "loop.p99", "loop.lost"]


def test_every_point_is_checked_before_anything_runs(changed):
    path = changed(("components:", GRID), ("timeout: 60s", "timeout: $period"))
    path.write_text(path.read_text().replace("1ms, 2ms, 40ms", "2ms, 0.5ms"))
    (problem,) = experiment.check(path)
    assert problem.message == (
        "at the point period=0.5ms,count=10 and 1 more: 0.5ms is too small: at least 1ms "
        "(from $period)"
    )
    assert problem.path == "phases[1].timeout"


# What the sweep is, with « where the error is told, and its message.
MISTAKES = {
    "unknown": ("{«perod: [1ms]}", "there is no parameter 'perod' to sweep"),
    "no list": ("{period: «1ms}", "give 'period' a list of values"),
    "empty": ("{period: «[]}", "give 'period' a list of values"),
    "dimension": ("{period: [1ms, «5B]}", "5B is a size"),
    "no unit": ("{period: [«5]}", "'5' has no unit"),
    "number": ("{count: [1, «many]}", "should be a number"),
    "nested": ("{period: [«[1ms]]}", "should be a single value"),
    "twice": ("{period: [1ms, «1ms]}", "has the value 1ms twice"),
    "reference": ("{count: [«$period]}", "cannot refer to another one"),
    "point": ("[«5]", "should map parameters to values"),
    "point of nothing": ("[{count: «[]}]", "should be a single value"),
    "twice in a part": ("[{count: [1, «1]}]", "has the value 1 twice"),
    "nothing": ("«{}", "names no parameter"),
    "word": ("«all", "should map parameters to lists"),
    "too many": (
        f"«{{period: [{', '.join(f'{i}ms' for i in range(1, 102))}], "
        f"count: [{', '.join(map(str, range(1, 101)))}]}}",
        "more than 10000 points",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told_where_they_stand(changed, name):
    sweep, message = MISTAKES[name]
    path = changed(("network:", f"sweep: {sweep.replace('«', '')}\nnetwork:"))
    problems = [p for p in experiment.check(path) if p.severity == "error"]
    assert [(p.line, p.column) for p in problems] == [(4, 8 + sweep.index("«"))], problems
    assert message in problems[0].message


def test_an_override_of_a_point_s_parameter_is_refused(changed):
    path = changed(("components:", "sweep: [{count: 1}, {count: 2}]\ncomponents:"))
    problems = experiment.check(path, {"count": "5"})
    assert problems and "change the file" in problems[0].message


VALUE = "  values:\n    rate: {of: 's:out', field: size, component: a, stat: mean, unit: bit/s}\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("stat: mean", "stat: avg", "there is no statistic 'avg'"),
        (", unit: bit/s", "", "mean needs unit"),
        ("field: size, ", "", "mean needs field"),
        ("stat: mean", "stat: count", "leave field out"),
        ("component: a", "component: z", "there is no component 'z'"),
        ("'s:out'", "s", "is not an entity"),
    ],
)
def test_values_are_checked(changed, old, new, message):
    value = VALUE.replace(old, new)
    assert value != VALUE
    path = changed(("measure:\n", f"measure:\n{value}"))
    assert any(message in problem.message for problem in experiment.check(path))


def test_expectations_of_values_are_in_their_unit(changed):
    path = changed(
        ("measure:\n", f"measure:\n{VALUE}"),
        ("  - loop.lost == 0\n", "  - loop.lost == 0\n  - rate >= 1.5Mbit\n"),
    )
    (found,) = (each for each in experiment.load(path).expectations if each.stat is None)
    assert (found.path, found.op, found.value, found.hop) == ("rate", ">=", 1.5e6, None)
    for wrong, message in (
        ("rate >= 5ms", "is a duration"),
        ("rate >= 5", "has no unit"),
        ("rote >= 5bit", "did you mean rate"),
    ):
        text = path.read_text().replace("rate >= 1.5Mbit", wrong)
        path.write_text(text)
        (problem,) = experiment.check(path)
        assert message in experiment.format_problem(problem)
        path.write_text(text.replace(wrong, "rate >= 1.5Mbit"))


# A figure, where « marks the place of its mistake, and the message.
FIGURES = {
    "x": ("{x: «size, y: loop.p99}", "there is no swept parameter 'size'"),
    "no statistic": ("{x: period, y: «loop}", "is a path: name one of its statistics"),
    "unknown": ("{x: period, y: «lop.p99}", "there is no path 'lop'"),
    "value": ("{x: period, y: «rite}", "no value and no path 'rite'"),
    "stat": ("{x: period, y: «[loop.p99, loop.avg]}", "there is no statistic 'avg'"),
    "hop": ("{x: period, y: «'loop[b/s:in -> a/s:out].p99'}", "does not come before"),
    "units": ("{x: period, y: [«loop.p99, rate]}", "one axis cannot show bit/s and ns"),
    "bars": (
        "{x: period, y: [loop.p99, loop.mean], error: «loop.deviation}",
        "error bars are of one statistic",
    ),
    "over time": ("{x: time, y: «loop.p99}", "over time, name a path or a value"),
    "series": ("{x: time, y: loop, series: «period}", "over time there is no series"),
    "until": ("{x: period, y: loop.p99, until: «1s}", "only figures over time have until"),
    "labels": ("{x: period, y: [loop.p99, loop.mean], labels: «[tail]}", "give each y one label"),
    "only": ("{x: period, y: loop.p99, only: {period: «3ms}}", "no point has period=3ms"),
    "log": ("{x: «time, y: loop, log: [x]}", "no logarithmic axis"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_checked(changed, name):
    figure, message = FIGURES[name]
    path = changed(
        ("measure:\n", f"measure:\n{VALUE}"),
        (
            "network:",
            f"sweep: {{period: [1ms, 2ms]}}\nfigures: {{f: {figure.replace('«', '')}}}\nnetwork:",
        ),
    )
    problems = [p for p in experiment.check(path) if p.severity == "error"]
    assert [(p.line, p.column) for p in problems] == [(5, 14 + figure.index("«"))], problems
    assert message in problems[0].message
