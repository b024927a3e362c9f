//! What the router tells of each packet: the group `link`.

use loopscope_time::MonotonicNs;
use loopscope_timer::now;
use loopscope_trace::{describe, describe_group, event};

use crate::frame::Frame;
use crate::model::{Drop, Outcome, Packet as _};

describe_group!(
    "link",
    "Packets on emulated links. The id is the message's number; `from` and `to` are indexes of hosts."
);
describe!("link", "enqueued", "", "The packet came to the link, `ago_ns` before this.");
describe!(
    "link",
    "departed",
    "",
    "The packet was given to the device, `ago_ns` before this, and has left at the latest `late_ns` \
     after its time."
);
describe!("link", "dropped", "", "The packet is lost, for this reason.");
describe!("link", "corrupted", "", "The packet that leaves differs in a bit.");
describe!("link", "duplicated", "", "The packet that leaves is the second one.");
describe!("link", "set", "", "The link has other settings from now on.");

/// Which packet it is, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) number: u64,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Place {
    fn ends(self) -> (u16, u16) {
        (self.from as u16, self.to as u16)
    }
}

/// `came`: when the kernel saw it.
pub(crate) fn enqueued(at: Place, frame: &Frame, came: MonotonicNs) {
    let (from, to) = at.ends();
    let size = frame.size() as u32;
    event!(
        "link",
        "enqueued",
        frame.message(),
        number = at.number,
        from = from,
        to = to,
        size = size,
        ago_ns = ago(came)
    );
}

/// `given`: before the kernel was asked to send it. It may have been read at its other end before the
/// kernel returned.
pub(crate) fn departed(at: Place, outcome: &Outcome<Frame>, given: MonotonicNs, late_ns: i64) {
    let frame = &outcome.packet;
    let (from, to) = at.ends();
    let number = at.number;
    event!(
        "link",
        "departed",
        frame.message(),
        number = number,
        from = from,
        to = to,
        late_ns = late_ns,
        ago_ns = ago(given)
    );
    if outcome.corrupted {
        event!("link", "corrupted", frame.message(), number = number, from = from, to = to);
    }
    if outcome.duplicate {
        event!("link", "duplicated", frame.message(), number = number, from = from, to = to);
    }
}

/// `None`: the mover itself lost it.
pub(crate) fn dropped(at: Place, frame: &Frame, cause: Option<Drop>) {
    let (from, to) = at.ends();
    let reason = cause.map_or("moving", Drop::name);
    event!(
        "link",
        "dropped",
        frame.message(),
        number = at.number,
        from = from,
        to = to,
        reason = reason
    );
}

/// `segment` counts the link's settings from 0.
pub(crate) fn set(segment: usize, from: usize, to: usize) {
    event!("link", "set", segment as u64, from = from as u16, to = to as u16);
}

/// Makes this thread's ring, of the thread that runs the router. The error is for a person.
pub fn prepare() -> Result<(), String> {
    loopscope_trace::thread_init().map_err(|problem| problem.to_string())
}

fn ago(instant: MonotonicNs) -> u32 {
    u32::try_from(now().ns_since(instant).max(0)).unwrap_or(u32::MAX)
}
