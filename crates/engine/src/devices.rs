//! The devices of a program: where frames come from, and where they go.

use std::io::{self, IoSlice};

use loopscope_frames::packets::Packets;
use loopscope_frames::{HEADER, Inlet, Offload, Train};
use loopscope_stack::datagram;
use loopscope_stack::packet::{CHECKSUM, Checksums, Flow, Written, set_checksum, write};
use rustix::io::Errno;

/// Bytes of the header of Ethernet.
pub(crate) const ETHERNET: usize = 14;
/// Where the header of IP begins in [`Devices::frame`].
pub(crate) const IP: usize = HEADER + ETHERNET;

#[derive(Debug)]
pub(crate) struct Devices {
    pub(crate) packets: Packets,
    pub(crate) inlet: Inlet,
    /// The frame that is sent, behind room for the device's header.
    pub(crate) frame: Vec<u8>,
}

impl Devices {
    /// Sends a segment, or several of `size` bytes of data.
    #[inline]
    pub(crate) fn send(
        &mut self,
        flow: &Flow,
        segment: &loopscope_stack::Segment<'_>,
        size: usize,
    ) -> io::Result<()> {
        let frame = &mut self.frame;
        let Written { length, tcp, data } =
            write(flow, segment, Checksums::Unfinished, &mut frame[IP..]);
        set_ethernet(frame);
        let train = Train {
            headers: (ETHERNET + data) as u16,
            size: size as u16,
            is_ipv6: flow.to.is_ipv6(),
        };
        let offload = Offload {
            checked: (ETHERNET + tcp) as u16,
            checksum: CHECKSUM as u16,
            train: (segment.payload.len() > size).then_some(train),
        };
        unless_gone(self.inlet.write_behind(&mut frame[..IP + length], Some(offload)))
    }

    pub(crate) fn give_kernel(&mut self, packet: Vec<u8>) -> io::Result<()> {
        give_kernel(&self.inlet, &mut self.frame, &packet)
    }

    /// Gives the kernel a datagram that came, as if it came now.
    pub(crate) fn give_datagram(&mut self, flow: &Flow, payload: &[u8]) -> io::Result<()> {
        let mut packet = vec![0; datagram::MOST_HEADERS + payload.len()];
        let written = datagram::write(flow, &[payload], Checksums::Whole, &mut packet);
        packet.truncate(written.length);
        self.give_kernel(packet)
    }

    /// Sends a datagram. False: the service has ended.
    #[inline]
    pub(crate) fn send_datagram(&mut self, flow: &Flow, parts: &[IoSlice<'_>]) -> io::Result<bool> {
        let frame = &mut self.frame;
        let datagram::Written { length, udp } =
            datagram::write(flow, parts, Checksums::Unfinished, &mut frame[IP..]);
        set_ethernet(frame);
        let offload = Offload {
            checked: (ETHERNET + udp) as u16,
            checksum: datagram::CHECKSUM as u16,
            train: None,
        };
        match self.inlet.write_behind(&mut frame[..IP + length], Some(offload)) {
            Err(error) if is_gone(&error) => Ok(false),
            written => written.map(|()| true),
        }
    }
}

/// Gives the kernel a packet that came, as if it came now.
pub(crate) fn give_kernel(inlet: &Inlet, frame: &mut [u8], packet: &[u8]) -> io::Result<()> {
    // A larger one has no length in its header.
    let Some(frame) = frame.get_mut(..IP + packet.len()) else { return Ok(()) };
    frame[IP..].copy_from_slice(packet);
    // Its sender may have left the checksum to its device.
    if set_checksum(&mut frame[IP..]).is_err() {
        return Ok(());
    }
    set_ethernet(frame);
    unless_gone(inlet.write_behind(frame, None))
}

/// The service that has ended has removed the devices, and taken the connections.
#[inline]
fn unless_gone(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if is_gone(&error) => Ok(()),
        written => written,
    }
}

/// Whether the TAP device was removed.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::BADFD.raw_os_error())
}

/// Sets the header of Ethernet before the IP packet of a frame. The kernel sets its addresses.
#[inline]
fn set_ethernet(frame: &mut [u8]) {
    let is_ipv4 = frame.get(IP).is_some_and(|first| first >> 4 == 4);
    frame[HEADER..IP - 2].fill(0);
    frame[IP - 2..IP].copy_from_slice(if is_ipv4 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
}
