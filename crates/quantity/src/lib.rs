//! Quantities as people write them: a number and its unit.
//!
//! ```
//! use std::time::Duration;
//!
//! assert_eq!(loopscope_quantity::duration("1.5ms").unwrap(), Duration::from_micros(1500));
//! assert_eq!(loopscope_quantity::size("4KiB").unwrap(), 4096);
//! assert_eq!(loopscope_quantity::rate("1Gbit").unwrap(), 1_000_000_000);
//! assert!(loopscope_quantity::duration("5").is_err(), "the unit is missing");
//! ```

use std::time::Duration;

/// A text that is not the quantity that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a {kind}: {problem}. Write {examples}")]
pub struct QuantityError {
    given: String,
    kind: &'static str,
    problem: String,
    examples: &'static str,
}

/// Units in nanoseconds.
const DURATIONS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    // The micro sign, and the Greek letter that looks like it.
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Units in bytes.
const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Units in bits per second.
const RATES: [(&str, u64); 8] = [
    ("bit", 1),
    ("kbit", 1_000),
    ("Mbit", 1_000_000),
    ("Gbit", 1_000_000_000),
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
];

/// Units in thousandths of a ppm.
const RATIOS: [(&str, u64); 2] = [("%", 10_000_000), ("ppm", 1_000)];

/// Reads a duration, exact to the nanosecond.
pub fn duration(given: &str) -> Result<Duration, QuantityError> {
    whole(given, &DURATIONS, "1 ns").map(Duration::from_nanos).map_err(|problem| QuantityError {
        given: given.to_owned(),
        kind: "duration",
        problem,
        examples: "a number and ns, us, ms, s, min or h, as in 2ms, 100us or 1.5s",
    })
}

/// Reads a size in bytes.
pub fn size(given: &str) -> Result<u64, QuantityError> {
    whole(given, &SIZES, "1 B").map_err(|problem| QuantityError {
        given: given.to_owned(),
        kind: "size",
        problem,
        examples: "a number and B, kB, MB, GB, KiB, MiB or GiB, as in 6B, 1.5kB or 1KiB",
    })
}

/// Reads a rate in bits per second.
pub fn rate(given: &str) -> Result<u64, QuantityError> {
    whole(given, &RATES, "1 bit/s").map_err(|problem| QuantityError {
        given: given.to_owned(),
        kind: "rate",
        problem,
        examples: "a number and bit, kbit, Mbit or Gbit, with or without /s, as in 400Mbit or \
                   1.5Gbit/s",
    })
}

/// Reads how many bytes per second.
pub fn throughput(given: &str) -> Result<u64, QuantityError> {
    let size = given.trim().strip_suffix("/s").unwrap_or(given);
    whole(size, &SIZES, "1 B/s").map_err(|problem| QuantityError {
        given: given.to_owned(),
        kind: "throughput",
        problem,
        examples: "a number and B, kB, MB, GB, KiB, MiB or GiB, with or without /s, as in 10MB/s",
    })
}

/// Reads a ratio; `5%` is 0.05. It may be above 1.
pub fn ratio(given: &str) -> Result<f64, QuantityError> {
    whole(given, &RATIOS, "0.001 ppm").map(|parts| parts as f64 / 1e9).map_err(|problem| {
        QuantityError {
            given: given.to_owned(),
            kind: "ratio",
            problem,
            examples: "a number and % or ppm, as in 5%, 0.1% or 20ppm",
        }
    })
}

/// `given` in the smallest of `units`.
fn whole(given: &str, units: &[(&str, u64)], smallest: &str) -> Result<u64, String> {
    let text = given.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let (before, after) = number.split_once('.').unwrap_or((number, "0"));
    if before.is_empty() || after.is_empty() || after.contains('.') {
        return Err("it does not begin with a number".into());
    }
    if unit.is_empty() {
        return Err("it has no unit".into());
    }
    let scale = units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
    let scale = scale.ok_or_else(|| format!("`{unit}` is no unit of it"))?;
    let after = after.trim_end_matches('0');
    let digits = format!("{before}{after}").parse::<u128>().ok();
    let parts = u32::try_from(after.len()).ok().and_then(|places| 10_u128.checked_pow(places));
    let scaled = digits.and_then(|digits| digits.checked_mul(u128::from(scale)));
    let (Some(scaled), Some(parts)) = (scaled, parts) else {
        return Err("it has too many digits".into());
    };
    if scaled % parts != 0 {
        return Err(format!("it is no multiple of {smallest}"));
    }
    u64::try_from(scaled / parts).map_err(|_| "it is too large".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_exact() {
        for (text, ns) in [
            ("2ms", 2_000_000),
            ("100us", 100_000),
            ("100 \u{b5}s", 100_000),
            ("1.5s", 1_500_000_000),
            ("0.000000001s", 1),
            ("0s", 0),
            ("1.50000000000000000000min", 90_000_000_000),
            ("2h", 7_200_000_000_000),
            // Behind 2^53, where a double has only every second nanosecond.
            ("9007199.254740993s", 9_007_199_254_740_993),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for (text, bytes) in [("6B", 6), ("1kB", 1000), ("1KiB", 1024), ("1.5 MiB", 1_572_864)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for (text, bits) in [
            ("400Mbit", 400_000_000),
            ("1.5Gbit/s", 1_500_000_000),
            ("9.6 kbit/s", 9_600),
            ("1bit", 1),
        ] {
            assert_eq!(rate(text), Ok(bits), "{text}");
        }
        for (text, bytes) in [("10MB/s", 10_000_000), ("64KiB", 65_536), ("1 MB/s", 1_000_000)] {
            assert_eq!(throughput(text), Ok(bytes), "{text}");
        }
        for (text, parts) in [("5%", 0.05), ("120%", 1.2), ("0.1%", 0.001), ("20ppm", 2e-5)] {
            assert_eq!(ratio(text), Ok(parts), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, problem) in [
            ("2", "no unit"),
            ("", "begin with a number"),
            ("ms", "begin with a number"),
            (".5s", "begin with a number"),
            ("5.s", "begin with a number"),
            ("1.2.3s", "begin with a number"),
            ("-2ms", "begin with a number"),
            ("2 parsecs", "`parsecs` is no unit"),
            ("2MS", "`MS` is no unit"),
            ("2ms 3us", "`ms 3us` is no unit"),
            ("0.1ns", "no multiple of 1 ns"),
            ("99999999999999999999999999999999999999999s", "too many digits"),
            ("600000000h", "too large"),
        ] {
            let error = duration(text).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("2ms, 100us or 1.5s"), "{error}");
        }
        assert_eq!(
            size("6").unwrap_err().to_string(),
            "`6` is not a size: it has no unit. Write a number and B, kB, MB, GB, KiB, MiB or GiB, \
             as in 6B, 1.5kB or 1KiB"
        );
        assert!(size("0.5B").unwrap_err().to_string().contains("no multiple of 1 B"));
        for (text, problem) in [
            ("400", "no unit"),
            ("400MB", "`MB` is no unit"),
            ("400mbit", "`mbit` is no unit"),
            ("0.5bit", "no multiple of 1 bit/s"),
        ] {
            let error = rate(text).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("not a rate"), "{error}");
        }
        let error = throughput("10Mbit/s").unwrap_err().to_string();
        assert!(error.contains("`10Mbit/s` is not a throughput: `Mbit` is no unit"), "{error}");
        for (text, problem) in
            [("0.05", "no unit"), ("-1%", "begin with"), ("0.00001ppm", "multiple of 0.001 ppm")]
        {
            let error = ratio(text).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("not a ratio"), "{error}");
        }
    }
}
