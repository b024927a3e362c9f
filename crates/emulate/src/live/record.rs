//! The fate of a link's packets, to be compared with the settings.

use loopscope_time::MonotonicNs;
use serde::Serialize;

use crate::frame::Frame;
use crate::model::{Drop, Outcome, Packet as _};
use crate::settings::Settings;
use crate::tally::{Summary, Tally};

/// Packets and what they amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Number of them.
    pub packets: u64,
    /// Bytes in frames.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// Packets lost, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Larger than the MTU.
    pub mtu: u64,
    /// By the loss that was asked for.
    pub loss: u64,
    /// The queue was full.
    pub queue: u64,
    /// CoDel.
    pub codel: u64,
    /// By the mover itself.
    pub moving: u64,
    /// By the kernel's netem, which does not say whether by the loss or by a full queue.
    pub kernel: u64,
}

/// A packet that left.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// When it came.
    pub came: MonotonicNs,
    /// Whether that is known, and not of one of several that are alike.
    pub timed: bool,
    /// When it left.
    pub at: MonotonicNs,
    /// When it should have; `None` where nobody knows.
    pub due: Option<MonotonicNs>,
    /// Number of the packet on its link, from 1.
    pub number: u64,
    /// Bytes.
    pub size: usize,
    /// A second one.
    pub duplicate: bool,
    /// With a bit flipped.
    pub corrupted: bool,
}

impl Left {
    /// What the model let go.
    pub fn of(outcome: &Outcome<Frame>, at: MonotonicNs) -> Left {
        Left {
            came: outcome.enqueued,
            timed: true,
            at,
            due: Some(outcome.due),
            number: outcome.number,
            size: outcome.packet.size(),
            duplicate: outcome.duplicate,
            corrupted: outcome.corrupted,
        }
    }
}

/// A link's packets.
#[derive(Debug)]
pub struct Record {
    /// Never empty; by the settings in force, oldest first.
    segments: Vec<Segment>,
    /// Number of the latest of those that have left.
    highest: u64,
}

#[derive(Debug)]
struct Segment {
    since: MonotonicNs,
    asked: Settings,
    came: Amount,
    left: Amount,
    queued: u64,
    dropped: Dropped,
    duplicated: u64,
    corrupted: u64,
    reordered: u64,
    span: Option<(MonotonicNs, MonotonicNs)>,
    delay: Tally,
    late: Tally,
}

/// A [`Record`]'s segment as `links.json` has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Achieved {
    /// Since the start of the first measured phase.
    pub since_ns: i64,
    /// The settings in force.
    pub asked: Settings,
    /// What came.
    #[serde(rename = "in")]
    pub came: Amount,
    /// What left, duplicates as well.
    #[serde(rename = "out")]
    pub left: Amount,
    /// What had not left at the end.
    pub queued: u64,
    /// What never will.
    pub dropped: Dropped,
    /// Second copies.
    pub duplicated: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets that left after a later one.
    pub reordered: u64,
    /// First departure, since the start of the first measured phase.
    pub first_ns: Option<i64>,
    /// Last one.
    pub last_ns: Option<i64>,
    /// From arrival to departure.
    pub delay_ns: Summary,
    /// From the time due to departure.
    pub late_ns: Summary,
}

impl Record {
    /// A record for a link that begins with these settings.
    pub fn new(since: MonotonicNs, asked: Settings) -> Record {
        Record { segments: vec![Segment::new(since, asked)], highest: 0 }
    }

    /// From `since` on the settings are others; the number of the segment.
    pub fn set(&mut self, since: MonotonicNs, asked: Settings) -> usize {
        self.segments.push(Segment::new(since, asked));
        self.segments.len() - 1
    }

    /// A packet came.
    pub fn came(&mut self, at: MonotonicNs, size: usize) {
        self.segment(at).came.add(size);
    }

    /// One was dropped; `None`: by the mover.
    pub fn dropped(&mut self, outcome: &Outcome<Frame>, cause: Option<Drop>) {
        let segment = self.segment(outcome.enqueued);
        segment.marks(outcome.duplicate, outcome.corrupted);
        *match cause {
            Some(Drop::Mtu) => &mut segment.dropped.mtu,
            Some(Drop::Loss) => &mut segment.dropped.loss,
            Some(Drop::Queue) => &mut segment.dropped.queue,
            Some(Drop::Codel) => &mut segment.dropped.codel,
            None => &mut segment.dropped.moving,
        } += 1;
    }

