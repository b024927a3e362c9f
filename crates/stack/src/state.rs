//! What a connection is made of when it is taken over from the kernel and given back, and how it is
//! to behave meanwhile.

use std::time::Duration;

use crate::congestion::Algorithm;
use crate::place::Seq;

/// An established connection, as TCP_REPAIR (tcp(7), `net/ipv4/tcp.c`) reads it from a socket and
/// makes a socket of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// SND.UNA: the first byte that the other end has not acknowledged.
    pub unacknowledged: Seq,
    /// The bytes from there on that the program has written.
    pub queued: Vec<u8>,
    /// So many of them were sent, at least once. Of the others some may have been: a socket of the
    /// kernel that is frozen may still send what its pacing held.
    pub sent: usize,
    /// SND.WND: bytes from `unacknowledged` on that the other end has room for.
    pub peer_window: usize,
    /// RCV.NXT: the first byte that has not come.
    pub expected: Seq,
    /// The bytes before it that the program has not read.
    pub unread: Vec<u8>,
    /// RCV.WND: bytes from `expected` on that the other end was told it may send.
    pub window: usize,
    /// Payload of a full segment with the options that each segment has, bytes.
    pub segment: usize,
    /// Shift of the windows that are sent (RFC 7323 §2).
    pub scale: u8,
    /// Shift of the windows that come (RFC 7323 §2).
    pub peer_scale: u8,
    /// Whether both ends may report blocks (RFC 2018).
    pub selective: bool,
    /// Whether both ends have agreed on marks of congestion (RFC 3168 §6.1.1).
    pub ecn: bool,
    /// SRTT and RTTVAR (RFC 6298), where the kernel has measured them. It measures them anew when it
    /// gets the connection back.
    pub round_trip: Option<(Duration, Duration)>,
    /// Timestamps, where both ends use them (RFC 7323 §3).
    pub timestamps: Option<Clocks>,
}

/// The two clocks of the timestamps' option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// TSval of this end now. It counts milliseconds.
    pub now: u32,
    /// TS.Recent: the one of the other end that is to be answered. The kernel does not tell it.
    pub recent: Option<u32>,
    /// The newest of the other end, also of segments beyond a gap: an acknowledgement that is made
    /// for the kernel's socket in the other end's name must not be older (RFC 7323 §5.3).
    pub newest: Option<u32>,
}

/// How a connection behaves.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The least retransmission time-out. RFC 6298 §2.4 asks for a second; Linux has 200 ms. On a
    /// network that is as fast as its hosts, 1 ms is well above any round trip.
    pub least_timeout: Duration,
    /// How long an acknowledgement may wait for another segment or for data to go with (RFC 9293
    /// §3.8.6.3: at most 500 ms).
    pub delayed_ack: Duration,
    /// How long the other end's may wait: a probe for the loss of a single segment is as late, unless
    /// the other end was seen to answer sooner.
    pub peer_delayed_ack: Duration,
    /// Whether small segments are sent at once (TCP_NODELAY), else by RFC 9293 §3.7.4 (Nagle).
    pub no_delay: bool,
    /// Whether small segments are kept back in any case (TCP_CORK), but for no longer than 200 ms, or
    /// a longer retransmission time-out.
    pub is_corked: bool,
    /// How the congestion window grows.
    pub algorithm: Algorithm,
    /// Bytes that the program may write before they are acknowledged.
    pub send_buffer: usize,
    /// Bytes that may come before the program reads them.
    pub receive_buffer: usize,
    /// Keep-alive (RFC 9293 §3.8.4), where it is on.
    pub keep_alive: Option<KeepAlive>,
    /// The connection has failed when the other end has not answered for so long (R2 of RFC 9293
    /// §3.8.3).
    pub patience: Duration,
}

/// When the other end is asked whether it is still there.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// The silence after which the first question is sent.
    pub idle: Duration,
    /// The time between two questions that have no answer.
    pub interval: Duration,
    /// The number of questions without an answer that are the end.
    pub probes: u32,
}

impl Config {
    /// The same for a connection of a program that has so many others, with smaller buffers where they
    /// are many: in time a connection uses all of its own, and those of thousands would take the
    /// machine's memory.
    pub fn among(self, others: usize) -> Config {
        const FEW: usize = 256;
        const LEAST: usize = 1 << 16;
        let smaller = |size: usize| (size / (others + 1).div_ceil(FEW)).max(LEAST.min(size));
        Config {
            send_buffer: smaller(self.send_buffer),
            receive_buffer: smaller(self.receive_buffer),
            ..self
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            least_timeout: Duration::from_millis(200),
            delayed_ack: Duration::from_millis(40),
            peer_delayed_ack: Duration::from_millis(40),
            no_delay: false,
            is_corked: false,
            algorithm: Algorithm::Cubic,
            send_buffer: 1 << 20,
            receive_buffer: 1 << 20,
            keep_alive: None,
            patience: Duration::from_secs(924),
        }
    }
}

/// Why a connection transfers no more data here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// A reset came (ECONNRESET).
    #[error("the other end has reset the connection")]
    Reset,
    /// Nothing was acknowledged for too long, or keep-alive had no answer (ETIMEDOUT).
    #[error("the other end has not answered for too long")]
    TimedOut,
    /// The next segment has FIN: the kernel is to take the connection, and that segment.
    #[error("the other end closes its stream")]
    Closing,
    /// A segment has urgent data, which are the kernel's.
    #[error("the other end sends urgent data")]
    Urgent,
}

/// What happened to the segments of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments with data that were sent, also those that were sent again.
    pub sent: u64,
    /// Segments that were sent again.
    pub sent_again: u64,
    /// Segments with data that came and were of use.
    pub received: u64,
    /// Segments whose data had come before.
    pub twice: u64,
    /// Segments that were refused: outside of the window, or too old by their timestamp.
    pub refused: u64,
    /// Bytes for which there was no room.
    pub without_room: u64,
    /// Retransmission time-outs.
    pub time_outs: u64,
    /// Times that a loss made the window smaller.
    pub recoveries: u64,
    /// Times that a mark of the other end made the window smaller.
    pub marks: u64,
    /// Times that a router had dropped what was too large, and segments became smaller.
    pub too_big: u64,
    /// Probes for the loss of the last segments (RFC 8985 §7).
    pub tail_probes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffers_of_many_connections_have_a_bounded_sum() {
        let of = |others| Config::default().among(others).send_buffer;
        assert_eq!(
            [0, 255, 256, 1000, 9999].map(of),
            [1 << 20, 1 << 20, 1 << 19, 1 << 18, 1 << 16]
        );
        let sum: usize = (0..10_000).map(of).sum();
        assert!(sum < 5 << 28, "{sum}");
        let small = Config { receive_buffer: 1000, ..Config::default() };
        assert_eq!(small.among(9999).receive_buffer, 1000);
    }
}
