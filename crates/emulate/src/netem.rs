//! Links in the terms of the kernel's netem, as commands for `tc -batch`, or why it has none for
//! them. On the bridge of the hosts' ports, what goes out to a host is sorted by who sent it: a class
//! of HTB for each link, which limits nothing, with netem in it. tc-netem(8), tc-htb(8).

use std::fmt::Write as _;

use crate::model;
use crate::settings::{
    Discipline, Distribution, Document, Jitter, Limit, Loss, Mistake, Queue, Reorder, Settings,
};

/// Above any that a link has: HTB is there for its classes alone, and netem keeps packets in order
/// only where there is a rate.
const NO_LIMIT_BPS: u64 = 100_000_000_000;
/// As many as in a queue that is not to drop.
const NO_LIMIT_PACKETS: u64 = 1_000_000;

/// The address of the host behind a document's port, from 0: what it sends is known by that.
pub fn address(port: usize) -> String {
    let [.., a, b] = port.to_be_bytes();
    format!("02:00:00:00:{a:02x}:{b:02x}")
}

/// What makes the document's links, on devices that are a bridge's and have nothing yet.
pub fn commands(document: &Document) -> Result<String, String> {
    let mut batch = String::new();
    for port in &document.ports {
        let links = document.links.iter().filter(|link| link.to == port.host);
        let mut device = String::new();
        for link in links {
            let name = format!("{} -> {}", link.from, link.to);
            let number = document.ports.iter().position(|from| from.host == link.from);
            let number = number.ok_or_else(|| format!("{name}: {} has no port", link.from))?;
            if !link.steps.is_empty() {
                return Err(format!("{name}: netem takes no steps"));
            }
            let netem = words(&link.settings).map_err(|mistake| format!("{name}: {mistake}"))?;
            let (dev, class, address) = (&port.device, number + 1, address(number));
            // Writing to a String cannot fail.
            let _ = write!(
                device,
                "class add dev {dev} parent 1: classid 1:{class:x} htb rate {NO_LIMIT_BPS}bit \
                 burst 1000000 cburst 1000000 quantum 60000\n\
                 qdisc add dev {dev} parent 1:{class:x} handle {:x}: netem {netem}\n\
                 filter add dev {dev} parent 1: protocol all prio 1 u32 match ether src {address} \
                 flowid 1:{class:x}\n",
                class + 1
            );
        }
        if !device.is_empty() {
            // What belongs to no class passes at once.
            let _ = write!(
                batch,
                "qdisc add dev {} root handle 1: htb default 0\n{device}",
                port.device
            );
        }
    }
    Ok(batch)
}

/// A link's settings as netem's.
pub fn words(settings: &Settings) -> Result<String, Mistake> {
    let mut words = format!("limit {}", limit(settings)?);
    let in_order = settings.reorder != Some(Reorder::ByJitter);
    if let Some(key) = unknown(settings) {
        return refuse(key, "netem does not have it");
    }
    if settings.delay_ns > 0 {
        let _ = write!(words, " delay {}ns", settings.delay_ns);
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
    for (word, probability) in [("duplicate", settings.duplicate), ("corrupt", settings.corrupt)] {
        if probability > 0.0 {
            let _ = write!(words, " {word} {}", percent(probability));
        }
    }
    match settings.rate_bps {
        Some(rate) => words += &format!(" rate {rate}bit"),
        None if settings.jitter.is_some() && in_order => {
            let _ = write!(words, " rate {NO_LIMIT_BPS}bit");
        }
        None => {}
    }
    Ok(words)
}

fn refuse<T>(key: &str, problem: &str) -> Result<T, Mistake> {
    let problem = format!("{problem}. Use mover: auto, or leave it out");
    Err(Mistake { key: key.to_owned(), problem })
}

fn unknown(settings: &Settings) -> Option<&'static str> {
    let absent = [
        ("mtu", settings.mtu.is_none()),
        ("burst_bytes", settings.burst_bytes.is_none()),
        ("opportunities", settings.opportunities.is_none()),
        ("delays", settings.delays.is_none()),
    ];
    absent.into_iter().find(|(_, absent)| !absent).map(|(key, _)| key)
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
    Ok(format!(" {}ns{shape}", jitter.ns))
}

