//! The local testbed: one network namespace for each host, and one that holds the two bridges, one
//! for data and one for clock traffic, which the hosts' links plug into. Where links are emulated
//! the data links end there unbridged: an agent in it, the router's, runs what moves packets between
//! them. Nothing is put into the namespace that loopscope itself runs in.

use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;

use loopscope_emulate::address::Address;
use loopscope_emulate::iproute::{self, BatchError};
use thiserror::Error;

use crate::ledger::{Entry, Ledger, LedgerError};
use crate::network::{Network, NetworkError};
use crate::offload;

/// What the router is called among the hosts. None of them can have this name.
pub const ROUTER: &str = "_router";

/// Which namespaces, links and addresses a testbed has.
#[derive(Debug)]
pub struct Plan {
    /// Hosts in order.
    pub hosts: Vec<Host>,
    /// Where the data links end unbridged, if they do.
    pub router: Option<Router>,
    /// Namespace of the bridges.
    switch: String,
    prefixes: (u8, u8),
    mtu: Option<u32>,
}

/// A host of its own between the others' data links.
#[derive(Debug, PartialEq)]
pub struct Router {
    /// Its network namespace.
    pub namespace: String,
    /// On the bridge of clock traffic.
    pub clock: Ipv4Addr,
}

/// What joins the data links.
#[derive(Debug)]
pub enum Joint {
    /// A bridge.
    Bridge,
    /// Nothing but what is done by an agent that sees all their ends.
    Router,
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
    /// Other end of `data0`, among the bridges.
    pub port: String,
    /// Ethernet address of `data0`; `None`: the kernel's choice.
    pub address: Option<Address>,
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
        reason: BatchError,
    },
    /// What they leave to each other.
    #[error("cannot switch off the offloads of the links in namespace {namespace}: {reason}")]
    Offload {
        /// Where.
        namespace: String,
        /// What the system says.
        reason: io::Error,
    },
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
        joint: Joint,
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
            if !is_name(name) || [ROUTER, "net"].contains(&name.as_str()) {
                return wrong(format!(
                    "{name:?} cannot name a host: letters, digits, '-', '_' and '.', at most 64, \
                     and not \"net\" or \"{ROUTER}\""
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
                port: format!("d{i}"),
                address: matches!(joint, Joint::Router).then(|| address(i)),
            });
        }
        let switch = format!("ls-{short}-net");
        let router = match joint {
            Joint::Bridge => None,
            Joint::Router => {
                let after = u32::try_from(hosts.len()).unwrap_or(u32::MAX).saturating_add(1);
                Some(Router { namespace: switch.clone(), clock: clock.host(after)? })
            }
        };
        let prefixes = (data.prefix(), clock.prefix());
        Ok(Plan { hosts: planned, router, switch, prefixes, mtu })
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
            iproute::run("ip", &["-n", namespace], batch)
                .map_err(|reason| TestbedError::Links { namespace: namespace.to_owned(), reason })
        };
        in_namespace(&self.switch, &self.switch_batch())?;
        self.hosts.iter().try_for_each(|h| in_namespace(&h.namespace, &self.host_batch(h)))?;
        match self.router {
            Some(_) => self.make_packets_whole(),
            None => Ok(()),
        }
    }

    /// What goes through a router is read by a program; and what happens to packets happens to each
    /// by itself.
    fn make_packets_whole(&self) -> Result<(), TestbedError> {
        let switch_off = |namespace: &str, devices: &[String]| {
            offload::switch_off(namespace, devices)
                .map_err(|reason| TestbedError::Offload { namespace: namespace.to_owned(), reason })
        };
        let ports: Vec<String> = self.hosts.iter().map(|host| host.port.clone()).collect();
        switch_off(&self.switch, &ports)?;
        let ends = ["data0".to_owned()];
        self.hosts.iter().try_for_each(|host| switch_off(&host.namespace, &ends))
    }

    fn switch_batch(&self) -> String {
        let mut batch = String::new();
        let mtu = self.mtu.map_or(String::new(), |mtu| format!("mtu {mtu}"));
        let bridges: &[&str] = if self.router.is_some() { &["clock"] } else { &["data", "clock"] };
        for bridge in bridges {
            batch += &iproute::bridge(bridge);
            batch += &iproute::up(bridge, "");
        }
        for (i, host) in (1..).zip(&self.hosts) {
            let (namespace, port) = (&host.namespace, &host.port);
            let address = host.address.map_or(String::new(), |own| format!("address {own} "));
            let master = if self.router.is_some() { "" } else { "master data" };
            lines(
                &mut batch,
                format_args!(
                    "link add {port} {mtu} type veth peer name data0 {address}{mtu} netns {namespace}\n\
                 link add c{i} type veth peer name clock0 netns {namespace}"
                ),
            );
            batch += &iproute::up(port, master);
            batch += &iproute::up(&format!("c{i}"), "master clock");
        }
        if let Some(router) = &self.router {
            let (clock, prefix) = (router.clock, self.prefixes.1);
            lines(
                &mut batch,
                format_args!("link set dev lo up\naddress add {clock}/{prefix} brd + dev clock"),
            );
        }
        batch
    }

    fn host_batch(&self, host: &Host) -> String {
        let mut batch = String::new();
        let Host { data, clock, .. } = host;
        let (data_prefix, clock_prefix) = self.prefixes;
        lines(
            &mut batch,
            format_args!(
                "link set dev lo up\n\
             address add {data}/{data_prefix} brd + dev data0\n\
             address add {clock}/{clock_prefix} brd + dev clock0"
            ),
        );
        batch += &iproute::up("data0", "");
        batch += &iproute::up("clock0", "");
        batch
    }
}

