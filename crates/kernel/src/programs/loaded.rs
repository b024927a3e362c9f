//! The programs that record, in the kernel.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, PerCpuValues, RingBuf};
use aya::programs::{BtfTracePoint, ProgramError};
use aya::util::nr_cpus;
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use nix::errno::Errno;

use super::record::{Kind, Record};
use super::{CALL, CLASSES, SLEEP, TCP};

static TCP_OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tcp.bpf.o"));
static UDP_OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/udp.bpf.o"));
static CALL_OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/call.bpf.o"));
static SLEEP_OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/sleep.bpf.o"));

/// Why programs record nothing.
#[derive(Debug, thiserror::Error)]
pub enum ProgramsError {
    /// This build has no programs.
    #[error(
        "loopscope was built without clang, which compiles the kernel's programs: install clang and \
         build it again"
    )]
    NotBuilt,
    /// The kernel does not say how its structures are laid out.
    #[error("the kernel does not describe its structures (/sys/kernel/btf/vmlinux): {0}")]
    Undescribed(String),
    /// The kernel refuses programs.
    #[error("the kernel lets no program in, which takes root (CAP_BPF and CAP_PERFMON): {0}")]
    Refused(String),
    /// The kernel does not have what the programs read.
    #[error("this kernel does not have what the programs read: {0}")]
    Lacking(String),
    /// The kernel's side of it.
    #[error("the kernel's side of the ring: {0}")]
    Maps(#[from] MapError),
}

/// Events by their names, with why the kernel does not have them.
pub type Absent = BTreeMap<&'static str, String>;

/// Whether this machine's kernel lets the programs in: loads those of each class, and takes them out
/// again. Of each class the events that it does not have, or why none of it can be recorded.
pub fn check() -> BTreeMap<&'static str, Result<Absent, ProgramsError>> {
    let structures = Structures::default();
    let checked = |class| {
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.class() == class).collect();
        let programs = Programs::load(&structures, class, &kinds, 0, &Chosen::default())?;
        Ok(programs.absent.into_iter().map(|(kind, why)| (kind.name(), why)).collect())
    };
    CLASSES.into_iter().map(|class| (class, checked(class))).collect()
}

/// The kernel's description of its structures, read when it is first asked for: that takes some 50 ms.
#[derive(Default)]
pub(crate) struct Structures(OnceCell<Btf>);

impl Structures {
    pub(super) fn get(&self) -> Result<&Btf, ProgramsError> {
        if let Some(known) = self.0.get() {
            return Ok(known);
        }
        let read = Btf::from_sys_fs().map_err(|e| ProgramsError::Undescribed(causes(&e)))?;
        Ok(self.0.get_or_init(|| read))
    }
}

/// Records of each processor: that are in the ring or were, and that found no room.
pub(crate) type Counts = BTreeMap<u32, (u64, u64)>;

/// How a namespace is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Measured = 1,
    /// All events are recorded as the rare ones are, to tell what these cost.
    AsRare,
    /// As those of throttled threads are.
    AsThrottled,
    /// All events, whatever is [`Chosen`].
    Unfiltered,
}

/// Events that are recorded alone.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Those of sockets of TCP and UDP with one of these ports at either end, and of their packets;
    /// at most 256. Empty: all.
    pub ports: Vec<u16>,
    /// Packets at devices with these names, at most 64 of at most 15 bytes. Empty: all.
    pub devices: Vec<String>,
    /// System calls that took this long or longer, ns.
    pub shortest_call_ns: u64,
    /// Sleeps and system calls of threads in cgroups below this one (its number, that of its
    /// folder); 0: all.
    pub cgroup: u64,
}

/// Bytes of a device's name in the kernel, with a zero at its end.
const DEVICE_NAME: usize = 16;