fn lost(loss: &Loss) -> Result<String, Mistake> {
    Ok(match loss {
        Loss::Independent { probability, correlation } if *correlation == 0.0 => {
            format!(" loss random {}", percent(*probability))
        }
        // As two states: its correlated random numbers would change the share that is lost.
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

/// As of a link that is emulated here, in largest frames.
fn default_limit(settings: &Settings, rate: u64) -> Result<u64, Mistake> {
    let needs = model::Link::<Nothing>::new(settings.clone(), 0, "")
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

/// The model is asked for its needs only.
#[derive(Debug)]
struct Nothing;

impl model::Packet for Nothing {
    fn size(&self) -> usize {
        0
    }
    fn duplicate(&self) -> Nothing {
        Nothing
    }
    fn flip(&mut self, _: u64) {}
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
        let document: Document = serde_json::from_value(json!({
            "version": 1, "seed": 1, "mover": "netem",
            "ports": [{"host": "h1", "device": "d1"}, {"host": "h2", "device": "d2"},
                      {"host": "h3", "device": "d3"}],
            "links": [
                {"from": "h1", "to": "h3", "settings": {"delay_ns": 20_000_000}},
                {"from": "h2", "to": "h3", "settings": {"duplicate": 0.01}},
                {"from": "h3", "to": "h1", "settings": {"delay_ns": 1000}},
            ]
        }))
        .unwrap();
        assert_eq!(
            commands(&document).unwrap(),
            "qdisc add dev d1 root handle 1: htb default 0\n\
             class add dev d1 parent 1: classid 1:3 htb rate 100000000000bit \
             burst 1000000 cburst 1000000 quantum 60000\n\
             qdisc add dev d1 parent 1:3 handle 4: netem limit 1000000 delay 1000ns\n\
             filter add dev d1 parent 1: protocol all prio 1 u32 match ether src \
             02:00:00:00:00:02 flowid 1:3\n\
             qdisc add dev d3 root handle 1: htb default 0\n\
             class add dev d3 parent 1: classid 1:1 htb rate 100000000000bit \
             burst 1000000 cburst 1000000 quantum 60000\n\
             qdisc add dev d3 parent 1:1 handle 2: netem limit 1000000 delay 20000000ns\n\
             filter add dev d3 parent 1: protocol all prio 1 u32 match ether src \
             02:00:00:00:00:00 flowid 1:1\n\
             class add dev d3 parent 1: classid 1:2 htb rate 100000000000bit \
             burst 1000000 cburst 1000000 quantum 60000\n\
             qdisc add dev d3 parent 1:2 handle 3: netem limit 1000000 duplicate 1%\n\
             filter add dev d3 parent 1: protocol all prio 1 u32 match ether src \
             02:00:00:00:00:01 flowid 1:2\n"
        );
    }

    #[test]
    fn settings_are_said_in_its_words() {
        let jitter = |distribution: &str| {
            json!({"delay_ns": 5_000_000,
                   "jitter": {"distribution": distribution, "ns": 1_000_000}})
        };
        // A rate is what has it keep the order.
        let varied = "limit 1000000 delay 5000000ns 1000000ns";
        let fast = "rate 100000000000bit";
        for (settings, wanted) in [
            (jitter("normal"), format!("{varied} distribution normal {fast}")),
            (jitter("uniform"), format!("{varied} {fast}")),
            (jitter("pareto"), format!("{varied} distribution pareto {fast}")),
            (
                json!({"delay_ns": 5_000_000, "reorder": "by-jitter",
                       "jitter": {"distribution": "uniform", "ns": 1_000_000}}),
                "limit 1000000 delay 5000000ns 1000000ns".to_owned(),
            ),
            (
                json!({"delay_ns": 1000, "reorder": {"skip": {"probability": 0.003}}}),
                "limit 1000000 delay 1000ns reorder 0.3%".to_owned(),
            ),
            (
                json!({"loss": {"kind": "independent", "probability": 0.1, "correlation": 0.5}}),
                "limit 1000000 loss gemodel 5% 45% 100% 0%".to_owned(),
            ),
            (
                json!({"loss": {"kind": "gilbert-elliott", "p": 0.01, "r": 0.3, "good": 0.001}}),
                "limit 1000000 loss gemodel 1% 30% 100% 0.1%".to_owned(),
            ),
            (
                json!({"rate_bps": 1_000_000, "queue": {"limit": {"packets": 50}}, "corrupt": 0.5}),
                "limit 50 corrupt 50% rate 1000000bit".to_owned(),
            ),
        ] {
            assert_eq!(of(settings.clone()).unwrap(), wanted, "{settings}");
        }
    }

    /// What is in flight at 100 Mbit/s and 100 ms is 826 largest frames, besides those that wait.
    #[test]
    fn without_a_queue_it_holds_what_the_model_would() {
        let words = of(json!({"rate_bps": 100_000_000, "delay_ns": 100_000_000})).unwrap();
        let limit: u64 = words.split(' ').nth(1).unwrap().parse().unwrap();
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
