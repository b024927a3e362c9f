//! Links in the terms of the kernel's netem, as commands for `tc -batch`, or why it has none for
//! them. On the bridge of the hosts' ports, what goes out to a host is sorted by who sent it: a
//! class of HTB for each link, which limits nothing, with netem in it. tc-netem(8), tc-htb(8).

use std::fmt::Write as _;

use crate::address::Address;
use crate::model;
use crate::settings::{
    Discipline, Distribution, Jitter, Limit, Loss, Mistake, Queue, Reorder, Settings,
};

/// The keys of [`Settings`] that netem has, at least in part. It refuses every other one.
const KEYS: [&str; 8] =
    ["loss", "duplicate", "corrupt", "rate_bps", "queue", "delay_ns", "jitter", "reorder"];
/// Above any that a link has: HTB is there for its classes alone, and netem keeps packets in order
/// only where there is a rate.
const NO_LIMIT_BPS: u64 = 100_000_000_000;
/// Handles from here on are of queues that took another one's place.
const SECOND: usize = 0x8000;
/// The limit of a queue that is not to drop, in packets.
const NO_LIMIT_PACKETS: u64 = 1_000_000;

/// What makes a device of the bridge sort what goes out by who sent it. What belongs to no class
/// passes at once.
pub fn root(device: &str) -> String {
    format!("qdisc add dev {device} root handle 1: htb default 0\n")
}

/// A link's class on the device to its receiver.
#[derive(Clone, Copy, Debug)]
pub struct Class<'a> {
    /// The receiver's port.
    pub device: &'a str,
    /// Where the sender's port stands in the document, from 0.
    pub from: usize,
    /// By which the sender is known.
    pub address: Address,
    /// Whether the queue in it is the one that took the first one's place, or the other way around.
    pub second: bool,
}

impl Class<'_> {
    /// What makes it, with this queue in it.
    pub fn add(&self, queue: &str) -> String {
        let Class { device, address, .. } = self;
        let class = self.number();
        format!(
            "class add dev {device} parent 1: classid 1:{class:x} htb rate {NO_LIMIT_BPS}bit \
             burst 1000000 cburst 1000000 quantum 60000\n\
             qdisc add {}\
             filter add dev {device} parent 1: protocol all prio 1 u32 match ether src {address} \
             flowid 1:{class:x}\n",
            self.queue(queue)
        )
    }

    /// What has the queue in it do something else from now on. What is in it stays there.
    pub fn change(&self, queue: &str) -> String {
        format!("qdisc change {}", self.queue(queue))
    }

    /// What puts a new queue into it, of the other handle. What was in the old one is lost.
    pub fn replace(&self, queue: &str) -> String {
        format!("qdisc replace {}", self.queue(queue))
    }

    fn queue(&self, queue: &str) -> String {
        let class = self.number();
        let handle = class + 1 + if self.second { SECOND } else { 0 };
        format!("dev {} parent 1:{class:x} handle {handle:x}: {queue}\n", self.device)
    }

    fn number(&self) -> usize {
        self.from + 1
    }
}

/// Whether netem has a table for these, which no change takes away from it again.
pub fn has_table(settings: &Settings) -> bool {
    let shape = settings.jitter.as_ref().map(|jitter| &jitter.distribution);
    shape.is_some_and(|shape| *shape != Distribution::Uniform)
}

