//! Floors: a word that is polled, with a copy of the bytes; and the kernel's ways to wake a thread.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};
use rustix::thread::futex::{self, Flags};

use crate::Ends;

/// A number in a cache line of its own, and the item after it.
#[repr(align(128))]
struct Line {
    number: AtomicU64,
    counter: AtomicU64,
    rest: [AtomicU64; 512],
}

/// Bytes are copied in before the number is stored, and out after it was seen.
pub fn polled(bytes: usize) -> Ends {
    let line = Arc::new(Line {
        number: AtomicU64::new(0),
        counter: AtomicU64::new(0),
        rest: std::array::from_fn(|_| AtomicU64::new(0)),
    });
    let words = bytes / 8 - 1;
    let reader = Arc::clone(&line);
    Ends {
        sender: Box::new(move || {
            let mut number = 0;
            Box::new(move |counter| {
                number += 1;
                for word in &line.rest[..words] {
                    word.store(counter, Ordering::Relaxed);
                }
                line.counter.store(counter, Ordering::Relaxed);
                line.number.store(number, Ordering::Release);
            })
        }),
        receiver: Box::new(move || {
            let (mut seen, mut copy) = (0, vec![0; words]);
            Box::new(move || {
                let number = reader.number.load(Ordering::Acquire);
                if number == seen {
                    return None;
                }
                seen = number;
                for (place, word) in copy.iter_mut().zip(&reader.rest) {
                    *place = word.load(Ordering::Relaxed);
                }
                std::hint::black_box(&copy);
                Some(reader.counter.load(Ordering::Relaxed))
            })
        }),
    }
}

pub fn futex() -> Ends {
    let line = Arc::new((AtomicU32::new(0), AtomicU64::new(0)));
    let reader = Arc::clone(&line);
    Ends {
        sender: Box::new(move || {
            Box::new(move |counter| {
                line.1.store(counter, Ordering::Relaxed);
                line.0.fetch_add(1, Ordering::Release);
                futex::wake(&line.0, Flags::empty(), 1).unwrap();
            })
        }),
        receiver: Box::new(move || {
            let mut seen = 0;
            Box::new(move || {
                _ = futex::wait(&reader.0, Flags::empty(), seen, None);
                let now = reader.0.load(Ordering::Acquire);
                if now == seen {
                    return None;
                }
                seen = now;
                Some(reader.1.load(Ordering::Relaxed))
            })
        }),
    }
}

pub fn pipe() -> Ends {
    let (mut from, mut to) = std::io::pipe().unwrap();
    Ends {
        sender: Box::new(move || {
            let mut bytes = [0; 64];
            Box::new(move |counter| to.write_all(crate::item(&mut bytes, counter)).unwrap())
        }),
        receiver: Box::new(move || {
            let mut bytes = [0; 64];
            Box::new(move || {
                from.read_exact(&mut bytes).unwrap();
                Some(crate::counter_of(&bytes))
            })
        }),
    }
}

pub fn eventfd() -> Ends {
    let event = Arc::new((EventFd::from_flags(EfdFlags::empty()).unwrap(), AtomicU64::new(0)));
    let reader = Arc::clone(&event);
    Ends {
        sender: Box::new(move || {
            Box::new(move |counter| {
                event.1.store(counter, Ordering::Release);
                event.0.write(1).unwrap();
            })
        }),
        receiver: Box::new(move || {
            Box::new(move || {
                let mut count = [0; 8];
                nix::unistd::read(reader.0.as_fd(), &mut count).unwrap();
                Some(reader.1.load(Ordering::Acquire))
            })
        }),
    }
}
