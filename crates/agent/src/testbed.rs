//! The local testbed: one network namespace for each host, and one that holds the two bridges, one
//! for data and one for clock traffic, which the hosts' links plug into. A host's clock link is in
//! a separate namespace, which holds nothing but the agent's probes: a program that binds to all
//! addresses would else be reached around the data links, whatever these are to be like. Where
//! links are emulated the data links end there unbridged: an agent in it, the router's, runs what
//! moves packets between them. Nothing is put into the namespace that loopscope itself runs in.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;

use loopscope_emulate::address::Address;
use loopscope_netlink::{self as netlink, Peer};
use thiserror::Error;

pub use crate::ledger::prefix;
use crate::ledger::{Entry, Ledger, LedgerError};
use crate::network::{Network, NetworkError};
use crate::{namespace, offload};

/// The router's name among the hosts. None of them can have this name.
pub const ROUTER: &str = "_router";

/// Name of the folder of a kernel that several hosts share, among those of the hosts.
pub(crate) const SHARED_KERNEL: &str = "_kernel";

/// Every host has an entry for every other one; beyond so many hosts that takes too much memory.
const NEIGHBOURS_UP_TO: usize = 256;

/// Namespaces, links and addresses of a testbed.
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
    /// Hosts that exchange clock probes, by their places.
    clock_pairs: Vec<(usize, usize)>,
}

/// A host of its own between the others' data links.
#[derive(Debug, PartialEq)]
pub struct Router {
    /// Its network namespace.
    pub namespace: String,
    /// On the bridge of clock traffic.
    pub clock: Ipv4Addr,
}

/// The device that joins the data links.
#[derive(Debug)]
pub enum Joint {
    /// A bridge.
    Bridge,
    /// Nothing but what is done by an agent that sees all their ends.
    Router,
}

/// The network that clock probes take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Probes {
    /// One of their own, which programs cannot reach.
    Apart,
    /// The network of the data.
    OnData,
}

/// One host of the plan.
#[derive(Debug, PartialEq)]
pub struct Host {
    /// The name in the experiment file.
    pub name: String,
    /// Its network namespace.
    pub namespace: String,
    /// On `data0`.
    pub data: Ipv4Addr,
    /// On `clock0`.
    pub clock: Ipv4Addr,
    /// The network namespace of `clock0`; `None`: there is no such link.
    pub clock_namespace: Option<String>,
    /// Other end of `data0`, among the bridges.
    pub port: String,
    /// Ethernet address of `data0`.
    pub address: Address,
    /// That of `clock0`.
    pub clock_address: Address,
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
        /// What was refused, and the system's error.
        reason: io::Error,
    },
    /// Offloading could not be switched off.
    #[error("cannot switch off the offloads of the links in namespace {namespace}: {reason}")]
    Offload {
        /// Where.
        namespace: String,
        /// The system's error.
        reason: io::Error,
    },
}

