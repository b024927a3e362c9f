//! How the program's threads wait for what comes (`LOOPSCOPE_STACK_RECEIVE`).

use std::sync::atomic::{AtomicU8, Ordering};

/// How threads wait for what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receive {
    /// They look before they sleep where that has helped.
    Adaptive,
    /// They look until it is there.
    Spin,
    /// They sleep at once.
    Block,
}

impl Receive {
    /// How a word asks for it (`LOOPSCOPE_STACK_RECEIVE`); no word asks for nothing.
    pub(crate) fn parse(word: &str) -> Result<Receive, String> {
        match word {
            "" | "adaptive" => Ok(Receive::Adaptive),
            "spin" => Ok(Receive::Spin),
            "block" => Ok(Receive::Block),
            _ => {
                Err(format!("LOOPSCOPE_STACK_RECEIVE is {word:?}, and not adaptive, spin or block"))
            }
        }
    }
}

/// It is set before any connection is taken over.
static RECEIVE: AtomicU8 = AtomicU8::new(Receive::Adaptive as u8);

/// Threads wait so from now on.
pub(crate) fn set(receive: Receive) {
    RECEIVE.store(receive as u8, Ordering::Relaxed);
}

/// How threads wait.
pub(crate) fn get() -> Receive {
    let word = RECEIVE.load(Ordering::Relaxed);
    let of = |receive: &Receive| *receive as u8 == word;
    [Receive::Spin, Receive::Block].into_iter().find(of).unwrap_or(Receive::Adaptive)
}
