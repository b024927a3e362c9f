//! poll(2) of descriptors, some of which the stack has.

use std::cell::Cell;
use std::time::{Duration, Instant};

use libc::{c_int, pollfd, sigset_t};

use crate::descriptor::{self, Control};
use crate::sleep::{Look, sleep};
use crate::sleepers::{Cause, Plan, Wants, awaited};
use crate::state::State;
use crate::table::{self, Kind};
use crate::{lock, real, signals};

/// A thread sleeps so long where the kernel has all, before it looks whether it was cancelled.
const ALONE: Duration = Duration::from_millis(100);

/// A thread that looks asks the kernel for its descriptors once in so many turns. An odd number:
/// where there is room for one event, only each second turn asks it.
const TURNS: u32 = 15;

/// The events of all descriptors that the stack has, set in `fds`; how many have some. The others
/// are put into `of_kernel`, at their places, and so are sockets of UDP that have none: the kernel
/// may have something for them.
fn look(state: &State, fds: &mut [pollfd], of_kernel: &mut Vec<pollfd>) -> usize {
    of_kernel.clear();
    let mut ready = 0;
    for polled in fds {
        polled.revents = 0;
        let of_stack = state.events(polled.fd, polled.events);
        let is_told = of_stack.is_some_and(|found| found != 0 || !state.has_datagrams(polled.fd));
        let fd = if is_told { -1 } else { polled.fd };
        of_kernel.push(pollfd { fd, events: polled.events, revents: 0 });
        polled.revents = of_stack.unwrap_or(0);
        ready += usize::from(polled.revents != 0);
    }
    ready
}

/// Puts what the kernel has said to the events of the stack; how many have some.
fn merge(fds: &mut [pollfd], of_kernel: &[pollfd]) -> usize {
    let mut ready = 0;
    for (polled, of_kernel) in fds.iter_mut().zip(of_kernel) {
        polled.revents |= of_kernel.revents;
        ready += usize::from(polled.revents != 0);
    }
    ready
}

/// Waits as poll(2) does. `time`: None is for ever. None: the thread may have been cancelled.
pub(crate) fn poll(
    fds: &mut [pollfd],
    time: Option<Duration>,
    mask: Option<&sigset_t>,
) -> Option<Result<usize, c_int>> {
    // None of the others is taken over meanwhile.
    let begun: Vec<bool> = fds.iter().map(|polled| table::begin(polled.fd, false)).collect();
    let found = poll_begun(fds, time, mask);
    for (polled, _) in fds.iter().zip(begun).filter(|(_, begun)| *begun) {
        table::end(polled.fd);
    }
    found.transpose()
}

fn poll_begun(
    fds: &mut [pollfd],
    time: Option<Duration>,
    mask: Option<&sigset_t>,
) -> Result<Option<usize>, c_int> {
    let (seen, cancelled) = (signals::seen(), real::cancelled());
    let wants: Vec<Wants> = fds
        .iter()
        .filter(|polled| table::kind(polled.fd) == Kind::Taken)
        .map(|polled| Wants { fd: polled.fd, events: polled.events })
        .collect();
    let mut of_kernel = vec![];
    let (begin, mut wait) = (Instant::now(), Look::new(mask.is_some()));
    let mut sleeping: Option<c_int> = None;
    let mut slept: Option<Vec<pollfd>> = None;
    let mut turns = 0_u32;
    loop {
        let spent = begin.elapsed();
        let is_over = time.is_some_and(|time| spent >= time);
        let mut plan: Option<Plan> = None;
        let mut sleeps = false;
        let ready = lock::with(|state| {
            if let Some(event) = sleeping.take() {
                state.woken(event);
            }
            state.turn();
            let ready = look(state, fds, &mut of_kernel);
            if ready == 0 && !is_over && turns == 0 {
                state.waiting(Cause::Events(&wants)).begins();
            }
            sleeps = ready == 0 && !is_over && turns > 0 && slept.is_none() && wait.is_over();
            sleeps &= state.rests();
            if sleeps {
                plan = state.sleeps(Cause::Events(&wants));
            }
            ready
        })
        .ok_or(libc::EINTR)?;
        if let Some(found) = slept.take() {
            // What the kernel said when the thread woke. Where it was interrupted it said nothing.
            for (of_kernel, found) in of_kernel.iter_mut().zip(found) {
                if of_kernel.fd == found.fd {
                    of_kernel.revents = found.revents;
                }
            }
        } else if (ready > 0 || turns.is_multiple_of(TURNS) || is_over)
            && of_kernel.iter().any(|of| of.fd >= 0)
        {
            descriptor::wait(&mut of_kernel, Some(Duration::ZERO), None)?;
        }
        let ready = merge(fds, &of_kernel);
        if ready > 0 || is_over {
            if !is_over {
                wait.end();
            }
            return Ok(Some(ready));
        }
        if cancelled != real::cancelled() {
            return Ok(None);
        }
        if seen.has_more() {
            return Err(libc::EINTR);
        }
        turns = turns.wrapping_add(1);
        let left = time.map(|time| time - spent);
        let Some(plan) = plan else {
            if sleeps {
                // The kernel has all by now.
                let most = left.map_or(ALONE, |left| left.min(ALONE));
                descriptor::wait(&mut of_kernel, Some(most), mask)?;
                slept = Some(of_kernel.clone());
            }
            std::hint::spin_loop();
            continue;
        };
        sleeping = Some(plan.event);
        let most = [plan.due, left].into_iter().flatten().min();
        let mut all = [&of_kernel[..], &plan.fds].concat();
        sleep(&plan, &mut all, most, mask, || seen.has_more());
        all.truncate(of_kernel.len());
        slept = Some(all);
    }
}

