//! Flows of devices that go to a program, by programs in the kernel.
//!
//! A program has a ring (BPF_MAP_TYPE_RINGBUF), and a device, its inlet (TAP). What comes to the
//! machine's device and belongs to one of its flows is copied into the ring, which it has mapped.
//! What it sends by the inlet and is of one of its flows goes out of the device, to the neighbour
//! that the kernel's routes have for it; or to the kernel, with a mark, where it is of the
//! direction of what comes. All else that it sends is dropped. So a program neither sees nor sends
//! what is not its own. A flow is its own for as long as its socket is connected: when that is
//! closed, or connected to another address, the kernel forgets the flow at once. Where the service
//! replaces the socket, it holds the flow meanwhile. That is so for TCP; a flow of UDP is the
//! program's until it is forgotten.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::maps::{HashMap, HashOfMaps, MapData, MapError, SkStorage};
use aya::programs::links::LinkOrder;
use aya::programs::tc::{NlOptions, SchedClassifierLink, TcAttachOptions, qdisc_add_clsact};
use aya::programs::{BtfTracePoint, Program, ProgramError, SchedClassifier, TcAttachType};
use aya::{Btf, BtfError, Ebpf, EbpfError};
use loopscope_stack::packet::{Flow, Protocol};
use nix::ifaddrs::getifaddrs;
use thiserror::Error;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/divert.bpf.o"));

/// Why flows are not diverted.
#[derive(Debug, Error)]
pub enum DivertError {
    /// This build has no programs.
    #[error(
        "loopscope was built without clang, which compiles the kernel's programs: install clang and \
         build it again"
    )]
    NotBuilt,
    /// The programs cannot be loaded.
    #[error("the kernel does not take the programs that divert flows: {0}")]
    Load(#[from] EbpfError),
    /// The kernel does not say which structures it has.
    #[error("the kernel does not describe its structures (/sys/kernel/btf/vmlinux): {0}")]
    Btf(#[from] BtfError),
    /// The sockets' changes cannot be watched.
    #[error("a program cannot watch sockets that are closed: {0}")]
    Watch(ProgramError),
    /// A program cannot be put on a device.
    #[error("a program cannot be put on {device}: {source}")]
    Attach {
        /// The name of the device.
        device: String,
        /// Why.
        source: ProgramError,
    },
    /// A device's packets cannot be looked at.
    #[error("what comes to {device} cannot be looked at (it needs Linux 6.6): {source}")]
    Arrive {
        /// The name of the device.
        device: String,
        /// Why.
        source: ProgramError,
    },
    /// The device cannot be looked at.
    #[error("cannot read the Ethernet address of {device}: {source}")]
    Device {
        /// Its name.
        device: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is diverted already.
    #[error("its packets go to a program already")]
    Diverted,
    /// A map does not take an entry, or has none.
    #[error("the flows of the programs in the kernel: {0}")]
    Map(#[from] MapError),
}

/// A device, by its index and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index (if_nametoindex(3)).
    pub index: u32,
    /// Its name.
    pub name: String,
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its number, which no other one has.
    pub number: u32,
    /// The device by which it sends.
    pub inlet: Device,
}

/// What came of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that the program got.
    pub packets: u64,
    /// Bytes of their payload.
    pub payload: u64,
    /// Packets for which its ring had no room.
    pub lost: u64,
}

/// Bytes of `struct flow` and of `struct registered` in the programs.
const KEY: usize = 40;
const VALUE: usize = 48;
/// Where `address`, `stopped` and `held` are in it.
const ADDRESS: usize = 16;
const STOPPED: usize = ADDRESS + 6;
const HELD: usize = STOPPED + 1;
/// Where the counts are, of 8 bytes each.
const COUNTS: usize = HELD + 1;
/// Bytes of a program's ring, of which its frames take 264 to 65 560 each.
pub const RING: u32 = 1 << 23;
/// linux/bpf.h: refused where there is one, or none.
const BPF_NOEXIST: u64 = 1;
const BPF_EXIST: u64 = 2;
/// The same.
const RINGBUF: u32 = aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_RINGBUF as u32;

/// The programs in the kernel. They end when it is dropped.
pub struct Diversion {
    ebpf: Ebpf,
    flows: HashMap<MapData, [u8; KEY], [u8; VALUE]>,
    of_sockets: SkStorage<MapData, [u8; KEY]>,
    rings: Rings,
    devices: BTreeMap<u32, Attached>,
}

/// A device whose flows may be diverted: its address of Ethernet, and the program on it.
struct Attached {
    address: [u8; 6],
    _link: SchedClassifierLink,
}

/// The rings of programs, by their numbers.
type Rings = Arc<Mutex<HashOfMaps<MapData, u32, MapData>>>;

/// The ring of a program, and what looks at what it sends. It has to live longer than the program's
/// device: without it, what the program sends would not be looked at.
pub struct Installed {
    number: u32,
    ring: MapData,
    rings: Rings,
    _link: SchedClassifierLink,
}

impl fmt::Debug for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installed").field("number", &self.number).finish_non_exhaustive()
    }
}

