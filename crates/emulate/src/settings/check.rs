//! Whether settings make sense, without a look into the files that they name.

use serde_json::{Map, Value};

use super::{Discipline, Limit, Loss, Reorder, Settings};
use crate::model::{ETHERNET, MTU};

/// A setting that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: {problem}")]
pub struct Mistake {
    /// The key of [`Settings`] that is to be changed.
    pub key: String,
    /// What is wrong with it, and the remedy.
    pub problem: String,
}

fn mistake<T>(key: &str, problem: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake { key: key.into(), problem: problem.into() })
}

/// The settings that JSON says, if they make sense.
pub fn check_json(all: &Map<String, Value>) -> Result<Settings, Mistake> {
    match serde_json::from_value::<Settings>(Value::Object(all.clone())) {
        Ok(settings) => settings.check().map(|()| settings),
        Err(error) => {
            // Serde does not say at which key it stopped.
            let alone = |(key, value): (&String, &Value)| {
                let one = Map::from_iter([(key.clone(), value.clone())]);
                serde_json::from_value::<Settings>(Value::Object(one)).is_err()
            };
            let key = all.iter().find(|entry| alone(*entry)).map_or("", |(key, _)| key);
            mistake(key, error.to_string())
        }
    }
}

impl Settings {
    /// Whether these make sense together. Files are not read: [`crate::traces::check`] does.
    pub fn check(&self) -> Result<(), Mistake> {
        if self.mtu == Some(0) {
            return mistake(
                "mtu",
                "0 lets no packet pass. Write the largest IP packet, as in 1500B",
            );
        }
        self.check_loss()?;
        probability("duplicate", self.duplicate)?;
        probability("corrupt", self.corrupt)?;
        self.check_rate()?;
        self.check_queue()?;
        self.check_delay()
    }

    /// Bytes of the largest frame that the MTU lets pass.
    pub fn largest_frame(&self) -> u64 {
        u64::from(self.mtu.unwrap_or(MTU)) + ETHERNET
    }

    fn check_loss(&self) -> Result<(), Mistake> {
        match &self.loss {
            None | Some(Loss::Trace { .. }) => Ok(()),
            Some(Loss::Independent { probability: share, correlation }) => {
                probability("loss", *share)?;
                self::correlation("loss", *correlation)
            }
            Some(Loss::GilbertElliott { p, r, good, bad }) => {
                for (name, value) in [("p", p), ("r", r), ("good", good), ("bad", bad)] {
                    if !(0.0..=1.0).contains(value) {
                        return mistake("loss", format!("{name}: {}", no_probability(*value)));
                    }
                }
                Ok(())
            }
            Some(Loss::Periodic { every: 0 }) => {
                mistake("loss", "every 0th packet is none. Write 1 or more, as in 100")
            }
            Some(Loss::Periodic { .. }) => Ok(()),
        }
    }

    fn check_rate(&self) -> Result<(), Mistake> {
        if self.rate_bps.is_some() && self.opportunities.is_some() {
            return mistake(
                "opportunities",
                "stand beside a rate, and either says when packets pass. Leave one of them out",
            );
        }
        if self.rate_bps == Some(0) {
            return mistake(
                "rate_bps",
                "0 bit/s lets nothing pass, ever. Write a rate above it, or a loss of 100 %",
            );
        }
        match (self.burst_bytes, self.rate_bps) {
            (Some(_), None) => {
                mistake("burst_bytes", "a burst needs a rate. Write one, or leave the burst out")
            }
            (Some(burst), Some(_)) if burst < self.largest_frame() => {
                let frame = self.largest_frame();
                mistake(
                    "burst_bytes",
                    format!("{burst} B is less than a frame of {frame} B. Write {frame}B or more"),
                )
            }
            _ => Ok(()),
        }
    }

