"""What the clock's figures came to against their targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from targets import NOT_MEASURED, Row, verdict

from clock.compare import PEERS

PAGE_READS = 2.8
PROBES_SHARE = 0.01
FORMS = {
    "now": "",
    "monotonic": "of monotonic time",
    "elapsed": "and the time since the last one",
    "realtime": "of CLOCK_REALTIME",
}
LANGUAGES = {"c": "C", "rust": "Rust"}


def _page(found: dict[str, Any]) -> Iterator[Row]:
    for language, forms in found.items():
        for form, what in FORMS.items():
            ns, times = forms[f"{form}_ns"], forms["to_counter"][f"{form}_ns"]
            now = form == "now"
            yield Row(
                f"clock page, a reading in {LANGUAGES[language]}" if now else f"  {what}",
                f"{PAGE_READS} counter readings, its own included" if now else "",
                "{median:.1f} ns ({min:.1f} to {max:.1f})".format(**ns),
                "{median:.2f} counter readings ({min:.2f} to {max:.2f})".format(**times),
                verdict(times["median"] <= PAGE_READS) if now else "",
            )


def _probes(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found:
        yield Row("clock probes", "1 % of a CPU on each host", NOT_MEASURED, found["skipped"], "")
        return
    for state in ("idle", "busy"):
        each = found[state]
        shares = each["cpu_share"]
        yield Row(
            f"clock probes, {found['rate_hz']} a second, {state}",
            "1 % of a CPU on each host",
            ", ".join(f"{host} {share:.2%}" for host, share in shares.items()),
            f"{each['exchanges']} exchanges in {found['seconds']} s",
            verdict(max(shares.values()) <= PROBES_SHARE),
        )
        trip, half = each["round_trip_ns"], each["half_difference_of_minima_ns"]
        yield Row(
            "  their stamps' own noise",
            "",
            f"legs' minima of ten apart by ± {half['p50']:.0f} ns, p99 {half['p99']:.0f}",
            f"round trip {trip['p50']:.0f} ns, p99 {trip['p99']:.0f}",
            "",
        )


def _comparison(found: dict[str, Any]) -> Iterator[Row]:
    if "skipped" in found:
        yield Row("error of the clock, recorded", "", NOT_MEASURED, found["skipped"], "")
        return
    for state, log in found.items():
        for side in ("online", "offline"):
            errors = log["errors"][side]
            ratio = "; ".join(
                f"{said} {log['ratios'][peer]['p50_ns']:.1f} and "
                f"{log['ratios'][peer]['p999_ns']:.1f} times"
                for peer, said in PEERS.items()
            )
            yield Row(
                f"error of the clock, {state}, {side}",
                "",
                f"p50 {errors['p50_ns']:.0f} ns, p99.9 {errors['p999_ns']:.0f} ns",
                ratio if side == "online" else "",
                "",
            )


PARTS = {"page": _page, "probes": _probes, "comparison": _comparison}


def notes(results: dict[str, Any]) -> Iterator[str]:
    """What a reader of the table must know."""
    comparison = results.get("comparison", {"skipped": ""})
    if "skipped" in comparison:
        return
    logs = ", ".join(
        f"{log['exchanges']} exchanges and {log['instants']} instants {state}"
        for state, log in comparison.items()
    )
    yield (
        f"Error of the clock, against hidden clocks: {logs}. Times: p50 and p99.9 of clocks made "
        "of the same log by chrony's and by RADclock's published rules, in those of ours online."
    )
    for state, log in comparison.items():
        for side, wrong in log["violations"].items():
            if wrong:
                yield f"Hard bounds of the clock, {state}, {side}: {wrong} WRONG."
