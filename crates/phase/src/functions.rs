//! Programs that are tables of functions, one for each phase.

use std::fmt::Display;

use crate::message::CONFIGURE;
use crate::session::{Greeting, names};
use crate::{Config, Phase, RunError, Session, Values, inherited};

type Configure<'a, S, E> = Box<dyn FnOnce(&mut S, &Config) -> Result<(), E> + 'a>;
type Function<'a, S, E> = Box<dyn FnMut(&mut S, &Phase, &Config) -> Result<Values, E> + 'a>;

/// A function for each phase, and one for the configuration. `S` is the state that they share.
///
/// ```no_run
/// use loopscope_phase::{Config, Functions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// struct State {
///     count: i64,
/// }
/// let arguments = Config::from_arguments(std::env::args().skip(1))?;
/// let functions = Functions::new()
///     .configure(|state: &mut State, config| -> std::io::Result<()> {
///         state.count = config.get("count").and_then(|count| count.as_i64()).unwrap_or(100);
///         Ok(())
///     })
///     .on("listen", |_, _, _| Ok(vec![("port".to_owned(), 40123.into())]))
///     .on("run", |state, phase, _| {
///         println!("{} messages to {} peers", state.count, phase.peers.len());
///         Ok(vec![])
///     });
/// functions.run(&mut State { count: 0 }, arguments)?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Functions<'a, S, E> {
    configure: Option<Configure<'a, S, E>>,
    phases: Vec<(String, Function<'a, S, E>)>,
}

impl<'a, S, E: Display> Functions<'a, S, E> {
    /// An empty table.
    pub fn new() -> Self {
        Functions { configure: None, phases: vec![] }
    }

    /// Sets the function that is called once, with the configuration, before the program says which
    /// phases it takes part in. Its error fails the run.
    pub fn configure(
        mut self,
        function: impl FnOnce(&mut S, &Config) -> Result<(), E> + 'a,
    ) -> Self {
        self.configure = Some(Box::new(function));
        self
    }

    /// Adds the function of a phase. What it returns is published, its error fails the run.
    pub fn on(
        mut self,
        phase: &str,
        function: impl FnMut(&mut S, &Phase, &Config) -> Result<Values, E> + 'a,
    ) -> Self {
        self.phases.push((phase.to_owned(), Box::new(function)));
        self
    }

    /// Takes part in the run until its end. Without an agent the phases come in the order of the
    /// table, with `command_line` as configuration; with an agent its configuration wins, key by
    /// key.
    pub fn run(self, state: &mut S, command_line: Config) -> Result<(), RunError<E>> {
        let Functions { configure, mut phases } = self;
        let configure = |state: &mut S, config: &Config| match configure {
            Some(function) => function(state, config),
            None => Ok(()),
        };
        let of_configure = |error| RunError::Phase { phase: CONFIGURE.to_owned(), error };
        let known: Vec<&str> = phases.iter().map(|(name, _)| name.as_str()).collect();
        let known = names(&known).map_err(RunError::Dialogue)?;
        let mut session = match inherited::take().map_err(RunError::Dialogue)? {
            Some(stream) => {
                let greeting = Greeting::read(stream, command_line).map_err(RunError::Dialogue)?;
                if let Err(error) = configure(state, &greeting.config) {
                    // The error of the function is the cause; that the agent could not be told as
                    // well would hide it.
                    let _ = greeting.failed(&format!("{error:#}"));
                    return Err(of_configure(error));
                }
                greeting.hello(known).map_err(RunError::Dialogue)?
            }
            None => {
                configure(state, &command_line).map_err(of_configure)?;
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                Session::alone(&known, command_line).map_err(RunError::Dialogue)?
            }
        };
        session.run(|phase, config| {
            let function = phases.iter_mut().find(|(name, _)| *name == phase.name);
            // The session refuses phases that it was not given.
            function.map_or(Ok(vec![]), |(_, function)| function(state, phase, config))
        })
    }
}

impl<S, E: Display> Default for Functions<'_, S, E> {
    fn default() -> Self {
        Functions::new()
    }
}

impl<S, E> std::fmt::Debug for Functions<'_, S, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phases = self.phases.iter().map(|(name, _)| name);
        f.debug_list().entries(phases).finish()
    }
}
