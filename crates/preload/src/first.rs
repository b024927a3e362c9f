//! Functions before which a connection goes back to the kernel. Each is a few instructions that
//! keep all arguments, also those of an ellipsis, and go on with the C library's function.
#![allow(unsafe_code)]

use std::arch::naked_asm;
use std::ffi::{CStr, c_int, c_uint, c_void};

use crate::explain::CLOSED;
use crate::real::{self, Found};
use crate::state::State;
use crate::table::{self, Kind};
use crate::{entry, explain, fork, inside, lock};

/// Why nothing is taken over where the library would not see that a connection is ready.
const WAITS: &str = "the program waits by system calls without the C library";

/// What goes back before a function.
#[derive(Clone, Copy)]
enum What {
    /// The descriptors that are these arguments.
    Arguments(&'static [usize]),
    /// The first argument; and the second one is closed.
    Replaced,
    /// The descriptor that begins a structure of aio(7).
    Aio,
    /// All that a program gets which is executed.
    Exec,
    /// All, also those that could be taken over.
    Copy,
    /// All, and the helper ends: the kernel asks for a process with one thread.
    Alone,
    /// All: the process ends.
    End,
    /// It depends on the number of the system call.
    Syscall,
}

/// A function has the registers of its first arguments, and those of floating point. `hook` tells
/// with which function to go on.
macro_rules! before {
    ($($number:literal $name:ident $what:expr;)*) => {
        static NAMES: &[(&CStr, What)] = &[$((
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            },
            $what,
        )),*];
        static FOUND: [Found; NAMES.len()] = [const { Found::new() }; NAMES.len()];
        $(
            #[cfg(target_arch = "x86_64")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name() {
                naked_asm!(
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9",
                    "push rax",
                    "sub rsp, 128",
                    "movups [rsp], xmm0", "movups [rsp + 16], xmm1",
                    "movups [rsp + 32], xmm2", "movups [rsp + 48], xmm3",
                    "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5",
                    "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
                    "mov r8, rcx", "mov rcx, rdx", "mov rdx, rsi", "mov rsi, rdi",
                    "mov edi, {number}",
                    "call {hook}",
                    "mov r11, rax",
                    "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]",
                    "movups xmm2, [rsp + 32]", "movups xmm3, [rsp + 48]",
                    "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]",
                    "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
                    "add rsp, 128",
                    "pop rax",
                    "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "jmp r11",
                    number = const $number,
                    hook = sym hook,
                )
            }

            #[cfg(target_arch = "aarch64")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name() {
                naked_asm!(
                    "stp x29, x30, [sp, #-224]!",
                    "mov x29, sp",
                    "stp x0, x1, [sp, #16]", "stp x2, x3, [sp, #32]",
                    "stp x4, x5, [sp, #48]", "stp x6, x7, [sp, #64]",
                    "str x8, [sp, #80]",
                    "stp q0, q1, [sp, #96]", "stp q2, q3, [sp, #128]",
                    "stp q4, q5, [sp, #160]", "stp q6, q7, [sp, #192]",
                    "mov x4, x3", "mov x3, x2", "mov x2, x1", "mov x1, x0",
                    "mov w0, {number}",
                    "bl {hook}",
                    "mov x16, x0",
                    "ldp q0, q1, [sp, #96]", "ldp q2, q3, [sp, #128]",
                    "ldp q4, q5, [sp, #160]", "ldp q6, q7, [sp, #192]",
                    "ldr x8, [sp, #80]",
                    "ldp x0, x1, [sp, #16]", "ldp x2, x3, [sp, #32]",
                    "ldp x4, x5, [sp, #48]", "ldp x6, x7, [sp, #64]",
                    "ldp x29, x30, [sp], #224",
                    "br x16",
                    number = const $number,
                    hook = sym hook,
                )
            }
        )*

        /// That the numbers are the places.
        const _: () = {
            let numbers: &[usize] = &[$($number),*];
            let mut at = 0;
            while at < numbers.len() {
                assert!(numbers[at] == at);
                at += 1;
            }
        };
    };
}

use What::{Aio, Alone, Arguments, Copy as All, End, Exec, Replaced, Syscall};

before! {
    0 pread Arguments(&[0]);
    1 pread64 Arguments(&[0]);
    2 pwrite Arguments(&[0]);
    3 pwrite64 Arguments(&[0]);
    4 preadv Arguments(&[0]);
    5 preadv64 Arguments(&[0]);
    6 pwritev Arguments(&[0]);
    7 pwritev64 Arguments(&[0]);
    8 preadv2 Arguments(&[0]);
    9 preadv64v2 Arguments(&[0]);
    10 pwritev2 Arguments(&[0]);
    11 pwritev64v2 Arguments(&[0]);
    12 __pread_chk Arguments(&[0]);
    13 __pread64_chk Arguments(&[0]);
    14 shutdown Arguments(&[0]);
    15 connect Arguments(&[0]);
    16 bind Arguments(&[0]);
    17 sockatmark Arguments(&[0]);
    18 fdopen Arguments(&[0]);
    19 dprintf Arguments(&[0]);
    20 vdprintf Arguments(&[0]);
    21 __dprintf_chk Arguments(&[0]);
    22 __vdprintf_chk Arguments(&[0]);
    23 dup Arguments(&[0]);
    24 dup2 Replaced;
    25 dup3 Replaced;
    26 __dup2 Replaced;
    27 splice Arguments(&[0, 2]);
    28 tee Arguments(&[0, 1]);
    29 vmsplice Arguments(&[0]);
    30 aio_read Aio;
    31 aio_read64 Aio;
    32 aio_write Aio;
    33 aio_write64 Aio;
    34 lio_listio All;
    35 lio_listio64 All;
    36 execve Exec;
    37 execv Exec;
    38 execvp Exec;
    39 execvpe Exec;
    40 execl Exec;
    41 execle Exec;
    42 execlp Exec;
    43 fexecve Exec;
    44 execveat Exec;
    45 posix_spawn All;
    46 posix_spawnp All;
    47 system Exec;
    48 popen Exec;
    49 vfork Exec;
    50 __vfork Exec;
    51 clone All;
    52 __clone All;
    53 _Fork All;
    54 _exit End;
    55 _Exit End;
    56 quick_exit End;
    57 syscall Syscall;
    58 unshare Alone;
    59 setns Alone;
}

