//! The ways of messages.

/// An event that says: message `id` leaves here. Written like [`event!`](crate::event!).
///
/// ```
/// loopscope_trace::flow_out!("pipe", "message", 1, size = 7u32);
/// ```
#[macro_export]
macro_rules! flow_out {
    ($($call:tt)*) => { $crate::__record!(FLOW_OUT, $($call)*) };
}

/// An event that says: message `id` arrives here. Written like [`event!`](crate::event!).
#[macro_export]
macro_rules! flow_in {
    ($($call:tt)*) => { $crate::__record!(FLOW_IN, $($call)*) };
}

/// Says that output `out` was computed from input `id`: `flow_link!("group", "name", id, out)`.
///
/// ```compile_fail,E0277
/// loopscope_trace::flow_link!("pipe", "merged", 1, "two");
/// ```
#[macro_export]
macro_rules! flow_link {
    ($group:literal, $name:literal, $id:expr, $out:expr $(,)?) => {
        $crate::__record!(FLOW_LINK, $group, $name, $id, out = $crate::Id::to_id($out))
    };
}