/// Where the messages to or from a port have their number.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// IP's number of the protocol: 6 for TCP, 17 for UDP.
    pub protocol: u8,
    /// The port.
    pub port: u16,
    /// Whether they come from it; else they go to it, which comes first where both hold.
    pub from: bool,
    /// Bytes of the message before it.
    pub offset: u32,
    /// Where it has its length, on a connection; `None`: a message is what a call writes.
    pub length: Option<Length>,
}

/// Where messages have their length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Length {
    /// Bytes of the message before it.
    pub offset: u32,
    /// Bytes of it, 1 to 8.
    pub width: u8,
    /// Whether the most significant one comes first.
    pub big_endian: bool,
    /// Bytes of the message that it does not count.
    pub uncounted: u32,
}

/// Programs that record events of a class in some network namespaces.
pub(crate) struct Programs {
    /// Its programs end when it is dropped.
    ebpf: Ebpf,
    ring: RingBuf<MapData>,
    namespaces: HashMap<MapData, u32, u8>,
    counts: PerCpuArray<MapData, [u64; 2]>,
    /// Where messages have their number, of the classes that look at packets.
    numbers: Option<HashMap<MapData, u32, [u32; 4]>>,
    /// Whether all threads are recorded as throttled ones are, of the class that has those.
    any_thread: Option<Array<MapData, u32>>,
    /// Those that this kernel does not have, and why.
    pub(crate) absent: Vec<(Kind, String)>,
    /// Events that were missed before those that are kept, by name.
    missed_before: BTreeMap<String, u64>,
}

impl Programs {
    /// Loads those of some kinds of a class, with a ring of at least `room` bytes. They record
    /// nothing yet.
    pub(crate) fn load(
        structures: &Structures,
        class: &str,
        kinds: &[Kind],
        room: u64,
        chosen: &Chosen,
    ) -> Result<Programs, ProgramsError> {
        let object = match class {
            SLEEP => SLEEP_OBJECT,
            CALL => CALL_OBJECT,
            TCP => TCP_OBJECT,
            // The drops too.
            _ => UDP_OBJECT,
        };
        if object.is_empty() {
            return Err(ProgramsError::NotBuilt);
        }
        Programs::load_by(structures.get()?, object, kinds, room, chosen)
    }

    /// The same, by a description of the kernel's structures.
    fn load_by(
        btf: &Btf,
        object: &[u8],
        kinds: &[Kind],
        room: u64,
        chosen: &Chosen,
    ) -> Result<Programs, ProgramsError> {
        // Whole pages of any processor, and a power of two.
        let room = room.clamp(64 << 10, 1 << 30).next_power_of_two() as u32;
        let refused = |error: EbpfError| {
            ProgramsError::Refused(match &error {
                // Maps are made in any order, so the first one's name says nothing.
                EbpfError::MapError(MapError::CreateError { io_error, .. }) => io_error.to_string(),
                error => causes(error),
            })
        };
        let mut loader = EbpfLoader::new();
        // Aya makes no handle for memory of threads, which only programs use.
        loader.allow_unsupported_maps();
        let some =
            [&chosen.ports.is_empty(), &chosen.devices.is_empty()].map(|none| u8::from(!none));
        let loader = loader
            .btf(Some(btf))
            .map_max_entries("ring", room)
            .override_global("some_ports", &some[0], false)
            .override_global("some_devices", &some[1], false)
            .override_global("shortest_call", &chosen.shortest_call_ns, false)
            .override_global("run_cgroup", &chosen.cgroup, false);
        let mut ebpf = loader.load(object).map_err(refused)?;
        let mut absent = vec![];
        for &kind in kinds {
            let Some(tracepoint) = kind.tracepoint() else { continue };
            let attached = attach(&mut ebpf, btf, kind.name(), tracepoint);
            let helper = kind.helper().map(|(name, at)| attach(&mut ebpf, btf, name, at));
            match attached.and_then(|()| helper.unwrap_or(Ok(()))) {
                Ok(()) => {}
                Err(ProgramsError::Lacking(why)) => absent.push((kind, why)),
                Err(error) => return Err(error),
            }
        }
        // The program of the one records the other too.
        if let Some((_, why)) = absent.iter().find(|(kind, _)| *kind == Kind::Send)
            && kinds.contains(&Kind::Message)
        {
            absent.push((Kind::Message, why.clone()));
        }
        let mut map = |name: &str| ebpf.take_map(name).expect("the object has this map");
        let (ring, namespaces) = (map("ring").try_into()?, map("namespaces").try_into()?);
        let counts = map("counts").try_into()?;
        let numbers = ebpf.take_map("numbers").map(HashMap::try_from).transpose()?;
        let any_thread = ebpf.take_map("any_thread").map(Array::try_from).transpose()?;
        if let Some(map) = ebpf.map_mut("chosen_ports") {
            let mut ports: HashMap<_, u16, u8> = HashMap::try_from(map)?;
            chosen.ports.iter().try_for_each(|port| ports.insert(port, 1, 0))?;
        }
        if let Some(map) = ebpf.map_mut("chosen_devices") {
            let mut devices: HashMap<_, [u8; DEVICE_NAME], u8> = HashMap::try_from(map)?;
            for device in &chosen.devices {
                let mut name = [0; DEVICE_NAME];
                name.iter_mut().zip(device.bytes()).for_each(|(to, byte)| *to = byte);
                devices.insert(name, 1, 0)?;
            }
        }
        Ok(Programs {
            ebpf,
            ring,
            namespaces,
            counts,
            numbers,
            any_thread,
            absent,
            missed_before: BTreeMap::new(),
        })
    }

