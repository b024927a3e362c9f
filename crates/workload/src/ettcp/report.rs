//! What an end says of a transfer, as ttcp does.

use std::fmt;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::meter::Second;
use super::wire::Account;
use super::{Protocol, Stream};
use crate::cpu_time::CpuTime;
use crate::result;

/// The end of the connection.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Role {
    Send,
    Receive,
}

pub(super) struct Report {
    pub(super) role: Role,
    pub(super) protocol: Protocol,
    pub(super) streams: Vec<Stream>,
    pub(super) seconds: Vec<Second>,
    pub(super) cpu: CpuTime,
    /// UDP, receiver: packets for which the socket's buffer had no room, where the kernel tells.
    pub(super) dropped: Option<u64>,
}

impl Report {
    /// Says it all; then an error if bytes were wrong.
    pub(super) fn print(mut self, json: bool) -> Result<()> {
        self.streams.sort_by_key(|stream| stream.stream);
        result::report(json, &self.to_json(), &self)?;
        for stream in &self.streams {
            for account in [Some(&stream.account), stream.peer.as_ref()].into_iter().flatten() {
                if let Some(place) = account.wrong_at {
                    bail!("the content is wrong from byte {place} of stream {} on", stream.stream);
                }
            }
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let streams: Vec<Value> = self.streams.iter().map(Stream::to_json).collect();
        let total = total(self.own());
        let mut own = numbers(&total);
        own["cpu"] = json!({
            "user_s": self.cpu.user_s,
            "system_s": self.cpu.system_s,
            "share": ratio(self.cpu.total_s(), total.seconds),
        });
        let receiver = self.peers().map(|peers| numbers(&self::total(peers)));
        json!({
            "version": 1,
            "program": match self.role { Role::Send => "ettcp send", Role::Receive => "ettcp receive" },
            "protocol": match self.protocol { Protocol::Tcp => "tcp", Protocol::Udp => "udp" },
            "total": own,
            // For a sender alone; null unless every stream's account came.
            "receiver": receiver,
            "socket_dropped": self.dropped,
            "seconds": self.seconds,
            "streams": streams,
        })
    }

    fn own(&self) -> impl Iterator<Item = &Account> {
        self.streams.iter().map(|stream| &stream.account)
    }

    /// The receiver's accounts; `None` unless all came.
    fn peers(&self) -> Option<impl Iterator<Item = &Account>> {
        let peers: Option<Vec<&Account>> =
            self.streams.iter().map(|stream| stream.peer.as_ref()).collect();
        peers.map(Vec::into_iter)
    }
}

impl Stream {
    fn to_json(&self) -> Value {
        let mut value = numbers(&self.account);
        value["stream"] = self.stream.into();
        value["tcp"] = json!(self.tcp);
        value["receiver"] = self.peer.as_ref().map_or(Value::Null, numbers);
        value
    }
}

/// All streams together: from the first one's begin, so to say; they run side by side.
fn total<'a>(accounts: impl Iterator<Item = &'a Account>) -> Account {
    accounts.fold(Account::default(), |mut sum, each| {
        sum.bytes += each.bytes;
        sum.calls += each.calls;
        sum.seconds = sum.seconds.max(each.seconds);
        sum.wrong_at = sum.wrong_at.or(each.wrong_at);
        if let Some(verified) = each.verified {
            sum.verified = Some(sum.verified.unwrap_or(0) + verified);
        }
        if let Some(arrivals) = &each.arrivals {
            let total = sum.arrivals.get_or_insert_with(|| super::sequence::Arrivals {
                lost: Some(0),
                ..Default::default()
            });
            total.packets += arrivals.packets;
            total.reordered += arrivals.reordered;
            total.duplicates += arrivals.duplicates;
            total.stale += arrivals.stale;
            total.lost = total.lost.zip(arrivals.lost).map(|(sum, lost)| sum + lost);
        }
        sum
    })
}

