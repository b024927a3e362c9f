//! A state of the clock in the fixed point of the page, every rounding of which is in the widths.

use loopscope_clock::Status;
use loopscope_clock::layout::{FRACTION_SHIFT, LEASE_SHIFT, SHIFT, WORDS, word};

use super::service::Service;
use crate::state::State;
use crate::utc::Standing;

/// 10⁻³ ns (a counter at 1 THz) to 10³ ns (at 1 MHz) per tick.
const RATES: (f64, f64) = (1e-3, 1e3);
/// One in a hundred: no counter is that bad. Up to here the products below are exact to less than
/// half of their unit.
const LARGEST_DRIFT: f64 = 0.01;
/// Where results still fit 63 bits within the page's reach of ticks.
const LARGEST_GLOBAL: i64 = 1 << 62;

/// A state that no page can hold.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the clock's {what} is {value}; a clock page holds {range}")]
pub struct OutOfRange {
    what: &'static str,
    value: f64,
    range: &'static str,
}

fn within(
    what: &'static str,
    value: f64,
    (low, high): (f64, f64),
    range: &'static str,
) -> Result<f64, OutOfRange> {
    // Not the other way round: NaN is out of every range.
    if low <= value && value <= high { Ok(value) } else { Err(OutOfRange { what, value, range }) }
}

/// The words of a slot but those about the writer.
pub(super) fn words(state: &State, service: Service) -> Result<[u64; WORDS], OutOfRange> {
    let mut words = [0; WORDS];
    // Rounded down: in doubt nobody has said that the reference still answers.
    let lease = state.stale.0.saturating_sub(state.anchor.0) >> LEASE_SHIFT;
    let lease = u16::try_from(lease).unwrap_or(u16::MAX);
    words[word::STANDING] =
        halves(state.epoch, u32::from(state.status as u8) | u32::from(lease) << 16);
    words[word::UTC_ERROR] = u64::MAX;
    if let Standing::Known { offset_ns, error_ns, .. } = service.utc {
        words[word::UTC_OFFSET] = offset_ns.cast_unsigned();
        words[word::UTC_ERROR] = error_ns;
    }
    words[word::SERVICE] = service.word();
    if state.status != Status::Unknown {
        line(state, &mut words)?;
    }
    Ok(words)
}

fn line(state: &State, words: &mut [u64; WORDS]) -> Result<(), OutOfRange> {
    let rate = within("rate", state.ns_per_tick, RATES, "0.001 to 1000 ns per tick")?;
    let drift = within("drift", state.drift, (0.0, LARGEST_DRIFT), "0 to 0.01 ns per ns")?;
    let fraction = within("fraction", state.fraction_ns, (0.0, 1.0), "0 to 1 ns")?;
    if state.global.0.unsigned_abs() > LARGEST_GLOBAL.unsigned_abs() {
        let (value, range) = (state.global.0 as f64, "times of 146 years at most");
        return Err(OutOfRange { what: "time", value, range });
    }
    let scale = (1u64 << SHIFT) as f64;
    // Half a nanosecond more: the reader cuts off, which rounds to the nearest then.
    let fraction = fraction + 0.5;
    let carry = fraction.floor();
    let fine = ((fraction - carry) * (1u64 << FRACTION_SHIFT) as f64) as u32;
    words[word::ANCHOR] = state.anchor.0;
    words[word::GLOBAL] = (state.global.0 + carry as i64).cast_unsigned();
    // A scale that is a power of two rounds nothing; the rate is then off by half a unit at most.
    words[word::RATE] = (rate * scale).round() as u64;
    // One unit more: half of it for the rate's rounding, half for those of the two products.
    words[word::DRIFT] = (rate * drift * scale).ceil() as u64 + 1;
    words[word::EXPIRES] = state.expires.0;
    // Readers ask for it before the anchor alone.
    words[word::SINCE] = state.since.0.min(state.anchor.0);
    // Two nanoseconds more: half of one by which the best guess is rounded, one that the reader cuts
    // off the growth, and the fraction's 2⁻³².
    words[word::WIDTH] = halves(
        nanoseconds("width before", state.below_ns, 2)?,
        nanoseconds("width after", state.above_ns, 2)?,
    );
    words[word::FINE] =
        halves(fine, nanoseconds("calibrated error bound", state.calibrated_ns, 1)?);
    words[word::APART] = nanoseconds("distance of processors", state.apart_ns, 0)?.into();
    Ok(())
}

/// Rounded up, and `more`.
fn nanoseconds(what: &'static str, ns: f64, more: u32) -> Result<u32, OutOfRange> {
    let most = f64::from(u32::MAX - more);
    Ok(within(what, ns, (0.0, most), "0 to 4.29 s")?.ceil() as u32 + more)
}

fn halves(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}
