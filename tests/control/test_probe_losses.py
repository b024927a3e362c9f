"""Lost probes of many hosts are one line."""

from __future__ import annotations

from loopscope.control.probe_losses import ProbeLosses


def test_few_hosts_have_a_line_each() -> None:
    losses = ProbeLosses()
    losses.lose("probes", "host h2", "probes", 100, {"no-reply": 2, "no-tx-stamp": 1})
    losses.lose("probes", "host h3", "probes", 90, {"unknown-session": 7})
    losses.remark("silent", "host h3", "h2 answered none of its probes")
    assert losses.lines() == [
        "host h2: 3 of 100 probes lost (no-reply 2, no-tx-stamp 1)",
        "host h3: h2 answered none of its probes",
    ]


def test_many_hosts_have_one() -> None:
    losses = ProbeLosses()
    for number in range(2, 101):
        lost = {"no-reply": number, "no-tx-stamp": 1}
        losses.lose("probes", f"host h{number}", "probes", 200, lost)
    (line,) = losses.lines()
    assert line == (
        "5148 of 19800 probes lost (no-reply 5049, no-tx-stamp 99), of 99 senders; the largest "
        "share, 101 of 200, of host h100"
    )


def test_many_remarks_of_one_kind_name_three_and_their_number() -> None:
    losses = ProbeLosses()
    for number in range(2, 12):
        losses.remark(
            "contradictions", f"host h{number}", "its time and h1's contradict each other"
        )
    (line,) = losses.lines()
    assert line.startswith("contradictions, 10 times: host h10: its time")
    assert line.count("contradict each other") == 3