    /// The processors that a record may be of.
    pub(crate) fn processors() -> Result<Vec<u32>, ProgramsError> {
        let count =
            nr_cpus().map_err(|(path, e)| ProgramsError::Refused(format!("{path}: {e}")))?;
        Ok((0..count as u32).collect())
    }

    /// Records the numbers of messages too.
    pub(crate) fn number(&mut self, numbers: &[Number]) -> Result<(), ProgramsError> {
        let Some(map) = &mut self.numbers else { return Ok(()) };
        numbers.iter().try_for_each(|each| {
            let way = u32::from(each.from);
            let of = u32::from(each.protocol) << 24 | way << 16 | u32::from(each.port);
            let length = each.length.unwrap_or_default();
            let form = u32::from(length.width) | u32::from(length.big_endian) << 16;
            Ok(map.insert(of, [each.offset, length.offset, form, length.uncounted], 0)?)
        })
    }

    /// Begins to record in these namespaces (their inodes) as well.
    pub(crate) fn measure(&mut self, namespaces: &[u32], how: How) -> Result<(), ProgramsError> {
        if let Some(any) = &mut self.any_thread {
            any.set(0, u32::from(how == How::AsThrottled), 0)?;
        }
        namespaces.iter().try_for_each(|each| Ok(self.namespaces.insert(each, how as u8, 0)?))
    }

    /// Ends recording. What is in the ring can be taken yet.
    pub(crate) fn end(&mut self) -> Result<(), ProgramsError> {
        let measured = self.namespaces.keys().collect::<Result<Vec<u32>, _>>()?;
        measured.iter().try_for_each(|each| Ok(self.namespaces.remove(each)?))
    }

    /// The next record in the ring.
    pub(crate) fn take(&mut self) -> Option<Record> {
        self.ring.next().map(|bytes| Record::of(&bytes).expect("programs write whole records"))
    }

    /// Forgets what was recorded and counted while nothing is.
    pub(crate) fn forget(&mut self) -> Result<(), ProgramsError> {
        while self.ring.next().is_some() {}
        let none = vec![[0; 2]; Programs::processors()?.len()];
        let none =
            PerCpuValues::try_from(none).map_err(|e| ProgramsError::Refused(e.to_string()))?;
        self.missed_before = self.missed();
        Ok(self.counts.set(0, none, 0)?)
    }

