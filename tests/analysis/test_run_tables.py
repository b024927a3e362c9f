"""A run's tables by their names, in Python and in SQL."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from synthetic_run import pipeline, with_tables
from typer.testing import CliRunner, Result

from loopscope.cli import app
from loopscope.timeline import Run, RunError, UnknownTableError, open_run

MESSAGES, REPEATS = 120, 2


@pytest.fixture
def made(tmp_path: Path) -> Path:
    path = pipeline(tmp_path / "run", messages=MESSAGES, repeats=REPEATS, lose_every=7).write()
    with_tables(open_run(path))
    return path


@pytest.fixture
def run(made: Path) -> Run:
    return open_run(made)


def ask(run: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["query", str(run), *words])


def test_sql_and_ibis_see_the_same_rows(run: Run) -> None:
    sent = run.table("pipe.sent")
    by_sql = run.sql("SELECT repeat, id, ts FROM pipe.sent ORDER BY ALL").to_pyarrow()
    by_ibis = sent.select("repeat", "id", "ts").order_by("repeat", "id", "ts").to_pyarrow()
    assert by_sql.equals(by_ibis) and len(by_sql) > MESSAGES * REPEATS
    assert sent.to_polars().shape[0] == len(sent.to_pandas()) == len(by_sql)


def test_paths_and_hops_are_tables(run: Run) -> None:
    assert list(run.path_tables) == ["loop"]
    loop = run.path_tables["loop"].to_pandas()
    assert loop.groupby("repeat").size().to_dict() == {1: MESSAGES, 2: MESSAGES}
    hops = run.hops.to_pandas()
    assert (hops.duration > 0).all() and (hops.err_ns >= 0).all()
    # A message that came has all hops, and their sum is its latency.
    whole = hops.groupby(["repeat", "id"]).duration.sum()
    came = loop.dropna(subset="latency").set_index(["repeat", "id"]).latency
    assert 0 < len(came) < len(loop)
    assert (whole[came.index] == came).all()


def test_what_is_not_there_is_told(tmp_path: Path, run: Run) -> None:
    with pytest.raises(UnknownTableError, match="no table pipe.nothing; it has: .*pipe.sent"):
        run.table("pipe.nothing")
    unmeasured = open_run(pipeline(tmp_path / "other", messages=3).write())
    assert unmeasured.path_tables == {}
    with pytest.raises(RunError, match="no path was measured"):
        unmeasured.hops  # noqa: B018


def test_the_command_lists_the_tables(made: Path, run: Run) -> None:
    rows = [json.loads(line) for line in ask(made, "--json").stdout.splitlines()]
    listed = {row["table"]: row["columns"].split(", ") for row in rows}
    assert {"pipe.sent", "pipe.received", "paths.loop", "hops", "hosts", "clock"} <= set(listed)
    assert listed["pipe.sent"] == list(run.table("pipe.sent").columns)
    printed = ask(made).stdout
    assert all(name in printed for name in listed)


def test_the_command_answers_in_every_form(made: Path, run: Run) -> None:
    sql = "select repeat, max(latency) as most from paths.loop group by repeat order by repeat"
    most = run.path_tables["loop"].to_pandas().groupby("repeat").latency.max()
    wanted = [{"repeat": n, "most": int(most[n])} for n in (1, 2)]
    as_json = [json.loads(line) for line in ask(made, sql, "--json").stdout.splitlines()]
    as_csv = list(csv.DictReader(io.StringIO(ask(made, sql, "--csv").stdout)))
    assert as_json == wanted
    assert as_csv == [{key: str(value) for key, value in row.items()} for row in wanted]
    printed = ask(made, sql).stdout.split()
    assert [str(row["most"]) for row in wanted] == [word for word in printed if len(word) > 3][-2:]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["selec 1"], "syntax error"),
        (["select * from pipe.sen"], "sen does not exist"),
        (["create table made (a int)"], "gives no rows: ask with SELECT"),
        (["set threads = 1"], "gives no rows: ask with SELECT"),
        ([" -- nothing"], "the query is empty: ask with SELECT"),
        (["copy (select 1) to '/nowhere/made.csv'"], "/nowhere/made.csv"),
        (["select error('no ' || id) from pipe.sent"], "no 0"),
        (["select 1", "--json", "--csv"], "exclude each other"),
        (["select 1", "--point", "delay=1ms"], "no point 'delay=1ms'"),
    ],
)
def test_mistakes_are_told_with_exit_2(made: Path, words: list[str], wanted: str) -> None:
    done = ask(made, *words)
    assert done.exit_code == 2 and wanted in done.stderr and "Traceback" not in done.output


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    done = ask(tmp_path / "nowhere", "select 1")
    assert done.exit_code == 2 and "no such run directory" in done.stderr


def test_copy_writes_a_file_and_says_how_many_rows(made: Path, tmp_path: Path) -> None:
    file = tmp_path / "sent.csv"
    done = ask(made, f"copy (select id from pipe.sent limit 5) to '{file}'", "--json")
    assert (done.exit_code, done.stderr, json.loads(done.stdout)) == (0, "", {"Count": 5})
    assert len(file.read_text().splitlines()) == 6
    done = ask(made, f"create table t as select 7 as x; copy t to '{file}'; from t")
    assert done.exit_code == 0 and done.stdout.split()[-1] == "7"


def test_text_is_in_columns_and_no_command_for_a_terminal(made: Path) -> None:
    done = ask(made, "select 'a' as short, 1 as n union all select '[b]µs' || chr(27) || '[2J', 12")
    assert done.stdout.splitlines() == [
        "short          n",
        "────────────────",
        "a              1",
        "[b]µs\\x1b[2J  12",
    ]
    done = ask(made, "select 'one' || chr(10) || 'two' as lines, null as none, 2 as n")
    assert done.stdout.splitlines()[2:] == ["one          2", "two"]


TWO_EVENTS = (
    "select s.id, s.host, s.ts, r.id, r.host, r.ts from pipe.sent s join pipe.received r "
    "on s.id = r.id and s.repeat = r.repeat and s.host != r.host order by all limit 3"
)


def test_columns_of_one_name_stay_apart(made: Path, run: Run) -> None:
    expected = [list(row) for row in run.register().con.sql(TWO_EVENTS).fetchall()]
    header = ["id", "host", "ts", "id_2", "host_2", "ts_2"]
    rows = [json.loads(line) for line in ask(made, TWO_EVENTS, "--json").stdout.splitlines()]
    assert [list(row) for row in rows] == [header] * 3
    assert [list(row.values()) for row in rows] == expected
    as_csv = list(csv.reader(io.StringIO(ask(made, TWO_EVENTS, "--csv").stdout)))
    assert as_csv == [header, *([str(value) for value in row] for row in expected)]
    printed = [line.split() for line in ask(made, TWO_EVENTS).stdout.splitlines()]
    assert [line for line in printed if len(line) == len(header)] == as_csv
    # A name that the second would get is another column's.
    taken = ask(made, "select 1 as a, 2 as a, 3 as a_2, 4 as a", "--json").stdout
    assert json.loads(taken) == {"a": 1, "a_3": 2, "a_2": 3, "a_4": 4}


def test_every_value_has_a_form(made: Path) -> None:
    words = (
        "select sum(id) as whole, 2.5 as half, 'nan'::double as undefined, "
        "[1.5, 'inf'::double] as list, {'a': 1} as struct, '\\xAA\\x01'::blob as bytes, "
        "18446744073709551615::ubigint as widest, null as nothing from pipe.sent"
    )
    text = ask(made, words, "--json").stdout

    def refused(word: str) -> float:
        raise AssertionError(f"{word} is not JSON")

    row = json.loads(text, parse_constant=refused)
    assert isinstance(row.pop("whole"), int)
    assert row == {
        "half": 2.5,
        "undefined": None,
        "list": [1.5, None],
        "struct": {"a": 1},
        "bytes": "aa01",
        "widest": 2**64 - 1,
        "nothing": None,
    }
    done = ask(made, words, "--csv")
    assert done.exit_code == 0, done.output
    header, values = csv.reader(io.StringIO(done.stdout))
    cells = dict(zip(header, values, strict=True))
    assert (cells["struct"], cells["bytes"], cells["nothing"]) == ("{'a': 1}", "aa01", "")


MAIN = [sys.executable, "-c", "from loopscope.cli import main; main()"]


@pytest.mark.parametrize("form", [[], ["--csv"], ["--json"]])
def test_a_full_disk_is_no_traceback(made: Path, form: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*MAIN, "query", made, "select * from pipe.sent", *form],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, "loopscope: No space left on device\n")


def test_an_interrupt_ends_a_query(made: Path) -> None:
    words = "select count(*) from range(100000000) a, range(100000000) b"
    asking = subprocess.Popen([*MAIN, "query", made, words], stderr=subprocess.PIPE, text=True)
    stat = Path(f"/proc/{asking.pid}/stat")
    # Imports and views take less processor time than this: the query is on its way.
    while int(stat.read_text().rpartition(")")[2].split()[11]) < 4 * os.sysconf("SC_CLK_TCK"):
        time.sleep(0.05)
    asking.send_signal(signal.SIGINT)
    _, told = asking.communicate(timeout=60)
    assert asking.returncode == 130 and "Traceback" not in told, told
