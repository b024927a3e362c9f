//! Counters.

/// Adds to a counter, which costs no record: `counter_add!("group", "name", amount)`.
///
/// ```
/// # use loopscope_trace::{counter_add, counter_log, counter_reset};
/// counter_add!("pipe", "bytes", 7usize);
/// counter_log!("pipe", "bytes");
/// counter_reset!("pipe", "bytes");
/// ```
///
/// ```compile_fail,E0277
/// loopscope_trace::counter_add!("pipe", "bytes", 0.5);
/// ```
#[macro_export]
macro_rules! counter_add {
    ($group:literal, $name:literal, $amount:expr $(,)?) => {{
        let site = $crate::__site!(COUNTER_ADD, $group, $name);
        if site.enabled() {
            site.counter_add($crate::Id::to_id($amount));
        }
    }};
}

/// Records what a counter's amounts add up to.
#[macro_export]
macro_rules! counter_log {
    ($group:literal, $name:literal $(,)?) => {{
        let site = $crate::__site!(COUNTER_LOG, $group, $name);
        if site.enabled() {
            site.counter_log();
        }
    }};
}

/// Sets a counter back to zero.
#[macro_export]
macro_rules! counter_reset {
    ($group:literal, $name:literal $(,)?) => {{
        let site = $crate::__site!(COUNTER_RESET, $group, $name);
        if site.enabled() {
            site.counter_reset();
        }
    }};
}