fn lines(batch: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(batch, "{text}");
}

/// Of host `i`, from 1, behind a router, which may tell hosts by it.
fn address(i: u32) -> Address {
    let [a, b, c, d] = i.to_be_bytes();
    // Locally administered.
    Address([2, 0, a, b, c, d])
}

/// Makes named network namespaces.
pub(crate) fn add_namespaces(names: &[&str]) -> Result<(), BatchError> {
    if names.is_empty() {
        return Ok(());
    }
    let batch: String = names.iter().map(|name| format!("netns add {name}\n")).collect();
    iproute::run("ip", &[], &batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(hosts: &[&str], mtu: Option<u32>) -> Result<Plan, TestbedError> {
        let hosts: Vec<String> = hosts.iter().map(|&h| h.to_owned()).collect();
        Plan::new(
            "20260102T030405Z-a1b2c3",
            &hosts,
            "10.1.0.0/16",
            "10.2.0.0/24",
            mtu,
            Joint::Bridge,
        )
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
    fn a_router_is_one_more_host_on_the_clock_network_and_bridges_no_data() {
        let hosts = ["h1".to_owned(), "h2".to_owned()];
        let plan =
            Plan::new("a1b2c3", &hosts, "10.1.0.0/30", "10.2.0.0/29", None, Joint::Router).unwrap();
        let router = plan.router.as_ref().unwrap();
        assert_eq!(router.namespace, "ls-a1b2c3-net");
        assert_eq!(router.clock, Ipv4Addr::new(10, 2, 0, 3));
        let batch = plan.switch_batch();
        assert!(!batch.contains("data type bridge") && !batch.contains("master data"), "{batch}");
        assert!(batch.contains("link set dev c2 master clock"), "{batch}");
        // By which netem tells them.
        assert_eq!(plan.hosts[1].address.unwrap().to_string(), "02:00:00:00:00:02");
        let one = "link add d1  type veth peer name data0 address 02:00:00:00:00:01 ";
        assert!(batch.contains(one), "{batch}");
        assert!(batch.contains("address add 10.2.0.3/29 brd + dev clock\n"), "{batch}");
        // Its network has no address for a third.
        let narrow = |joint| Plan::new("x", &hosts, "10.1.0.0/24", "10.2.0.0/30", None, joint);
        assert!(narrow(Joint::Router).is_err());
        assert!(narrow(Joint::Bridge).is_ok());
    }

    #[test]
    fn names_that_could_be_paths_or_clash_are_refused() {
        for hosts in [&["a/b"][..], &[".."], &["a", "a"], &["net"], &[ROUTER], &[""], &[], &["a b"]]
        {
            assert!(matches!(plan(hosts, None), Err(TestbedError::Plan(_))), "{hosts:?}");
        }
        let hosts = ["h1".to_owned()];
        let overlap = Plan::new("x", &hosts, "10.0.0.0/8", "10.2.0.0/24", None, Joint::Bridge);
        assert!(matches!(overlap, Err(TestbedError::Plan(_))));
    }
}
