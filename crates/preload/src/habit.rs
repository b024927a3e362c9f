//! Whether a thread looks for what it waits for before it sleeps: a pure decision.

/// So many waits pass without a look after one that did not help, and at most so many after
/// several.
const FIRST_PAUSE: u32 = 4;
const LONGEST_PAUSE: u32 = 1024;

/// Whether this thread looks before it sleeps. What it waits for may need its processor, or take
/// longer: then to look only delays it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habit {
    /// Waits without a look after the next look that does not help.
    pause: u32,
    /// Waits without a look from now on.
    left: u32,
}

impl Habit {
    /// A thread begins with a look.
    pub(crate) const fn new() -> Habit {
        Habit { pause: 0, left: 0 }
    }

    /// Begins a wait; whether to look.
    pub(crate) fn begin(&mut self) -> bool {
        let looks = self.left == 0;
        self.left = self.left.saturating_sub(1);
        looks
    }

    /// What a look came to.
    pub(crate) fn looked(&mut self, helped: bool) {
        let longer = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.pause = if helped { self.pause / 2 } else { longer };
        self.left = if helped { 0 } else { longer };
    }
}
