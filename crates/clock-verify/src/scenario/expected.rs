//! Checks of what a follower found out about a scenario's event.

use loopscope_clocksync::log::HostClock;
use loopscope_clocksync::offline;
use loopscope_clocksync::online::{Change, What};
use loopscope_clocksync::probe::{Cause, Counts};
use loopscope_time::Counter;

use super::{Check, ORDINARY_LOSS};
use crate::follower::Ended;
use crate::measure::{self, ASYMMETRY, Event, STEP, STEP_PPM};

/// Expected observations of a follower.
pub(super) struct Expected<'a> {
    pub(super) name: &'a str,
    pub(super) ended: &'a Ended,
    pub(super) clock: &'a HostClock,
    pub(super) measured: &'a measure::Measured,
}

impl Expected<'_> {
    pub(super) fn check(&self, event: Event, checks: &mut Vec<Check>) {
        // What holds of all followers is one line.
        let mut check = |what: &str, met: bool| {
            let what = if met { what.to_owned() } else { format!("{what} ({})", self.name) };
            if !checks.iter().any(|check| check.what == what) {
                checks.push(Check { what, met });
            }
        };
        let disturbed =
            |(_, change): &&(Counter, Change)| matches!(change.what, What::Disturbed { .. });
        let published = &self.ended.published;
        match event {
            Event::CounterStep(_) | Event::RateStep => self.check_disturbance(event, &mut check),
            _ => {
                check("no disturbance is found offline", self.clock.disturbances.is_empty());
                let none = !published.changes.iter().any(|change| disturbed(&change));
                check("no disturbance is told online", none);
                let calm = published.states.iter().all(|(_, state)| state.epoch == 0);
                check("no epoch begins", calm);
            }
        }
        let lost = |counts: &Counts, cause| counts.lost.get(&cause).copied().unwrap_or_default();
        let (own, answers) = (&self.ended.counts, &self.measured.answers);
        let answered = own.answered as f64 / own.sent as f64;
        match event {
            Event::Loss => {
                check("half of the probes are answered", (0.4..0.6).contains(&answered));
                check("stamps are lost", lost(own, Cause::NoTxStamp) > 0);
            }
            Event::AsymmetryStep => {
                let delay = ASYMMETRY.as_nanos() as f64;
                let found = published.changes.iter().any(|(_, change)| {
                    matches!(change.what, What::Path { forward_ns, back_ns }
                        if (back_ns - delay).abs() < 0.3 * delay && forward_ns.abs() < 0.3 * delay)
                });
                check("it is attributed to the way from the reference", found);
            }
            Event::Attack => {
                check("probes are answered all the same", answered > 1.0 - ORDINARY_LOSS);
                let attacks = self.measured.attacks.unwrap_or_default();
                let seen: u64 = [own, answers]
                    .iter()
                    .flat_map(|counts| &counts.lost)
                    .filter(|(cause, _)| {
                        let causes = [
                            Cause::ForgedPacket,
                            Cause::ReplayedPacket,
                            Cause::UnexpectedReply,
                            Cause::MalformedPacket,
                        ];
                        causes.contains(cause)
                    })
                    .map(|(_, count)| count)
                    .sum();
                check(
                    "each forged or replayed packet that came through is counted, and nothing else",
                    seen <= attacks && seen as f64 > 0.5 * attacks as f64,
                );
            }
            _ => {}
        }
    }

    fn check_disturbance(&self, event: Event, check: &mut impl FnMut(&str, bool)) {
        let clock = self.ended.clock;
        let Some(at) = self.measured.event_at else { return };
        // The synthetic counter just before.
        let at = clock.apply(Counter(at.0 - 1));
        let is_it = |cause: &offline::Cause| match (event, cause) {
            (Event::CounterStep(step), offline::Cause::Step(ns)) => {
                let step = step.as_nanos() as f64;
                (ns.abs() - step).abs()
                    < if step < STEP.as_nanos() as f64 { 0.2 } else { 0.05 } * step
            }
            (Event::RateStep, offline::Cause::Rate(ppm)) => {
                (ppm.abs() - STEP_PPM as f64).abs() < 0.05 * STEP_PPM as f64
            }
            _ => false,
        };
        let found = &self.clock.disturbances;
        let right = matches!(&found[..], [one]
            if is_it(&one.cause) && one.from <= at && at <= one.until);
        check("offline finds it, once, where it was", right);
        let told =
            self.ended.published.changes.iter().filter_map(|(_, change)| match change.what {
                What::Disturbed { cause, .. } => Some((change, cause)),
                _ => None,
            });
        let told: Vec<_> = told.collect();
        let right = matches!(&told[..], [(change, cause)]
            if is_it(cause) && change.from <= at && at <= change.until);
        check("online tells it, once, where it was", right);
        let map = &self.clock.map;
        let inside = found.first().is_none_or(|one| {
            let middle = Counter(one.from.0 + (one.until.0 - one.from.0) / 2);
            map.epoch(middle).is_some()
        });
        check("no event is mapped inside it", !inside);
        let [begin, end] = [self.measured.begin, self.measured.end].map(|at| clock.apply(at));
        let epochs = (map.epoch(begin), map.epoch(end));
        let last = self.ended.published.states.last().map(|(_, state)| state.epoch);
        let right = epochs == (Some(0), Some(1)) && last == Some(1);
        check("an epoch begins with it", right);
    }
}