    /// What the programs have counted.
    pub(crate) fn counts(&self) -> Result<Counts, ProgramsError> {
        let found = self.counts.get(&0, 0)?;
        Ok((0..)
            .zip(found.iter())
            .map(|(cpu, &[recorded, dropped])| (cpu, (recorded, dropped)))
            .collect())
    }

    /// Events at which a program did not run, because it was running on their processor already;
    /// by name, those of which there are any.
    pub(crate) fn missed(&self) -> BTreeMap<String, u64> {
        let missed = self.ebpf.programs().filter_map(|(name, program)| {
            let fd = program.fd().ok()?.as_fd().as_raw_fd();
            let about = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            let line = about.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?;
            let before = self.missed_before.get(name).copied().unwrap_or_default();
            Some((name.to_owned(), line.trim().parse::<u64>().ok()?.saturating_sub(before)))
        });
        missed.filter(|(_, missed)| *missed > 0).collect()
    }
}

/// Loads a program and puts it on a tracepoint.
pub(super) fn attach(
    ebpf: &mut Ebpf,
    btf: &Btf,
    name: &str,
    tracepoint: &str,
) -> Result<(), ProgramsError> {
    let program = ebpf.program_mut(name).expect("the object has this program");
    let program: Result<&mut BtfTracePoint, ProgramError> = program.try_into();
    let attached = program.and_then(|program| {
        program.load(tracepoint, btf)?;
        program.attach()
    });
    match attached {
        Ok(_) => Ok(()),
        Err(error) => Err(refusal(&error, tracepoint)),
    }
}

/// Why a program was refused: the kernel lacks something that it reads, or lets none in.
fn refusal(error: &ProgramError, tracepoint: &str) -> ProgramsError {
    let lacking = match error {
        ProgramError::Btf(_) => Some(format!("no tracepoint {tracepoint}")),
        ProgramError::LoadError { io_error, verifier_log } => {
            lacking(io_error, &verifier_log.to_string(), tracepoint)
        }
        _ => None,
    };
    lacking.map_or_else(|| ProgramsError::Refused(causes(error)), ProgramsError::Lacking)
}

/// What the kernel lacks, by what its verifier says; `None`: it lets no program in.
fn lacking(error: &io::Error, log: &str, tracepoint: &str) -> Option<String> {
    // Aya calls this function (0xbad2310) where it finds no field, as libbpf does.
    const NO_FUNCTION: &str = "invalid func unknown#195896080";
    // What it counted follows what it says.
    const COUNTED: [&str; 3] = ["verification time ", "stack depth ", "processed "];
    let counted = |line: &str| COUNTED.iter().any(|begin| line.starts_with(begin));
    let said = log.lines().take_while(|line| !counted(line));
    let last = said.filter(|line| !line.trim().is_empty()).last()?;
    if error.raw_os_error() == Some(Errno::EPERM as i32) {
        None
    } else if log.contains(NO_FUNCTION) {
        Some(format!("its structures do not have a field that is read at {tracepoint}"))
    } else {
        Some(format!("its verifier refuses the program at {tracepoint}: {last}"))
    }
}

/// An error and what led to it, in one line.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    // What the kernel's verifier says is long.
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "../../../../tests/skip.rs"]
mod skip;

#[cfg(test)]
mod tests {
    use aya::Endianness;

    use super::super::DROP;
    use super::*;

    /// A kernel without a field says so of the program that reads it, and lets the others in.
    #[test]
    fn a_field_that_the_kernel_does_not_have() {
        let kinds = [Kind::Interruptible, Kind::Throttled];
        if let Err(error) =
            Programs::load(&Structures::default(), SLEEP, &kinds, 0, &Chosen::default())
        {
            skip::skipped(&error.to_string());
            return;
        }
        let programs =
            Programs::load_by(&without("throttled"), SLEEP_OBJECT, &kinds, 0, &Chosen::default())
                .unwrap();
        let why = "its structures do not have a field that is read at sched_switch";
        assert_eq!(programs.absent, [(Kind::Throttled, why.to_owned())]);
    }

