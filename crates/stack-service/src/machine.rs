//! What is the machine's: the programs in the kernel, and the devices of programs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use loopscope_divert::{Counts, Device, Diversion, Installed, Own};
use loopscope_frames::Inlet;
use loopscope_netlink::{Connection, index, up};
use loopscope_stack::packet::{Flow, Protocol};
use loopscope_takeover::{Successor, datagrams_of, flow_of, mtu_of, namespace_of};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::if_indextoname;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::MachineError;
use crate::keeper::Keeper;
use crate::undo::delete;

/// Packets that come to a frozen socket have it where they come from the program.
pub(crate) const MARK: u32 = 0x6c73;

/// The network namespace that the service serves.
pub(crate) struct Machine {
    namespace: u64,
    pub(crate) keeper: Keeper,
    /// The numbers of the last program and of the last connection.
    programs: AtomicU64,
    connections: AtomicU64,
    kernel: Mutex<Kernel>,
}

struct Kernel {
    diversion: Diversion,
    /// How many connections are diverted from which device.
    used: BTreeMap<u32, usize>,
}

/// A connection whose packets go to a program.
#[derive(Debug)]
pub(crate) struct Diverted {
    pub(crate) flow: Flow,
    pub(crate) protocol: Protocol,
    device: Device,
}

impl Diverted {
    /// The device that its packets come from.
    pub(crate) fn device(&self) -> &str {
        &self.device.name
    }
}

/// The ring of a program, and the device by which it sends.
#[derive(Debug)]
pub(crate) struct Devices {
    pub(crate) own: Own,
    pub(crate) inlet: Inlet,
    /// It has the ring. The last one to end.
    pub(crate) installed: Installed,
}

impl Machine {
    pub(crate) fn new(keeper: Keeper) -> Result<Machine, MachineError> {
        let system = |what| move |source| MachineError::System { what, source };
        let any = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
        let any = any.map_err(|errno| system("cannot make a socket")(errno.into()))?;
        let namespace = namespace_of(&any).map_err(system(
            "the kernel does not tell the network namespace of a socket (it needs Linux 5.14)",
        ))?;
        let diversion = Diversion::load()?;
        let kernel = Kernel { diversion, used: BTreeMap::new() };
        let (programs, connections) = (AtomicU64::new(0), AtomicU64::new(0));
        let kernel = Mutex::new(kernel);
        Ok(Machine { namespace, keeper, programs, connections, kernel })
    }

