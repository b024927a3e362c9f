//! Assigns a run's messages to epochs in which the assumption of [`crate::offline`] holds; messages
//! that fit into no epoch are listed.
//!
//! Messages are taken in the order of time as long as a mean rate suits them all. One that no mean
//! suits is *rejected* if those after it suit the earlier ones: its stamps are wrong. So is one of
//! the earlier ones, if all goes on well without it. Otherwise a clock was disturbed: an epoch
//! ends. When exactly nobody can tell; it was before the message that contradicts the earlier ones,
//! and, by the same pass backwards in time, after the message that contradicts the later ones.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::constraint::{Constraint, Way};
use crate::rate::{RateRange, Suspects};

/// Messages after a contradiction that are asked who is wrong.
const WITNESSES: usize = 64;
/// The number of them that must agree, in each direction, for each one that does not.
const AGREEING: usize = 3;
/// So many rejected ones of one direction among [`CROWD_AMONG`] messages are a disturbance.
const CROWD: usize = 8;
const CROWD_AMONG: usize = 256;
/// At least so many messages after a disturbance are asked when it was.
const BACKWARD: usize = 512;

/// The numbers of the messages that surely are of each epoch, in the order of time, and those of
/// rejected messages. `all` by ascending `x`; `wander` in nanoseconds a tick.
pub(crate) fn split(all: &[Constraint], wander: f64) -> (Vec<Range<usize>>, BTreeSet<usize>) {
    let mut rejected = BTreeSet::new();
    let mut begins = vec![0];
    loop {
        let begin = begins[begins.len() - 1];
        let fits = agreeing(&all[begin..], wander);
        rejected.extend(fits.rejected.iter().map(|number| begin + number));
        if begin + fits.length >= all.len() {
            break;
        }
        begins.push(begin + fits.length);
    }
    let mut epochs = Vec::new();
    let mut surely_from = 0;
    for (i, &begin) in begins.iter().enumerate() {
        let Some(&end) = begins.get(i + 1) else {
            epochs.push(surely_from..all.len());
            break;
        };
        // The half of the next epoch that is nearer: what disturbs it later shall not count here.
        let next_end = begins.get(i + 2).copied().unwrap_or(all.len());
        let asked = end + ((next_end - end) / 2).max(BACKWARD).min(next_end - end);
        let kept = (begin..asked).rev().filter(|number| !rejected.contains(number));
        let back = reaching_back(kept.map(|number| (number, &all[number])), wander);
        let first_of_next = back.unwrap_or(end);
        let surely_until = first_of_next.min(end).max(surely_from);
        epochs.push(surely_from..surely_until);
        surely_from = first_of_next.max(end);
    }
    (epochs, rejected)
}

/// The number of the earliest message that agrees with those after it; `all` from the last one
/// backwards. What comes before it was before a disturbance.
pub(crate) fn reaching_back<'a>(
    all: impl Iterator<Item = (usize, &'a Constraint)>,
    wander: f64,
) -> Option<usize> {
    let mut range = RateRange::new(wander);
    let mut agrees = |(number, message): &(usize, &Constraint)| {
        let message = message.mirrored();
        range.admits(&message, *number).map(|()| range.add(&message, *number)).is_ok()
    };
    all.take_while(|message| agrees(message)).last().map(|(number, _)| number)
}

impl Constraint {
    /// With time running backwards.
    fn mirrored(&self) -> Constraint {
        let mut mirrored = *self;
        mirrored.edge.x = -mirrored.edge.x;
        mirrored
    }
}

/// The longest begin of a sequence that goes together.
struct Agreeing {
    length: usize,
    /// Messages within it that do not.
    rejected: BTreeSet<usize>,
}

fn agreeing(all: &[Constraint], wander: f64) -> Agreeing {
    let mut rejected = BTreeSet::new();
    let mut range = RateRange::new(wander);
    let mut at = 0;
    while let Some(message) = all.get(at) {
        match range.admits(message, at) {
            Ok(()) => range.add(message, at),
            Err(_) if believed(range.clone(), all, at + 1, Some(message.way)) => {
                rejected.insert(at);
                let alike = |&&n: &&usize| all[n].way == message.way && n + CROWD_AMONG > at;
                let crowd: Vec<usize> = rejected.iter().filter(alike).copied().collect();
                if crowd.len() >= CROWD {
                    rejected.split_off(&crowd[0]);
                    return Agreeing { length: crowd[0].max(1), rejected };
                }
            }
            Err(suspects) => match without_one(all, at, suspects, &rejected, wander) {
                Some((suspect, without)) => {
                    rejected.insert(suspect);
                    range = without;
                }
                None => return Agreeing { length: at, rejected },
            },
        }
        at += 1;
    }
    Agreeing { length: all.len(), rejected }
}

/// Whether the messages from number `from` on agree with what a range was made of, by and large.
/// `doubted`: the direction of a message that does not and is left out.
fn believed(mut range: RateRange, all: &[Constraint], from: usize, doubted: Option<Way>) -> bool {
    // Number of messages that agree and of those that do not, for each direction.
    let mut count = [[0, 0], [0, 0]];
    if let Some(way) = doubted {
        count[way as usize][1] += 1;
    }
    for (number, message) in all.iter().enumerate().skip(from).take(WITNESSES) {
        let agrees = range.admits(message, number).is_ok();
        if agrees {
            range.add(message, number);
        }
        count[message.way as usize][usize::from(!agrees)] += 1;
    }
    count.iter().all(|[good, bad]| *good >= (AGREEING * bad).max(1))
}

/// An earlier message without which the one at `at` and those after it agree with the others, and
/// the range of all up to `at` then.
fn without_one(
    all: &[Constraint],
    at: usize,
    suspects: Suspects,
    rejected: &BTreeSet<usize>,
    wander: f64,
) -> Option<(usize, RateRange)> {
    suspects.into_iter().filter(|&suspect| suspect != at).find_map(|suspect| {
        let mut range = RateRange::new(wander);
        for (number, message) in all[..=at].iter().enumerate() {
            if number != suspect && !rejected.contains(&number) {
                range.admits(message, number).ok()?;
                range.add(message, number);
            }
        }
        believed(range.clone(), all, at + 1, None).then_some((suspect, range))
    })
}