/// Does what is to be done before a function, and tells where that is.
extern "C" fn hook(
    number: u32,
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
) -> *mut c_void {
    let (name, what) = NAMES[number as usize];
    let given = [first, second, third, fourth];
    let errno = real::errno();
    if !inside::is_inside() {
        act(what, given, name);
    }
    real::set_errno(errno);
    FOUND[number as usize].get(name)
}

fn act(what: What, given: [usize; 4], name: &CStr) {
    match what {
        Arguments(places) => {
            for place in places {
                give_back(given[*place] as c_int, name);
            }
        }
        Replaced => {
            let [old, new, ..] = given.map(|fd| fd as c_int);
            give_back(old, name);
            if old != new {
                // The call may fail.
                replaced(new, |state| state.release(new, CLOSED));
            }
        }
        Aio => {
            // SAFETY: the caller gives a structure that begins with a descriptor, or nothing.
            let fd = unsafe { (given[0] as *const c_int).as_ref() };
            fd.into_iter().for_each(|fd| give_back(*fd, name));
        }
        Exec => fork::before_exec(),
        All => fork::before_copy(),
        Alone if fork::is_ours() => fork::end_all("the program has to have one thread"),
        Alone => {}
        End => fork::at_end(),
        Syscall => act_before_call(given, name),
    }
}

/// The same for a system call by its number, `given[0]`.
fn act_before_call(given: [usize; 4], name: &CStr) {
    let [number, arguments @ ..] = given;
    // Architectures that are newer than x86_64 do not have these system calls.
    #[cfg(target_arch = "x86_64")]
    match number as i64 {
        libc::SYS_fork | libc::SYS_vfork => return fork::before_copy(),
        libc::SYS_dup2 => return act(Replaced, [arguments[0], arguments[1], 0, 0], name),
        libc::SYS_poll | libc::SYS_select | libc::SYS_epoll_wait => {
            return fork::before_unseen(WAITS);
        }
        _ => {}
    }
    match number as i64 {
        libc::SYS_clone | libc::SYS_clone3 => fork::before_copy(),
        libc::SYS_io_uring_setup => fork::before_unseen("the program uses io_uring"),
        libc::SYS_ppoll
        | libc::SYS_pselect6
        | libc::SYS_epoll_ctl
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2 => fork::before_unseen(WAITS),
        libc::SYS_execve | libc::SYS_execveat => fork::before_exec(),
        libc::SYS_exit_group => fork::at_end(),
        libc::SYS_close => {
            let fd = arguments[0] as c_int;
            replaced(fd, |state| state.close(fd));
        }
        libc::SYS_close_range => {
            let [first, last, flags] = arguments;
            entry::before_close_range(first as c_uint, last as c_uint, flags as c_int);
        }
        libc::SYS_dup3 => act(Replaced, [arguments[0], arguments[1], 0, 0], name),
        libc::SYS_splice => {
            [arguments[0], arguments[2]].into_iter().for_each(|fd| give_back(fd as c_int, name));
        }
        libc::SYS_sendfile | libc::SYS_tee => {
            arguments[..2].iter().for_each(|fd| give_back(*fd as c_int, name));
        }
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2
        | libc::SYS_recvfrom
        | libc::SYS_sendto
        | libc::SYS_recvmsg
        | libc::SYS_sendmsg
        | libc::SYS_recvmmsg
        | libc::SYS_sendmmsg
        | libc::SYS_shutdown
        | libc::SYS_dup
        | libc::SYS_fcntl
        | libc::SYS_ioctl
        | libc::SYS_setsockopt
        | libc::SYS_getsockopt => give_back(arguments[0] as c_int, name),
        _ => {}
    }
}

/// The kernel has a descriptor's connection from now on.
pub(crate) fn give_back(fd: c_int, name: &CStr) {
    if table::is_plain(fd) {
        return;
    }
    if fork::is_ours() {
        lock::with(|state| {
            let why = format!("{}()", name.to_string_lossy());
            // A candidate is connected, and named, before it has a connection.
            if state.has(fd) || !matches!(name.to_bytes(), b"connect" | b"bind") {
                state.release(fd, &why);
            }
        });
    } else if table::kind(fd) == Kind::Candidate {
        // A process that shares the memory, before it executes a program, which may get it.
        table::set(fd, Kind::Plain);
    }
}

/// A descriptor is about to be closed, because another one takes its number, or by a system call.
fn replaced(fd: c_int, give_back: impl FnOnce(&mut State)) {
    let is_known =
        || explain::is_asked_for() && lock::with(|state| state.explain.knows(fd)) == Some(true);
    if !fork::is_ours() || table::kind(fd) == Kind::Plain && !is_known() {
        return;
    }
    if table::kind(fd) == Kind::Own {
        fork::end_all("the program has closed the library's descriptors");
    }
    lock::with(|state| {
        state.epolls.closing(fd);
        give_back(state);
        state.explain.closing(fd);
        table::set(fd, Kind::Plain);
    });
}