    /// A number that no other program has.
    pub(crate) fn program(&self) -> u64 {
        self.programs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A number that no other connection has.
    pub(crate) fn connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes the ring and the device of the program with this number.
    pub(crate) fn devices(&self, program: u64) -> Result<Devices, MachineError> {
        let inlet = Inlet::make("lsi%d").map_err(MachineError::Devices)?;
        self.keeper.inlet(program, &inlet).map_err(MachineError::Keeper)?;
        let index = index(inlet.name()).map_err(MachineError::Devices)?;
        let device = Device { index, name: inlet.name().to_owned() };
        // None of those that are there has the number of one that ended so many ago.
        let own = Own { number: program as u32, inlet: device };
        // From here on what the program sends is looked at.
        let installed = self.kernel().diversion.add(&own)?;
        let devices = Devices { own, inlet, installed };
        let ready = || Connection::open()?.make(up(devices.inlet.name()));
        ready().map_err(MachineError::Devices)?;
        Ok(devices)
    }

    /// Has the program on the device with this address from now on, also while it has no connection.
    pub(crate) fn prepare(&self, address: IpAddr) -> Result<(), MachineError> {
        let system = |what| move |source| MachineError::System { what, source };
        let mut every = getifaddrs()
            .map_err(|errno| system("cannot ask for the machine's addresses")(errno.into()))?;
        let has = |each: &InterfaceAddress| {
            let known = each.address.as_ref()?;
            let v4 = known.as_sockaddr_in().map(|known| IpAddr::V4(known.ip()));
            v4.or_else(|| known.as_sockaddr_in6().map(|known| IpAddr::V6(known.ip())))
        };
        let Some(found) = every.find(|each| has(each) == Some(address)) else {
            return Err(MachineError::Refused(format!("no device has the address {address}")));
        };
        let name = found.interface_name;
        let index = index(&name).map_err(system("cannot ask for a device's number"))?;
        let device = Device { index, name };
        let kernel = &mut *self.kernel();
        kernel.diversion.attach(&device)?;
        *kernel.used.entry(device.index).or_default() += 1;
        Ok(())
    }

    /// The flow of a socket's connection, if the service could have its packets.
    pub(crate) fn flow_of(
        &self,
        socket: &OwnedFd,
        protocol: Protocol,
    ) -> Result<Flow, MachineError> {
        let system = |what| move |source| MachineError::System { what, source };
        let namespace =
            namespace_of(socket).map_err(system("cannot ask for the socket's namespace"))?;
        if namespace != self.namespace {
            let why = "its socket is in another network namespace than the service";
            return Err(MachineError::Refused(why.to_owned()));
        }
        Ok(match protocol {
            Protocol::Tcp => flow_of(socket)?,
            Protocol::Udp => datagrams_of(socket)?,
        })
    }

    /// The device that the packets of a flow come from, and go to.
    pub(crate) fn device_of(
        &self,
        flow: &Flow,
        protocol: Protocol,
    ) -> Result<Device, MachineError> {
        let system = |what| move |source| MachineError::System { what, source };
        let refused = |why: &str| MachineError::Refused(why.to_owned());
        let route = Connection::open()
            .and_then(|mut netlink| netlink.route(flow.to.ip(), flow.from.ip()))
            .map_err(system("cannot ask for the route to the other end"))?;
        if route.is_local {
            return Err(refused("the other end is on this machine, without a device between"));
        }
        if protocol == Protocol::Udp && !route.is_unicast {
            return Err(refused("the other end is not one host"));
        }
        let name = if_indextoname(route.link)
            .map_err(|errno| system("cannot ask for a device's name")(errno.into()))?;
        Ok(Device { index: route.link, name: name.to_string_lossy().into_owned() })
    }

    /// Bytes of the largest packet of a device, with the header of IP.
    pub(crate) fn mtu_of(&self, socket: &OwnedFd, device: &Device) -> Result<usize, MachineError> {
        let what = "cannot ask for the device's largest packet";
        mtu_of(socket, &device.name).map_err(|source| MachineError::System { what, source })
    }

    /// Has the packets of a socket's connection, which come from this device, go to a program from
    /// now on.
    pub(crate) fn divert(
        &self,
        flow: Flow,
        protocol: Protocol,
        socket: &OwnedFd,
        device: Device,
        devices: &Devices,
    ) -> Result<Diverted, MachineError> {
        let kernel = &mut *self.kernel();
        kernel.diversion.attach(&device)?;
        *kernel.used.entry(device.index).or_default() += 1;
        let own = &devices.own;
        if let Err(error) = kernel.diversion.divert(&flow, protocol, socket, &device, own, MARK) {
            kernel.release(&device)?;
            return Err(error.into());
        }
        let diverted = Diverted { flow, protocol, device };
        // The socket may have been connected to another address meanwhile, before it was watched.
        match flow_of(socket) {
            Ok(found) if found == flow => Ok(diverted),
            other => {
                kernel.forget(diverted)?;
                other?;
                Err(MachineError::Refused("its socket is in use at the same time".to_owned()))
            }
        }
    }

    /// Leaves what comes of a connection to the kernel again.
    pub(crate) fn stop(&self, flow: &Flow, protocol: Protocol) -> Result<(), MachineError> {
        Ok(self.kernel().diversion.stop(flow, protocol)?)
    }

    /// Keeps the flow of a connection whose socket is about to be disconnected. False: it was
    /// already.
    pub(crate) fn hold(&self, flow: &Flow) -> Result<bool, MachineError> {
        Ok(self.kernel().diversion.hold(flow)?)
    }

    /// Gives a flow that is held to the socket that goes on with the connection.
    pub(crate) fn hand_over(
        &self,
        flow: &Flow,
        from: &OwnedFd,
        to: &Successor,
    ) -> Result<(), MachineError> {
        let diversion = &mut self.kernel().diversion;
        diversion.hand_over(flow, from, to)?;
        // The kernel did not forget the flow while it was held.
        if to.is_closed()? {
            diversion.forget(flow, Protocol::Tcp)?;
        }
        Ok(())
    }

    /// No socket has a flow that is held: nothing of it is the program's any more.
    pub(crate) fn lose(&self, flow: &Flow) -> Result<(), MachineError> {
        Ok(self.kernel().diversion.forget(flow, Protocol::Tcp).map(drop)?)
    }

    /// Forgets a connection; what came of it, unless its socket was closed or disconnected.
    pub(crate) fn forget(&self, diverted: Diverted) -> Result<Option<Counts>, MachineError> {
        self.kernel().forget(diverted)
    }

    /// What came of a connection so far. None: its socket was closed or disconnected.
    pub(crate) fn counts(&self, diverted: &Diverted) -> Result<Option<Counts>, MachineError> {
        let Diverted { flow, protocol, .. } = diverted;
        Ok(self.kernel().diversion.counts(flow, *protocol)?)
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kernel {
    fn forget(&mut self, diverted: Diverted) -> Result<Option<Counts>, MachineError> {
        let Diverted { flow, protocol, device } = diverted;
        let counts = self.diversion.forget(&flow, protocol)?;
        self.release(&device)?;
        Ok(counts)
    }

    /// One connection less is diverted from a device.
    fn release(&mut self, device: &Device) -> Result<(), MachineError> {
        if let Some(used) = self.used.get_mut(&device.index) {
            *used -= 1;
            if *used == 0 {
                self.used.remove(&device.index);
                self.diversion.detach(device);
            }
        }
        Ok(())
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // Before the program on it ends. That it fails means that it is gone.
        let _ = delete(self.inlet.name());
    }
}
