//! Events.

/// Records an event: `event!("group", "name", id, field = value, …)`.
///
/// Group and name are string literals of printable ASCII without spaces, `:`, `,`, quotes,
/// backslashes and braces. The id is any integer; it ties the events of one message together. Fields
/// (at most eight) are integers of 8 to 64 bits, floats, `&str` or `&[u8]`; their types are those of
/// the values. Id and values are evaluated only while the event is enabled, in order and in a closure:
/// `?`, `return` and `await` do not work in them, and they borrow from nothing that is made in them.
///
/// ```
/// let to = String::from("h2");
/// loopscope_trace::event!("pipe", "sent", 1, size = 7u32, to = to.as_str());
/// ```
///
/// ```compile_fail,E0277
/// loopscope_trace::event!("pipe", "sent", 1, size = 'c');
/// ```
///
/// ```compile_fail,E0277
/// loopscope_trace::event!("pipe", "sent", "one");
/// ```
///
/// ```compile_fail,E0277
/// loopscope_trace::event!("pipe", "sent", &1);
/// ```
#[macro_export]
macro_rules! event {
    ($($call:tt)*) => { $crate::__record!(EVENT, $($call)*) };
}

/// Records an event with a stamp that the caller has read from the counter:
/// `event_at!(counter, "group", "name", id, field = value, …)`. Fields are numbers. A stamp that lies
/// before that of the thread's last record becomes that one, because stamps of a stream never fall.
///
/// ```
/// # let counter = 1_u64;
/// loopscope_trace::event_at!(counter, "pipe", "given", 1, size = 7u32);
/// ```
#[macro_export]
macro_rules! event_at {
    ($counter:expr, $group:literal, $name:literal, $id:expr,
     $($field:ident = $value:expr),+ $(,)?) => {{
        #[allow(unused_mut)]
        let mut values = || ($id, ($($value,)+));
        let site = $crate::__site!(EVENT, $group, $name, values; $($field)+);
        if site.enabled() {
            let (id, ($($field,)+)) = values();
            let mut payload = $crate::Payload::new();
            $($crate::Field::push($field, &mut payload);)+
            site.record_fields_at(id, &payload, $counter);
        }
    }};
}

/// An event or one end of a flow.
#[doc(hidden)]
#[macro_export]
macro_rules! __record {
    ($kind:ident, $group:literal, $name:literal, $id:expr $(,)?) => {{
        let site = $crate::__site!($kind, $group, $name);
        if site.enabled() {
            site.record($id);
        }
    }};
    ($kind:ident, $group:literal, $name:literal, $id:expr,
     $($field:ident = $value:expr),+ $(,)?) => {{
        #[allow(unused_mut)]
        let mut values = || ($id, ($($value,)+));
        let site = $crate::__site!($kind, $group, $name, values; $($field)+);
        if site.enabled() {
            let (id, ($($field,)+)) = values();
            let mut payload = $crate::Payload::new();
            $($crate::Field::push($field, &mut payload);)+
            site.record_fields(id, &payload);
        }
    }};
}
