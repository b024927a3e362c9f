//! Settings that an experiment gives its machine: from what a request asks for to what the ledger
//! sets and later restores.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::geteuid;

use crate::ledger::{Ledger, LedgerError};
use crate::link;
use crate::proto::{self, SetReply, SetRequest};
use crate::rootless;
use crate::setting::{Setting, is_name};

const CPUS: &str = "/sys/devices/system/cpu";
const INTERRUPTS: &str = "/proc/irq";
/// A machine has fewer processors.
const MOST_CPUS: usize = 8192;

/// Sysctls with which the kernel changes others, which would not get their values back.
const WITH_OTHERS: [&str; 7] = [
    "vm.dirty_bytes",
    "vm.dirty_ratio",
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "net.ipv4.ip_forward",
    "net.ipv4.conf.all.forwarding",
    "net.ipv4.conf.default.forwarding",
];
const WITH_OTHERS_BELOW: [&str; 2] = ["net.ipv6.conf.all.", "net.ipv6.conf.default."];

/// A setting and the value that is asked for; `key` is its place in the experiment file.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    key: String,
    setting: Setting,
    value: String,
}

/// Sets what is asked for until the ledger is undone. What cannot be set is an error with all such
/// places, except interrupts that the kernel does not let anybody move.
pub(crate) fn make(ledger: &Ledger, request: &SetRequest) -> Result<SetReply, String> {
    if rootless::only_user().is_some() {
        return Err(
            "settings: only root can change those of a machine: start loopscope as root, or remove \
             `settings`"
                .to_owned(),
        );
    }
    let mut problems = vec![];
    let mut lacking = vec![];
    let (wishes, wrong) = wishes(request);
    problems.extend(wrong);
    for Wish { key, setting, value } in wishes {
        if let Err(error) = ledger.set(&setting, &value) {
            problems.push(format!("{key}: {}", explained(&error)));
        }
    }
    if !request.interrupts.is_empty() {
        let set = |setting: &Setting, value: &str| ledger.set(setting, value);
        match move_interrupts(Path::new(INTERRUPTS), Path::new(CPUS), &request.interrupts, set) {
            Ok(unmoved) => lacking.extend(unmoved),
            Err(problem) => problems.push(format!("settings.interrupts: {problem}")),
        }
    }
    // After the interfaces, so that they have their values back before an interface has its own:
    // the kernel chooses its queueing discipline by net.core.default_qdisc.
    for (name, value) in sorted(&request.sysctls) {
        let outcome = sysctl(name)
            .and_then(|setting| ledger.set(&setting, value).map_err(|error| explained(&error)));
        problems.extend(outcome.err().map(|problem| format!("settings.sysctls.{name}: {problem}")));
    }
    if problems.is_empty() { Ok(SetReply { lacking }) } else { Err(problems.join("; ")) }
}

/// What interfaces and governor come to, and what of it cannot be.
fn wishes(request: &SetRequest) -> (Vec<Wish>, Vec<String>) {
    let (mut found, mut problems) = (vec![], vec![]);
    for (interface, settings) in sorted(&request.interfaces) {
        let key = format!("settings.interfaces.{interface}");
        if !is_name(interface) || !link::exists(interface) {
            problems.push(format!("{key}: this machine has no such interface"));
            continue;
        }
        for (name, value) in sorted(&settings.values) {
            let key = format!("{key}.{name}");
            match of_interface(interface, name) {
                Ok(setting) => found.push(Wish { key, setting, value: value.clone() }),
                Err(problem) => problems.push(format!("{key}: {problem}")),
            }
        }
    }
    if !request.governor.is_empty() {
        match governors(Path::new(CPUS), &request.governor) {
            Ok(files) => found.extend(files.into_iter().map(|path| Wish {
                key: "settings.governor".to_owned(),
                setting: Setting::File { path },
                value: request.governor.clone(),
            })),
            Err(problem) => problems.push(format!("settings.governor: {problem}")),
        }
    }
    (found, problems)
}

/// The setting of an interface by its name in the experiment file.
fn of_interface(interface: &str, name: &str) -> Result<Setting, String> {
    let (interface, named) = (interface.to_owned(), name.to_owned());
    Ok(match name {
        "mtu" | "txqueuelen" => Setting::Link { interface, attribute: named },
        "gro" | "gso" => Setting::Offload { interface, offload: named },
        "qdisc" => Setting::Qdisc { interface },
        "gro_flush_timeout" | "napi_defer_hard_irqs" => {
            let folder =
                link::folder(&interface).ok_or("/sys shows another network's interfaces")?;
            Setting::File { path: folder.join(name) }
        }
        _ => return Err("loopscope does not change this".to_owned()),
    })
}

/// The file of a sysctl, whose name has dots between its parts.
fn sysctl(name: &str) -> Result<Setting, String> {
    let plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    if !name.contains('.') || !name.split('.').all(plain) {
        return Err("this is no name of a sysctl, such as net.core.busy_poll".to_owned());
    }
    if WITH_OTHERS.contains(&name) || WITH_OTHERS_BELOW.iter().any(|each| name.starts_with(each)) {
        return Err(
            "the kernel changes other settings with it, which would not get their values back; \
             set it by hand"
                .to_owned(),
        );
    }
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    if !path.is_file() {
        return Err("this machine's kernel has no such sysctl".to_owned());
    }
    Ok(Setting::File { path })
}

