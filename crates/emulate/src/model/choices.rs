//! What chance says of each packet. Every choice is drawn for every packet that arrives, whatever
//! becomes of it, each impairment from its own stream: so a packet's fate by one impairment does
//! not depend on the others.

use super::jitter::Deviates;
use super::loss::Process;
use super::random::Stream;
use crate::settings::{Reorder, Settings};
use crate::traces::Files;

/// What is said of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub lost: bool,
    pub original: OfCopy,
    /// Choices for the second copy, if the packet is doubled.
    pub duplicate: Option<OfCopy>,
}

/// What is said of a packet and of its duplicate, each by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfCopy {
    /// The bit to flip.
    pub flip: Option<u64>,
    pub onward: Onward,
}

/// How it goes through the delay line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Onward {
    /// Past the line.
    pub skips: bool,
    /// Deviate of the jitter: mean 0, standard deviation 1; of uniform jitter between -1 and 1.
    pub deviate: f64,
}

#[derive(Debug)]
pub(crate) struct Choices {
    loss: (Process, Stream),
    duplicate: (f64, Stream),
    original: CopyChoices,
    copy: CopyChoices,
}

#[derive(Debug)]
struct CopyChoices {
    corrupt: (f64, Stream),
    skip: (f64, Stream),
    jitter: (Option<Deviates>, Stream),
}

impl Choices {
    /// The choices of a link that impairs nothing yet.
    pub(crate) fn new(seed: u64, name: &str) -> Choices {
        let stream = |impairment| Stream::new(seed, name, impairment);
        let copy = |corrupt, skip, jitter| CopyChoices {
            corrupt: (0.0, stream(corrupt)),
            skip: (0.0, stream(skip)),
            jitter: (None, stream(jitter)),
        };
        Choices {
            loss: (Process::Never, stream("loss")),
            duplicate: (0.0, stream("duplicate")),
            original: copy("corrupt", "reorder", "jitter"),
            copy: copy("corrupt duplicate", "reorder duplicate", "jitter duplicate"),
        }
    }

    /// Goes over from settings `old` to `new`. What stays the same goes on where it is.
    pub(crate) fn change(&mut self, old: &Settings, new: &Settings, files: &mut Files) {
        if old.loss != new.loss {
            self.loss.0 = Process::new(new.loss.as_ref(), std::mem::take(&mut files.loss));
        }
        self.duplicate.0 = new.duplicate;
        let skip = match new.reorder {
            Some(Reorder::Skip { probability }) => probability,
            Some(Reorder::ByJitter) | None => 0.0,
        };
        // How wide it is does not matter here: deviates are scaled where they are used.
        let shape = |settings: &Settings| {
            settings.jitter.as_ref().map(|jitter| (jitter.distribution.clone(), jitter.correlation))
        };
        for copy in [&mut self.original, &mut self.copy] {
            copy.corrupt.0 = new.corrupt;
            copy.skip.0 = skip;
            if shape(old) != shape(new) {
                copy.jitter.0 =
                    new.jitter.as_ref().map(|jitter| Deviates::new(jitter, &files.table));
            }
        }
    }

    /// Counts and files begin anew; chance goes on.
    pub(crate) fn restart(&mut self) {
        self.loss.0.restart();
    }

    pub(crate) fn next(&mut self) -> Choice {
        let (process, random) = &mut self.loss;
        let lost = process.next(random);
        let doubled = happens(&mut self.duplicate);
        let original = self.original.next();
        Choice { lost, original, duplicate: doubled.then(|| self.copy.next()) }
    }

    /// What all but one jitter deviate in a million stay below.
    pub(crate) fn high_deviate(&self) -> f64 {
        self.original.jitter.0.as_ref().map_or(0.0, Deviates::high)
    }
}

impl CopyChoices {
    fn next(&mut self) -> OfCopy {
        let flip = happens(&mut self.corrupt).then(|| self.corrupt.1.bits());
        let (deviates, random) = &mut self.jitter;
        let deviate = deviates.as_mut().map_or(0.0, |deviates| deviates.next(random));
        OfCopy { flip, onward: Onward { skips: happens(&mut self.skip), deviate } }
    }
}

/// Draws nothing where nothing is asked.
fn happens((probability, random): &mut (f64, Stream)) -> bool {
    *probability > 0.0 && random.happens(*probability)
}