    fn check_queue(&self) -> Result<(), Mistake> {
        let Some(queue) = &self.queue else {
            return Ok(());
        };
        if self.rate_bps.is_none() && self.opportunities.is_none() {
            return mistake(
                "queue",
                "nothing waits on a link without a rate or opportunities. Write one of them, or \
                 leave the queue out",
            );
        }
        let frame = self.largest_frame();
        match queue.limit {
            Some(Limit::Packets(0)) => {
                return mistake("queue", "no packet may wait. Write 1 packet or more");
            }
            Some(Limit::Bytes(bytes)) if bytes < frame => {
                return mistake(
                    "queue",
                    format!("{bytes} B hold no frame of {frame} B. Write {frame}B or more"),
                );
            }
            Some(Limit::TimeNs(0)) => {
                return mistake("queue", "no packet may wait for 0 ns. Write a time, as in 50ms");
            }
            _ => {}
        }
        match queue.discipline {
            Discipline::Codel { target_ns, interval_ns }
                if target_ns == 0 || interval_ns < target_ns =>
            {
                mistake(
                    "queue",
                    format!(
                        "CoDel's target of {} must be above zero and not above its interval of {}. \
                         RFC 8289 has 5ms and 100ms",
                        duration(target_ns),
                        duration(interval_ns)
                    ),
                )
            }
            _ => Ok(()),
        }
    }

    fn check_delay(&self) -> Result<(), Mistake> {
        if self.delays.is_some() && self.delay_ns > 0 {
            return mistake(
                "delays",
                "stand beside a delay, and either says how long packets take. Leave one of them out",
            );
        }
        if let Some(jitter) = &self.jitter {
            if self.delays.is_none() && jitter.ns > self.delay_ns {
                return mistake(
                    "jitter",
                    format!(
                        "{} is above the delay of {} that it is about, and no packet arrives before \
                         it is sent. Raise the delay or lower the jitter",
                        duration(jitter.ns),
                        duration(self.delay_ns)
                    ),
                );
            }
            correlation("jitter", jitter.correlation)?;
        }
        match self.reorder {
            Some(Reorder::ByJitter) if self.jitter.is_none() => mistake(
                "reorder",
                "by jitter, but there is none. Write a jitter, or a probability of overtaking",
            ),
            Some(Reorder::Skip { probability: share }) => {
                if self.delay_ns == 0 && self.delays.is_none() {
                    return mistake(
                        "reorder",
                        "packets overtake by skipping the delay, and there is none. Write a delay",
                    );
                }
                probability("reorder", share)
            }
            _ => Ok(()),
        }
    }
}

fn no_probability(value: f64) -> String {
    format!("{:.6} % is no probability. Write 0% to 100%", value * 100.0).replace(".000000 %", " %")
}

fn probability(key: &str, value: f64) -> Result<(), Mistake> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { mistake(key, no_probability(value)) }
}

fn correlation(key: &str, value: f64) -> Result<(), Mistake> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    mistake(key, format!("{value} is no correlation. Write 0 to 1, or 0% to 100%"))
}

