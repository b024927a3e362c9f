//! Describes a host: the content of `env.json`. Nothing is guessed: what cannot be found out is
//! null.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use loopscope_clocksync::counter::mistrust_of_cycles;
use loopscope_clocksync::resolution;
use loopscope_time::Frequency;
use loopscope_time::source::{counter_kind, is_counter_given};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::installation::hexadecimal;
use crate::ledger::{Ledger, changed_settings};
use crate::offload;
use loopscope_netlink::{Connection, Link};

const SYSCTLS: [&str; 8] = [
    "kernel.sched_rt_period_us",
    "kernel.sched_rt_runtime_us",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// CPU flags on which it depends whether the counter is a clock.
const COUNTER_FLAGS: [&str; 4] = ["constant_tsc", "nonstop_tsc", "rdtscp", "tsc_known_freq"];

/// Finds it all out. A machine's agent has no `host` and no counter `frequency`; `program` is this
/// binary, `known_sha256` that of its file if it is known.
pub(crate) fn describe(
    host: Option<&str>,
    ledger: &Ledger,
    program: &Path,
    known_sha256: Option<&str>,
    frequency: Option<Frequency>,
) -> Value {
    let processor = processor();
    let clocksource = |what: &str| {
        line(&format!("/sys/devices/system/clocksource/clocksource0/{what}_clocksource"))
    };
    let sysctls: BTreeMap<&str, Option<String>> = SYSCTLS
        .iter()
        .map(|&name| (name, line(&format!("/proc/sys/{}", name.replace('.', "/")))))
        .collect();
    json!({
        "version": 1,
        "host": host,
        "run": ledger.run(),
        "loopscope": {
            "version": env!("CARGO_PKG_VERSION"),
            "program": program,
            "sha256": known_sha256.map(str::to_owned).or_else(|| sha256(program)),
        },
        "hostname": line("/proc/sys/kernel/hostname"),
        "kernel": {
            "release": line("/proc/sys/kernel/osrelease"),
            "version": line("/proc/sys/kernel/version"),
            "command_line": line("/proc/cmdline"),
            "boot_id": line("/proc/sys/kernel/random/boot_id"),
        },
        "clocksource": {
            "current": clocksource("current"),
            "available": clocksource("available").map(|all| words(&all)),
        },
        "cpu": {
            "model": processor.get("model name"),
            "count": std::thread::available_parallelism().ok().map(std::num::NonZero::get),
            "governor": line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        },
        "counter": counter(frequency, processor.get("flags").map(String::as_str)),
        "cgroup": { "path": ledger.cgroup(), "why_none": ledger.why_no_cgroup() },
        "settings": settings(ledger),
        "memory_kib": memory_kib(),
        "links": links(),
        "sysctls": sysctls,
    })
}

/// Settings of the machine that this run has changed, each with its value before.
fn settings(ledger: &Ledger) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::<String, Value>::new();
    for [what, before, set] in changed_settings(ledger.path()) {
        let entry = found.entry(what).or_insert_with(|| json!({ "before": before }));
        entry["set"] = set.into();
    }
    found
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The first processor's fields in `/proc/cpuinfo`.
fn processor() -> BTreeMap<String, String> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let fields = text.lines().take_while(|l| !l.is_empty()).filter_map(|l| l.split_once(':'));
    fields.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

/// What stamps the host's events, and how well; what is not about a host is null without one.
fn counter(frequency: Option<Frequency>, flags: Option<&str>) -> Value {
    let flags = flags.map(words);
    let has = |flag| flags.as_ref().map(|flags| flags.iter().any(|f| f == flag));
    let flags: BTreeMap<&str, Option<bool>> =
        COUNTER_FLAGS.iter().map(|&flag| (flag, has(flag))).collect();
    let of_host = frequency.map(|_| resolution::of_this_machine());
    json!({
        "kind": of_host.map(|_| counter_kind().name()),
        "mistrust_of_cycles": mistrust_of_cycles().map(|why| why.to_string()),
        "frequency_hz": frequency.map(Frequency::hz),
        "read_ns": of_host.map(|found| found.cost_ns),
        "step_ticks": of_host.map(|found| found.step),
        "flags": flags,
    })
}

/// Why the counter is `CLOCK_MONOTONIC_RAW`, if the host chose it by itself.
pub(crate) fn counter_note() -> Option<String> {
    let why = mistrust_of_cycles().filter(|_| !is_counter_given())?;
    Some(format!(
        "events are stamped with CLOCK_MONOTONIC_RAW, which env.json of the host says more of, because \
         {why}"
    ))
}

fn memory_kib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    total.split_whitespace().next()?.parse().ok()
}

/// MTU, queueing discipline and offloads of every link of this namespace, as the kernel and `tc` tell.
fn links() -> Option<BTreeMap<String, Value>> {
    let links = Connection::open().and_then(|mut kernel| kernel.links()).ok()?;
    let describe = |(name, link): (String, Link)| {
        let qdisc = match link.qdisc.as_deref() {
            // It has no parameters.
            None | Some("noqueue") => link.qdisc,
            Some(_) => {
                let text = output("tc", &["qdisc", "show", "dev", &name]);
                text.map_or(link.qdisc, |text| Some(text.trim().to_owned()))
            }
        };
        let offloads = offload::of(&name).ok();
        (name, json!({"mtu": link.mtu, "qdisc": qdisc, "offloads": offloads}))
    };
    Some(links.into_iter().map(describe).collect())
}

/// The SHA-256 of a program's file, in hexadecimal digits; `None`: it cannot be read.
pub(crate) fn sha256(program: &Path) -> Option<String> {
    let mut file = File::open(program).ok()?;
    let (mut hash, mut bytes) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut bytes).ok()? {
            0 => return Some(hexadecimal(&hash.finalize())),
            size => hash.update(&bytes[..size]),
        }
    }
}

/// The output of the program, if it exists and succeeded.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