/// Whether `name` can be part of names of namespaces and files: letters, digits, `-`, `_` and `.`,
/// no dot first, at most 64.
pub fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(fits)
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
        probes: Probes,
    ) -> Result<Plan, TestbedError> {
        let (data, clock): (Network, Network) = (data.parse()?, clock.parse()?);
        let wrong = |text: String| Err(TestbedError::Plan(text));
        if data.overlaps(clock) {
            return wrong(format!("the data network {data} and the clock network {clock} overlap"));
        }
        if hosts.is_empty() {
            return wrong("a testbed needs at least one host".to_owned());
        }
        let prefix = prefix(run);
        let mut planned: Vec<Host> = vec![];
        for (i, name) in (1..).zip(hosts) {
            if !is_name(name) || [ROUTER, SHARED_KERNEL, "net"].contains(&name.as_str()) {
                return wrong(format!(
                    "{name:?} cannot name a host: letters, digits, '-', '_' and '.', at most 64, \
                     and not \"net\", \"{ROUTER}\" or \"{SHARED_KERNEL}\""
                ));
            }
            if planned.iter().any(|h| h.name == *name) {
                return wrong(format!("host {name} is there twice"));
            }
            planned.push(Host {
                name: name.clone(),
                namespace: format!("{prefix}-{name}"),
                data: data.host(i)?,
                clock: clock.host(i)?,
                clock_namespace: match (probes, &joint) {
                    // No name of a host has such a character.
                    (Probes::Apart, _) => Some(format!("{prefix}-{name}~clock")),
                    // The router, which has no data link, asks the reference.
                    (Probes::OnData, Joint::Router) if i == 1 => Some(format!("{prefix}-{name}")),
                    (Probes::OnData, _) => None,
                },
                port: format!("d{i}"),
                address: address(0, i),
                clock_address: address(1, i),
            });
        }
        let switch = format!("{prefix}-net");
        let router = match joint {
            Joint::Bridge => None,
            Joint::Router => {
                let after = u32::try_from(hosts.len()).unwrap_or(u32::MAX).saturating_add(1);
                Some(Router { namespace: switch.clone(), clock: clock.host(after)? })
            }
        };
        let prefixes = (data.prefix(), clock.prefix());
        Ok(Plan { hosts: planned, router, switch, prefixes, mtu, clock_pairs: vec![] })
    }

    /// Has hosts that exchange clock probes know each other's Ethernet addresses for good. Those that
    /// are asked for take a place each in a table that all namespaces of the machine share, of 1024
    /// (`net.ipv4.neigh.default.gc_thresh3`).
    pub fn know_clocks<'a>(
        &mut self,
        pairs: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), TestbedError> {
        let places: HashMap<&str, usize> =
            (0..).zip(&self.hosts).map(|(i, host)| (&*host.name, i)).collect();
        let place = |name: &str| {
            let unknown = || {
                TestbedError::Plan(format!(
                    "there is no host {name:?} that could compare its clock"
                ))
            };
            places.get(name).copied().ok_or_else(unknown)
        };
        let pairs: Result<_, TestbedError> =
            pairs.map(|(a, b)| Ok((place(a)?, place(b)?))).collect();
        self.clock_pairs = pairs?;
        Ok(())
    }

    /// What each host, by its place, knows of others' `clock0`.
    fn clock_neighbours(&self) -> Vec<Vec<(Ipv4Addr, Address)>> {
        let mut known = vec![vec![]; self.hosts.len()];
        for &(a, b) in &self.clock_pairs {
            for (one, other) in [(a, b), (b, a)] {
                let far = &self.hosts[other];
                if far.clock_namespace.is_some() {
                    known[one].push((far.clock, far.clock_address));
                }
            }
        }
        known
    }

    /// Makes it.
    pub fn build(&self, ledger: &Ledger) -> Result<(), TestbedError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(TestbedError::NotRoot);
        }
        let of_hosts = self.hosts.iter().flat_map(|h| {
            let apart = h.clock_namespace.iter().filter(|&name| *name != h.namespace);
            [&h.namespace].into_iter().chain(apart)
        });
        let entries: Vec<Entry> = of_hosts
            .chain([&self.switch])
            .map(|name| Entry::Namespace { name: name.clone() })
            .collect();
        ledger.make(&entries)?;
        let within = |namespace: &str, work: &(dyn Fn() -> io::Result<()> + Sync)| {
            namespace::within(namespace, work)
                .and_then(|outcome| outcome)
                .map_err(|reason| TestbedError::Links { namespace: namespace.to_owned(), reason })
        };
        within(&self.switch, &|| self.link_hosts())?;
        for (host, neighbours) in self.hosts.iter().zip(self.clock_neighbours()) {
            within(&host.namespace, &|| self.connect_data(host))?;
            if let Some(namespace) = &host.clock_namespace {
                let neighbours = || neighbours.clone();
                within(namespace, &|| {
                    connect("clock0", host.clock, self.prefixes.1, neighbours())
                })?;
            }
        }
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

    /// Makes the hosts' links, in the calling thread's namespace.
    fn link_hosts(&self) -> io::Result<()> {
        let mut kernel = netlink::Connection::open()?;
        let of_data = if self.router.is_some() { None } else { Some("data") };
        let bridges = of_data.into_iter().chain(["clock"]);
        for name in bridges {
            kernel.make(vec![netlink::bridge(name)])?;
            kernel.make(netlink::up(name))?;
        }
        let of_data = of_data.map(netlink::index).transpose()?;
        let of_clock = netlink::index("clock")?;
        for (i, host) in (1..).zip(&self.hosts) {
            let namespace = File::open(namespace::path(&host.namespace))?;
            let (namespace, address) = (namespace.as_fd(), Some(host.address.0));
            let peer = Peer { name: "data0", namespace, address };
            let mut links = vec![netlink::veth(&host.port, &peer, self.mtu, of_data)];
            links.extend(netlink::up(&host.port));
            if let Some(namespace) = &host.clock_namespace {
                let namespace = File::open(namespace::path(namespace))?;
                let (namespace, port) = (namespace.as_fd(), format!("c{i}"));
                let address = Some(host.clock_address.0);
                let peer = Peer { name: "clock0", namespace, address };
                links.push(netlink::veth(&port, &peer, None, Some(of_clock)));
                links.extend(netlink::up(&port));
                // While the namespace is open.
                kernel.make(links)?;
            } else {
                kernel.make(links)?;
            }
        }
        if let Some(router) = &self.router {
            let address = netlink::address(of_clock, router.clock, self.prefixes.1);
            kernel.make(netlink::up("lo"))?;
            kernel.make(vec![address])?;
        }
        Ok(())
    }

    /// Makes a host's data link ready, in the calling thread's namespace.
    fn connect_data(&self, host: &Host) -> io::Result<()> {
        let mut neighbours = vec![];
        if self.knows_neighbours() {
            let others = self.hosts.iter().filter(|other| other.name != host.name);
            neighbours = others.map(|other| (other.data, other.address)).collect();
        }
        connect("data0", host.data, self.prefixes.0, neighbours)
    }

    /// Whether the hosts are given each other's Ethernet addresses, so that no message waits for
    /// the answer to a question about them, which takes the emulated links' delay twice.
    #[must_use]
    pub fn knows_neighbours(&self) -> bool {
        self.hosts.len() <= NEIGHBOURS_UP_TO
    }

    /// The content of the hosts' programs' `/etc/hosts`: the hosts' data addresses, then the other
    /// names of the `machine`'s file.
    pub fn names(&self, machine: &str) -> String {
        let mut text = String::new();
        for host in &self.hosts {
            lines(&mut text, format_args!("{} {}", host.data, host.name));
        }
        let is_host = |name: &str| self.hosts.iter().any(|h| h.name.eq_ignore_ascii_case(name));
        for line in machine.lines() {
            let entry = line.split('#').next().unwrap_or_default();
            let mut words = entry.split_whitespace();
            let Some(address) = words.next() else { continue };
            let others: Vec<&str> = words.filter(|name| !is_host(name)).collect();
            if !others.is_empty() {
                lines(&mut text, format_args!("{address} {}", others.join(" ")));
            }
        }
        text
    }
}

