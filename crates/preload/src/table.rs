//! What the library knows of each descriptor, in one word that is read without a lock.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Descriptors from here on are the kernel's for ever.
const SIZE: usize = 1 << 16;
/// The lowest bits of a word are the kind, and whether it is a socket of UDP. Then come the calls
/// that have transferred data, up to a few, and then the number of threads that are in such a call
/// by the kernel.
const KIND: u32 = 0x7;
const DATAGRAMS: u32 = 0x8;
const CALL: u32 = 1 << 4;
const CALLS: u32 = 0xf0;
const USER: u32 = 1 << 8;

/// How a descriptor is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The kernel's.
    Plain = 0,
    /// A socket of TCP or UDP of this program alone, which may be taken over.
    Candidate = 1,
    /// The stack has its connection, or its datagrams, or is taking them.
    Taken = 2,
    /// A TCP socket that accepts connections.
    Listener = 3,
    /// It accepts connections of another kind.
    Foreign = 4,
    /// The library's own.
    Own = 5,
    /// An instance of epoll that watches, or has watched, sockets that may be the stack's.
    Epoll = 6,
}

impl Kind {
    fn of(word: u32) -> Kind {
        match word & KIND {
            1 => Kind::Candidate,
            2 => Kind::Taken,
            3 => Kind::Listener,
            4 => Kind::Foreign,
            5 => Kind::Own,
            6 => Kind::Epoll,
            _ => Kind::Plain,
        }
    }
}

static WORDS: [AtomicU32; SIZE] = [const { AtomicU32::new(0) }; SIZE];
/// The largest descriptor that was ever more than plain.
static LARGEST: AtomicI32 = AtomicI32::new(-1);

fn word(fd: i32) -> Option<&'static AtomicU32> {
    WORDS.get(usize::try_from(fd).ok()?)
}

/// The kind of a descriptor.
pub(crate) fn kind(fd: i32) -> Kind {
    // Pairs with the store of `set`: who sees `Taken` takes the lock before it uses the connection.
    word(fd).map_or(Kind::Plain, |word| Kind::of(word.load(Ordering::Acquire)))
}

/// Whether calls on a descriptor are the kernel's alone.
#[inline]
pub(crate) fn is_plain(fd: i32) -> bool {
    !matches!(kind(fd), Kind::Candidate | Kind::Taken)
}

/// Changes the kind. The threads that are in a call stay counted. False: there is no place for it.
pub(crate) fn set(fd: i32, kind: Kind) -> bool {
    let Some(word) = word(fd) else { return false };
    if kind != Kind::Plain {
        LARGEST.fetch_max(fd, Ordering::Relaxed);
    }
    let kept = if matches!(kind, Kind::Candidate | Kind::Taken) { 0 } else { DATAGRAMS };
    let new = |old: u32| Some((old & !(KIND | CALLS | kept)) | kind as u32);
    // Pairs with the load of `kind`.
    let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, new);
    true
}

/// Says whether a candidate is a socket of UDP.
pub(crate) fn set_datagrams(fd: i32, is_udp: bool) {
    if let Some(word) = word(fd) {
        // Pairs with the load of `is_datagrams`.
        match is_udp {
            true => word.fetch_or(DATAGRAMS, Ordering::Release),
            false => word.fetch_and(!DATAGRAMS, Ordering::Release),
        };
    }
}

/// Whether a candidate, or one that is taken, is a socket of UDP.
pub(crate) fn is_datagrams(fd: i32) -> bool {
    // Pairs with the store of `set_datagrams`.
    word(fd).is_some_and(|word| word.load(Ordering::Acquire) & DATAGRAMS != 0)
}

/// Begins a call of the kernel: the descriptor is not taken over before [`end`]. `transfers`: the
/// call counts as one that transfers data. False: it is no candidate any more.
///
/// Nothing does that by being dropped: a thread that is cancelled in a call of the kernel unwinds
/// through the frames of this library, which must have nothing to drop. Its descriptor is not taken
/// over any more.
pub(crate) fn begin(fd: i32, transfers: bool) -> bool {
    let new = |old: u32| {
        let more = if transfers && old & CALLS < CALLS { CALL } else { 0 };
        (Kind::of(old) == Kind::Candidate).then(|| old + more + USER)
    };
    // Pairs with `claim`, which finds that there is a user or comes first.
    word(fd).is_some_and(|w| w.fetch_update(Ordering::AcqRel, Ordering::Acquire, new).is_ok())
}

/// Ends a call that was begun.
pub(crate) fn end(fd: i32) {
    if let Some(word) = word(fd) {
        // Pairs with `claim`: the call has ended before the connection is taken.
        word.fetch_sub(USER, Ordering::Release);
    }
}

/// Whether the next call that transfers data is at least the second.
pub(crate) fn is_due(fd: i32) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::Relaxed) & CALLS >= CALL)
}

/// Makes a candidate that nobody uses one that is taken; whether it was one.
pub(crate) fn claim(fd: i32) -> bool {
    let new = |old: u32| {
        let free = Kind::of(old) == Kind::Candidate && old < USER;
        free.then_some((old & !KIND) | Kind::Taken as u32)
    };
    // Pairs with `begin` and `end`.
    word(fd).is_some_and(|w| w.fetch_update(Ordering::AcqRel, Ordering::Acquire, new).is_ok())
}

/// All descriptors that are of a kind now.
pub(crate) fn all(wanted: Kind) -> impl Iterator<Item = i32> {
    (0..=LARGEST.load(Ordering::Relaxed)).filter(move |fd| kind(*fd) == wanted)
}

/// Forgets the calls of other threads, which a process that was forked does not have.
pub(crate) fn forget_users() {
    for fd in 0..=LARGEST.load(Ordering::Relaxed) {
        if let Some(word) = word(fd) {
            word.fetch_and(USER - 1, Ordering::Relaxed);
        }
    }
}
