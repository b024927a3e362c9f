//! Events that are recorded after the instant that they are of.
//!
//! The router records a packet after it has seen it or given it away, and says by `ago_ns` how long
//! ago that was on CLOCK_MONOTONIC (schema/links.md). The time line has the instant itself.

use loopscope_ctf::{EventClass, FieldType};
use loopscope_time::Bound;

/// The process that a router's events are of; of a host that impairs what it sends its name goes on
/// with a hyphen and the host. And the group of the events.
const LINKS: (&str, &str) = ("_links", "link");

/// Parts of a nanosecond by which CLOCK_MONOTONIC may gain or lose in one: Linux speeds it up or
/// slows it down by 500 ppm at most (`MAXFREQ` of adjtimex).
const SLEW: u64 = 2_000;

/// No instant is longer ago than this when its event is recorded: `ago_ns` has 32 bits.
pub(crate) const LONGEST_NS: i64 = u32::MAX as i64;

/// Where an event's fields say how long ago it was.
#[derive(Clone, Copy)]
pub(crate) struct Earlier {
    ago: usize,
    /// By how much that may be off, where it is said.
    within: Option<usize>,
}

/// Decoded events of one call site, as columns.
pub(crate) struct Stamps<'a> {
    pub ts: &'a mut Vec<i64>,
    pub err: &'a mut Vec<i64>,
    pub counter: &'a mut Vec<u64>,
    pub id: &'a mut Vec<i64>,
    /// Where their fields are.
    pub at: &'a mut Vec<u32>,
}

impl Earlier {
    /// The columns for a call site of a process; `None` if its events are recorded when they
    /// happen.
    pub fn of(process: &str, class: &EventClass) -> Option<Earlier> {
        let (of_links, group) = LINKS;
        let rest = process.strip_prefix(of_links)?;
        if !(rest.is_empty() || rest.starts_with('-')) || class.group != group {
            return None;
        }
        let mut offset = 0;
        let (mut ago, mut within) = (None, None);
        for (name, field_type) in &class.fields {
            match (name.as_str(), field_type) {
                ("ago_ns", FieldType::U32) => ago = Some(offset),
                ("within_ns", FieldType::U32) => within = Some(offset),
                _ => {}
            }
            offset += field_type.size()?;
        }
        ago.map(|ago| Earlier { ago, within })
    }

    /// Moves stamps to the instants that the events are of, with what that adds to their
    /// maximum errors, and puts them in order again.
    pub fn apply(self, bytes: &[u8], stamps: &mut Stamps) {
        let field = |at: u32, place: usize| {
            let from = at as usize + place;
            let raw = bytes.get(from..).and_then(|rest| rest.first_chunk());
            raw.map_or(0, |raw| u64::from(u32::from_le_bytes(*raw)))
        };
        for row in 0..stamps.at.len() {
            let ago = field(stamps.at[row], self.ago);
            let within = self.within.map_or(0, |place| field(stamps.at[row], place));
            stamps.ts[row] = stamps.ts[row].saturating_sub_unsigned(ago);
            let err = stamps.err[row].saturating_add_unsigned(ago.div_ceil(SLEW) + within);
            stamps.err[row] = err.min(Bound::UNKNOWN.ns().cast_signed());
        }
        if stamps.ts.is_sorted() {
            return;
        }
        let mut order: Vec<usize> = (0..stamps.ts.len()).collect();
        order.sort_by_key(|row| (stamps.ts[*row], stamps.counter[*row]));
        permute(stamps.ts, &order);
        permute(stamps.err, &order);
        permute(stamps.counter, &order);
        permute(stamps.id, &order);
        permute(stamps.at, &order);
    }
}

fn permute<T: Copy>(values: &mut Vec<T>, order: &[usize]) {
    *values = order.iter().map(|row| values[*row]).collect();
}
