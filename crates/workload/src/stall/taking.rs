//! Takes a CPU when the plan says so.

use std::time::{Duration, Instant};

use anyhow::Result;
use loopscope_trace::{event, interval};
use serde::Serialize;

use super::budget::Budget;
use super::plan::Plan;
use crate::cpu_time;
use crate::stop::Stop;

/// A stall as it was; times are since the begin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Stall {
    pub(super) id: u64,
    pub(super) intended_ns: u64,
    /// `None`: the thread woke so late that it would have taken more than its budget, or the next
    /// one's time.
    pub(super) taken: Option<Taken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Taken {
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    /// The thread's CPU time: less than from begin to end where others had the CPU.
    pub(super) cpu_ns: u64,
}

/// Stalls until the plan or the time is over. `budget`: of a real-time thread.
pub(super) fn follow(
    plan: &Plan,
    budget: Option<Budget>,
    begin: Instant,
    stop: &Stop,
) -> Result<Vec<Stall>> {
    let mut stalls: Vec<Stall> = Vec::new();
    let since = || begin.elapsed().as_nanos() as u64;
    let mut intended = plan.intended().zip(1..).peekable();
    while let Some((intended_ns, id)) = intended.next() {
        if stop.sleep_until(begin + Duration::from_nanos(intended_ns))? {
            break;
        }
        let begin_ns = since();
        let missed = intended.peek().is_some_and(|&(next, _)| next <= begin_ns);
        let exceeds = budget.is_some_and(|budget| exceeds(&stalls, begin_ns, plan.length, budget));
        let taken = if missed || exceeds {
            event!("stall", "skipped", id, late_ns = begin_ns - intended_ns);
            None
        } else {
            Some(take(id, intended_ns, plan.length, &since, stop))
        };
        stalls.push(Stall { id, intended_ns, taken });
    }
    Ok(stalls)
}

fn take(id: u64, intended_ns: u64, length: u64, since: &impl Fn() -> u64, stop: &Stop) -> Taken {
    let cpu = cpu_time::of_thread();
    let begin_ns = since();
    event!("stall", "began", id, late_ns = begin_ns - intended_ns);
    let whole = interval!("stall", "stall", id);
    while since() < begin_ns + length && !stop.is_set() {
        std::hint::spin_loop();
    }
    drop(whole);
    let end_ns = since();
    let cpu_ns = (cpu_time::of_thread() - cpu).as_nanos() as u64;
    event!("stall", "ended", id, cpu_ns = cpu_ns);
    Taken { begin_ns, end_ns, cpu_ns }
}

/// Whether a stall from `begin` on, with what was taken within a period before its end, is more than
/// the budget: late wakes push stalls together.
fn exceeds(stalls: &[Stall], begin: u64, length: u64, budget: Budget) -> bool {
    let from = (begin + length).saturating_sub(budget.period_ns);
    let recent = stalls.iter().rev().filter_map(|stall| stall.taken);
    let recent = recent.take_while(|taken| taken.end_ns > from);
    let before: u64 = recent.map(|taken| taken.end_ns - taken.begin_ns.max(from)).sum();
    before + length > budget.most_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_that_lateness_pushes_together_stay_in_the_budget() {
        let budget = Budget { runtime_ns: 100, period_ns: 1000 };
        assert_eq!(budget.most_ns(), 80);
        let stall = |begin_ns, end_ns| Stall {
            id: 1,
            intended_ns: 0,
            taken: Some(Taken { begin_ns, end_ns, cpu_ns: 0 }),
        };
        let skipped = Stall { id: 2, intended_ns: 60, taken: None };
        let stalls = [stall(0, 40), stall(50, 80), skipped];
        assert!(!exceeds(&stalls, 200, 10, budget));
        assert!(exceeds(&stalls, 200, 11, budget));
        // The first has just left the period.
        assert!(!exceeds(&stalls, 990, 50, budget));
        assert!(exceeds(&stalls, 990, 51, budget));
        assert!(!exceeds(&stalls, 2000, 80, budget));
    }
}