    /// The kernel has dropped one that came then. `asked`: nothing but what was asked of the link
    /// can be why; even then it does not say which of a loss and a full queue.
    pub fn swallowed(&mut self, came: MonotonicNs, asked: bool) {
        let segment = self.segment(came);
        let (loss, rate) = (segment.asked.loss.is_some(), segment.asked.rate_bps.is_some());
        *match (asked, loss, rate) {
            (true, true, false) => &mut segment.dropped.loss,
            (true, false, true) => &mut segment.dropped.queue,
            _ => &mut segment.dropped.kernel,
        } += 1;
    }

    /// One left.
    pub fn left(&mut self, left: &Left) {
        let late = left.number < self.highest && !left.duplicate;
        self.highest = self.highest.max(left.number);
        let segment = self.segment(left.came);
        segment.marks(left.duplicate, left.corrupted);
        segment.reordered += u64::from(late);
        segment.goes(left.at, left.size);
        if left.timed {
            segment.delay.add(since(left.at, left.came));
        }
        if let Some(due) = left.due {
            segment.late.add(since(left.at, due));
        }
    }

    /// One left that nobody has seen coming.
    pub fn appeared(&mut self, at: MonotonicNs, size: usize) {
        let segment = self.segment(at);
        segment.came.add(size);
        segment.goes(at, size);
    }

    /// One is still there at the end.
    pub fn queued(&mut self, outcome: &Outcome<Frame>) {
        self.segment(outcome.enqueued).marks(outcome.duplicate, outcome.corrupted);
        self.waits(outcome.enqueued);
    }

    /// Counts a packet as [`Record::queued`] does, with nothing but its time of arrival.
    pub fn waits(&mut self, came: MonotonicNs) {
        self.segment(came).queued += 1;
    }

    /// Whether any packet came.
    pub fn is_used(&self) -> bool {
        self.segments.iter().any(|segment| segment.came.packets > 0)
    }

    /// All segments, with times from `start` on.
    pub fn achieved(&self, start: MonotonicNs) -> Vec<Achieved> {
        let from_start = |at: MonotonicNs| at.ns_since(start);
        let achieved = |segment: &Segment| Achieved {
            since_ns: from_start(segment.since),
            asked: segment.asked.clone(),
            came: segment.came,
            left: segment.left,
            queued: segment.queued,
            dropped: segment.dropped,
            duplicated: segment.duplicated,
            corrupted: segment.corrupted,
            reordered: segment.reordered,
            first_ns: segment.span.map(|(first, _)| from_start(first)),
            last_ns: segment.span.map(|(_, last)| from_start(last)),
            delay_ns: segment.delay.summary(),
            late_ns: segment.late.summary(),
        };
        self.segments.iter().map(achieved).collect()
    }

    /// The one in which a packet came.
    fn segment(&mut self, came: MonotonicNs) -> &mut Segment {
        let later = self.segments.iter().rev().take_while(|segment| segment.since > came).count();
        let at = self.segments.len().saturating_sub(later + 1);
        &mut self.segments[at]
    }
}

impl Segment {
    fn new(since: MonotonicNs, asked: Settings) -> Segment {
        Segment {
            since,
            asked,
            came: Amount::default(),
            left: Amount::default(),
            queued: 0,
            dropped: Dropped::default(),
            duplicated: 0,
            corrupted: 0,
            reordered: 0,
            span: None,
            delay: Tally::default(),
            late: Tally::default(),
        }
    }

    fn marks(&mut self, duplicate: bool, corrupted: bool) {
        self.duplicated += u64::from(duplicate);
        self.corrupted += u64::from(corrupted);
    }

    fn goes(&mut self, at: MonotonicNs, size: usize) {
        self.left.add(size);
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
    }
}

/// Nanoseconds; 0 where `earlier` is not.
fn since(at: MonotonicNs, earlier: MonotonicNs) -> u64 {
    at.ns_since(earlier).max(0).cast_unsigned()
}
