//! `status`: what a page says, for people.

use std::path::PathBuf;
use std::process::ExitCode;

use loopscope_clock::layout::{DEFAULT_PATH, WORDS, word};
use loopscope_clock::{Page, Status, Time, Writer};
use loopscope_clocksync::page::{Role, Service};
use loopscope_clocksync::utc::Standing;
use loopscope_time::Frequency;
use loopscope_time::source::CounterKind;
use serde_json::{Value, json};

/// Say what is known of the time. Exit codes: 0 synchronised, 3 holdover or unknown, 2 no page.
#[derive(clap::Args)]
pub struct Arguments {
    /// Path of the page [default: the one that LOOPSCOPE_CLOCK names, else
    /// /dev/shm/loopscope-clock]
    #[arg(long, value_name = "PATH")]
    page: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

const NOT_SYNCHRONISED: u8 = 3;

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let page = match Page::open(arguments.page.as_deref()) {
        Ok(page) => page,
        Err(error) => {
            eprintln!(
                "loopscope-host: there is no clock: {error}. Start one: loopscope clock serve or \
                 loopscope clock join; default page: {DEFAULT_PATH}"
            );
            return Ok(ExitCode::from(super::NO_CLOCK));
        }
    };
    let answer = Answer::of(&page);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&answer.json())?);
    } else {
        answer.print();
    }
    let good = answer.status() == Status::Synchronised;
    Ok(ExitCode::from(if good { 0 } else { NOT_SYNCHRONISED }))
}

/// A publication, and whether anybody stands behind it.
struct Answer {
    time: Time,
    words: Option<[u64; WORDS]>,
    frequency: Option<Frequency>,
    counter: Option<CounterKind>,
    writer: Option<(Writer, bool)>,
}

impl Answer {
    fn of(page: &Page) -> Answer {
        let words = page.words();
        let time = page.now();
        let writer = page.writer().map(|writer| (writer, is_alive(writer)));
        let (frequency, counter) = (page.frequency(), page.counter_kind());
        Answer { time, words, frequency, counter, writer }
    }

    /// The status on the page, which shows a writer's death one second later than the system does.
    fn status(&self) -> Status {
        match self.time.status {
            Status::Synchronised if !self.is_kept() => Status::Holdover,
            status => status,
        }
    }

    fn is_kept(&self) -> bool {
        self.writer.is_some_and(|(_, alive)| alive)
    }

    fn service(&self) -> Option<Service> {
        Service::of(self.words.as_ref()?)
    }

    fn age_ns(&self) -> Option<i64> {
        self.ns_since(word::ANCHOR)
    }

    /// Nanoseconds from the counter in this word until now.
    fn ns_since(&self, word: usize) -> Option<i64> {
        let ticks = self.time.counter.0.wrapping_sub(self.words?[word]).cast_signed();
        Some((ticks as f64 * self.frequency?.ns_per_tick()) as i64)
    }

    /// How much faster global time passes than the counter at its nominal frequency tells it: of a
    /// counter that is slow it is positive.
    fn rate_ppm(&self) -> Option<f64> {
        let (rate, frequency) = (self.words?[word::RATE], self.frequency?);
        self.is_known().then(|| ppm(rate, frequency))
    }

    fn is_known(&self) -> bool {
        self.time.status != Status::Unknown
    }

    fn half_width_ns(&self) -> Option<i64> {
        let Time { earliest, best, latest, .. } = self.time;
        self.is_known().then(|| (best - earliest).max(latest - best))
    }

