//! The local testbed: one network namespace for each host, and one that holds the two bridges, one
//! for data and one for clock traffic, which the hosts' links plug into. Nothing is put into the
//! namespace that loopscope itself runs in.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use thiserror::Error;

use crate::ledger::{Entry, Ledger, LedgerError};
use crate::network::{Network, NetworkError};

/// Which namespaces, links and addresses a testbed has.
#[derive(Debug)]
pub struct Plan {
    /// Hosts in order.
    pub hosts: Vec<Host>,
    /// Namespace of the bridges.
    switch: String,
    prefixes: (u8, u8),
    mtu: Option<u32>,
}

/// One host of the plan.
#[derive(Debug, PartialEq)]
pub struct Host {
    /// As the experiment calls it.
    pub name: String,
    /// Its network namespace.
    pub namespace: String,
    /// On `data0`.
    pub data: Ipv4Addr,
    /// On `clock0`.
    pub clock: Ipv4Addr,
}

/// Why there is no testbed.
#[derive(Debug, Error)]
pub enum TestbedError {
    /// Not root.
    #[error("making network namespaces and links needs root; run loopscope with sudo")]
    NotRoot,
    /// The request.
    #[error("{0}")]
    Plan(String),
    /// A network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The namespaces.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The links.
    #[error("cannot set up the links in namespace {namespace}: {reason}")]
    Links {
        /// Where.
        namespace: String,
        /// What `ip` says.
        reason: IpError,
    },
}

/// `ip` did not do what it was asked for.
#[derive(Debug, Error)]
pub enum IpError {
    /// There is none.
    #[error("there is no `ip` program; install iproute2")]
    Missing,
    /// It could not be run.
    #[error("cannot run `ip`: {0}")]
    Run(#[from] io::Error),
    /// It refused.
    #[error("ip: {0}")]
    Refused(String),
}

/// Whether `name` can be part of names of namespaces and files: letters, digits, `-`, `_` and `.`,
/// no dot first, at most 64.
pub fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(fits)
}

/// The short form of a run's id: the last six of its letters and digits.
pub fn short_id(run: &str) -> String {
    let kept: Vec<char> = run.chars().filter(char::is_ascii_alphanumeric).collect();
    kept[kept.len().saturating_sub(6)..].iter().collect()
}

impl Plan {
    /// Plans hosts named `hosts` for run `run`. `mtu` is that of the data links in bytes.
    pub fn new(
        run: &str,
        hosts: &[String],
        data: &str,
        clock: &str,
        mtu: Option<u32>,
    ) -> Result<Plan, TestbedError> {
        let (data, clock): (Network, Network) = (data.parse()?, clock.parse()?);
        let wrong = |text: String| Err(TestbedError::Plan(text));
        if data.overlaps(clock) {
            return wrong(format!("the data network {data} and the clock network {clock} overlap"));
        }
        if hosts.is_empty() {
            return wrong("a testbed needs at least one host".to_owned());
        }
        let short = short_id(run);
        let mut planned: Vec<Host> = vec![];
        for (i, name) in (1..).zip(hosts) {
            if !is_name(name) || name == "net" {
                return wrong(format!(
                    "{name:?} cannot name a host: letters, digits, '-', '_' and '.', at most 64, \
                     and not \"net\""
                ));
            }
            if planned.iter().any(|h| h.name == *name) {
                return wrong(format!("host {name} is there twice"));
            }
            planned.push(Host {
                name: name.clone(),
                namespace: format!("ls-{short}-{name}"),
                data: data.host(i)?,
                clock: clock.host(i)?,
            });
        }
        let switch = format!("ls-{short}-net");
        Ok(Plan { hosts: planned, switch, prefixes: (data.prefix(), clock.prefix()), mtu })
    }

