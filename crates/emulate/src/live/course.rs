//! What happens to a router's links from outside: the steps of its document, and what it is told.

use loopscope_time::MonotonicNs;
use loopscope_timer::now;
use serde_json::{Map, Value};

use crate::EmulateError;
use crate::control::{Command, Commands};
use crate::hosts::Hosts;
use crate::router::Shown;
use crate::settings::{Document, Settings};

/// What it happens to.
pub(crate) trait Links {
    /// The ports' hosts.
    fn hosts(&self) -> &Hosts;

    /// Changes some of a link's settings; those in force. The error is for a person, and nothing is
    /// changed then.
    fn set(
        &mut self,
        now: MonotonicNs,
        link: (usize, usize),
        change: &Map<String, Value>,
    ) -> Result<Settings, String>;

    /// The experiment's measured time begins.
    fn restart(&mut self, now: MonotonicNs);

    /// What became of the packets, with times from `start` on.
    fn shown(&self, start: MonotonicNs) -> Vec<Shown>;
}

/// Steps that are to come, and when they are counted from.
#[derive(Debug)]
pub(crate) struct Course {
    /// The next one last.
    steps: Vec<Due>,
    /// When the first measured phase began.
    measured: Option<MonotonicNs>,
    start: MonotonicNs,
    problems: Vec<String>,
}

#[derive(Debug)]
struct Due {
    at_ns: u64,
    link: (usize, usize),
    set: Map<String, Value>,
}

impl Course {
    /// The document's steps; `fits` refuses settings that cannot be.
    pub(crate) fn new(
        document: &Document,
        hosts: &Hosts,
        start: MonotonicNs,
        fits: impl Fn(&Settings) -> Result<(), String>,
    ) -> Result<Course, EmulateError> {
        let mut steps = Vec::new();
        for link in &document.links {
            let mut settings = link.settings.clone();
            let pair = hosts.pair(&link.from, &link.to).map_err(EmulateError::Document)?;
            let mut ordered: Vec<_> = link.steps.iter().collect();
            ordered.sort_by_key(|step| step.at_ns);
            for step in ordered {
                let (at_ns, set) = (step.at_ns, step.set.clone());
                let wrong = |what| {
                    let (from, to) = (&link.from, &link.to);
                    EmulateError::Document(format!("step of {from} -> {to} at {at_ns} ns: {what}"))
                };
                settings = settings.changed(&set).map_err(wrong)?;
                fits(&settings).map_err(wrong)?;
                steps.push(Due { at_ns, link: pair, set });
            }
        }
        steps.sort_by_key(|step| std::cmp::Reverse(step.at_ns));
        Ok(Course { steps, measured: None, start, problems: Vec::new() })
    }

    /// Does what was told; whether to go on.
    pub(crate) fn hear(
        &mut self,
        commands: &Commands,
        links: &mut impl Links,
    ) -> Result<bool, EmulateError> {
        while let Some(command) = commands.next() {
            match command {
                Command::End => return Ok(false),
                Command::Abandon(why) => return Err(EmulateError::Abandoned(why)),
                Command::Measured { at, reply } => {
                    self.measured(at, links);
                    let _ = reply.send(Ok(Value::Null));
                }
                Command::Set { from, to, change, reply } => {
                    let pair = links.hosts().pair(&from, &to);
                    let settings = pair.and_then(|link| links.set(now(), link, &change)).and_then(
                        |settings| serde_json::to_value(settings).map_err(|e| e.to_string()),
                    );
                    // The caller may have gone.
                    let _ = reply.send(settings);
                }
                Command::Show { reply } => {
                    let links = serde_json::to_value(self.shown(links));
                    let _ = reply.send(links.map_err(|error| error.to_string()));
                }
            }
        }
        Ok(true)
    }

    /// The first measured phase began.
    pub(crate) fn measured(&mut self, at: MonotonicNs, links: &mut impl Links) {
        if self.measured.is_none() {
            self.measured = Some(at);
            links.restart(at);
        }
    }

    pub(crate) fn next_step(&self) -> Option<MonotonicNs> {
        Some(self.measured?.plus(self.steps.last()?.at_ns))
    }

    /// Does what is due.
    pub(crate) fn step(&mut self, now: MonotonicNs, links: &mut impl Links) {
        while self.next_step().is_some_and(|at| at <= now)
            && let Some(step) = self.steps.pop()
        {
            if let Err(problem) = links.set(now, step.link, &step.set) {
                self.problems
                    .push(format!("the step at {} ns was not done: {problem}", step.at_ns));
            }
        }
    }

    /// What was achieved so far, with times from the first measured phase on, or from the start.
    pub(crate) fn shown(&self, links: &impl Links) -> Vec<Shown> {
        links.shown(self.measured.unwrap_or(self.start))
    }

    /// What went wrong so far, told once.
    pub(crate) fn problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }
}
