//! Handlers of signals. The library stands before them, to know when a call ends with EINTR, and so
//! that no handler runs in a thread that holds the lock: it runs as soon as the thread has left it.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use libc::{sighandler_t, siginfo_t, ucontext_t};

use crate::{inside, real};

const SIGNALS: usize = 65;
/// Bytes of the kernel's set of signals.
const SET: usize = 8;

/// A handler of the program, and the flags that it was set with. They are stored before the kernel
/// can call [`catch`] for them: the system call between orders them.
struct Handler {
    function: AtomicUsize,
    flags: AtomicI32,
}

static HANDLERS: [Handler; SIGNALS] =
    [const { Handler { function: AtomicUsize::new(0), flags: AtomicI32::new(0) } }; SIGNALS];

/// A signal that came while the thread had the lock. All others are blocked since.
#[derive(Clone, Copy)]
struct Deferred {
    signal: c_int,
    info: siginfo_t,
    mask: [u8; SET],
}

thread_local! {
    /// Handlers that ran in this thread, and those of them after which no call is begun again.
    static RAN: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    /// What a handler writes to, because the thread is about to sleep; or -1.
    static WAKES: Cell<c_int> = const { Cell::new(-1) };
    static IS_DEFERRED: Cell<bool> = const { Cell::new(false) };
    static DEFERRED: Cell<MaybeUninit<Deferred>> = const { Cell::new(MaybeUninit::uninit()) };
}

/// The handlers that had run at an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen((u32, u32));

/// Those that have run in this thread.
pub(crate) fn seen() -> Seen {
    Seen(RAN.get())
}

impl Seen {
    /// Whether one has run since.
    pub(crate) fn has_more(self) -> bool {
        RAN.get().0 != self.0.0
    }

    /// Whether one has run since after which a call that transfers data ends: any, where the call
    /// has a time-out (signal(7)), otherwise one without SA_RESTART.
    pub(crate) fn ends_call(self, has_timeout: bool) -> bool {
        let (all, ending) = RAN.get();
        ending != self.0.1 || (has_timeout && all != self.0.0)
    }
}

/// From now on each handler writes to this descriptor. -1: no more.
pub(crate) fn wakes(event: c_int) {
    WAKES.set(event);
}

/// Does something that must not come back here.
pub(crate) fn outside<R>(act: impl FnOnce() -> R) -> R {
    let was_inside = inside::enter();
    let result = act();
    if !was_inside {
        leave();
    }
    result
}

/// The thread leaves the library. Signals that came meanwhile come now.
pub(crate) fn leave() {
    inside::leave();
    deliver();
}

fn deliver() {
    if !IS_DEFERRED.replace(false) {
        return;
    }
    // SAFETY: `catch` has set it before it has set IS_DEFERRED, and all signals are blocked since.
    let deferred = unsafe { DEFERRED.get().assume_init() };
    let Deferred { signal, info, mask } = deferred;
    // SAFETY: the kernel reads the structure of the signal, and then the mask, of `SET` bytes. The
    // signal is this thread's own.
    unsafe {
        let process = rustix::process::getpid().as_raw_nonzero().get();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        real::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process as usize,
            thread as usize,
            signal as usize,
            (&raw const info) as usize,
            0,
        );
        set_mask(&mask);
    }
}

/// # Safety
/// None but what system calls ask for.
unsafe fn set_mask(mask: &[u8; SET]) {
    // SAFETY: the kernel reads `SET` bytes.
    unsafe {
        real::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK as usize,
            mask.as_ptr() as usize,
            0,
            SET,
            0,
        );
    }
}

