//! Intervals.

use core::marker::PhantomData;
use core::time::Duration;

use crate::{Id, Site};

/// Starts an interval that ends with the guard that it gives: `interval!("group", "name", id)`, or
/// with `over = duration` at the end, which records only what takes longer. The end counts only if
/// the start was enabled; the id is evaluated at the start, and only then.
///
/// ```
/// # use std::time::Duration;
/// # use loopscope_trace::interval;
/// let _whole = interval!("loop", "step", 1);
/// let _slow = interval!("loop", "slow step", 1, over = Duration::from_millis(1));
/// ```
///
/// It belongs to its thread:
///
/// ```compile_fail,E0277
/// let guard = loopscope_trace::interval!("loop", "step", 1);
/// std::thread::spawn(move || drop(guard));
/// ```
#[macro_export]
macro_rules! interval {
    ($group:literal, $name:literal, $id:expr $(,)?) => {
        $crate::interval!($group, $name, $id, over = ::core::time::Duration::ZERO)
    };
    ($group:literal, $name:literal, $id:expr, over = $over:expr $(,)?) => {{
        let start = $crate::__site!(INTERVAL_START, $group, $name);
        if start.enabled() {
            let id = $id;
            let over = $over;
            let end = $crate::__site!(INTERVAL_END, $group, $name);
            $crate::Interval::started(start, end, id, over)
        } else {
            $crate::Interval::disabled()
        }
    }};
}

/// Starts an interval of this thread: `interval_start!("group", "name")`. Intervals nest and recur.
/// With `key = integer` at the end any thread may end it, by an equal key.
#[macro_export]
macro_rules! interval_start {
    ($group:literal, $name:literal $(,)?) => {{
        let site = $crate::__site!(INTERVAL_START, $group, $name);
        if site.enabled() {
            site.interval_start();
        }
    }};
    ($group:literal, $name:literal, key = $key:expr $(,)?) => {{
        let site = $crate::__site!(INTERVAL_START, $group, $name);
        if site.enabled() {
            site.interval_start_key($crate::Id::to_id($key));
        }
    }};
}

/// Ends an interval and records its start and duration: `interval_end!("group", "name", id)`, or
/// `interval_end!("group", "name", key = key)` with the key as the id. With `over = duration` at
/// the end only what took longer is recorded.
///
/// ```
/// # use std::time::Duration;
/// # use loopscope_trace::{interval_end, interval_start};
/// interval_start!("loop", "step");
/// interval_end!("loop", "step", 1, over = Duration::from_micros(50));
/// interval_start!("loop", "request", key = 7);
/// std::thread::spawn(|| interval_end!("loop", "request", key = 7)).join();
/// ```
///
/// ```compile_fail,E0308
/// loopscope_trace::interval_end!("loop", "step", 1, over = 50);
/// ```
#[macro_export]
macro_rules! interval_end {
    ($group:literal, $name:literal, key = $key:expr $(,)?) => {
        $crate::interval_end!($group, $name, key = $key, over = ::core::time::Duration::ZERO)
    };
    ($group:literal, $name:literal, key = $key:expr, over = $over:expr $(,)?) => {
        $crate::__interval_end!(interval_end_key, $group, $name, $key, $over)
    };
    ($group:literal, $name:literal, $id:expr $(,)?) => {
        $crate::interval_end!($group, $name, $id, over = ::core::time::Duration::ZERO)
    };
    ($group:literal, $name:literal, $id:expr, over = $over:expr $(,)?) => {
        $crate::__interval_end!(interval_end, $group, $name, $id, $over)
    };
}

/// The end of an interval of either kind.
#[doc(hidden)]
#[macro_export]
macro_rules! __interval_end {
    ($call:ident, $group:literal, $name:literal, $id:expr, $over:expr) => {{
        let site = $crate::__site!(INTERVAL_END, $group, $name);
        if site.enabled() {
            let id = $crate::Id::to_id($id);
            site.$call(id, $crate::nanoseconds($over));
        }
    }};
}

/// The duration in nanoseconds; [`u64::MAX`], some 584 years, if it is longer.
#[doc(hidden)]
#[inline(always)]
pub fn nanoseconds(over: Duration) -> u64 {
    u64::try_from(over.as_nanos()).unwrap_or(u64::MAX)
}

/// Ends an interval when it is dropped; made by [`interval!`](crate::interval!).
#[must_use = "the interval ends when its guard is dropped"]
#[derive(Debug)]
pub struct Interval {
    end: Option<&'static Site>,
    id: i64,
    over_ns: u64,
    /// Starts and ends are matched by thread.
    thread: PhantomData<*const ()>,
}

impl Interval {
    #[doc(hidden)]
    #[inline(always)]
    pub fn disabled() -> Interval {
        Interval { end: None, id: 0, over_ns: 0, thread: PhantomData }
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn started(
        start: &'static Site,
        end: &'static Site,
        id: impl Id,
        over: Duration,
    ) -> Interval {
        let over_ns = nanoseconds(over);
        start.interval_start();
        Interval { end: Some(end), id: id.to_id(), over_ns, thread: PhantomData }
    }
}

impl Drop for Interval {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(end) = self.end
            && end.enabled()
        {
            end.interval_end(self.id, self.over_ns);
        }
    }
}
