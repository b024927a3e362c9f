//! The least retransmission time-out (`LOOPSCOPE_STACK_RTO_MIN`), read from its text.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The time-outs that can be asked for.
const RANGE: RangeInclusive<Duration> = Duration::from_micros(100)..=Duration::from_secs(120);

/// The least time-out that a text asks for: a number and its unit (`500us`, `1ms`, `0.2s`). None:
/// an empty text, which asks for that of the kernel.
///
/// # Errors
/// It is none of these; what it is, for a person.
pub(crate) fn parse(text: &str) -> Result<Option<Duration>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let error = || format!("LOOPSCOPE_STACK_RTO_MIN is {text:?}, and not 100us to 120s (1ms)");
    let unit = text.find(|each: char| each.is_ascii_alphabetic()).ok_or_else(error)?;
    let (number, unit) = text.split_at(unit);
    let seconds = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(error()),
    };
    let number: f64 = number.trim().parse().map_err(|_| error())?;
    let asked = Duration::try_from_secs_f64(number * seconds).map_err(|_| error())?;
    RANGE.contains(&asked).then_some(Some(asked)).ok_or_else(error)
}
