//! How much of a CPU real-time threads may take before the kernel's throttle takes it away from
//! them (`sched_rt_runtime_us` of each `sched_rt_period_us`, see sched(7)).

use std::fs;

use anyhow::{Context, Result, ensure};

use super::plan::{Milliseconds, Plan};

/// The share of the kernel's allowance that is used, so that other real-time threads and late wakes
/// find room too.
const PART: f64 = 0.8;

/// A bound on real-time CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Budget {
    pub(super) runtime_ns: u64,
    pub(super) period_ns: u64,
}

impl Budget {
    /// The kernel's.
    pub(super) fn of_kernel() -> Result<Budget> {
        let read = |name: &str| -> Result<i64> {
            let file = format!("/proc/sys/kernel/{name}");
            let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
            text.trim().parse().with_context(|| format!("{file} holds `{}`", text.trim()))
        };
        Budget::from_us(read("sched_rt_runtime_us")?, read("sched_rt_period_us")?)
    }

    /// A runtime of -1 means no throttle: then nothing saves the CPU but this bound.
    fn from_us(runtime: i64, period: i64) -> Result<Budget> {
        let period_ns = u64::try_from(period).context("sched_rt_period_us is negative")? * 1000;
        let runtime_ns = u64::try_from(runtime).map_or(period_ns, |us| us * 1000).min(period_ns);
        Ok(Budget { runtime_ns, period_ns })
    }

    /// The most that stalls may take of a period.
    pub(super) fn most_ns(self) -> u64 {
        (self.runtime_ns as f64 * PART) as u64
    }

    /// Refuses a plan that would take more of some period.
    pub(super) fn check(self, plan: &Plan) -> Result<()> {
        let taken = plan.most_within(self.period_ns);
        let most = self.most_ns();
        ensure!(
            taken <= most,
            "these stalls take {} of some {} at real-time priority; {} is the most, {:.0} % of what \
             the kernel's throttle allows (sched_rt_runtime_us): make them shorter or rarer, or take \
             priority 0, an ordinary thread",
            Milliseconds(taken),
            Milliseconds(self.period_ns),
            Milliseconds(most),
            PART * 100.0
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Begins;
    use super::*;

    #[test]
    fn what_the_throttle_would_cut_is_refused() {
        let budget = Budget::from_us(950_000, 1_000_000).unwrap();
        assert_eq!(budget.most_ns(), 760_000_000);
        let plan = |length| Plan { begins: Begins::At(vec![0]), length, jitter: 0, seed: 1 };
        budget.check(&plan(760_000_000)).unwrap();
        let error = budget.check(&plan(760_000_001)).unwrap_err().to_string();
        assert!(
            error.contains("760 ms is the most, 80 % of what the kernel's throttle"),
            "{error}"
        );
        assert!(error.contains("priority 0"), "{error}");
    }

    #[test]
    fn without_a_throttle_a_fifth_is_still_left() {
        let budget = Budget::from_us(-1, 1_000_000).unwrap();
        assert_eq!(budget.most_ns(), 800_000_000);
        assert!(Budget::from_us(950_000, -1).is_err());
    }
}
