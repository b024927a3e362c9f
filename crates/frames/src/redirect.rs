//! The XDP program that hands a device's frames to an AF_XDP socket, by the bpf system call.
//!
//! Before each frame it writes when it ran: the time at which the frame came, on CLOCK_MONOTONIC,
//! however late the mover looks. Its link holds it on the device for as long as the descriptor is
//! open, so that nothing is left of a killed router.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Bytes of the stamp before a frame.
pub const STAMP: usize = 8;

// linux/bpf.h: commands of the system call, types and flags.
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    /// Source in the upper half, destination in the lower.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(
    code: u8,
    destination: u8,
    source: u8,
    offset: i16,
    immediate: i32,
) -> Instruction {
    Instruction { code, registers: source << 4 | destination, offset, immediate }
}

/// ```text
/// int redirect(struct xdp_md *ctx) {
///     if (!bpf_xdp_adjust_meta(ctx, -8)) {
///         __u64 *stamp = (void *)(long)ctx->data_meta;
///         if ((void *)(stamp + 1) <= (void *)(long)ctx->data)
///             *stamp = bpf_ktime_get_ns();
///     }
///     return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_DROP);
/// }
/// ```
fn program(map: &OwnedFd) -> [Instruction; 17] {
    const MOVE: u8 = 0xbf;
    const MOVE_CONSTANT: u8 = 0xb7;
    const ADD_CONSTANT: u8 = 0x07;
    const LOAD_32: u8 = 0x61;
    const STORE_64: u8 = 0x7b;
    const LOAD_CONSTANT_64: u8 = 0x18;
    const JUMP_IF_NOT: u8 = 0x55;
    const JUMP_IF_GREATER: u8 = 0x2d;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const ADJUST_META: i32 = 54;
    const KTIME_GET_NS: i32 = 5;
    const REDIRECT_MAP: i32 = 51;
    const XDP_DROP: i32 = 1;
    /// Says that the constant is a map's descriptor.
    const PSEUDO_MAP_FD: u8 = 1;
    // Offsets in struct xdp_md.
    const DATA: i16 = 0;
    const DATA_META: i16 = 8;
    const RX_QUEUE_INDEX: i16 = 16;
    [
        instruction(MOVE, 6, 1, 0, 0),
        instruction(MOVE_CONSTANT, 2, 0, 0, -(STAMP as i32)),
        instruction(CALL, 0, 0, 0, ADJUST_META),
        instruction(JUMP_IF_NOT, 0, 0, 7, 0),
        instruction(LOAD_32, 7, 6, DATA_META, 0),
        instruction(LOAD_32, 2, 6, DATA, 0),
        instruction(MOVE, 3, 7, 0, 0),
        instruction(ADD_CONSTANT, 3, 0, 0, STAMP as i32),
        instruction(JUMP_IF_GREATER, 3, 2, 2, 0),
        instruction(CALL, 0, 0, 0, KTIME_GET_NS),
        instruction(STORE_64, 7, 0, 0, 0),
        instruction(LOAD_CONSTANT_64, 1, PSEUDO_MAP_FD, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        instruction(LOAD_32, 2, 6, RX_QUEUE_INDEX, 0),
        instruction(MOVE_CONSTANT, 3, 0, 0, XDP_DROP),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

/// A program on a device; dropping it takes the program off.
#[derive(Debug)]
pub struct Redirect {
    _link: OwnedFd,
}

impl Redirect {
    /// Has all frames that come to device `index`, of one queue, handed to `socket`. Refused where
    /// the device has an XDP program already.
    pub fn attach(index: u32, socket: BorrowedFd<'_>) -> io::Result<Redirect> {
        let map = create_map()?;
        put(&map, socket)?;
        let program = load(&map)?;
        #[repr(C)]
        struct Link {
            program: u32,
            device: u32,
            kind: u32,
            flags: u32,
        }
        let (program, kind) = (program.as_raw_fd().cast_unsigned(), BPF_XDP);
        let link = bpf(BPF_LINK_CREATE, &Link { program, device: index, kind, flags: 0 })?;
        // SAFETY: just made, and nobody else knows it.
        Ok(Redirect { _link: unsafe { OwnedFd::from_raw_fd(link) } })
    }
}

/// Has the kernel take the program, and puts it on nothing.
pub fn try_out() -> io::Result<()> {
    load(&create_map()?).map(drop)
}

fn create_map() -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Map {
        kind: u32,
        key_size: u32,
        value_size: u32,
        entries: u32,
    }
    let map = Map { kind: BPF_MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, entries: 1 };
    let map = bpf(BPF_MAP_CREATE, &map)?;
    // SAFETY: just made, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(map) })
}

/// The socket of queue 0.
fn put(map: &OwnedFd, socket: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Element {
        map: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let (queue, value) = (0_u32, socket.as_raw_fd().cast_unsigned());
    let element = Element {
        map: map.as_raw_fd().cast_unsigned(),
        padding: 0,
        key: &raw const queue as u64,
        value: &raw const value as u64,
        flags: 0,
    };
    bpf(BPF_MAP_UPDATE_ELEM, &element).map(drop)
}

fn load(map: &OwnedFd) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Program {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
    }
    let instructions = program(map);
    // The license of this file; none of the functions that it calls requires another.
    let license = c"MIT OR Apache-2.0";
    let program = Program {
        kind: BPF_PROG_TYPE_XDP,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    let program = bpf(BPF_PROG_LOAD, &program)?;
    // SAFETY: just made, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}

/// The system call; `attributes` is the part of `union bpf_attr` that the command reads, and what
/// it points to lives where the caller made it. Returns a descriptor or 0.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads size_of::<T>() bytes of `attributes` and takes what is missing of
    // the union as 0. The commands used here write nothing to it, and read behind its pointers what
    // their callers keep alive during the call: a key, a value, instructions, a text with its NUL.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}
