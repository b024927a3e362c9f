//! A program that speaks through `tracing`; the tests run it and know what it says.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use tracing::{Event, Level, Subscriber, debug, event, info, info_span, span, warn};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

/// Events that another layer of the subscriber saw.
static SEEN: AtomicU32 = AtomicU32::new(0);

struct Seen;

impl<S: Subscriber> Layer<S> for Seen {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        SEEN.fetch_add(1, Ordering::Relaxed);
    }
}

struct Loud;

impl fmt::Debug for Loud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        info!(name: "inside", target: "says", id = 1);
        f.write_str("loud")
    }
}

fn option(first: Option<u64>, second: Option<u64>) {
    info!(name: "option", target: "says", id = 1, first, second);
}

fn evaluated(evaluations: &mut u32) -> u32 {
    *evaluations += 1;
    *evaluations
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("sole") {
        let subscriber = Registry::default().with(loopscope_trace_layer::sole_layer());
        tracing::subscriber::set_global_default(subscriber).expect("it is the first");
    } else {
        let subscriber = Registry::default().with(loopscope_trace_layer::layer()).with(Seen);
        tracing::subscriber::set_global_default(subscriber).expect("it is the first");
    }

    info!(name: "plain", target: "says", id = 5);
    info!(name: "types", target: "says", id = -3, u = 7u8, i = -7i32, f = 0.5, b = true, s = "text");
    warn!(name: "types", target: "says", id = u64::MAX, u = u64::MAX, i = i64::MIN, f = -1.5f32, b = false, s = "");
    info!(name: "a name: with \"all\"", target: "says::deep", { http.status = 404 }, "message {}", 1 + 1);
    event!(target: "says", Level::ERROR, name = "a field", debug = ?Some(1), display = %"shown");
    info!(name: "id-text", target: "says", id = "seven");
    info!(name: "nul", target: "says", s = "a\0b", bytes = &b"\0\xff"[..]);
    info!(
        name: "many", target: "says", id = 9,
        a = 1, b = 2, c = 3, d = "4", e = 5, f = 6, g = 7, h = "8 8", i = 9.5, j = ?Some(0)
    );
    info!(name: "nested", target: "says", loud = ?Loud);
    option(Some(1), None);
    option(None, None);
    option(None, Some(2));
    option(Some(3), None);
    debug!("with no name");

    let outer = info_span!(target: "says", "outer", id = 40, other = "x");
    let entered = outer.enter();
    for id in 0..3u32 {
        let _inner = span!(target: "says", Level::INFO, "inner", id).entered();
    }
    drop(entered);
    let elsewhere = std::thread::spawn(move || drop(outer));
    elsewhere.join().expect("it only drops");
    let (one, two) = (info_span!(target: "says", "keyless"), info_span!(target: "says", "keyless"));
    drop(one);
    drop(two);

    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for id in 0..1000 {
                    info!(name: "threads", target: "says", id, thread);
                }
            });
        }
    });

    let mut evaluations = 0;
    for id in 0..100 {
        info!(name: "evaluated", target: "off", id, n = evaluated(&mut evaluations));
        let _span = info_span!(target: "off", "span", id = evaluated(&mut evaluations)).entered();
    }
    println!("evaluated {evaluations}, seen by another layer {}", SEEN.load(Ordering::Relaxed));
}
