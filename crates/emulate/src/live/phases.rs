//! A router that takes part in an experiment: in every phase, and done with each at once.

use std::io;

use loopscope_phase::{Config, PhaseError, Session};
use loopscope_timer::now;
use serde_json::{Map, Value};

use crate::EmulateError;
use crate::control::{Command, Control};

/// The session with the agent, if there is one; the phases are the document's. `open` is called
/// with what the component was configured with before the agent receives a report of the router: a
/// program that waits for that may send at once.
pub fn connect(open: impl FnOnce(&Config)) -> Result<Option<Session>, PhaseError> {
    Session::connect_configured(|config| {
        open(config);
        let phases = config.get("phases").and_then(Value::as_array);
        let names = phases.into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    })
}

/// What the component was configured with.
pub fn document(config: &Config) -> Value {
    let pair = |key: &str| Some((key.to_owned(), config.get(key)?.clone()));
    Value::Object(config.keys().filter_map(pair).collect::<Map<_, _>>())
}

/// Lets the experiment know that there is no router.
pub fn refuse(session: &mut Session, error: &str) {
    // Received or not, this program ends.
    if let Ok(Some(_)) = session.next_phase() {
        let _ = session.failed(error);
    }
}

/// Follows the phases in a thread of its own and tells the router of the first measured one and of
/// the end.
pub fn follow(mut session: Session, control: Control) -> Result<(), EmulateError> {
    let follow = move || {
        let end = match obey(&mut session, &control) {
            Ok(()) => Command::End,
            Err(error) => Command::Abandon(error.to_string()),
        };
        control.tell(end);
    };
    let thread = std::thread::Builder::new().name("phases".into());
    let error = EmulateError::system::<io::Error>("cannot start a thread");
    thread.spawn(follow).map(drop).map_err(error)
}

fn obey(session: &mut Session, control: &Control) -> Result<(), PhaseError> {
    while let Some(phase) = session.next_phase()? {
        if phase.measured {
            // A router that has ended says why by itself.
            let _ = control.measured(now());
        }
        session.done(&vec![])?;
    }
    Ok(())
}