    /// A tracepoint that the kernel does not have costs what its program records, and nothing else.
    #[test]
    fn a_tracepoint_that_the_kernel_does_not_have() {
        let kinds = [Kind::Message, Kind::Receive, Kind::Send];
        if let Err(error) =
            Programs::load(&Structures::default(), TCP, &kinds, 0, &Chosen::default())
        {
            skip::skipped(&error.to_string());
            return;
        }
        let btf = without("btf_trace_tcp_sendmsg_locked");
        let programs = Programs::load_by(&btf, TCP_OBJECT, &kinds, 0, &Chosen::default()).unwrap();
        let why = "no tracepoint tcp_sendmsg_locked".to_owned();
        assert_eq!(programs.absent, [(Kind::Send, why.clone()), (Kind::Message, why)]);
    }

    /// A drop is recorded where its tracepoint does not have the socket, which is read nowhere then.
    /// `icmp_send` has three arguments of the same kinds, as `kfree_skb` has before Linux 6.11.
    #[test]
    fn a_tracepoint_with_fewer_arguments() {
        let three = |btf: &Btf| {
            let mut loader = EbpfLoader::new();
            let mut ebpf = loader.allow_unsupported_maps().btf(Some(btf)).load(UDP_OBJECT);
            ebpf.as_mut().map(|ebpf| attach(ebpf, btf, "packet_drop", "icmp_send")).ok()
        };
        if let Err(error) =
            Programs::load(&Structures::default(), DROP, &[Kind::Drop], 0, &Chosen::default())
        {
            skip::skipped(&error.to_string());
            return;
        }
        let older = without("rx_sk");
        assert!(matches!(three(&older), Some(Ok(()))), "{:?}", three(&older));
        let drops = [Kind::Drop];
        let programs = Programs::load_by(&older, UDP_OBJECT, &drops, 0, &Chosen::default());
        assert_eq!(programs.unwrap().absent, []);

        // The verifier says what a program reads that is not there.
        let refused = three(Structures::default().get().unwrap());
        let Some(Err(ProgramsError::Lacking(why))) = refused else { panic!("{refused:?}") };
        let begin = "its verifier refuses the program at icmp_send: ";
        assert!(why.starts_with(begin) && why.contains("bpf_context access off=24"), "{why}");
    }

    /// Another reason than what the kernel has costs all programs.
    #[test]
    fn what_a_refusal_says() {
        let said = |errno, log: &str| {
            lacking(&io::Error::from_raw_os_error(errno as i32), log, "kfree_skb")
        };
        let log = "0: R1=ctx()\nfunc 'kfree_skb' doesn't have 4-th argument\n\
                   verification time 9 usec\nstack depth 0+0\nprocessed 1 insns\n";
        let why = "its verifier refuses the program at kfree_skb: func 'kfree_skb' doesn't have \
                   4-th argument";
        for errno in [Errno::EACCES, Errno::EINVAL] {
            assert_eq!(said(errno, log).unwrap(), why);
        }
        for of_root in [said(Errno::EPERM, ""), said(Errno::EPERM, log), said(Errno::EINVAL, "")] {
            assert_eq!(of_root, None);
        }
    }

    /// The kernel's description of its structures, in which a name is another one.
    fn without(name: &str) -> Btf {
        let mut described = fs::read("/sys/kernel/btf/vmlinux").unwrap();
        let name = [b"\0", name.as_bytes(), b"\0"].concat();
        let places = described.windows(name.len()).enumerate();
        let at: Vec<usize> = places.filter(|(_, each)| *each == name).map(|(at, _)| at).collect();
        assert!(!at.is_empty());
        for at in at {
            described[at + 1] = b'_';
        }
        Btf::parse(&described, Endianness::default()).unwrap()
    }
}
