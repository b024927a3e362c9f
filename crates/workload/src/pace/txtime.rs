//! Whether the kernel paces what leaves by a device: SO_TXTIME is heeded by the queueing disciplines
//! fq and etf alone, all others send at once.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use nix::time::ClockId;
use serde_json::Value;

/// Makes `socket`, which is connected, take a time with each packet; returns the clock that its
/// device's queue goes by.
pub(super) fn enable(socket: &UdpSocket) -> Result<ClockId> {
    let device = device(socket)?;
    let clock = clock(&device)?;
    let txtime = libc::sock_txtime { clockid: clock.as_raw(), flags: 0 };
    setsockopt(socket, sockopt::TxTime, &txtime)
        .context("the kernel takes no packets with a time (SO_TXTIME); choose another `timer`")?;
    Ok(clock)
}

/// The device by which a connected socket's packets leave.
fn device(socket: &UdpSocket) -> Result<String> {
    let (own, peer) = (socket.local_addr()?.ip(), socket.peer_addr()?.ip());
    let name = nix::ifaddrs::getifaddrs().context("cannot list the devices")?.find_map(|device| {
        let address = device.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        let ip = v4.or(address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))?;
        (ip == own).then_some(device.interface_name)
    });
    // What goes to an own address goes by lo, whatever device has the address.
    let name = if own == peer { Some("lo".to_owned()) } else { name };
    name.with_context(|| format!("no device has the address {own} that packets would leave from"))
}

fn clock(device: &str) -> Result<ClockId> {
    let output = Command::new("tc").args(["-j", "qdisc", "show", "dev", device]).output();
    let output = output.context("cannot run tc (of iproute2) to learn how packets leave")?;
    ensure!(
        output.status.success(),
        "tc does not tell how packets leave by {device}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let listed: Value = serde_json::from_slice(&output.stdout).context("tc says no JSON")?;
    clock_of(device, &listed)
}

/// The clock of the discipline that every packet goes through, from what `tc -j qdisc show` says.
fn clock_of(device: &str, listed: &Value) -> Result<ClockId> {
    let kinds: Vec<&str> =
        listed.as_array().into_iter().flatten().filter_map(|q| q["kind"].as_str()).collect();
    // mq only spreads packets over the device's queues; each has a discipline of its own.
    let leaves: Vec<&str> = kinds.iter().copied().filter(|kind| *kind != "mq").collect();
    match leaves.as_slice() {
        [first, rest @ ..] if rest.iter().all(|kind| kind == first) => match *first {
            "fq" => return Ok(ClockId::CLOCK_MONOTONIC),
            "etf" => return Ok(ClockId::CLOCK_TAI),
            _ => {}
        },
        _ => {}
    }
    bail!(
        "the kernel does not pace what leaves by {device}: its queueing discipline is {}, it has to \
         be fq or etf. Make it so (tc qdisc replace dev {device} root fq, where the kernel has \
         sch_fq), or choose another `timer`",
        if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_fq_and_etf_pace() {
        let clock = |kinds: &[&str]| {
            let listed: Vec<Value> = kinds.iter().map(|kind| json!({"kind": kind})).collect();
            clock_of("eth0", &listed.into())
        };
        assert_eq!(clock(&["fq"]).unwrap(), ClockId::CLOCK_MONOTONIC);
        assert_eq!(clock(&["mq", "fq", "fq"]).unwrap(), ClockId::CLOCK_MONOTONIC);
        assert_eq!(clock(&["etf"]).unwrap(), ClockId::CLOCK_TAI);
        for kinds in [&["noqueue"][..], &["mq", "fq", "fq_codel"], &["fq_codel"], &[], &["mq"]] {
            let error = clock(kinds).unwrap_err().to_string();
            assert!(error.contains("eth0") && error.contains("has to be fq or etf"), "{error}");
        }
    }
}
