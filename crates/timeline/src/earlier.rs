//! Events that are recorded after the instant that they are of.
//!
//! The router records a packet after it has seen it or given it away, and says by `ago_ns` how long
//! ago that was on CLOCK_MONOTONIC (schema/links.md). The time line has the instant itself.
//!
//! Events that programs in a kernel record have the instant itself, and say by `within_ns` how much
//! placing it on the counter has added to its maximum error (schema/kernel.md).

use loopscope_ctf::{EventClass, FieldType};
use loopscope_time::Bound;

/// The process that a router's events are of; of a host that impairs what it sends its name goes on
/// with a hyphen and the host. And the group of the events.
const LINKS: (&str, &str) = ("_links", "link");

/// Those of programs in a kernel, and their group.
const PROGRAMS: ([&str; 2], &str) = (["kernel sleep", "kernel tcp"], "kernel");

/// Parts of a nanosecond by which CLOCK_MONOTONIC may gain or lose in one: Linux speeds it up or
/// slows it down by 500 ppm at most (`MAXFREQ` of adjtimex).
const SLEW: u64 = 2_000;

/// No instant is longer ago than this when its event is recorded: `ago_ns` has 32 bits.
pub(crate) const LONGEST_NS: i64 = u32::MAX as i64;

/// Where an event's fields say how long ago it was, and by how much that may be off.
#[derive(Clone, Copy)]
pub(crate) struct Earlier {
    ago: Option<usize>,
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
    /// The columns for a call site of a process; `None` if its events are just where their counters
    /// say.
    pub fn of(process: &str, class: &EventClass) -> Option<Earlier> {
        let (of_links, links) = LINKS;
        let of_links = process.strip_prefix(of_links);
        let is_link = of_links.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        let (of_programs, kernel) = PROGRAMS;
        let of_programs = of_programs.contains(&process) && class.group == kernel;
        if !(is_link && class.group == links || of_programs) {
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
            // Behind a field of no fixed size they have no fixed place.
            let Some(size) = field_type.size() else { break };
            offset += size;
        }
        (ago.is_some() || within.is_some()).then_some(Earlier { ago, within })
    }

    /// Whether stamps are those of another instant than the counter's.
    pub fn moves(&self) -> bool {
        self.ago.is_some()
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
            let ago = self.ago.map_or(0, |place| field(stamps.at[row], place));
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