/// The longest that netem holds a packet by these, as far as it is on time.
pub fn longest_ns(settings: &Settings) -> u64 {
    // Its tables end at four deviations.
    let jitter = settings.jitter.as_ref().map_or(0, |jitter| jitter.ns.saturating_mul(4));
    let held = limit(settings).unwrap_or(NO_LIMIT_PACKETS);
    let waiting = settings.rate_bps.map_or(0, |rate| {
        let bits = u128::from(held) * u128::from(settings.largest_frame()) * 8;
        u64::try_from(bits * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
    });
    settings.delay_ns.saturating_add(jitter).saturating_add(waiting)
}

/// A link's settings as netem's, whole: for one that is made and for one that has others.
pub fn words(settings: &Settings) -> Result<String, Mistake> {
    let mut words = format!("netem limit {}", limit(settings)?);
    let in_order = settings.reorder != Some(Reorder::ByJitter);
    if let Some(key) = unknown(settings) {
        return refuse(&key, "netem does not have it");
    }
    if settings.delay_ns > 0 {
        let _ = write!(words, " delay {}", time(settings.delay_ns));
        if let Some(jitter) = &settings.jitter {
            words += &variation(jitter)?;
        }
    }
    match settings.reorder {
        Some(Reorder::Skip { probability }) => {
            words += &format!(" reorder {}", percent(probability))
        }
        Some(Reorder::ByJitter) if settings.rate_bps.is_some() => {
            return refuse("reorder", "netem keeps packets in order where there is a rate");
        }
        _ => {}
    }
    if let Some(loss) = &settings.loss {
        words += &lost(loss)?;
    }
    if settings.duplicate > 0.0 {
        let _ = write!(words, " duplicate {}", percent(settings.duplicate));
    }
    // What a change leaves out becomes nothing, but for these two, which stay (netem_change() in
    // net/sched/sch_netem.c), and what is not used here: correlations, slots.
    let rate = match settings.rate_bps {
        Some(rate) => rate,
        None if settings.jitter.is_some() && in_order => NO_LIMIT_BPS,
        None => 0,
    };
    let _ = write!(words, " corrupt {} rate {rate}bit", percent(settings.corrupt));
    Ok(words)
}

fn refuse<T>(key: &str, problem: &str) -> Result<T, Mistake> {
    let problem = format!("{problem}. Use mover: auto, or leave it out");
    Err(Mistake { key: key.to_owned(), problem })
}

/// The first key that differs from a link without impairments and that netem does not have.
fn unknown(settings: &Settings) -> Option<String> {
    let (Ok(asked), Ok(nothing)) =
        (serde_json::to_value(settings), serde_json::to_value(Settings::default()))
    else {
        return Some("settings".to_owned());
    };
    let others = asked.as_object()?.iter().filter(|(key, _)| !KEYS.contains(&key.as_str()));
    others
        .into_iter()
        .find(|(key, value)| nothing.get(key) != Some(value))
        .map(|(key, _)| key.clone())
}

fn variation(jitter: &Jitter) -> Result<String, Mistake> {
    let shape = match &jitter.distribution {
        // What it does without one.
        Distribution::Uniform => "",
        Distribution::Normal => " distribution normal",
        Distribution::Pareto => " distribution pareto",
        Distribution::Exponential => return refuse("jitter", "netem has no exponential one"),
        Distribution::Table(_) => return refuse("jitter", "netem has tables of its own only"),
    };
    if jitter.correlation > 0.0 {
        // Its correlated random numbers are weighted means, no longer uniform.
        return refuse("jitter", "netem's correlated delays vary less than is asked");
    }
    Ok(format!(" {}{shape}", time(jitter.ns)))
}

fn lost(loss: &Loss) -> Result<String, Mistake> {
    Ok(match loss {
        Loss::Independent { probability, correlation } if *correlation == 0.0 => {
            format!(" loss random {}", percent(*probability))
        }
        // Two states instead: the kernel's correlated random numbers would change the share that is
        // lost.
        Loss::Independent { probability, correlation } => {
            let into = probability * (1.0 - correlation);
            let out = (1.0 - probability) * (1.0 - correlation);
            format!(" loss gemodel {} {} 100% 0%", percent(into), percent(out))
        }
        Loss::GilbertElliott { p, r, good, bad } => format!(
            " loss gemodel {} {} {} {}",
            percent(*p),
            percent(*r),
            percent(*bad),
            percent(*good)
        ),
        Loss::Periodic { .. } => return refuse("loss", "netem does not count packets"),
        Loss::Trace { .. } => return refuse("loss", "netem reads no trace"),
    })
}

/// What netem may hold: packets that wait for the rate and those on the wire alike.
fn limit(settings: &Settings) -> Result<u64, Mistake> {
    let Some(rate) = settings.rate_bps else {
        return Ok(NO_LIMIT_PACKETS);
    };
    match settings.queue {
        Some(Queue { discipline: Discipline::Codel { .. }, .. }) => {
            refuse("queue", "netem has no CoDel")
        }
        Some(Queue { limit: Some(Limit::Packets(_)), .. }) if settings.delay_ns > 0 => {
            refuse("queue", "netem counts those on the wire as well, where there is a delay")
        }
        Some(Queue { limit: Some(Limit::Packets(packets)), .. }) => Ok(packets),
        Some(Queue { limit: Some(_), .. }) => refuse("queue", "netem counts packets only"),
        _ => default_limit(settings, rate),
    }
}

/// The limit of a link that is emulated here, in largest frames.
fn default_limit(settings: &Settings, rate: u64) -> Result<u64, Mistake> {
    let needs = model::Link::<model::Nothing>::new(settings.clone(), 0, "")
        .map_err(|problem| Mistake { key: "queue".to_owned(), problem })?
        .needs();
    let frame = settings.largest_frame();
    let in_time = |ns: u64| u128::from(ns) * u128::from(rate) / 8_000_000_000 / u128::from(frame);
    let waiting = match needs.queue {
        Some(Limit::Packets(packets)) => u128::from(packets),
        Some(Limit::Bytes(bytes)) => u128::from(bytes / frame),
        Some(Limit::TimeNs(ns)) => in_time(ns),
        None => 0,
    };
    let held = waiting + in_time(needs.line_ns);
    Ok(u64::try_from(held).unwrap_or(u64::MAX).clamp(1, NO_LIMIT_PACKETS))
}

/// In microseconds: the `tc` of older distributions (iproute2 6.1) knows no `ns`; it drops
/// fractions.
fn time(ns: u64) -> String {
    format!("{}us", ns as f64 / 1e3)
}

fn percent(probability: f64) -> String {
    // Its own numbers have 32 bits.
    format!("{}%", (probability * 1e12).round() / 1e10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(settings: serde_json::Value) -> Result<String, Mistake> {
        words(&serde_json::from_value(settings).unwrap())
    }

    #[test]
    fn each_link_is_a_class_of_the_device_to_its_receiver_by_its_senders_address() {
        let mut class =
            Class { device: "d3", from: 1, address: Address([2, 0, 0, 0, 0, 9]), second: false };
        assert_eq!(
            class.add("netem limit 5"),
            "class add dev d3 parent 1: classid 1:2 htb rate 100000000000bit \
             burst 1000000 cburst 1000000 quantum 60000\n\
             qdisc add dev d3 parent 1:2 handle 3: netem limit 5\n\
             filter add dev d3 parent 1: protocol all prio 1 u32 match ether src \
             02:00:00:00:00:09 flowid 1:2\n"
        );
        assert_eq!(
            class.change("netem limit 6"),
            "qdisc change dev d3 parent 1:2 handle 3: netem limit 6\n"
        );
        class.second = true;
        assert_eq!(
            class.replace("netem limit 7"),
            "qdisc replace dev d3 parent 1:2 handle 8003: netem limit 7\n"
        );
    }

    #[test]
    fn a_table_and_the_longest_stay_are_those_of_the_settings() {
        let settings = |json| serde_json::from_value::<Settings>(json).unwrap();
        let normal = settings(json!({"delay_ns": 5000,
            "jitter": {"distribution": "normal", "ns": 1000}}));
        let uniform = settings(json!({"delay_ns": 5000,
            "jitter": {"distribution": "uniform", "ns": 1000}}));
        assert!(has_table(&normal) && !has_table(&uniform) && !has_table(&Settings::default()));
        assert_eq!(longest_ns(&normal), 9000);
        // 10 frames of 1514 bytes at 1 Mbit/s.
        let narrow = settings(json!({"rate_bps": 1_000_000, "queue": {"limit": {"packets": 10}}}));
        assert_eq!(longest_ns(&narrow), 121_120_000);
        assert_eq!(longest_ns(&Settings::default()), 0);
    }

    #[test]
    fn settings_are_said_in_its_words() {
        let jitter = |distribution: &str| {
            json!({"delay_ns": 5_000_000,
                   "jitter": {"distribution": distribution, "ns": 1_000_000}})
        };
        // A rate is what has it keep the order.
        let varied = "netem limit 1000000 delay 5000us 1000us";
        let fast = "corrupt 0% rate 100000000000bit";
        for (settings, wanted) in [
            (jitter("normal"), format!("{varied} distribution normal {fast}")),
            (jitter("uniform"), format!("{varied} {fast}")),
            (jitter("pareto"), format!("{varied} distribution pareto {fast}")),
            (
                json!({"delay_ns": 5_000_000, "reorder": "by-jitter",
                       "jitter": {"distribution": "uniform", "ns": 1_000_000}}),
                "netem limit 1000000 delay 5000us 1000us corrupt 0% rate 0bit".to_owned(),
            ),
            (
                json!({"delay_ns": 1001, "reorder": {"skip": {"probability": 0.003}}}),
                "netem limit 1000000 delay 1.001us reorder 0.3% corrupt 0% rate 0bit".to_owned(),
            ),
            (
                json!({"loss": {"kind": "independent", "probability": 0.1, "correlation": 0.5}}),
                "netem limit 1000000 loss gemodel 5% 45% 100% 0% corrupt 0% rate 0bit".to_owned(),
            ),
            (
                json!({"loss": {"kind": "gilbert-elliott", "p": 0.01, "r": 0.3, "good": 0.001}}),
                "netem limit 1000000 loss gemodel 1% 30% 100% 0.1% corrupt 0% rate 0bit".to_owned(),
            ),
            // What it had before and is not to have any more is said as well.
            (json!({}), "netem limit 1000000 corrupt 0% rate 0bit".to_owned()),
            (
                json!({"duplicate": 0.5}),
                "netem limit 1000000 duplicate 50% corrupt 0% rate 0bit".to_owned(),
            ),
            (
                json!({"rate_bps": 1_000_000, "queue": {"limit": {"packets": 50}}, "corrupt": 0.5}),
                "netem limit 50 corrupt 50% rate 1000000bit".to_owned(),
            ),
        ] {
            assert_eq!(of(settings.clone()).unwrap(), wanted, "{settings}");
        }
    }

    /// What is in flight at 100 Mbit/s and 100 ms is 826 largest frames, besides those that wait.
    #[test]
    fn without_a_queue_it_holds_what_the_model_would() {
        let words = of(json!({"rate_bps": 100_000_000, "delay_ns": 100_000_000})).unwrap();
        let limit: u64 = words.split(' ').nth(2).unwrap().parse().unwrap();
        assert!((826..10_000).contains(&limit), "{words}");
    }

    #[test]
    fn what_it_does_not_have_is_refused_by_its_key() {
        let jitter = |distribution: serde_json::Value| json!({"delay_ns": 5000, "jitter": {"distribution": distribution, "ns": 1000}});
        for (settings, key) in [
            (json!({"opportunities": "f"}), "opportunities"),
            (json!({"delays": "f"}), "delays"),
            (json!({"mtu": 1000}), "mtu"),
            (json!({"rate_bps": 1000, "burst_bytes": 3000}), "burst_bytes"),
            (jitter(json!("exponential")), "jitter"),
            (jitter(json!({"table": "f"})), "jitter"),
            (
                json!({"delay_ns": 5000, "jitter":
                    {"distribution": "normal", "ns": 1000, "correlation": 0.25}}),
                "jitter",
            ),
            (json!({"loss": {"kind": "periodic", "every": 3}}), "loss"),
            (json!({"loss": {"kind": "trace", "path": "f"}}), "loss"),
            (json!({"rate_bps": 1000, "queue": {"limit": {"bytes": 3000}}}), "queue"),
            (json!({"rate_bps": 1000, "queue": {"limit": {"time-ns": 3000}}}), "queue"),
            (json!({"rate_bps": 1000, "delay_ns": 5, "queue": {"limit": {"packets": 3}}}), "queue"),
            (
                json!({"rate_bps": 1000, "queue": {"discipline": {"codel":
                    {"target_ns": 5, "interval_ns": 10}}}}),
                "queue",
            ),
            (
                json!({"rate_bps": 1000, "delay_ns": 5000, "reorder": "by-jitter",
                       "jitter": {"distribution": "normal", "ns": 1000}}),
                "reorder",
            ),
        ] {
            let mistake = of(settings.clone()).unwrap_err();
            assert_eq!(mistake.key, key, "{settings}: {mistake}");
            assert!(mistake.problem.contains("mover: auto"), "{mistake}");
        }
    }
}