impl AsFd for Installed {
    /// The ring's.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.fd().as_fd()
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // That it fails means that it is gone.
        let _ = locked(&self.rings).remove(&self.number);
    }
}

impl fmt::Debug for Diversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices: Vec<_> = self.devices.keys().collect();
        f.debug_struct("Diversion").field("devices", &devices).finish_non_exhaustive()
    }
}

impl Diversion {
    /// Loads the programs, for the devices of the network namespace of this thread.
    pub fn load() -> Result<Diversion, DivertError> {
        if OBJECT.is_empty() {
            return Err(DivertError::NotBuilt);
        }
        let btf = Btf::from_sys_fs()?;
        let mut ebpf = Ebpf::load(OBJECT)?;
        let watch = |ebpf: &mut Ebpf| {
            let gone: &mut BtfTracePoint = program(ebpf, "gone")?;
            gone.load("inet_sock_set_state", &btf)?;
            gone.attach().map(drop)
        };
        watch(&mut ebpf).map_err(DivertError::Watch)?;
        for name in ["arrive", "leave"] {
            let load = |ebpf| program::<SchedClassifier>(ebpf, name)?.load();
            load(&mut ebpf).map_err(EbpfError::from)?;
        }
        let mut map = |name: &str| ebpf.take_map(name).expect("the object has this map");
        let (flows, of_sockets) = (map("flows").try_into()?, map("of_sockets").try_into()?);
        let rings = Arc::new(Mutex::new(map("rings").try_into()?));
        Ok(Diversion { ebpf, flows, of_sockets, rings, devices: BTreeMap::new() })
    }

    /// Puts the program on a device that looks at what comes, if it is not there yet. No flow is
    /// diverted yet.
    ///
    /// It ends with this process, also where that is killed.
    pub fn attach(&mut self, device: &Device) -> Result<(), DivertError> {
        if self.devices.contains_key(&device.index) {
            return Ok(());
        }
        let address = address_of(&device.name)?;
        let options = TcAttachOptions::TcxOrder(LinkOrder::first());
        let link = self.classify("arrive", device, TcAttachType::Ingress, options);
        let link = link.map_err(|error| match error {
            DivertError::Attach { device, source } => DivertError::Arrive { device, source },
            error => error,
        })?;
        self.devices.insert(device.index, Attached { address, _link: link });
        Ok(())
    }

    /// Takes the program off a device.
    pub fn detach(&mut self, device: &Device) {
        self.devices.remove(&device.index);
    }

    /// Has one of the programs look at what comes to a device, or is sent by it.
    fn classify(
        &mut self,
        name: &str,
        device: &Device,
        direction: TcAttachType,
        options: TcAttachOptions,
    ) -> Result<SchedClassifierLink, DivertError> {
        let attach = |ebpf: &mut Ebpf| {
            let classifier: &mut SchedClassifier = program(ebpf, name)?;
            let id = classifier.attach_with_options(&device.name, direction, options)?;
            classifier.take_link(id)
        };
        attach(&mut self.ebpf).map_err(|source| error(device, source))
    }

    /// Makes the ring of a program, and has what it sends looked at for as long as its device is
    /// there, also if this process is killed.
    pub fn add(&mut self, own: &Own) -> Result<Installed, DivertError> {
        let Own { number, inlet } = own;
        qdisc_add_clsact(&inlet.name).map_err(|source| error(inlet, source.into()))?;
        let options = TcAttachOptions::Netlink(NlOptions::default());
        let link = self.classify("leave", inlet, TcAttachType::Ingress, options)?;
        let ring = aya_obj::Map::new_from_params(RINGBUF, 0, 0, RING, 0);
        let ring = MapData::create(ring, "arrived", None)?;
        locked(&self.rings).insert(number, &ring, BPF_NOEXIST)?;
        Ok(Installed { number: *number, ring, rings: Arc::clone(&self.rings), _link: link })
    }