    fn json(&self) -> Value {
        let utc = self.service().map(|service| match service.utc {
            Standing::Known { offset_ns, error_ns, stratum } => json!({
                "synchronised": true, "offset_ns": offset_ns, "error_ns": error_ns,
                "stratum": stratum, "reason": null,
            }),
            Standing::Unsynchronised(reason) => json!({
                "synchronised": false, "offset_ns": null, "error_ns": null, "stratum": null,
                "reason": reason.to_string(),
            }),
        });
        json!({
            "status": name(self.status()),
            "role": self.service().map(|service| role(service.role)),
            "global_ns": self.is_known().then_some(self.time.best.0),
            "half_width_ns": self.half_width_ns(),
            "calibrated_ns": self.is_known().then_some(self.time.calibrated_ns),
            "rate_ppm": self.rate_ppm(),
            "counter": self.counter.map(CounterKind::name),
            "epoch": self.words.map(|words| words[word::STANDING] as u32),
            "age_ns": self.age_ns(),
            "expires_in_ns": self.ns_since(word::EXPIRES).map(|ns| -ns),
            "writer": self.writer.map(|(writer, alive)| json!({"pid": writer.pid, "alive": alive})),
            "utc": utc,
        })
    }

    fn print(&self) {
        let line = |what: &str, text: String| println!("{what:<9}{text}");
        line("status", name(self.status()).into());
        if let Some(service) = self.service() {
            line("role", role(service.role).into());
        }
        if let Some(half) = self.half_width_ns() {
            line("time", format!("{:.9} s", self.time.best.0 as f64 / 1e9));
            let calibrated = ns(i64::from(self.time.calibrated_ns));
            line("width", format!("± {} hard, ± {calibrated} calibrated", ns(half)));
        }
        if let Some(ppm) = self.rate_ppm() {
            line("rate", format!("{ppm:+.3} ppm, global time against the counter"));
        }
        if let Some(kind) = self.counter {
            line("counter", kind.to_string());
        }
        if let Some(words) = self.words {
            line("epoch", (words[word::STANDING] as u32).to_string());
        }
        if let Some(age) = self.age_ns() {
            line("age", ns(age));
        }
        if let Some(since) = self.ns_since(word::EXPIRES) {
            line("expires", if since < 0 { format!("in {}", ns(-since)) } else { "it has".into() });
        }
        match self.writer {
            Some((Writer { pid, .. }, true)) => line("writer", format!("{pid}, alive")),
            Some((Writer { pid, .. }, false)) => line("writer", format!("{pid}, dead")),
            None => line("writer", "none".into()),
        }
        match self.service().map(|service| service.utc) {
            Some(Standing::Known { offset_ns, error_ns, stratum }) => {
                let error = ns(i64::try_from(error_ns).unwrap_or(i64::MAX));
                let offset = offset_ns as f64 / 1e9;
                line("utc", format!("{offset:+.9} s, ± {error}, stratum {stratum}"));
            }
            Some(Standing::Unsynchronised(reason)) => {
                line("utc", format!("unsynchronised: {reason}"))
            }
            None => {}
        }
    }
}

/// Whether the process that published is still that one.
fn is_alive(writer: Writer) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", writer.pid)).unwrap_or_default();
    // The second field is the program's name in parentheses and may hold anything.
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let start = behind.split_ascii_whitespace().nth(19);
    start.and_then(|start| start.parse().ok()) == Some(writer.start)
}

fn name(status: Status) -> &'static str {
    match status {
        Status::Unknown => "UNKNOWN",
        Status::Synchronised => "SYNCHRONISED",
        Status::Holdover => "HOLDOVER",
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Reference => "reference",
        Role::Follower => "follower",
    }
}

/// Nanoseconds in the unit that suits them.
fn ns(ns: i64) -> String {
    let value = ns as f64;
    match ns.unsigned_abs() {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.1} s", value / 1e9),
    }
}

/// What [`Answer::rate_ppm`] says of the word `RATE`.
fn ppm(rate: u64, frequency: Frequency) -> f64 {
    let ns_per_tick = rate as f64 / (1u64 << loopscope_clock::layout::SHIFT) as f64;
    (ns_per_tick / frequency.ns_per_tick() - 1.0) * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_a_slow_counter_is_positive() {
        // It counts 40 ppm less than its nominal frequency says, so a tick takes 40 ppm longer.
        let nominal = Frequency::from_hz(2_000_000_000).unwrap();
        let rate = 0.5 * (1.0 + 40e-6) * (1u64 << loopscope_clock::layout::SHIFT) as f64;
        assert!((ppm(rate as u64, nominal) - 40.0).abs() < 0.01);
    }
}
