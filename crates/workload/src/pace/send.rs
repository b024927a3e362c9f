//! The sender: its phases, its processes and its report.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use clap::ValueEnum;
use loopscope_phase::{Config, Phase, Values};
use loopscope_timer::now;
use serde_json::{Value, json};

use super::crew::Crew;
use super::options::{Protocol, SendArgs, Task};
use super::outlet::{Outlet, greet};
use super::sent::{Second, Sent, SentParts, spread};
use super::signals::Signals;
use super::text;
use super::work::Worker;
use crate::deadline::realtime;
use crate::program::NOT_CONNECTED;
use crate::result;
use crate::tcp::{Link, peer_addresses};

/// Before the first packet, so that a process is not late from the start.
const START_NS: u64 = 2_000_000;

/// The sender that is ready.
enum Ready {
    /// This process.
    Alone(Box<Outlet>),
    Crew(Crew),
}

pub(super) fn send(
    args: &SendArgs,
    signals: &Signals,
) -> impl FnMut(&Phase, &Config) -> Result<Values> {
    let mut ready = None;
    // Tells this run's packets from those of another one that still are on their way.
    let run = realtime().map_or(1, |time| (time / 1000) as u32);
    move |phase, config| {
        if phase.name == "connect" {
            let task = Task::read(args, config)?;
            let (mut outlets, datagrams) = connect(&task, phase)?;
            let crew = if task.processes == 1 {
                let outlet = outlets.pop().context("there is a way for each process")?;
                Worker { task: &task, process: 0, run, signals }.settle()?;
                Ready::Alone(Box::new(outlet))
            } else {
                Ready::Crew(Crew::fork(&task, outlets, run, signals)?)
            };
            ready = Some((task, crew, datagrams));
        } else {
            let (task, crew, datagrams) = ready.take().context(NOT_CONNECTED)?;
            if let Some((peer, addresses)) = datagrams {
                greet(&peer, &addresses)?;
            }
            signals.running();
            let accounts = work(&task, crew, run, signals)?;
            signals.idle();
            report(&task, accounts)?;
        }
        Ok(vec![])
    }
}

/// Receiver of datagrams: a name for people, and addresses.
type Peer = (String, Vec<SocketAddr>);

/// A way to the receiver for each process.
fn connect(task: &Task, phase: &Phase) -> Result<(Vec<Outlet>, Option<Peer>)> {
    if task.protocol == Protocol::Tcp {
        let outlet = |_| {
            let link = Link::connect(&task.to, phase)?;
            let stream = link.stream().try_clone().context("cannot copy the connection")?;
            Ok(Outlet::over(stream, &link.peer, task.size))
        };
        let outlets: Result<Vec<Outlet>> = (0..task.processes).map(outlet).collect();
        return Ok((outlets?, None));
    }
    let (peer, addresses) = peer_addresses(&task.to, phase)?;
    let outlets: Result<Vec<Outlet>> = (0..task.processes)
        .map(|_| Outlet::connect(&peer, &addresses, task.timer, task.size))
        .collect();
    Ok((outlets?, Some((peer, addresses))))
}

fn work(task: &Task, crew: Ready, run: u32, signals: &Signals) -> Result<Vec<SentParts>> {
    let progress = RefCell::new(Progress::new(task));
    match crew {
        Ready::Crew(crew) => {
            crew.run(signals, |number, second| progress.borrow_mut().add(number, second))
        }
        Ready::Alone(outlet) if task.every_s.is_none() => {
            let worker = Worker { task, process: 0, run, signals };
            let sent = worker.work(*outlet, now().plus(START_NS), |_, _| {})?;
            Ok(vec![sent.parts()])
        }
        // A terminal may be slow: the pacing thread does not write to it.
        Ready::Alone(outlet) => thread::scope(|scope| {
            let (sender, seconds) = mpsc::channel();
            let mut progress = progress.into_inner();
            scope.spawn(move || seconds.iter().for_each(|(n, second)| progress.add(n, second)));
            let worker = Worker { task, process: 0, run, signals };
            let tell = move |number, second| {
                let _ = sender.send((number, second));
            };
            let sent = worker.work(*outlet, now().plus(START_NS), tell)?;
            Ok(vec![sent.parts()])
        }),
    }
}

/// Lines on how it goes, once all processes have told of a second.
struct Progress {
    every: Option<u64>,
    processes: u64,
    /// By the first second that they cover: how many accounts came, and their sum.
    open: BTreeMap<u64, (u64, Second)>,
}

impl Progress {
    fn new(task: &Task) -> Progress {
        Progress { every: task.every_s, processes: task.processes, open: BTreeMap::new() }
    }