/// The files with the governors of all processors, each of which has `governor`.
fn governors(cpus: &Path, governor: &str) -> Result<Vec<PathBuf>, String> {
    let mut files = vec![];
    for cpu in numbered(cpus, "cpu") {
        let folder = cpus.join(format!("cpu{cpu}")).join("cpufreq");
        let file = folder.join("scaling_governor");
        if !file.exists() {
            continue;
        }
        let known = fs::read_to_string(folder.join("scaling_available_governors"));
        let known = known.unwrap_or_default();
        if !known.split_whitespace().any(|each| each == governor) {
            return Err(format!(
                "processor {cpu} has no governor {governor}; it has: {}",
                known.split_whitespace().collect::<Vec<_>>().join(", ")
            ));
        }
        files.push(file);
    }
    if files.is_empty() {
        let what = "the kernel does not choose this machine's frequencies (no cpufreq), as in most \
                    virtual machines: remove this";
        return Err(what.to_owned());
    }
    Ok(files)
}

/// Has `set` move every interrupt to processors of the list `to`; what could not be moved.
fn move_interrupts(
    interrupts: &Path,
    cpus: &Path,
    to: &str,
    mut set: impl FnMut(&Setting, &str) -> Result<(), LedgerError>,
) -> Result<Option<proto::Lack>, String> {
    let wanted = processors(to).ok_or_else(|| format!("{to:?} is no list of processors"))?;
    let online = fs::read_to_string(cpus.join("online")).unwrap_or_default();
    let online = processors(online.trim()).unwrap_or_default();
    // The kernel would take those of them that are there.
    let absent: BTreeSet<usize> = wanted.difference(&online).copied().collect();
    if !absent.is_empty() {
        return Err(format!(
            "this machine has no processor {} that works; it has {}",
            listed(&absent),
            listed(&online)
        ));
    }
    let value = listed(&wanted);
    let (mut moved, mut unmoved) = (0, BTreeSet::new());
    let mut why = String::new();
    for number in numbered(interrupts, "") {
        let path = interrupts.join(number.to_string()).join("smp_affinity_list");
        match set(&Setting::File { path: path.clone() }, &value) {
            Ok(()) => moved += 1,
            // It has gone with its device.
            Err(_) if !path.exists() => {}
            Err(error) if is_kernels(&error) => {
                why = explained(&error);
                unmoved.insert(number);
            }
            Err(error) => return Err(explained(&error)),
        }
    }
    if moved == 0 {
        let why = if why.is_empty() { "there are none".to_owned() } else { why };
        return Err(format!("no interrupt of this machine can be moved: {why}"));
    }
    Ok((!unmoved.is_empty()).then(|| proto::Lack {
        what: format!("moves of {} of {} interrupts", unmoved.len(), unmoved.len() + moved),
        why: format!("the kernel keeps {} where they are", listed(&unmoved)),
        cost: "they come to the processors that they came to before".to_owned(),
    }))
}

/// Whether the kernel lets nobody move this very interrupt.
fn is_kernels(error: &LedgerError) -> bool {
    let errno = match error {
        LedgerError::Changed { .. } => return true,
        LedgerError::Set { errno: Some(errno), .. } => Errno::from_raw(*errno),
        _ => return false,
    };
    // One processor's own, one that its driver spreads itself, or no room on the processor.
    matches!(errno, Errno::EIO | Errno::EPERM | Errno::EINVAL | Errno::ENOSPC)
}

/// The error, with what to do where a right is missing.
fn explained(error: &LedgerError) -> String {
    let LedgerError::Set { errno: Some(errno), .. } = error else { return error.to_string() };
    match Errno::from_raw(*errno) {
        Errno::EACCES | Errno::EPERM if geteuid().is_root() => {
            format!("{error}, also to root; remove this")
        }
        Errno::EACCES | Errno::EPERM => format!(
            "{error}; root may: start loopscope as root, with testbed ssh give `user: root` in \
             `machines` (for what is the network's `become: sudo`), or remove this"
        ),
        Errno::EROFS => format!("{error}, as in a container; remove this"),
        _ => error.to_string(),
    }
}

/// The numbers of the folders in `folder` whose names are `prefix` and a number.
fn numbered(folder: &Path, prefix: &str) -> BTreeSet<usize> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
    entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect()
}

/// Processors in a list as of cpuset(7): `0-3,8`.
fn processors(list: &str) -> Option<BTreeSet<usize>> {
    let mut found = BTreeSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

fn number(text: &str) -> Option<usize> {
    let number = text.parse().ok().filter(|&number| number < MOST_CPUS)?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)
}

/// The list as the kernel writes it.
fn listed(numbers: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = vec![];
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let texts = ranges.iter().map(|&(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

fn sorted<T>(map: &std::collections::HashMap<String, T>) -> Vec<(&String, &T)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(name, _)| *name);
    entries
}

#[cfg(test)]
mod tests;