    /// Makes it.
    pub fn build(&self, ledger: &Ledger) -> Result<(), TestbedError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(TestbedError::NotRoot);
        }
        let names = self.hosts.iter().map(|h| &h.namespace).chain([&self.switch]);
        let entries: Vec<Entry> =
            names.map(|name| Entry::Namespace { name: name.clone() }).collect();
        ledger.make(&entries)?;
        let in_namespace = |namespace: &str, batch: &str| {
            ip(&["-n", namespace], batch)
                .map_err(|reason| TestbedError::Links { namespace: namespace.to_owned(), reason })
        };
        in_namespace(&self.switch, &self.switch_batch())?;
        self.hosts.iter().try_for_each(|h| in_namespace(&h.namespace, &self.host_batch(h)))
    }

    fn switch_batch(&self) -> String {
        let mut batch = String::new();
        let quiet = quiet_ipv6();
        let mtu = self.mtu.map_or(String::new(), |mtu| format!("mtu {mtu}"));
        for bridge in ["data", "clock"] {
            // Without spanning tree and snooping a bridge adds no packets of its own and forwards
            // from the first one.
            lines(
                &mut batch,
                format_args!(
                    "link add {bridge} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
                 link set dev {bridge} {quiet} up"
                ),
            );
        }
        for (i, host) in (1..).zip(&self.hosts) {
            let namespace = &host.namespace;
            lines(
                &mut batch,
                format_args!(
                    "link add d{i} {mtu} type veth peer name data0 {mtu} netns {namespace}\n\
                 link add c{i} type veth peer name clock0 netns {namespace}\n\
                 link set dev d{i} master data {quiet} up\n\
                 link set dev c{i} master clock {quiet} up"
                ),
            );
        }
        batch
    }

    fn host_batch(&self, host: &Host) -> String {
        let mut batch = String::new();
        let (quiet, Host { data, clock, .. }) = (quiet_ipv6(), host);
        let (data_prefix, clock_prefix) = self.prefixes;
        lines(
            &mut batch,
            format_args!(
                "link set dev lo up\n\
             address add {data}/{data_prefix} brd + dev data0\n\
             address add {clock}/{clock_prefix} brd + dev clock0\n\
             link set dev data0 {quiet} up\n\
             link set dev clock0 {quiet} up"
            ),
        );
        batch
    }
}

fn lines(batch: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(batch, "{text}");
}

/// Keeps a link from giving itself an IPv6 address, and so from solicitations and duplicate
/// address detection in the middle of a measurement.
fn quiet_ipv6() -> &'static str {
    if Path::new("/proc/sys/net/ipv6").exists() { "addrgenmode none" } else { "" }
}

/// Makes named network namespaces.
pub(crate) fn add_namespaces(names: &[&str]) -> Result<(), IpError> {
    if names.is_empty() {
        return Ok(());
    }
    let batch: String = names.iter().map(|name| format!("netns add {name}\n")).collect();
    ip(&[], &batch)
}

/// One `ip` process for all the lines of `batch`.
fn ip(options: &[&str], batch: &str) -> Result<(), IpError> {
    let mut child = Command::new("ip")
        .args(options)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => IpError::Missing,
            _ => IpError::Run(e),
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it ended early, its own message says why.
        let _ = stdin.write_all(batch.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(IpError::Refused(if said.is_empty() { output.status.to_string() } else { said }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(hosts: &[&str], mtu: Option<u32>) -> Result<Plan, TestbedError> {
        let hosts: Vec<String> = hosts.iter().map(|&h| h.to_owned()).collect();
        Plan::new("20260102T030405Z-a1b2c3", &hosts, "10.1.0.0/16", "10.2.0.0/24", mtu)
    }

    #[test]
    fn every_host_has_both_links_and_its_own_addresses() {
        let plan = plan(&["h1", "h2"], Some(1400)).unwrap();
        let h2 = &plan.hosts[1];
        assert_eq!(h2.namespace, "ls-a1b2c3-h2");
        assert_eq!((h2.data, h2.clock), (Ipv4Addr::new(10, 1, 0, 2), Ipv4Addr::new(10, 2, 0, 2)));
        let batch = plan.switch_batch();
        assert!(batch.contains(
            "link add d2 mtu 1400 type veth peer name data0 mtu 1400 netns ls-a1b2c3-h2\n"
        ));
        assert!(batch.contains("link add c1 type veth peer name clock0 netns ls-a1b2c3-h1\n"));
        assert!(plan.host_batch(h2).contains("address add 10.1.0.2/16 brd + dev data0\n"));
    }

    #[test]
    fn names_that_could_be_paths_or_clash_are_refused() {
        for hosts in [&["a/b"][..], &[".."], &["a", "a"], &["net"], &[""], &[], &["a b"]] {
            assert!(matches!(plan(hosts, None), Err(TestbedError::Plan(_))), "{hosts:?}");
        }
        let hosts = ["h1".to_owned()];
        let overlap = Plan::new("x", &hosts, "10.0.0.0/8", "10.2.0.0/24", None);
        assert!(matches!(overlap, Err(TestbedError::Plan(_))));
    }
}