    fn add(&mut self, number: u64, second: Second) {
        let Some(every) = self.every else { return };
        let first = number - number % every;
        let (came, sum) = self.open.entry(first).or_default();
        *came += 1;
        sum.add(&second);
        if *came == every * self.processes {
            let (packets, skipped) = (sum.packets, sum.skipped);
            let rate = text::rate(8.0 * sum.bytes as f64 / every as f64);
            let late = sum.late_max_ns.map_or_else(|| "-".to_owned(), |ns| text::time(ns as f64));
            let last = first + every;
            eprintln!(
                "{first}-{last} s: {packets} packets, {rate}, {skipped} skipped, at most {late} late"
            );
            self.open.remove(&first);
        }
    }
}

fn report(task: &Task, accounts: Vec<SentParts>) -> Result<()> {
    let mut all = Sent::new();
    let mut processes = Vec::new();
    for account in accounts {
        let mut one = Sent::new();
        one.merge(account);
        processes.push(json!({
            "sent": one.packets,
            "skipped": one.skipped,
            "rejected": one.rejected,
            "unsent": one.unsent,
            "late_ns": one.late.percentiles(),
            "longest_burst": one.longest_burst,
            "guard_ns": one.guard_ns,
            "without_spinning": one.without_spinning,
        }));
        all.merge(one.parts());
    }
    if all.refused > 0 {
        eprintln!(
            "warning: nobody listens at {} any more: {} packets were answered so",
            task.to, all.refused
        );
    } else if all.confirmed == Some(false) {
        eprintln!("warning: {} has not confirmed the end; is `pace receive` there?", task.to);
    }
    let result = result(task, &all, processes);
    result::report(task.json, &result, text::sent(&result))
}

fn result(task: &Task, all: &Sent, processes: Vec<Value>) -> Value {
    let interval = task.plan.distribution.interval_ns();
    // Whether the time or the number of packets has ended the run.
    let timed = !all.interrupted && all.asked() < task.plan.count;
    let whole = if timed { task.plan.duration_ns } else { all.last_ns + interval as u64 };
    let mut seconds = all.seconds.clone();
    let whole_seconds = (whole / 1_000_000_000) as usize;
    seconds.resize(seconds.len().max(whole_seconds), Second::default());
    let whole = &seconds[..whole_seconds];
    let packets: Vec<u64> = whole.iter().map(|second| second.packets).collect();
    let bits: Vec<u64> = whole.iter().map(|second| 8 * second.bytes).collect();
    // A packet takes its interval: without it a rate over few packets would be too high.
    let span = (all.packets > 0).then(|| (all.last_ns as f64 + interval) / 1e9);
    let rate = |amount: u64| span.map(|span| amount as f64 / span);
    json!({
        "program": "pace send",
        "version": 1,
        "to": task.to,
        "protocol": name(task.protocol),
        "distribution": task.plan.distribution.name(),
        "timer": name(task.timer),
        "after_stall": name(task.after_stall),
        "size": task.size,
        "interval_ns": interval,
        "processes": task.processes,
        "seed": task.plan.seed,
        "interrupted": all.interrupted,
        "asked": all.asked(),
        "sent": all.packets,
        "skipped": all.skipped,
        "rejected": all.rejected,
        "unsent": all.unsent,
        "refused": all.refused,
        "confirmed": all.confirmed,
        "bytes": all.bytes,
        "seconds": span,
        "packets_s": rate(all.packets),
        "bit_s": rate(8 * all.bytes),
        "asked_packets_s": 1e9 / interval,
        "asked_bit_s": 8e9 * task.size as f64 / interval,
        "drift": {"ppm": all.drift_ppm(), "final_ns": all.final_ns},
        "late_ns": all.late.percentiles(),
        "longest_burst": all.longest_burst,
        "guard_ns": all.guard_ns,
        "without_spinning": all.without_spinning,
        "second_to_second": spread(&packets).map(|packets| json!({
            "seconds": whole_seconds, "packets": packets, "bits": spread(&bits),
        })),
        "per_second": seconds.iter().enumerate().map(|(number, second)| json!({
            "second": number,
            "packets": second.packets,
            "bytes": second.bytes,
            "skipped": second.skipped,
            "late_max_ns": second.late_max_ns,
        })).collect::<Vec<_>>(),
        "of_processes": processes,
    })
}

/// A choice by the name that people give it.
fn name(choice: impl ValueEnum) -> Option<String> {
    choice.to_possible_value().map(|value| value.get_name().to_owned())
}
