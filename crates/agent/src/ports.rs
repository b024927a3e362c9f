//! Ports that are taken in this agent's network namespace.

use std::collections::HashSet;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::events::EventSender;
use crate::proto::{Ready, event::What};

/// TCP_LISTEN in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// How often ports are looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// Components that are ready when a port is taken. However many they are, the ports are looked at
/// once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports(Arc<Mutex<Vec<Waiting>>>);

#[derive(Debug)]
struct Waiting {
    port: u16,
    sender: Arc<EventSender>,
    ended: watch::Receiver<bool>,
}

impl Ports {
    /// Says that a component is ready when the port is taken, unless it ends before. Must be called
    /// inside the runtime.
    pub(crate) fn wait_for(
        &self,
        port: u16,
        sender: Arc<EventSender>,
        ended: watch::Receiver<bool>,
    ) {
        let mut all = self.all();
        all.push(Waiting { port, sender, ended });
        // The first thread that finds none waiting begins to look.
        if all.len() == 1 {
            tokio::spawn(self.clone().look());
        }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until nobody waits.
    async fn look(self) {
        let mut interval = tokio::time::interval(INTERVAL);
        loop {
            interval.tick().await;
            let open = open_ports();
            let mut all = self.all();
            all.retain(|Waiting { port, sender, ended }| {
                let is_open = open.contains(port);
                if is_open {
                    sender.send(What::Ready(Ready {}));
                }
                !is_open && !*ended.borrow()
            });
            if all.is_empty() {
                return;
            }
        }
    }
}

/// The ports of the namespace on which a TCP socket listens or to which a UDP socket is bound.
fn open_ports() -> HashSet<u16> {
    let table = |name: &str| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    let mut ports = HashSet::new();
    for (names, state) in [(["tcp", "tcp6"], Some(LISTEN)), (["udp", "udp6"], None)] {
        names.iter().for_each(|name| ports.extend(local_ports(&table(name), state)));
    }
    ports
}

/// The local ports in a table of proc_net_tcp(5), of sockets in the given state or in any.
fn local_ports(table: &str, state: Option<&str>) -> Vec<u16> {
    let port = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, found) = (fields.next()?, fields.nth(1));
        let port = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
        (state.is_none() || found == state).then_some(port)
    };
    table.lines().skip(1).filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Events;
    use crate::global::GlobalClock;

    #[test]
    fn only_listening_tcp_counts_and_any_bound_udp() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000\n\
             1: 0100007F:1F91 0100007F:1F92 01 00000000:00000000 00:00000000 00000000\n";
        assert_eq!(local_ports(table, Some(LISTEN)), [8080]);
        assert_eq!(local_ports(table, None), [8080, 8081]);
    }

    #[tokio::test]
    async fn each_port_is_told_to_who_waits_for_it() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("[::1]:0").unwrap();
        let (events, ports) = (
            Events::new(GlobalClock::new(
                None,
                loopscope_time::Frequency::from_hz(1_000_000_000).unwrap(),
            )),
            Ports::default(),
        );
        let (_living, running) = watch::channel(false);
        let (_dead, over) = watch::channel(true);
        let wait = |name: &str, port, ended: &watch::Receiver<bool>| {
            ports.wait_for(port, Arc::new(events.sender(name)), ended.clone());
        };
        wait("tcp", tcp.local_addr().unwrap().port(), &running);
        wait("udp", udp.local_addr().unwrap().port(), &running);
        wait("ended", 1, &over);
        let mut told = events.watch().unwrap();
        let mut names = vec![];
        while names.len() < 2 {
            names.push(told.recv().await.unwrap().unwrap().component);
        }
        assert_eq!(names, ["tcp", "udp"]);
        while !ports.all().is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