    /// Diverts a flow to a program from now on; one of TCP until `socket`, which has it, is closed
    /// or disconnected. Nothing in the kernel tells of that where it is of UDP. `flow` is of the
    /// packets that come, to a device that the program was put on; one that is diverted already is
    /// refused. Those that the program gives the kernel as if they came have the mark.
    pub fn divert(
        &mut self,
        flow: &Flow,
        protocol: Protocol,
        socket: impl AsFd,
        device: &Device,
        own: &Own,
        mark: u32,
    ) -> Result<(), DivertError> {
        let attached = self.devices.get(&device.index).ok_or(MapError::KeyNotFound)?;
        let mut value = [0; VALUE];
        let numbers = [own.number, own.inlet.index, device.index, mark];
        for (to, number) in value.chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_ne_bytes());
        }
        value[ADDRESS..STOPPED].copy_from_slice(&attached.address);
        let key = key(flow, protocol);
        if protocol == Protocol::Tcp {
            // First: a socket that is closed from here on takes its flow along.
            self.of_sockets.insert(&socket.as_fd(), key, 0)?;
        }
        self.flows.insert(key, value, BPF_NOEXIST).map_err(|error| match error {
            MapError::SyscallError(error) if error.io_error.kind() == ErrorKind::AlreadyExists => {
                DivertError::Diverted
            }
            error => error.into(),
        })
    }

    /// Leaves what comes of a flow to the kernel again. The program can still send packets of the
    /// flow, also those that it has to give the kernel. What comes in this very moment may be missing
    /// in the counts.
    pub fn stop(&mut self, flow: &Flow, protocol: Protocol) -> Result<(), DivertError> {
        self.mark(key(flow, protocol), STOPPED, 1).map(drop)
    }

    /// Keeps a flow of TCP although its socket is about to be disconnected, until
    /// [`Diversion::hand_over`] or [`Diversion::forget`]. What comes goes to the program as before;
    /// what the program sends of the flow is dropped. False: the socket was closed or disconnected
    /// before.
    pub fn hold(&mut self, flow: &Flow) -> Result<bool, DivertError> {
        self.mark(key(flow, Protocol::Tcp), HELD, 1)
    }

    /// Gives a flow that is held to another socket, which is connected as the first one was: it is
    /// diverted until that one is closed or disconnected. False: nobody has held it.
    pub fn hand_over(
        &mut self,
        flow: &Flow,
        from: impl AsFd,
        to: impl AsFd,
    ) -> Result<bool, DivertError> {
        let key = key(flow, Protocol::Tcp);
        self.of_sockets.insert(&to.as_fd(), key, 0)?;
        match self.of_sockets.remove(&from.as_fd()) {
            Err(error) if is_missing(&error) => {}
            removed => removed?,
        }
        self.mark(key, HELD, 0)
    }

    /// Sets a byte of a flow's value. False: its socket was closed or disconnected before.
    fn mark(&mut self, key: [u8; KEY], at: usize, byte: u8) -> Result<bool, DivertError> {
        let Some(mut value) = self.find(&key)? else { return Ok(false) };
        value[at] = byte;
        match self.flows.insert(key, value, BPF_EXIST) {
            // Its socket was closed in this moment.
            Err(error) if is_missing(&error) => Ok(false),
            marked => Ok(marked.map(|()| true)?),
        }
    }

    /// Forgets a flow; what came of it. The program can send no more packets of it. None: its socket
    /// was closed or disconnected before.
    pub fn forget(
        &mut self,
        flow: &Flow,
        protocol: Protocol,
    ) -> Result<Option<Counts>, DivertError> {
        let counts = self.counts(flow, protocol)?;
        match self.flows.remove(&key(flow, protocol)) {
            Err(error) if is_missing(&error) => Ok(None),
            forgotten => Ok(forgotten.map(|()| counts)?),
        }
    }

    /// What came of a flow so far. None: it is forgotten.
    pub fn counts(&self, flow: &Flow, protocol: Protocol) -> Result<Option<Counts>, DivertError> {
        Ok(self.find(&key(flow, protocol))?.map(|value| {
            let (counts, _) = value[COUNTS..].as_chunks();
            let [packets, payload, lost] = [0, 1, 2].map(|at| u64::from_ne_bytes(counts[at]));
            Counts { packets, payload, lost }
        }))
    }

    fn find(&self, key: &[u8; KEY]) -> Result<Option<[u8; VALUE]>, DivertError> {
        match self.flows.get(key, 0) {
            Err(error) if is_missing(&error) => Ok(None),
            found => Ok(found.map(Some)?),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a map has no such entry.
fn is_missing(error: &MapError) -> bool {
    match error {
        MapError::KeyNotFound => true,
        MapError::SyscallError(error) => error.io_error.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

/// A program of the object.
fn program<'e, P>(ebpf: &'e mut Ebpf, name: &str) -> Result<&'e mut P, ProgramError>
where
    &'e mut P: TryFrom<&'e mut Program, Error = ProgramError>,
{
    ebpf.program_mut(name).expect("the object has this program").try_into()
}

/// A device's address of Ethernet.
fn address_of(device: &str) -> Result<[u8; 6], DivertError> {
    let system =
        |error: nix::Error| DivertError::Device { device: device.to_owned(), source: error.into() };
    let address = getifaddrs()
        .map_err(system)?
        .filter(|entry| entry.interface_name == device)
        .find_map(|entry| entry.address?.as_link_addr()?.addr());
    address.ok_or_else(|| system(nix::Error::ENODEV))
}

fn error(device: &Device, source: ProgramError) -> DivertError {
    DivertError::Attach { device: device.name.clone(), source }
}

fn key(flow: &Flow, protocol: Protocol) -> [u8; KEY] {
    let mut key = [0; KEY];
    let mut put = |socket: &SocketAddr, address: usize, port: usize| {
        match socket.ip() {
            IpAddr::V4(ip) => key[address..address + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => key[address..address + 16].copy_from_slice(&ip.octets()),
        }
        key[port..port + 2].copy_from_slice(&socket.port().to_be_bytes());
    };
    put(&flow.from, 0, 32);
    put(&flow.to, 16, 34);
    (key[36], key[37]) = (protocol as u8, flow.to.is_ipv6().into());
    key
}