thread_local! {
    static KERNEL_FIRST: Cell<bool> = const { Cell::new(false) };
}

/// Waits as epoll_wait(2) does, of an instance that watches descriptors of the stack. None: the
/// thread may have been cancelled.
pub(crate) fn epoll(
    epoll: c_int,
    most: usize,
    time: Option<Duration>,
    mask: Option<&sigset_t>,
) -> Result<Option<Vec<Control>>, c_int> {
    let (seen, cancelled) = (signals::seen(), real::cancelled());
    let (begin, mut wait) = (Instant::now(), Look::new(mask.is_some()));
    let mut sleeping: Option<c_int> = None;
    let (mut asks_kernel, mut turns) = (true, 0_u32);
    loop {
        let spent = begin.elapsed();
        let is_over = time.is_some_and(|time| spent >= time);
        let mut plan: Option<Plan> = None;
        let mut sleeps = false;
        // A part of the room is the kernel's. Where there is room for one, it comes first each
        // second time.
        let is_first = KERNEL_FIRST.replace(!KERNEL_FIRST.get());
        let of_kernel = match most / 2 {
            0 if !is_first && !is_over => vec![],
            _ if !is_over && !asks_kernel => vec![],
            half => descriptor::told(epoll, half.max(1))?,
        };
        let told = lock::with(|state| {
            if let Some(event) = sleeping.take() {
                state.woken(event);
            }
            state.turn();
            let mut told = of_kernel;
            state.epolls.without_bell(epoll, &mut told);
            told.extend(state.tell(epoll, most - told.len()));
            if told.is_empty() && !is_over && turns == 0 {
                state.waiting(Cause::Epoll(epoll)).begins();
            }
            sleeps = told.is_empty() && !is_over && wait.is_over() && state.rests();
            if sleeps {
                plan = state.sleeps(Cause::Epoll(epoll));
            }
            told
        })
        .ok_or(libc::EINTR)?;
        if !told.is_empty() || is_over {
            if !is_over {
                wait.end();
            }
            return Ok(Some(told));
        }
        if cancelled != real::cancelled() {
            return Ok(None);
        }
        if seen.has_more() {
            return Err(libc::EINTR);
        }
        turns = turns.wrapping_add(1);
        asks_kernel = sleeps || turns.is_multiple_of(TURNS);
        let left = time.map(|time| time - spent);
        let Some(mut plan) = plan else {
            if sleeps {
                // The kernel has all by now.
                let most = left.map_or(ALONE, |left| left.min(ALONE));
                descriptor::wait(&mut [awaited(epoll)], Some(most), mask)?;
            }
            std::hint::spin_loop();
            continue;
        };
        sleeping = Some(plan.event);
        let mut fds = std::mem::take(&mut plan.fds);
        fds.push(awaited(epoll));
        let time = [plan.due, left].into_iter().flatten().min();
        sleep(&plan, &mut fds, time, mask, || seen.has_more());
    }
}