/// In the largest unit that needs no fraction.
fn duration(ns: u64) -> String {
    match ns {
        _ if ns >= 1_000_000_000 && ns.is_multiple_of(1_000_000_000) => {
            format!("{} s", ns / 1_000_000_000)
        }
        _ if ns >= 1_000_000 && ns.is_multiple_of(1_000_000) => format!("{} ms", ns / 1_000_000),
        _ if ns >= 1_000 && ns.is_multiple_of(1_000) => format!("{} us", ns / 1_000),
        _ => format!("{ns} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mistake_of(settings: Value) -> (String, String) {
        let Value::Object(all) = settings else { panic!("an object") };
        let mistake = check_json(&all).expect_err("refused");
        (mistake.key, mistake.problem)
    }

    #[test]
    fn each_mistake_names_its_key_and_the_remedy() {
        let independent =
            |p: f64, c: f64| json!({"kind": "independent", "probability": p, "correlation": c});
        let normal =
            |ns: u64, c: f64| json!({"distribution": "normal", "ns": ns, "correlation": c});
        for (settings, key, words) in [
            (json!({"loss": independent(1.2, 0.0)}), "loss", ["120 %", "0% to 100%"]),
            (json!({"loss": independent(-0.1, 0.0)}), "loss", ["-10 %", "0% to 100%"]),
            (json!({"loss": independent(0.1, 1.5)}), "loss", ["1.5", "0 to 1"]),
            (
                json!({"loss": {"kind": "gilbert-elliott", "p": 0.1, "r": 2.0}}),
                "loss",
                ["r: 200 %", "0% to 100%"],
            ),
            (json!({"loss": {"kind": "periodic", "every": 0}}), "loss", ["0th", "1 or more"]),
            (json!({"duplicate": 7.0}), "duplicate", ["700 %", "0% to 100%"]),
            (json!({"corrupt": -1.0}), "corrupt", ["-100 %", "0% to 100%"]),
            (json!({"mtu": 0}), "mtu", ["no packet", "1500B"]),
            (json!({"rate_bps": 0}), "rate_bps", ["nothing", "loss of 100 %"]),
            (json!({"rate_bps": 1, "opportunities": "f"}), "opportunities", ["rate", "Leave one"]),
            (
                json!({"rate_bps": 1, "burst_bytes": 1000}),
                "burst_bytes",
                ["1514 B", "1514B or more"],
            ),
            (json!({"burst_bytes": 10000}), "burst_bytes", ["needs a rate", "leave"]),
            (json!({"queue": {"limit": {"packets": 5}}}), "queue", ["without a rate", "leave"]),
            (
                json!({"rate_bps": 1, "queue": {"limit": {"packets": 0}}}),
                "queue",
                ["no packet", "1 packet or more"],
            ),
            (
                json!({"rate_bps": 1, "queue": {"limit": {"bytes": 100}}}),
                "queue",
                ["1514 B", "1514B or more"],
            ),
            (json!({"rate_bps": 1, "queue": {"limit": {"time-ns": 0}}}), "queue", ["0 ns", "50ms"]),
            (
                json!({"rate_bps": 1, "queue": {"discipline": {"codel": {"target_ns": 0, "interval_ns": 1}}}}),
                "queue",
                ["CoDel", "5ms and 100ms"],
            ),
            (
                json!({"delay_ns": 1_000_000, "jitter": normal(2_000_000, 0.0)}),
                "jitter",
                ["2 ms is above the delay of 1 ms", "Raise"],
            ),
            (json!({"jitter": normal(1, 0.0)}), "jitter", ["1 ns", "Raise"]),
            (json!({"delay_ns": 9, "jitter": normal(1, -0.5)}), "jitter", ["-0.5", "0 to 1"]),
            (json!({"delay_ns": 9, "delays": "f"}), "delays", ["beside a delay", "Leave one"]),
            (
                json!({"reorder": {"skip": {"probability": 0.1}}}),
                "reorder",
                ["there is none", "Write a delay"],
            ),
            (
                json!({"delay_ns": 9, "reorder": {"skip": {"probability": 1.1}}}),
                "reorder",
                ["110 %", "0% to 100%"],
            ),
            (
                json!({"delay_ns": 9, "reorder": "by-jitter"}),
                "reorder",
                ["there is none", "Write a jitter"],
            ),
            (json!({"delay_ns": -5}), "delay_ns", ["-5", "invalid"]),
            (json!({"dleay_ns": 5}), "dleay_ns", ["unknown field", "delay_ns"]),
        ] {
            let (found, problem) = mistake_of(settings.clone());
            assert_eq!(found, key, "{settings}: {problem}");
            for word in words {
                assert!(problem.contains(word), "{settings}: {problem}");
            }
        }
    }

    #[test]
    fn no_number_is_no_probability() {
        let settings = Settings { duplicate: f64::NAN, ..Settings::default() };
        assert_eq!(settings.check().expect_err("refused").key, "duplicate");
    }

    #[test]
    fn a_change_leaves_the_other_settings_and_null_is_the_default() {
        let settings = json!({"delay_ns": 5_000_000, "duplicate": 0.5, "rate_bps": 1000,
            "jitter": {"distribution": "pareto", "ns": 1_000_000}});
        let settings: Settings = serde_json::from_value(settings).expect("settings");
        let change = |value: Value| {
            let Value::Object(change) = value else { panic!("an object") };
            settings.changed(&change)
        };
        let changed = change(json!({"delay_ns": 2_000_000, "rate_bps": null})).expect("changed");
        let expected = Settings { delay_ns: 2_000_000, rate_bps: None, ..settings.clone() };
        assert_eq!(changed, expected);
        assert_eq!(change(json!({})).as_ref(), Ok(&settings));
        // What stays is checked against what changes.
        let error = change(json!({"delay_ns": null})).expect_err("refused");
        assert!(error.starts_with("`jitter`: 1 ms is above the delay of 0 ns"), "{error}");
        let error = change(json!({"dealy_ns": 5})).expect_err("refused");
        assert!(error.starts_with("`dealy_ns`: unknown field"), "{error}");
    }
}
