//! The dialogue, from hello to end.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use crate::message::{self, AGENT_LINE_LIMIT, CONFIGURE, FromAgent};
use crate::{Config, Phase, PhaseError, RunError, Values, inherited, wait};

/// A program's part in an experiment's phases. Blocking; one per process.
#[derive(Debug)]
pub struct Session {
    phases: Vec<String>,
    config: Config,
    side: Side,
    /// The phase that was started and neither done nor failed.
    current: Option<String>,
    ended: bool,
}

#[derive(Debug)]
enum Side {
    Agent {
        stream: BufReader<UnixStream>,
        component: String,
        host: String,
    },
    /// No agent: the phases run in the order named, `next` being the next one's index.
    Alone {
        next: usize,
    },
}

impl Session {
    /// Connects to the agent through `LOOPSCOPE_PHASE_FD`, waits for its configuration and names
    /// this program's `phases`. Without the variable the program runs by itself, with
    /// `command_line` as configuration; with an agent its configuration wins, key by key.
    pub fn connect(phases: &[&str], command_line: Config) -> Result<Session, PhaseError> {
        match inherited::take()? {
            Some(stream) => Session::over(stream, phases, command_line),
            None => Session::alone(phases, command_line),
        }
    }

    /// Connects to the agent as [`Session::connect`] does, with those phases that `phases` reads
    /// from the agent's configuration; `None` without an agent.
    pub fn connect_configured(
        phases: impl FnOnce(&Config) -> Vec<String>,
    ) -> Result<Option<Session>, PhaseError> {
        let start = |stream| Session::configured(stream, phases, Config::default());
        inherited::take()?.map(start).transpose()
    }

    /// A session with the agent at the other end of `stream`.
    pub fn over(
        stream: UnixStream,
        phases: &[&str],
        config: Config,
    ) -> Result<Session, PhaseError> {
        let phases = names(phases)?;
        Session::configured(stream, |_| phases, config)
    }

    fn configured(
        stream: UnixStream,
        phases: impl FnOnce(&Config) -> Vec<String>,
        config: Config,
    ) -> Result<Session, PhaseError> {
        let greeting = Greeting::read(stream, config)?;
        let phases = phases(&greeting.config);
        let phases = names(&phases.iter().map(String::as_str).collect::<Vec<_>>())?;
        greeting.hello(phases)
    }

