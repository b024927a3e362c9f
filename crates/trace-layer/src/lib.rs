//! Records what a program already says through [`tracing`](https://docs.rs/tracing): its events as
//! events, its spans as intervals.
//!
//! ```
//! use tracing_subscriber::layer::SubscriberExt as _;
//! use tracing_subscriber::Registry;
//!
//! let subscriber = Registry::default().with(loopscope_trace_layer::layer());
//! tracing::subscriber::with_default(subscriber, || {
//!     tracing::info!(name: "sent", id = 7, size = 12u64, "to the controller");
//! });
//! ```
//!
//! | `tracing` | trace |
//! |---|---|
//! | target `net::client` | group `net.client` |
//! | name, of a span or given with `name:` | name; what is no letter, digit, `_`, `.` or `-` is `_` |
//! | event without a name, at `src/client.rs:12` | name `client.rs-12` |
//! | field `id`, an integer | the record's id; 0 without |
//! | `u64 i64 f64 bool`, strings, bytes | fields `u64 i64 f64 u8 str bytes` |
//! | the message, and all else by its Debug form | field `str` |
//! | more than eight fields, the id among them | seven, then `rest`: `name=value` of the others |
//! | span, from its making to its close | interval; its id is the field `id` as the span is made, else the span's own |
//!
//! A span has no other fields, and spans of one callsite that are open at once need different ids.
//! The same name with values of other types, or without some, is another call site of the entity.
//! A NUL in a text is a `?`.
//!
//! Whether an entity is recorded is asked at each hit, so recordings may begin and end while the
//! program runs. In a program whose only layer is [`sole_layer`] a disabled entity costs
//! `tracing`'s way to a subscriber and a look-up in a table. Together with other layers it has to
//! be [`layer`], which leaves them what they saw before; `tracing-subscriber` then evaluates an
//! event's values whether anybody wants them or not. The first hit of an event is always evaluated:
//! the types of its values come with them.

mod callsite;
mod name;
mod site;
mod value;

use tracing_core::span::{Attributes, Id};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Filtered;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;

use callsite::Is;
use value::{Hit, SpanId};

/// Records events and spans into whichever loopscope streams have them enabled. Made by [`layer`]
/// and [`sole_layer`].
#[derive(Debug)]
pub struct Recorder(());

/// Asks the entity's flag word, which collectors set. Made by [`layer`].
#[derive(Debug)]
pub struct Enabled(());

/// The layer for a subscriber that has others: a filter of its own leaves them what they see.
pub fn layer<S>() -> Filtered<Recorder, Enabled, S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    sole_layer().with_filter(Enabled(()))
}

/// The layer for a subscriber that has no other: what no stream has enabled is disabled for the
/// whole subscriber, and its values are not evaluated.
pub fn sole_layer() -> Recorder {
    Recorder(())
}

fn interest(metadata: &'static Metadata<'static>) -> Interest {
    match callsite::register(metadata) {
        Some(callsite) if callsite.may_be_enabled() => Interest::sometimes(),
        _ => Interest::never(),
    }
}

fn is_enabled(metadata: &Metadata<'_>) -> bool {
    callsite::find(metadata).is_some_and(|callsite| callsite.is_enabled())
}

impl<S> Filter<S> for Enabled {
    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        interest(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        is_enabled(metadata)
    }
}

/// Key of a span whose start was recorded.
struct Started(i64);

impl<S> Layer<S> for Recorder
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        interest(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        is_enabled(metadata)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(callsite) = callsite::find(event.metadata()) else { return };
        let mut hit = Hit::new(event.metadata().fields().len());
        event.record(&mut hit);
        hit.finish();
        if let Some(site) = callsite.site(&hit)
            && site.is_enabled()
        {
            site.record(hit.id, &hit.values, &hit.text);
        }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(callsite) = callsite::find(attributes.metadata()) else { return };
        let (Is::Span { start, .. }, Some(span)) = (&callsite.is, context.span(id)) else { return };
        if !start.is_enabled() {
            return;
        }
        let mut found = SpanId::default();
        attributes.record(&mut found);
        let key = found.0.unwrap_or(id.into_u64().cast_signed());
        span.extensions_mut().replace(Started(key));
        start.start(key);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(callsite) = callsite::find(span.metadata()) else { return };
        let Is::Span { end, .. } = &callsite.is else { return };
        if let Some(Started(key)) = span.extensions_mut().remove::<Started>()
            && end.is_enabled()
        {
            end.end(key);
        }
    }
}
