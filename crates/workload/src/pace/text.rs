//! Results as people read them.

use std::fmt::Write as _;

use serde_json::Value;

/// Nanoseconds with a unit that fits.
pub(super) fn time(ns: f64) -> String {
    match ns.abs() {
        size if size < 1e3 => format!("{ns:.0} ns"),
        size if size < 1e6 => format!("{:.2} us", ns / 1e3),
        size if size < 1e9 => format!("{:.3} ms", ns / 1e6),
        _ => format!("{:.3} s", ns / 1e9),
    }
}

/// Bits per second with a unit that fits.
pub(super) fn rate(bits: f64) -> String {
    match bits {
        size if size < 1e3 => format!("{bits:.1} bit/s"),
        size if size < 1e6 => format!("{:.3} kbit/s", bits / 1e3),
        size if size < 1e9 => format!("{:.3} Mbit/s", bits / 1e6),
        _ => format!("{:.4} Gbit/s", bits / 1e9),
    }
}

fn count(number: &Value) -> String {
    number.as_u64().map_or_else(|| "?".to_owned(), |number| number.to_string())
}

fn maybe(number: &Value, unit: fn(f64) -> String) -> String {
    number.as_f64().map_or_else(|| "-".to_owned(), unit)
}

fn percentiles(times: &Value) -> String {
    let at = |key: &str| maybe(&times[key], time);
    format!(
        "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
        at("p50"),
        at("p90"),
        at("p99"),
        at("p999"),
        at("max")
    )
}

fn number(value: f64) -> String {
    format!("{value:.1}")
}

/// The sender's report from its result.
pub(super) fn sent(result: &Value) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        let _ = write!(text, "\n  {name:<12} {what}");
    };
    let missing: String = ["skipped", "rejected", "unsent"]
        .into_iter()
        .filter(|key| result[key].as_u64().is_some_and(|n| n > 0))
        .map(|key| format!(", {} {key}", count(&result[key])))
        .collect();
    line(
        "rate",
        format!(
            "{} packets/s, {}; asked {} packets/s, {}",
            maybe(&result["packets_s"], number),
            maybe(&result["bit_s"], rate),
            maybe(&result["asked_packets_s"], number),
            maybe(&result["asked_bit_s"], rate)
        ),
    );
    let second = &result["second_to_second"];
    if second.is_object() {
        line(
            "per second",
            format!(
                "mean {}, deviation {}, min {}, max {}",
                maybe(&second["bits"]["mean"], rate),
                maybe(&second["bits"]["deviation_percent"], |percent| format!("{percent:.4} %")),
                maybe(&second["bits"]["min"], rate),
                maybe(&second["bits"]["max"], rate)
            ),
        );
    }
    line("lateness", percentiles(&result["late_ns"]));
    line(
        "drift",
        format!(
            "{}, {} at the end",
            maybe(&result["drift"]["ppm"], |ppm| format!("{ppm:.3} ppm")),
            maybe(&result["drift"]["final_ns"], time)
        ),
    );
    line("burst", format!("{} packets at most", count(&result["longest_burst"])));
    if result["guard_ns"].is_number() {
        line(
            "guard",
            format!("{} of spinning before each packet", maybe(&result["guard_ns"], time)),
        );
    }
    if result["without_spinning"].as_u64().is_some_and(|n| n > 0) {
        let waits = count(&result["without_spinning"]);
        line("", format!("{waits} waits without spinning: others wanted the CPU"));
    }
    format!(
        "pace send: {} of {} packets of {} B{missing} in {}{}{text}",
        count(&result["sent"]),
        count(&result["asked"]),
        count(&result["size"]),
        maybe(&result["seconds"], |seconds| format!("{seconds:.3} s")),
        if result["interrupted"] == true { ", interrupted" } else { "" },
    )
}

/// The receiver's report from its result.
pub(super) fn received(result: &Value) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        let _ = write!(text, "\n  {name:<12} {what}");
    };
    line(
        "rate",
        format!(
            "{} packets/s, {} in {}",
            maybe(&result["packets_s"], number),
            maybe(&result["bit_s"], rate),
            maybe(&result["seconds"], |seconds| format!("{seconds:.3} s"))
        ),
    );
    line(
        "lost",
        format!(
            "{} packets ({}), {} dropped at the socket; {} duplicates, {} foreign",
            count(&result["lost"]),
            maybe(&result["lost_ratio"], |ratio| format!("{:.4} %", ratio * 100.0)),
            count(&result["socket_drops"]),
            count(&result["duplicates"]),
            count(&result["foreign"])
        ),
    );
    line(
        "reordered",
        format!(
            "{} packets, by {} at most",
            count(&result["reordered"]["packets"]),
            count(&result["reordered"]["largest_extent"])
        ),
    );
    line("interval", format!("error {}", percentiles(&result["interval_error_ns"])));
    line("burst", format!("{} packets at most", count(&result["longest_burst"])));
    line("jitter", maybe(&result["jitter_ns"], time));
    let delay = &result["delay_ns"];
    let clock = match delay["same_clock"].as_bool() {
        Some(true) => "",
        Some(false) => " (by two clocks, or one that was set: only as right as they agree)",
        None => " (whether it is one clock is not known: the sender has not ended)",
    };
    line("delay", format!("min {}, {}{clock}", maybe(&delay["min"], time), percentiles(delay)));
    let of = match result["sent"].as_u64() {
        Some(sent) => format!(" of {sent}"),
        None => String::new(),
    };
    let end = if result["complete"] == true { "" } else { "; the sender's end has not come" };
    format!("pace receive: {}{of} packets{end}{text}", count(&result["received"]))
}
