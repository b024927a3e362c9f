//! The wrapper of programs that know nothing of phases: a command line for each phase.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use loopscope_phase::{Config, Functions, RunError};

/// Runs a command line in each phase, for components with `commands:`.
#[derive(Args, Debug)]
pub struct CommandsArgs {
    /// For each phase its name, the number of words, and the words of its command line; `configure`
    /// comes before the first phase.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What the configuration counts as among the phases.
const CONFIGURE: &str = "configure";

/// `loopscope-host commands`.
pub fn main_commands(arguments: CommandsArgs) -> Result<()> {
    let mut commands = read(arguments.words)?;
    let configure = commands.remove(CONFIGURE);
    let mut functions = Functions::new()
        .configure(|_: &mut (), _: &Config| configure.map_or(Ok(()), run(CONFIGURE)));
    for (phase, words) in commands {
        let name = phase.clone();
        functions =
            functions.on(&phase, move |(), _, _| run(&name)(words.clone()).map(|()| vec![]));
    }
    functions.run(&mut (), Config::default()).map_err(|error| match error {
        RunError::Dialogue(error) => error.into(),
        RunError::Phase { phase, error } => error.context(format!("phase {phase} failed")),
    })
}

/// The words of each phase's command line.
fn read(words: Vec<String>) -> Result<BTreeMap<String, Vec<String>>> {
    let mut commands = BTreeMap::new();
    let mut words = words.into_iter();
    while let Some(phase) = words.next() {
        let count = words.next().with_context(|| format!("phase {phase}: no number of words"))?;
        let count: usize = count
            .parse()
            .with_context(|| format!("phase {phase}: {count} is no number of words"))?;
        let command: Vec<String> = words.by_ref().take(count).collect();
        ensure!(count > 0 && command.len() == count, "phase {phase}: it has not {count} words");
        ensure!(!commands.contains_key(&phase), "phase {phase} is there twice");
        commands.insert(phase, command);
    }
    Ok(commands)
}

/// Runs a command line to its end.
fn run(phase: &str) -> impl Fn(Vec<String>) -> Result<()> {
    let phase = phase.to_owned();
    move |words| {
        let line = words.join(" ");
        let status = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .env_remove("LOOPSCOPE_PHASE_FD")
            .env("LOOPSCOPE_PHASE", &phase)
            .status()
            .with_context(|| format!("cannot start {line}"))?;
        if status.success() { Ok(()) } else { bail!("{line}: {}", ending(status)) }
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn each_phase_has_its_words() {
        let read = read(words("configure 1 true run 3 sh -c 2 stop 2 kill 7")).unwrap();
        let wanted = [("configure", "true"), ("run", "sh -c 2"), ("stop", "kill 7")];
        assert_eq!(read, wanted.map(|(phase, line)| (phase.to_owned(), words(line))).into());
    }

    #[test]
    fn what_is_no_table_is_named() {
        for (given, message) in [
            ("run", "no number of words"),
            ("run x a", "x is no number of words"),
            ("run 2 a", "it has not 2 words"),
            ("run 0", "it has not 0 words"),
            ("run 1 a run 1 b", "run is there twice"),
        ] {
            let error = read(words(given)).unwrap_err();
            assert!(error.to_string().contains(message), "{given}: {error}");
        }
    }

    #[test]
    fn the_end_of_a_command_is_told() {
        assert!(run("run")(words("true")).is_ok());
        for (line, message) in [
            ("sh -c exit\u{a0}3", "exit status"),
            ("./no-such-program", "cannot start ./no-such-program"),
        ] {
            let error = run("run")(words(line)).unwrap_err();
            assert!(error.to_string().contains(message), "{line}: {error}");
        }
        let kill = vec!["sh".to_owned(), "-c".to_owned(), "kill -9 $$".to_owned()];
        assert!(run("run")(kill).unwrap_err().to_string().ends_with("killed by signal 9"));
        let phase = vec!["sh".to_owned(), "-c".to_owned(), "test $LOOPSCOPE_PHASE = run".into()];
        assert!(run("run")(phase).is_ok());
    }
}