    /// A session without an agent.
    pub fn alone(phases: &[&str], config: Config) -> Result<Session, PhaseError> {
        let phases = names(phases)?;
        Ok(Session { phases, config, side: Side::Alone { next: 0 }, current: None, ended: false })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// This component's name in the experiment; `None` without an agent.
    pub fn component(&self) -> Option<&str> {
        match &self.side {
            Side::Agent { component, .. } => Some(component),
            Side::Alone { .. } => None,
        }
    }

    /// The name of the host that this program runs on; `None` without an agent.
    pub fn host(&self) -> Option<&str> {
        match &self.side {
            Side::Agent { host, .. } => Some(host),
            Side::Alone { .. } => None,
        }
    }

    /// Waits for the next phase. `None`: the run has ended and the program should exit with 0.
    pub fn next_phase(&mut self) -> Result<Option<Phase>, PhaseError> {
        if let Some(phase) = &self.current {
            return Err(PhaseError::Misuse(format!(
                "phase `{phase}` has to be done or failed before the next one"
            )));
        }
        if self.ended {
            return Ok(None);
        }
        let phase = match &mut self.side {
            Side::Alone { next } => {
                let name = self.phases.get(*next).cloned();
                *next += 1;
                name.map(|name| Phase { name, measured: false, peers: Default::default() })
            }
            Side::Agent { stream, .. } => match read_message(stream)? {
                FromAgent::Phase(phase, start_ns) if self.phases.contains(&phase.name) => {
                    if let Some(start_ns) = start_ns {
                        let begun = message::begun(&phase.name, wait::until(start_ns)?)?;
                        stream.get_mut().write_all(begun.as_bytes())?;
                    }
                    Some(phase)
                }
                FromAgent::Phase(phase, _) => {
                    return Err(PhaseError::Protocol(format!(
                        "phase `{}`, which this program does not take part in",
                        phase.name
                    )));
                }
                FromAgent::End => None,
                FromAgent::Configure { .. } => {
                    return Err(PhaseError::Protocol("a second `configure`".into()));
                }
            },
        };
        self.current = phase.as_ref().map(|phase| phase.name.clone());
        self.ended = phase.is_none();
        Ok(phase)
    }

    /// Ends the phase and publishes `values` to every program that starts a phase later. Where it
    /// refuses the values, the phase goes on.
    pub fn done(&mut self, values: &Values) -> Result<(), PhaseError> {
        let line = message::done(self.in_phase()?, values)?;
        self.current = None;
        self.send(&line)
    }

    /// Ends the phase and the run. The program should then exit with a status that is not 0.
    pub fn failed(&mut self, error: &str) -> Result<(), PhaseError> {
        let line = message::failed(self.in_phase()?, error)?;
        self.current = None;
        self.ended = true;
        self.send(&line)
    }

    /// Runs every phase through `handler` until the run ends. What the handler returns is
    /// published; an error of the handler fails the run.
    pub fn run<E: Display>(
        &mut self,
        mut handler: impl FnMut(&Phase, &Config) -> Result<Values, E>,
    ) -> Result<(), RunError<E>> {
        while let Some(phase) = self.next_phase().map_err(RunError::Dialogue)? {
            match handler(&phase, &self.config) {
                Ok(values) => {
                    if let Err(error) = self.done(&values) {
                        // Still in the phase if the values were refused: then the agent receives
                        // the reason.
                        let _ = self.failed(&error.to_string());
                        return Err(RunError::Dialogue(error));
                    }
                }
                Err(error) => {
                    // The handler's error is the cause; that the agent could not be told as well
                    // would hide it.
                    let _ = self.failed(&format!("{error:#}"));
                    return Err(RunError::Phase { phase: phase.name, error });
                }
            }
        }
        Ok(())
    }

    fn in_phase(&self) -> Result<&str, PhaseError> {
        self.current
            .as_deref()
            .ok_or_else(|| PhaseError::Misuse("no phase has been started".into()))
    }

    fn send(&mut self, line: &str) -> Result<(), PhaseError> {
        if let Side::Agent { stream, .. } = &mut self.side {
            stream.get_mut().write_all(line.as_bytes())?;
        }
        Ok(())
    }
}

/// An agent that has sent the configuration and waits for `hello`.
pub(crate) struct Greeting {
    stream: BufReader<UnixStream>,
    component: String,
    host: String,
    pub(crate) config: Config,
}

impl Greeting {
    /// Waits for the configuration, which overrules `config`.
    pub(crate) fn read(stream: UnixStream, mut config: Config) -> Result<Greeting, PhaseError> {
        let mut stream = BufReader::new(stream);
        match read_message(&mut stream)? {
            FromAgent::Configure { component, host, config: with } => {
                config.overrule(with);
                Ok(Greeting { stream, component, host, config })
            }
            _ => Err(PhaseError::Protocol("something else before `configure`".into())),
        }
    }

    pub(crate) fn hello(mut self, phases: Vec<String>) -> Result<Session, PhaseError> {
        self.stream.get_mut().write_all(message::hello(&phases)?.as_bytes())?;
        let Greeting { stream, component, host, config } = self;
        let side = Side::Agent { stream, component, host };
        Ok(Session { phases, config, side, current: None, ended: false })
    }

    /// Ends the run instead.
    pub(crate) fn failed(mut self, error: &str) -> Result<(), PhaseError> {
        let line = message::failed(CONFIGURE, error)?;
        Ok(self.stream.get_mut().write_all(line.as_bytes())?)
    }
}

pub(crate) fn names(phases: &[&str]) -> Result<Vec<String>, PhaseError> {
    for (i, phase) in phases.iter().enumerate() {
        if phase.is_empty() || phases[..i].contains(phase) {
            return Err(PhaseError::Misuse(format!("phase `{phase}` is empty or named twice")));
        }
    }
    Ok(phases.iter().map(ToString::to_string).collect())
}

fn read_message(stream: &mut BufReader<UnixStream>) -> Result<FromAgent, PhaseError> {
    let mut line = Vec::new();
    stream.take(AGENT_LINE_LIMIT as u64).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        return message::read(&line[..line.len() - 1]);
    }
    Err(match line.len() {
        0 => PhaseError::Closed,
        AGENT_LINE_LIMIT => {
            PhaseError::Protocol(format!("a line of more than {AGENT_LINE_LIMIT} bytes"))
        }
        _ => PhaseError::Protocol("a line without its end, and closed the connection".into()),
    })
}