/// The handler that the kernel calls.
unsafe extern "C" fn catch(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(handler) = HANDLERS.get(signal as usize) else { return };
    let of_fault = matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL);
    if inside::is_inside() && !of_fault {
        let context = context.cast::<ucontext_t>();
        // SAFETY: the kernel gives both to a handler with SA_SIGINFO. Its mask has `SET` bytes at
        // the beginning of `uc_sigmask`, and is the thread's when the handler returns.
        unsafe {
            let place = (&raw mut (*context).uc_sigmask).cast::<[u8; SET]>();
            DEFERRED.set(MaybeUninit::new(Deferred { signal, info: *info, mask: *place }));
            *place = [0xff; SET];
        }
        IS_DEFERRED.set(true);
        return;
    }
    let flags = handler.flags.load(Ordering::Relaxed);
    let (all, ending) = RAN.get();
    let ends = u32::from(flags & libc::SA_RESTART == 0);
    RAN.set((all.wrapping_add(1), ending.wrapping_add(ends)));
    let wakes = WAKES.get();
    let errno = real::errno();
    if wakes >= 0 {
        // SAFETY: it reads eight bytes that live.
        unsafe { real::write(wakes, (&raw const SOME).cast(), size_of_val(&SOME)) };
    }
    let function = handler.function.load(Ordering::Relaxed);
    if flags & libc::SA_RESETHAND != 0 {
        set_default(signal);
    }
    real::set_errno(errno);
    // SAFETY: the program has set this function as the handler of the signal, of one of two kinds.
    unsafe {
        if flags & libc::SA_SIGINFO != 0 {
            let function: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                std::mem::transmute(function);
            function(signal, info, context);
        } else {
            let function: unsafe extern "C" fn(c_int) = std::mem::transmute(function);
            function(signal);
        }
    }
}

static SOME: u64 = 1;

fn set_default(signal: c_int) {
    // SAFETY: a structure of zeros is one with SIG_DFL, and no other is asked for.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        real::sigaction(signal, &raw const default, std::ptr::null_mut());
    }
}

/// Sets a handler as sigaction(2) does.
///
/// # Safety
/// That of sigaction(2).
pub(crate) unsafe fn set(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let Some(handler) = usize::try_from(signal).ok().and_then(|signal| HANDLERS.get(signal)) else {
        // SAFETY: the caller's.
        return unsafe { real::sigaction(signal, new, old) };
    };
    let before = handler.function.load(Ordering::Relaxed);
    let flags_before = handler.flags.load(Ordering::Relaxed);
    // SAFETY: the caller's, and `ours` lives until it returns.
    unsafe {
        let done = match new.as_ref() {
            Some(new) if !matches!(new.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) => {
                let mut ours = *new;
                let function: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = catch;
                ours.sa_sigaction = function as sighandler_t;
                ours.sa_flags = (new.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
                let theirs = (new.sa_sigaction, new.sa_flags);
                // Before the kernel can call it.
                handler.function.store(theirs.0, Ordering::Relaxed);
                handler.flags.store(theirs.1, Ordering::Relaxed);
                let done = real::sigaction(signal, &raw const ours, old);
                if done != 0 {
                    handler.function.store(before, Ordering::Relaxed);
                    handler.flags.store(flags_before, Ordering::Relaxed);
                }
                done
            }
            _ => real::sigaction(signal, new, old),
        };
        if done == 0
            && let Some(old) = old.as_mut()
            && old.sa_sigaction == catch as *const () as usize
        {
            old.sa_sigaction = before;
            let kept = libc::SA_SIGINFO | libc::SA_RESETHAND;
            old.sa_flags = (old.sa_flags & !kept) | (flags_before & kept);
        }
        done
    }
}

/// Sets a handler as signal(2) does, with these flags.
pub(crate) fn set_simple(signal: c_int, function: sighandler_t, flags: c_int) -> sighandler_t {
    // SAFETY: structures of zeros are valid, and both live until it returns.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = function;
        new.sa_flags = flags;
        if flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&raw mut new.sa_mask, signal);
        }
        let mut old: libc::sigaction = std::mem::zeroed();
        match set(signal, &raw const new, &raw mut old) {
            0 => old.sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }
}