fn numbers(account: &Account) -> Value {
    let Account { bytes, calls, seconds, arrivals, verified, wrong_at } = account;
    json!({
        "bytes": bytes,
        "real_s": seconds,
        "rate_bit_s": ratio(*bytes as f64 * 8.0, *seconds),
        "calls": calls,
        "mean_call_s": ratio(*seconds, *calls as f64),
        "calls_per_s": ratio(*calls as f64, *seconds),
        "arrivals": arrivals,
        "verified_bytes": verified,
        "wrong_at_byte": wrong_at,
    })
}

/// `None` of nothing.
fn ratio(of: f64, by: f64) -> Option<f64> {
    (by > 0.0).then(|| of / by)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.role {
            Role::Send => "send",
            Role::Receive => "receive",
        };
        let own = total(self.own());
        lines(f, name, &own)?;
        let CpuTime { user_s, system_s } = self.cpu;
        write!(f, "\n{name}: {user_s:.3} s user, {system_s:.3} s system")?;
        if let Some(share) = ratio(self.cpu.total_s(), own.seconds) {
            write!(f, ", {:.1} % of a CPU", share * 100.0)?;
        }
        if self.protocol == Protocol::Udp && self.role == Role::Receive {
            match self.dropped {
                Some(dropped) => write!(
                    f,
                    "\n{name}: {dropped} packets found no room in the socket's buffer (--buffer)"
                )?,
                None => write!(f, "\n{name}: the kernel does not tell what the socket dropped")?,
            }
        }
        for stream in &self.streams {
            if let Some(tcp) = &stream.tcp {
                write!(
                    f,
                    "\n{name}: stream {}: {} segments retransmitted, rtt {:.3} ms (deviation {:.3} \
                     ms), window {} segments of {} B, {}",
                    stream.stream,
                    tcp.retransmitted,
                    f64::from(tcp.rtt_us) / 1e3,
                    f64::from(tcp.rtt_deviation_us) / 1e3,
                    tcp.window_segments,
                    tcp.segment_bytes,
                    tcp.congestion
                )?;
            }
        }
        if self.role == Role::Send {
            f.write_str("\n")?;
            match self.peers() {
                Some(peers) => lines(f, "receiver", &total(peers))?,
                None => f.write_str("receiver: not every stream's account came")?,
            }
        }
        Ok(())
    }
}

/// Lines on an end's account, as ttcp writes them.
fn lines(f: &mut fmt::Formatter<'_>, name: &str, account: &Account) -> fmt::Result {
    let Account { bytes, calls, seconds, arrivals, verified, .. } = account;
    write!(f, "{name}: {bytes} B in {seconds:.3} s")?;
    if let Some(rate) = ratio(*bytes as f64, *seconds) {
        write!(f, " = {:.2} KiB/s = {:.3} Mbit/s", rate / 1024.0, rate * 8e-6)?;
    }
    write!(f, "\n{name}: {calls} I/O calls")?;
    if let (Some(call), Some(per_second)) =
        (ratio(*seconds, *calls as f64), ratio(*calls as f64, *seconds))
    {
        write!(f, ", {:.4} ms/call, {per_second:.1} calls/s", call * 1e3)?;
    }
    if let Some(arrivals) = arrivals {
        write!(f, "\n{name}: {} packets", arrivals.packets)?;
        match arrivals.lost {
            Some(lost) => {
                let sent = arrivals.packets + lost;
                let share = ratio(lost as f64, sent as f64).unwrap_or(0.0) * 100.0;
                write!(f, ", {lost} of {sent} lost ({share:.3} %)")?;
            }
            None => f.write_str(", it is not known how many were sent")?,
        }
        write!(f, ", {} reordered, {} duplicates", arrivals.reordered, arrivals.duplicates)?;
        if arrivals.stale > 0 {
            write!(f, ", {} late or duplicates, too old to tell", arrivals.stale)?;
        }
    }
    match verified {
        Some(bytes) if account.wrong_at.is_none() => {
            write!(f, "\n{name}: all {bytes} B of content compared, all right")
        }
        _ => Ok(()),
    }
}
