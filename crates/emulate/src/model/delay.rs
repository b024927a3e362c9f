//! How long a packet is on the wire.

use loopscope_time::MonotonicNs;

use super::choices::Onward;
use crate::settings::{Reorder, Settings};
use crate::traces::DelayAt;

#[derive(Debug)]
pub(crate) struct Delay {
    fixed_ns: u64,
    /// Instead of the fixed one.
    steps: Option<(Vec<DelayAt>, MonotonicNs)>,
    jitter_ns: u64,
    keeps_order: bool,
}

impl Delay {
    pub(crate) fn new(
        settings: &Settings,
        steps: Option<Vec<DelayAt>>,
        origin: MonotonicNs,
    ) -> Delay {
        Delay {
            fixed_ns: settings.delay_ns,
            steps: steps.map(|steps| (steps, origin)),
            jitter_ns: settings.jitter.as_ref().map_or(0, |jitter| jitter.ns),
            keeps_order: settings.reorder != Some(Reorder::ByJitter),
        }
    }

    /// The same steps under other settings.
    pub(crate) fn change(&mut self, settings: &Settings) {
        let steps = self.steps.take();
        *self = Delay { steps, ..Delay::new(settings, None, MonotonicNs(0)) };
    }

    /// Steps begin anew.
    pub(crate) fn restart(&mut self, now: MonotonicNs) {
        if let Some((_, origin)) = &mut self.steps {
            *origin = now;
        }
    }

    /// When a packet is due that leaves the queue at `leaves`; `floor` is the latest before it.
    pub(crate) fn due(
        &self,
        leaves: MonotonicNs,
        onward: Onward,
        floor: &mut MonotonicNs,
    ) -> MonotonicNs {
        if onward.skips {
            return leaves;
        }
        let jitter = (self.jitter_ns as f64 * onward.deviate).round() as i64;
        let mut due = leaves.plus(self.mean_ns(leaves).saturating_add_signed(jitter));
        if self.keeps_order {
            due = due.max(*floor);
        }
        *floor = due.max(*floor);
        due
    }

    fn mean_ns(&self, at: MonotonicNs) -> u64 {
        let Some((steps, origin)) = &self.steps else {
            return self.fixed_ns;
        };
        let passed = at.0.saturating_sub(origin.0);
        // The first one is at zero.
        steps[steps.partition_point(|step| step.at_ns <= passed) - 1].delay_ns
    }

    /// The longest mean, and a deviation of jitter.
    pub(crate) fn usual_high_ns(&self) -> u64 {
        self.longest_ns().saturating_add(self.jitter_ns)
    }

    /// The longest mean.
    pub(crate) fn longest_ns(&self) -> u64 {
        let steps = self.steps.iter().flat_map(|(steps, _)| steps);
        steps.map(|step| step.delay_ns).max().unwrap_or(self.fixed_ns)
    }
}
