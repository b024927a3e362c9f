//! Each macro; the tests run it and know what it records. Prints how often values were evaluated:
//! those of disabled call sites, then those of enabled ones.

use std::time::Duration;

use loopscope_trace::{
    counter_add, counter_log, counter_reset, describe, describe_group, event, flow_in, flow_link,
    flow_out, histogram_add, histogram_log, histogram_range, histogram_reset, interval,
    interval_end, interval_start,
};

const HIGH: i64 = 100;

histogram_range!("every", "range", -HIGH, HIGH, 10);
describe!("every", "range", "%", "50% of \"all\", {a|b}, back\\slash, µs\tand more");
describe_group!("every", "Everything.");

const LONG: Duration = Duration::from_secs(3600);

#[derive(Default)]
struct Evaluated(u32);

impl Evaluated {
    fn next(&mut self) -> u32 {
        self.0 += 1;
        self.0
    }

    fn text(&mut self) -> &'static str {
        ["zero", "one", "two", "three", "four"][self.next() as usize % 5]
    }
}

/// Hits each kind of site of a disabled entity.
fn disabled(evaluated: &mut Evaluated) {
    event!("off", "e", 1, s = evaluated.text());
    event!("off", "e", evaluated.next());
    flow_out!("off", "e", evaluated.next());
    flow_in!("off", "e", evaluated.next());
    flow_link!("off", "e", evaluated.next(), evaluated.next());
    interval_start!("off", "i");
    interval_end!("off", "i", evaluated.next());
    interval_start!("off", "i", key = evaluated.next());
    interval_end!(
        "off",
        "i",
        key = evaluated.next(),
        over = Duration::from_nanos(evaluated.next().into())
    );
    let _guard = interval!("off", "i", evaluated.next());
    counter_add!("off", "c", evaluated.next());
    counter_log!("off", "c");
    counter_reset!("off", "c");
    histogram_add!("off", "h", evaluated.next());
    histogram_log!("off", "h");
    histogram_reset!("off", "h");
}

fn events(evaluated: &mut Evaluated) {
    let bytes = [0, 1, b'\n', 0xff];
    let text = String::from("in a buffer");
    event!("every", "plain", 1);
    event!("every", "fixed", 2, a = 7u16, b = -0.5);
    event!("every", "text", 3, a = text.as_str(), b = 9u8, c = "");
    event!("every", "bytes", 4, a = &bytes[..], b = -4i64, c = &[][..] as &[u8]);
    event!(
        "every",
        "order",
        evaluated.next(),
        a = evaluated.next() as i32,
        b = evaluated.text(),
        c = u64::from(evaluated.next()),
        d = 1f32,
        e = &bytes[..1],
        f = 6u32,
        g = -7i8,
        h = -8i16
    );
}

fn flows() {
    flow_in!("every", "in", 10);
    flow_link!("every", "link", 10, -11);
    flow_out!("every", "out", -11, size = 12u32, to = "x y\0, and what follows a NUL");
}

fn nested(depth: u32) {
    interval_start!("every", "nested");
    if depth > 0 {
        nested(depth - 1);
    }
    interval_end!("every", "nested", depth);
}

fn intervals() {
    nested(2);
    interval_start!("every", "short");
    interval_end!("every", "short", 20, over = LONG);
    for key in 21..=23 {
        interval_start!("every", "across", key = key);
    }
    let other_thread = || {
        interval_end!("every", "across", key = 21);
        interval_end!("every", "across", key = 22, over = LONG);
        interval_end!("every", "across", key = 23, over = Duration::ZERO);
    };
    std::thread::spawn(other_thread).join().unwrap();
}

fn counters() {
    describe!("every", "sum", "B", "in a function");
    for i in 1..=4usize {
        counter_add!("every", "sum", i);
    }
    counter_log!("every", "sum");
    counter_reset!("every", "sum");
    counter_add!("every", "sum", i64::MIN);
    counter_log!("every", "sum");
}

fn histograms() {
    histogram_range!("every", "inner", 0, 4, 2);
    for i in -101..=100 {
        histogram_add!("every", "range", i);
    }
    histogram_log!("every", "range");
    histogram_reset!("every", "range");
    histogram_log!("every", "range");
    histogram_add!("every", "inner", 3u8);
    histogram_log!("every", "inner");
    histogram_add!("every", "log", 5);
    histogram_add!("every", "log", 1000);
    histogram_log!("every", "log");
}

fn guards() {
    let _outer = interval!("guard", "outer", 1);
    {
        let _inner = interval!("guard", "inner", 2, over = Duration::ZERO);
        let _short = interval!("guard", "short", 3, over = LONG);
    }
}

fn main() {
    let mut evaluated = Evaluated::default();
    disabled(&mut evaluated);
    print!("{} ", evaluated.0);
    events(&mut evaluated);
    println!("{}", evaluated.0);
    flows();
    intervals();
    counters();
    histograms();
    guards();
    let unwound = std::thread::spawn(|| {
        let _whole = interval!("guard", "whole", 4);
        std::panic::resume_unwind(Box::new(()));
    });
    unwound.join().unwrap_err();
}
