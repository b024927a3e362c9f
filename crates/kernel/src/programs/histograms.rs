//! Histograms that programs in the kernel keep, with no record of an event (`bpf/histograms.bpf.c`).

use aya::maps::{HashMap, MapData, PerCpuArray};
use aya::{Ebpf, EbpfLoader};
use serde::{Deserialize, Serialize};

use super::loaded::{How, ProgramsError, Structures, attach, causes};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/histograms.bpf.o"));

/// Programs and their tracepoints.
const PROGRAMS: [(&str, &str); 5] = [
    ("thread_woken", "sched_wakeup"),
    ("thread_made", "sched_wakeup_new"),
    ("thread_switched", "sched_switch"),
    ("softirq_begins", "softirq_entry"),
    ("softirq_ends", "softirq_exit"),
];
/// The names of soft interrupts, by their vectors (include/linux/interrupt.h).
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
const SLOTS: usize = 160;
const COMM: usize = 16;
/// Words of a histogram, and of one with the thread's name and process before it.
const WORDS: usize = 3 + SLOTS / 2;
const OF_THREAD: usize = COMM / 8 + 1 + WORDS;

/// Times, each in its slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// How many there are.
    pub count: u64,
    /// All together, ns.
    pub sum_ns: u64,
    /// The largest one, ns.
    pub largest_ns: u64,
    /// From how many ns on, below how many, and how many times. The last slot's times may be longer.
    pub slots: Vec<(u64, u64, u32)>,
}

/// For how long a thread waited for a processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// The kernel's number of the thread.
    pub tid: u32,
    /// That of its process.
    pub process: u32,
    /// Its name, the last one that it had.
    pub name: String,
    /// Whether it had lost its processor to another thread; else it was woken.
    pub preempted: bool,
    /// The times.
    pub waits: Histogram,
}

/// For how long a processor served soft interrupts of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Its number.
    pub processor: u32,
    /// The kernel's name of the kind, such as `NET_RX`.
    pub name: String,
    /// The times.
    pub times: Histogram,
}

/// What was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histograms {
    /// The waits of threads of measured namespaces.
    pub run_queue: Vec<Waits>,
    /// The soft interrupts of all processors.
    pub softirq: Vec<Served>,
    /// Waits that found no room, of more than 4096 threads.
    pub missed: u64,
}

/// Programs that keep histograms until they are dropped.
pub(crate) struct Keeper {
    ebpf: Ebpf,
}

impl Keeper {
    /// Begins to keep those of threads in these namespaces, and of soft interrupts.
    pub(crate) fn begin(
        structures: &Structures,
        namespaces: &[u32],
    ) -> Result<Keeper, ProgramsError> {
        if OBJECT.is_empty() {
            return Err(ProgramsError::NotBuilt);
        }
        let btf = structures.get()?;
        let mut loader = EbpfLoader::new();
        loader.allow_unsupported_maps();
        let mut ebpf =
            loader.btf(Some(btf)).load(OBJECT).map_err(|e| ProgramsError::Refused(causes(&e)))?;
        let map = ebpf.map_mut("namespaces").expect("the object has this map");
        let mut measured: HashMap<&mut MapData, u32, u8> = HashMap::try_from(map)?;
        namespaces.iter().try_for_each(|each| measured.insert(each, How::Measured as u8, 0))?;
        for (program, tracepoint) in PROGRAMS {
            attach(&mut ebpf, btf, program, tracepoint)?;
        }
        Ok(Keeper { ebpf })
    }

    /// What has been kept.
    pub(crate) fn kept(&self) -> Result<Histograms, ProgramsError> {
        let map = |name: &str| self.ebpf.map(name).expect("the object has this map");
        let waits: HashMap<&MapData, [u32; 2], [u64; OF_THREAD]> =
            HashMap::try_from(map("run_queue"))?;
        let mut found = Histograms::default();
        for each in waits.iter() {
            let ([tid, preempted], words) = each?;
            let (name, rest) = words.split_at(COMM / 8);
            found.run_queue.push(Waits {
                tid,
                process: rest[0] as u32,
                name: named(name),
                preempted: preempted != 0,
                waits: of_words(&rest[1..]),
            });
        }
        found.run_queue.sort_by_key(|each| (each.tid, each.preempted));
        let served: PerCpuArray<&MapData, [u64; WORDS]> = PerCpuArray::try_from(map("softirqs"))?;
        for (vector, name) in (0..).zip(SOFTIRQS) {
            for (processor, words) in (0..).zip(served.get(&vector, 0)?.iter()) {
                let times = of_words(words);
                if times.count > 0 {
                    found.softirq.push(Served { processor, name: name.to_owned(), times });
                }
            }
        }
        let counts: PerCpuArray<&MapData, [u64; 2]> = PerCpuArray::try_from(map("counts"))?;
        found.missed = counts.get(&0, 0)?.iter().map(|[_, dropped]| dropped).sum();
        Ok(found)
    }
}

/// A name of the kernel's, which ends with a zero.
fn named(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A histogram as the programs have it.
fn of_words(words: &[u64]) -> Histogram {
    let (totals, slots) = words.split_at(3);
    let counts = slots.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
    let slots = (0..).zip(counts).filter(|(_, count)| *count > 0);
    Histogram {
        count: totals[0],
        sum_ns: totals[1],
        largest_ns: totals[2],
        slots: slots.map(|(slot, count)| (begin_of(slot), begin_of(slot + 1), count)).collect(),
    }
}

/// The least time of a slot, ns.
fn begin_of(slot: u64) -> u64 {
    if slot < 4 { slot } else { (4 + slot % 4) << (slot / 4 - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_each_other_and_none_is_wider_than_a_quarter_of_its_times() {
        for slot in 0..SLOTS as u64 {
            let (begin, end) = (begin_of(slot), begin_of(slot + 1));
            assert!(end > begin && (end - begin) <= (begin / 4).max(1), "{slot}: {begin} to {end}");
        }
        // More than a minute.
        assert!(begin_of(SLOTS as u64 - 1) > 60_000_000_000);
    }
}