/// Has the loopback and `device` of the calling thread's namespace up, this with an address and
/// `neighbours`.
fn connect(
    device: &str,
    address: Ipv4Addr,
    prefix: u8,
    neighbours: Vec<(Ipv4Addr, Address)>,
) -> io::Result<()> {
    let link = netlink::index(device)?;
    let mut changes = netlink::up("lo");
    changes.extend(netlink::up(device));
    changes.push(netlink::address(link, address, prefix));
    changes.extend(neighbours.into_iter().map(|(ip, at)| netlink::neighbour(link, ip, at.0)));
    netlink::Connection::open()?.make(changes)
}

fn lines(batch: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(batch, "{text}");
}

/// The Ethernet address of host `i`, from 1, on its `data0` (network 0), by which a router may
/// identify it, or on its `clock0` (1).
fn address(network: u8, i: u32) -> Address {
    let [a, b, c, d] = i.to_be_bytes();
    // Locally administered.
    Address([2, network, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(hosts: &[&str], mtu: Option<u32>) -> Result<Plan, TestbedError> {
        let hosts: Vec<String> = hosts.iter().map(|&h| h.to_owned()).collect();
        Plan::new("a1b2c3", &hosts, "10.1.0.0/16", "10.2.0.0/24", mtu, Joint::Bridge, Probes::Apart)
    }

    #[test]
    fn every_host_has_both_links_and_its_own_addresses() {
        let plan = plan(&["h1", "h2"], Some(1400)).unwrap();
        let h2 = &plan.hosts[1];
        assert_eq!(h2.namespace, "ls-a1b2c3-h2");
        assert_eq!((h2.data, h2.clock), (Ipv4Addr::new(10, 1, 0, 2), Ipv4Addr::new(10, 2, 0, 2)));
        assert_eq!(h2.address.to_string(), "02:00:00:00:00:02");
        assert_eq!(h2.clock_namespace.as_deref(), Some("ls-a1b2c3-h2~clock"));
    }

    #[test]
    fn a_router_is_one_more_host_on_the_clock_network_and_bridges_no_data() {
        let hosts = ["h1".to_owned(), "h2".to_owned()];
        let of = |data, clock, joint, probes| {
            Plan::new("a1b2c3", &hosts, data, clock, None, joint, probes)
        };
        let plan = of("10.1.0.0/30", "10.2.0.0/29", Joint::Router, Probes::Apart).unwrap();
        let router = plan.router.as_ref().unwrap();
        assert_eq!(router.namespace, "ls-a1b2c3-net");
        assert_eq!(router.clock, Ipv4Addr::new(10, 2, 0, 3));
        // By which netem tells them.
        assert_eq!(plan.hosts[1].address.to_string(), "02:00:00:00:00:02");
        // Its network has no address for a third.
        let narrow = |joint| of("10.1.0.0/24", "10.2.0.0/30", joint, Probes::Apart);
        assert!(narrow(Joint::Router).is_err());
        assert!(narrow(Joint::Bridge).is_ok());
        // Where the probes take the data links, there is one clock link: the router asks the first.
        let shared = of("10.1.0.0/30", "10.2.0.0/29", Joint::Router, Probes::OnData).unwrap();
        let at: Vec<_> = shared.hosts.iter().map(|h| h.clock_namespace.as_deref()).collect();
        assert_eq!(at, [Some("ls-a1b2c3-h1"), None]);
        let shared = of("10.1.0.0/30", "10.2.0.0/29", Joint::Bridge, Probes::OnData).unwrap();
        assert!(shared.hosts.iter().all(|host| host.clock_namespace.is_none()));
    }

    #[test]
    fn hosts_have_the_names_of_the_experiment_and_the_machine_s_others() {
        let machine = "127.0.0.1\tlocalhost # me\n# 10.0.0.9 h9\n\n\
                       10.0.0.7 H1 printer\n10.0.0.8 h2\n::1 ip6-localhost ip6-loopback\n";
        let names = plan(&["h1", "h2"], None).unwrap().names(machine);
        let wanted = "10.1.0.1 h1\n10.1.0.2 h2\n127.0.0.1 localhost\n10.0.0.7 printer\n\
                      ::1 ip6-localhost ip6-loopback\n";
        assert_eq!(names, wanted);
    }

    #[test]
    fn names_that_could_be_paths_or_clash_are_refused() {
        for hosts in [&["a/b"][..], &[".."], &["a", "a"], &["net"], &[ROUTER], &[""], &[], &["a b"]]
        {
            assert!(matches!(plan(hosts, None), Err(TestbedError::Plan(_))), "{hosts:?}");
        }
        let hosts = ["h1".to_owned()];
        let (joint, probes) = (Joint::Bridge, Probes::Apart);
        let overlap = Plan::new("x", &hosts, "10.0.0.0/8", "10.2.0.0/24", None, joint, probes);
        assert!(matches!(overlap, Err(TestbedError::Plan(_))));
    }
}
