//! Decides which packets are lost.

use super::random::Stream;
use crate::settings::Loss;

/// A loss as it goes on, packet by packet.
#[derive(Clone, Debug)]
pub(crate) enum Process {
    Never,
    /// Keeps its share and its correlation both: with probability `correlation` a packet has the
    /// fate of the one before.
    Independent {
        probability: f64,
        correlation: f64,
        before: Option<bool>,
    },
    GilbertElliott {
        p: f64,
        r: f64,
        good: f64,
        bad: f64,
        is_bad: bool,
    },
    Periodic {
        every: u64,
        count: u64,
    },
    Trace {
        lost: Vec<bool>,
        next: usize,
    },
}

impl Process {
    /// From its beginning; `trace` is what the file of [`Loss::Trace`] holds.
    pub(crate) fn new(loss: Option<&Loss>, trace: Vec<bool>) -> Process {
        match loss {
            None => Process::Never,
            Some(&Loss::Independent { probability, correlation }) => {
                Process::Independent { probability, correlation, before: None }
            }
            Some(&Loss::GilbertElliott { p, r, good, bad }) => {
                Process::GilbertElliott { p, r, good, bad, is_bad: false }
            }
            Some(&Loss::Periodic { every }) => Process::Periodic { every, count: 0 },
            Some(Loss::Trace { .. }) => Process::Trace { lost: trace, next: 0 },
        }
    }

    /// Counts and files begin anew; chance goes on.
    pub(crate) fn restart(&mut self) {
        match self {
            Process::Periodic { count, .. } => *count = 0,
            Process::Trace { next, .. } => *next = 0,
            Process::Never | Process::Independent { .. } | Process::GilbertElliott { .. } => {}
        }
    }

    /// Whether the next packet is lost.
    pub(crate) fn next(&mut self, random: &mut Stream) -> bool {
        match self {
            Process::Never => false,
            Process::Independent { probability, correlation, before } => {
                let same = *correlation > 0.0 && random.happens(*correlation);
                let fresh = random.happens(*probability);
                let lost = before.filter(|_| same).unwrap_or(fresh);
                *before = Some(lost);
                lost
            }
            Process::GilbertElliott { p, r, good, bad, is_bad } => {
                let lost = random.happens(if *is_bad { *bad } else { *good });
                if random.happens(if *is_bad { *r } else { *p }) {
                    *is_bad = !*is_bad;
                }
                lost
            }
            Process::Periodic { every, count } => {
                *count += 1;
                if *count < *every {
                    return false;
                }
                *count = 0;
                true
            }
            Process::Trace { lost, next } => {
                let fate = lost[*next];
                *next = (*next + 1) % lost.len();
                fate
            }
        }
    }
}
