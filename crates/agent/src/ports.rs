//! Which ports are taken in this agent's network namespace.

use std::fs;

/// TCP_LISTEN in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Whether some socket of the namespace listens on TCP port `port` or is bound to UDP port `port`.
pub(crate) fn is_open(port: u16) -> bool {
    let table = |name: &str| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    ["tcp", "tcp6"].iter().any(|name| has_port(&table(name), port, Some(LISTEN)))
        || ["udp", "udp6"].iter().any(|name| has_port(&table(name), port, None))
}

/// Searches a table of proc_net_tcp(5) for the local port, in the given state or in any.
fn has_port(table: &str, port: u16, state: Option<&str>) -> bool {
    let port = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, found) = (fields.next(), fields.nth(1));
        local.is_some_and(|l| l.ends_with(&port)) && (state.is_none() || found == state)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_tcp_counts_and_any_bound_udp() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000\n\
             1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000\n";
        assert!(has_port(table, 8080, Some(LISTEN)));
        assert!(!has_port(table, 8081, Some(LISTEN)));
        assert!(has_port(table, 8081, None));
        // As a remote port only, or as part of another.
        assert!(!has_port(table, 0x1F9, None) && !has_port(table, 0, None));
    }

    #[test]
    fn real_sockets_are_seen() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("[::1]:0").unwrap();
        assert!(is_open(tcp.local_addr().unwrap().port()));
        assert!(is_open(udp.local_addr().unwrap().port()));
    }
}
