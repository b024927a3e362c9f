//! What the router records of each packet: the events of the group `link`.

use loopscope_time::MonotonicNs;
use loopscope_time::source::read_counter;
use loopscope_timer::now;
use loopscope_trace::{describe, describe_group, event, event_at};

use crate::frame::Frame;
use crate::model::{Drop, Outcome, Packet as _};
use crate::settings::MessageField;

describe_group!(
    "link",
    "Packets on emulated links. The id is the message's number; `from` and `to` are indexes of hosts."
);
describe!(
    "link",
    "enqueued",
    "",
    "The packet came to the link `ago_ns` before this, give or take `within_ns`."
);
describe!(
    "link",
    "packet",
    "",
    "What the packet of this number is: `mark` is its sequence number, or of UDP the hash of its \
     content's first bytes; `fragment` its identification, and in the lower half its place, if it \
     is one of several fragments."
);
describe!(
    "link",
    "departed",
    "",
    "The packet was given to the device `ago_ns` before this, give or take `within_ns`, and \
     `late_ns` after its time."
);
describe!("link", "dropped", "", "The packet is lost, for this reason.");
describe!("link", "corrupted", "", "The packet that departed then differs in a bit.");
describe!("link", "duplicated", "", "The packet that departed then is the second one.");
describe!("link", "set", "", "The link has other settings from now on.");

/// Number and place of a packet.
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

/// One instant on two clocks.
#[derive(Clone, Copy, Debug)]
struct Moment {
    counter: u64,
    /// CLOCK_MONOTONIC when the counter was read, give or take `within_ns`.
    at: MonotonicNs,
    within_ns: u32,
}

/// A pair of readings this close is taken at once: three readings without an interruption.
const CLOSE_NS: u64 = 200;
/// Pairs that are tried at most, of which the closest is taken.
const TRIES: u32 = 8;

impl Moment {
    /// Reads the counter between two readings of CLOCK_MONOTONIC. An event that is stamped with
    /// this counter can say how long ago something was on CLOCK_MONOTONIC, however long the thread
    /// is kept from recording it.
    fn now() -> Moment {
        let read = || {
            let (before, counter, after) = (now(), read_counter(), now());
            let width = after.0.saturating_sub(before.0);
            let within_ns = u32::try_from(width.div_ceil(2)).unwrap_or(u32::MAX);
            (width, Moment { counter: counter.0, at: before.plus(width / 2), within_ns })
        };
        let mut best = read();
        for _ in 1..TRIES {
            if best.0 <= CLOSE_NS {
                break;
            }
            let next = read();
            if next.0 < best.0 {
                best = next;
            }
        }
        best.1
    }

    fn ago(&self, instant: MonotonicNs) -> u32 {
        u32::try_from(self.at.ns_since(instant).max(0)).unwrap_or(u32::MAX)
    }
}

/// Stands before the record, where the thread may be kept from running; tests keep it there.
#[inline(always)]
fn before_the_record() {
    #[cfg(test)]
    tests::pause();
}

/// `came`: when the kernel saw it.
pub(crate) fn enqueued(at: Place, frame: &Frame, field: MessageField, came: MonotonicNs) {
    let (from, to) = at.ends();
    let size = frame.size() as u32;
    let moment = Moment::now();
    before_the_record();
    event_at!(
        moment.counter,
        "link",
        "enqueued",
        frame.message(field),
        number = at.number,
        from = from,
        to = to,
        size = size,
        ago_ns = moment.ago(came),
        within_ns = moment.within_ns
    );
    if let Some(packet) = frame.headers() {
        event!(
            "link",
            "packet",
            at.number,
            from = from,
            to = to,
            protocol = packet.protocol,
            source = packet.ports[0],
            target = packet.ports[1],
            mark = packet.mark(),
            bytes = packet.content.len() as u32,
            fragment = packet.fragment
        );
    }
}

/// `given`: before the kernel was asked to send it. It may have been read at its other end before
/// the kernel returned.
pub(crate) fn departed(
    at: Place,
    outcome: &Outcome<Frame>,
    field: MessageField,
    given: MonotonicNs,
) {
    let message = outcome.packet.message(field);
    let (from, to) = at.ends();
    let number = at.number;
    let moment = Moment::now();
    before_the_record();
    event_at!(
        moment.counter,
        "link",
        "departed",
        message,
        number = number,
        from = from,
        to = to,
        late_ns = given.ns_since(outcome.due),
        ago_ns = moment.ago(given),
        within_ns = moment.within_ns
    );
    macro_rules! also {
        ($name:literal) => {
            event_at!(
                moment.counter,
                "link",
                $name,
                message,
                number = number,
                from = from,
                to = to,
                ago_ns = moment.ago(given),
                within_ns = moment.within_ns
            )
        };
    }
    if outcome.corrupted {
        also!("corrupted");
    }
    if outcome.duplicate {
        also!("duplicated");
    }
}

/// The router gives it up now. `None`: the mover itself lost it.
pub(crate) fn dropped(at: Place, frame: &Frame, field: MessageField, cause: Option<Drop>) {
    let (from, to) = at.ends();
    let reason = cause.map_or("moving", Drop::name);
    event!(
        "link",
        "dropped",
        frame.message(field),
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

#[cfg(test)]
mod tests;
