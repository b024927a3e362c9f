//! What happens when the program forks, executes another one, or ends.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicI32, Ordering};

use crate::descriptor::closes_on_exec;
use crate::{lock, memory, signals, table};

/// The process whose state this is; 0 before it has any. A process that shares the memory for a
/// time (vfork(2)) is another one.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn process() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Whether the state is of this process. Each store is of a process that has just begun.
pub(crate) fn is_ours() -> bool {
    PROCESS.load(Ordering::Relaxed) == process()
}

/// The state is this process's from now on. The caller has the lock, so that a thread that has made
/// a socket after this one finds it so.
pub(crate) fn begin() {
    PROCESS.store(process(), Ordering::Relaxed);
}

/// Has the C library say when the program forks.
pub(crate) fn register() {
    // Before ours: of what comes before a fork, the last that was registered is done first.
    memory::survive_fork();
    // SAFETY: the functions are there for as long as the library is, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// All connections go back, and those that were not taken over are from now on shared. The lock is
/// held across the fork. The helper ends, so that a program with one thread is still one.
unsafe extern "C" fn before() {
    let why = "the program has forked while it had the connection";
    let helper = lock::with(|state| {
        state.is_ending = true;
        state.release_all(why, |_| true);
        state.epolls.clear();
        state.drop_engine();
        state.helper.take()
    });
    if let Some(helper) = helper.flatten() {
        signals::outside(|| helper.end());
    }
    let _ = lock::hold(|state| {
        state.release_all(why, |_| true);
        state.epolls.clear();
    });
}

unsafe extern "C" fn in_parent() {
    lock::release(|state| state.is_ending = false);
}

unsafe extern "C" fn in_child() {
    PROCESS.store(process(), Ordering::Relaxed);
    table::forget_users();
    lock::release(|state| {
        state.is_ending = false;
        state.forget_threads();
    });
}

/// The program closes descriptors that are the library's, or must have one thread alone: all
/// connections go back, and what the library has ends.
pub(crate) fn end_all(why: &str) {
    let helper = lock::with(|state| {
        state.release_all(why, |_| false);
        state.drop_engine();
        state.helper.take()
    });
    if let Some(helper) = helper.flatten() {
        signals::outside(|| helper.end());
    }
}

/// Another program is about to be executed, perhaps in another process: what it could get goes
/// back.
pub(crate) fn before_exec() {
    if is_ours() {
        let why = "the program has executed another one while it had the connection";
        lock::with(|state| state.release_all(why, |fd| !closes_on_exec(fd)));
    }
}

/// The process is about to be copied without a word of the C library, or another program to be
/// executed in one that may get any descriptor.
pub(crate) fn before_copy() {
    if is_ours() {
        lock::with(|state| {
            state.release_all("the program has forked while it had the connection", |_| true);
        });
    }
}

/// The program is about to do what the library does not see, such as with a ring of io_uring(7).
pub(crate) fn before_unseen(why: &'static str) {
    if PROCESS.load(Ordering::Relaxed) == 0 || is_ours() {
        lock::with(|state| {
            state.leaves_all = Some(why);
            state.release_all(why, |_| true);
        });
    }
}

/// The process is about to end.
pub(crate) fn at_end() {
    if is_ours() {
        lock::with(|state| {
            state.is_ending = true;
            state.release_all("the program has ended", |_| true);
            state.explain.end();
        });
    }
}

extern "C" fn ended() {
    at_end();
}

/// The loader calls it when the program ends in the ordinary way, after all that the program has
/// left for that.
#[used]
#[unsafe(link_section = ".fini_array")]
static ENDED: extern "C" fn() = ended;
