//! Flows of a device that go to a program, by programs in the kernel.
//!
//! A program has devices of its own: a pair (veth), and an inlet (TAP). What comes to a device and
//! belongs to one of its flows goes to the near end of the pair, and it finds it at the far end. What
//! it sends by the inlet and is of one of its flows goes out of the device, to the neighbour that the
//! kernel's routes have for it; or to the kernel, with a mark, where it is of the direction of what
//! comes. All else that it sends is dropped. So a program neither sees nor sends what is not its own.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use aya::maps::xdp::{DevMapHash, XdpMapError};
use aya::maps::{HashMap, MapData, MapError};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode};
use aya::{Ebpf, EbpfError};
use loopscope_stack::packet::Flow;
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
    /// A program cannot be put on a device.
    #[error("a program cannot be put on {device}: {source}")]
    Attach {
        /// The name of the device.
        device: String,
        /// Why.
        source: ProgramError,
    },
    /// The pair cannot be where packets go.
    #[error("packets cannot go to {device}: {source}")]
    Pair {
        /// The name of its near end.
        device: String,
        /// Why.
        source: XdpMapError,
    },
    /// The device cannot be looked at.
    #[error("cannot read the Ethernet address of {device}: {source}")]
    Device {
        /// Its name.
        device: String,
        /// Why.
        source: std::io::Error,
    },
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

/// The devices of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// The near end of its pair.
    pub near: Device,
    /// By which it sends.
    pub inlet: Device,
}

/// What came of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Bytes of their payload.
    pub payload: u64,
}

/// Bytes of `struct flow` and of `struct registered` in the programs.
const KEY: usize = 40;
const VALUE: usize = 40;
/// Where `address` and `stopped` are in it.
const ADDRESS: usize = 16;
const STOPPED: usize = ADDRESS + 6;
const TCP: u8 = 6;

/// The programs of a device. They end when it is dropped.
pub struct Diversion {
    device: Device,
    address: [u8; 6],
    ebpf: Ebpf,
    flows: HashMap<MapData, [u8; KEY], [u8; VALUE]>,
    ends: DevMapHash<MapData>,
}

impl fmt::Debug for Diversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diversion").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Diversion {
    /// Puts the program on a device that looks at what comes. No flow is diverted yet.
    ///
    /// Where the device has an XDP program already, it is refused. A veth device loses its
    /// segmentation offload, as the kernel has it for programs that take no fragments.
    pub fn attach(device: Device) -> Result<Diversion, DivertError> {
        if OBJECT.is_empty() {
            return Err(DivertError::NotBuilt);
        }
        let address = address_of(&device.name)?;
        let mut ebpf = Ebpf::load(OBJECT)?;
        let attach = |ebpf: &mut Ebpf| {
            let divert: &mut Xdp = ebpf.program_mut("divert").expect("it is there").try_into()?;
            divert.load()?;
            divert.attach_to_if_index(device.index, XdpMode::Driver)
        };
        attach(&mut ebpf).map_err(|source| error(&device, source))?;
        let leave = ebpf.program_mut("leave").expect("it is there");
        let load = |leave: Result<&mut SchedClassifier, ProgramError>| leave?.load();
        load(leave.try_into()).map_err(|source| error(&device, source))?;
        let mut map = |name: &str| ebpf.take_map(name).expect("the object has this map");
        let (flows, ends) = (map("flows").try_into()?, map("ends").try_into()?);
        Ok(Diversion { device, address, ebpf, flows, ends })
    }

    /// Makes the devices of a program ready: frames go to the pair, and what comes from its far end
    /// or by the inlet is looked at.
    pub fn add(&mut self, own: &Own) -> Result<(), DivertError> {
        let Own { near, inlet } = own;
        self.ends
            .insert(near.index, near.index, None, 0)
            .map_err(|source| DivertError::Pair { device: near.name.clone(), source })?;
        let leave = self.ebpf.program_mut("leave").expect("it is there");
        let mut attach = |device: &Device| {
            let leave: &mut SchedClassifier = leave.try_into()?;
            leave.attach(&device.name, TcAttachType::Ingress)
        };
        for device in [near, inlet] {
            attach(device).map_err(|source| error(device, source))?;
        }
        Ok(())
    }

    /// Diverts a flow of TCP to a program from now on. `flow` is of the packets that come. Those that
    /// the program gives the kernel as if they came have the mark.
    pub fn divert(&mut self, flow: &Flow, own: &Own, mark: u32) -> Result<(), DivertError> {
        let mut value = [0; VALUE];
        let numbers = [own.near.index, own.inlet.index, self.device.index, mark];
        for (to, number) in value.chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_ne_bytes());
        }
        value[ADDRESS..STOPPED].copy_from_slice(&self.address);
        Ok(self.flows.insert(key(flow), value, 0)?)
    }

    /// Leaves what comes of a flow to the kernel again. The program can still send packets of the
    /// flow, also those that it has to give the kernel. What comes in this very moment may be missing
    /// in the counts.
    pub fn stop(&mut self, flow: &Flow) -> Result<(), DivertError> {
        let key = key(flow);
        let mut value = self.flows.get(&key, 0)?;
        value[STOPPED] = 1;
        Ok(self.flows.insert(key, value, 0)?)
    }

    /// Forgets a flow; what came of it. The program can send no more packets of it.
    pub fn forget(&mut self, flow: &Flow) -> Result<Counts, DivertError> {
        let counts = self.counts(flow)?;
        self.flows.remove(&key(flow))?;
        Ok(counts)
    }

    /// What came of a flow so far.
    pub fn counts(&self, flow: &Flow) -> Result<Counts, DivertError> {
        let value = self.flows.get(&key(flow), 0)?;
        let number = |at: usize| u64::from_ne_bytes(value[at..at + 8].try_into().expect("8 bytes"));
        Ok(Counts { packets: number(24), payload: number(32) })
    }
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

fn key(flow: &Flow) -> [u8; KEY] {
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
    (key[36], key[37]) = (TCP, flow.to.is_ipv6().into());
    key
}
