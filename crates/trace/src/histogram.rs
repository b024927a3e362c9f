//! Histograms.

/// Adds a value to a histogram, which costs no record: `histogram_add!("group", "name", value)`.
/// Its buckets are those of [`histogram_range!`](crate::histogram_range!), else log-linear.
///
/// ```
/// # use loopscope_trace::{histogram_add, histogram_log, histogram_range, histogram_reset};
/// histogram_range!("pipe", "size", 0, 1500, 150);
/// histogram_add!("pipe", "size", 7usize);
/// histogram_log!("pipe", "size");
/// histogram_reset!("pipe", "size");
/// ```
#[macro_export]
macro_rules! histogram_add {
    ($group:literal, $name:literal, $value:expr $(,)?) => {{
        let site = $crate::__site!(HISTOGRAM_ADD, $group, $name);
        if site.enabled() {
            site.histogram_add($crate::Id::to_id($value));
        }
    }};
}

/// Records a histogram's counts.
#[macro_export]
macro_rules! histogram_log {
    ($group:literal, $name:literal $(,)?) => {{
        let site = $crate::__site!(HISTOGRAM_LOG, $group, $name);
        if site.enabled() {
            site.histogram_log();
        }
    }};
}

/// Sets a histogram's counts back to zero.
#[macro_export]
macro_rules! histogram_reset {
    ($group:literal, $name:literal $(,)?) => {{
        let site = $crate::__site!(HISTOGRAM_RESET, $group, $name);
        if site.enabled() {
            site.histogram_reset();
        }
    }};
}

/// Declares a histogram's buckets, equally wide from `low` up to, but without, `high`:
/// `histogram_range!("group", "name", low, high, buckets)`. An item: it stands in a module or a
/// block, and its numbers are constants.
///
/// ```compile_fail,E0080
/// loopscope_trace::histogram_range!("pipe", "size", 5, 5, 1);
/// # fn main() {}
/// ```
///
/// ```compile_fail,E0080
/// loopscope_trace::histogram_range!("pipe", "size", 0, 5, 6);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! histogram_range {
    ($group:literal, $name:literal, $low:expr, $high:expr, $buckets:expr $(,)?) => {
        $crate::__declaration!(
            HISTOGRAM_RANGE,
            $group,
            $name,
            &$crate::range($low, $high, $buckets)
        );
    };
}

/// Whether the core takes such a histogram.
pub(crate) const fn is_range(low: i64, high: i64, buckets: u32) -> bool {
    match high.checked_sub(low) {
        Some(width) => 1 <= buckets && buckets <= 60_000 && buckets as i64 <= width,
        None => false,
    }
}

/// The fields of a range's site.
///
/// # Panics
/// If there is no such histogram.
#[doc(hidden)]
pub const fn range(low: i64, high: i64, buckets: u32) -> [u8; 24] {
    assert!(
        is_range(low, high, buckets),
        "a histogram has low < high, 1 to 60000 buckets, none below one wide"
    );
    let numbers = [low.to_le_bytes(), high.to_le_bytes(), (buckets as i64).to_le_bytes()];
    let mut fields = [0; 24];
    let mut at = 0;
    while at < fields.len() {
        fields[at] = numbers[at / 8][at % 8];
        at += 1;
    }
    fields
}
