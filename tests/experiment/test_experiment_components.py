"""What a component runs as, what it inherits and how much of its output is kept."""

import pytest

from loopscope import experiment

OF_OTHERS = ("PATH", "LANG", "LANGUAGE", "LC_*", "TZ")


def load(write, keys):
    return experiment.load(
        write(
            f"name: c\nhosts: [h1]\ncomponents: {{a: {{host: h1, run: prog{keys}}}}}\n"
            "phases: [{name: run, timeout: 1s}]\n"
        )
    )


@pytest.mark.parametrize(
    ("keys", "user", "environment", "output"),
    [
        ("", None, ("*",), 16 << 20),
        (", user: nobody", "nobody", OF_OTHERS, 16 << 20),
        (", user: 1000, output: 1MiB", "1000", OF_OTHERS, 1 << 20),
        (", user: x, environment: ['*']", "x", ("*",), 16 << 20),
        (", environment: [PATH, ROS_*]", None, ("PATH", "ROS_*"), 16 << 20),
        (", environment: []", None, (), 16 << 20),
    ],
)
def test_another_user_inherits_a_small_set_and_the_caller_all(
    write, keys, user, environment, output
):
    plan = load(write, keys)
    (made,) = plan.components
    assert (made.user, made.environment, made.output_bytes) == (user, environment, output)
    (kept,) = plan.to_manifest()["components"]
    assert (kept["user"], kept["environment"]) == (user, list(environment))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (", environment: [A-B]", "'A-B' is no environment variable"),
        (", environment: ['A*B']", "'A*B' is no environment variable"),
        (", user: 'a b'", "'a b' is no user"),
        (", user: -1", "'-1' is no user"),
        (", output: 1KiB", "128KiB"),
        (", output: 5s", "5s is a duration"),
        (", accelerate: yes please", "this should be true or false"),
        (", accelerate: {only: 0}", "0 is out of range: from 1 to 65535"),
        (", accelerate: {only: '80,90-70'}", "'90-70' in '80,90-70' should be a port"),
        (", accelerate: {receive: sleep}", "write adaptive or spin or block"),
        (", accelerate: {recieve: spin}", "recieve"),
        (", accelerate: {rto_min: 1}", "'1' has no unit"),
        (", accelerate: {rto_min: 99us}", "99us is too small: at least 100us"),
        (", accelerate: {rto_min: 121s}", "121s is too large: at most 120s"),
        (", fetch: [../x]", "'../x' is not in the component's working directory"),
        (", fetch: [/etc/passwd]", "'/etc/passwd' is not in the component's working directory"),
    ],
)
def test_what_is_none_is_named(write, keys, message):
    with pytest.raises(experiment.ExperimentErrors) as errors:
        load(write, keys)
    assert message in str(errors.value)


@pytest.mark.parametrize(
    ("keys", "only", "receive", "rto_min_ns"),
    [
        ("true", None, "adaptive", None),
        ("{}", None, "adaptive", None),
        ("{only: 6379}", "6379", "adaptive", None),
        ("{only: '80, 8000 - 8010', receive: spin}", "80,8000-8010", "spin", None),
        ("{rto_min: 1.5ms}", None, "adaptive", 1_500_000),
    ],
)
def test_a_component_may_be_accelerated(write, keys, only, receive, rto_min_ns):
    plan = load(write, f", accelerate: {keys}")
    (made,) = plan.components
    assert made.accelerate == experiment.Acceleration(only, receive, rto_min_ns)
    assert experiment.from_manifest(plan.to_manifest()).components == plan.components


def test_a_component_is_not_accelerated_unless_it_asks_for_it(write):
    for keys in ("", ", accelerate: false"):
        (made,) = load(write, keys).components
        assert made.accelerate is None


def test_paths_begin_in_the_folder_of_the_file(changed, tmp_path, monkeypatch):
    file = changed(("phases:", "sweep: {count: [1, 2]}\nphases:"))
    monkeypatch.chdir("/")
    made = experiment.load(file)
    assert made.folder == str(tmp_path)
    assert [point.experiment.folder for point in made.points] == [str(tmp_path)] * 2
    monkeypatch.chdir(tmp_path)
    assert experiment.load(file.name).folder == str(tmp_path)


def test_a_file_beside_that_a_command_does_not_reach_is_a_warning(write, tmp_path):
    (tmp_path / "node.py").write_text("")
    (warning,) = load(write, " node.py").warnings
    assert "'node.py' is a file beside this one" in warning.message
    assert "write ./node.py" in warning.message
    for words in (" ./node.py", " other.py", " --file=node.py", " /node.py"):
        assert load(write, words).warnings == ()
