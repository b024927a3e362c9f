//! The agent's side of the phase protocol (`schema/phase-protocol.md`): which messages may go out,
//! and what a program's line means. No I/O.

use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;

/// Version of the protocol.
pub const VERSION: u64 = 1;
/// Longest line of a program in bytes, without its newline.
pub const LINE_LIMIT: usize = 64 * 1024;
/// Longest line to a program, with its newline: a phase message names every component.
pub const LIMIT_TO_PROGRAM: usize = 16 << 20;

/// The peers of phase messages, as JSON on one line. Clones share the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Peers(Arc<str>);

impl Peers {
    /// The JSON: without blanks, keys in order.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Peers {
    fn default() -> Peers {
        Peers("{}".into())
    }
}

impl FromStr for Peers {
    type Err = serde_json::Error;

    fn from_str(json: &str) -> serde_json::Result<Peers> {
        let value: Value = serde_json::from_str(json)?;
        Ok(Peers(value.to_string().into()))
    }
}

/// State of the dialogue with one program.
#[derive(Debug, Default)]
pub struct Dialogue {
    /// The phases that `hello` named; `None` before it.
    phases: Option<Vec<String>>,
    current: Option<String>,
    /// Whether the program still has to say when it began the current phase.
    awaits_begun: bool,
}

/// A message of a program.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// It takes part in these phases.
    Hello(Vec<String>),
    /// It began this phase, which had a common start.
    Begun {
        /// The phase in progress.
        phase: String,
        /// CLOCK_MONOTONIC.
        at_ns: i64,
    },
    /// It has ended this phase and publishes these values.
    Done {
        /// The phase that was in progress.
        phase: String,
        /// Strings and numbers.
        values: Map<String, Value>,
    },
    /// It cannot go on.
    Failed {
        /// The phase that it names.
        phase: String,
        /// The reason.
        error: String,
    },
}

/// A line that the protocol does not allow.
#[derive(Debug, Error, PartialEq)]
#[error("broke the phase protocol: {what}: {line}")]
pub struct Violation {
    what: String,
    line: String,
}

/// Why a phase cannot be entered.
#[derive(Debug, Error, PartialEq)]
pub enum EnterError {
    /// No `hello` yet.
    #[error("has not said hello yet")]
    NoHello,
    /// Another phase is in progress.
    #[error("is still in phase {0:?}")]
    Busy(String),
    /// `hello` did not name it.
    #[error("takes part in the phases {0:?} only")]
    NotItsPhase(Vec<String>),
    /// The message would be longer than the protocol allows.
    #[error("the phase message has {0} bytes; {LIMIT_TO_PROGRAM} are allowed")]
    TooLong(usize),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Message {
    Hello {
        version: u64,
        phases: Vec<String>,
    },
    Begun {
        phase: String,
        at_ns: i64,
    },
    Done {
        phase: String,
        #[serde(default)]
        values: Map<String, Value>,
    },
    Failed {
        phase: String,
        error: String,
    },
}

/// The `configure` line, with its newline, or its length if that is too long.
pub fn configure(component: &str, host: &str, config: &Value) -> Result<Vec<u8>, usize> {
    let message = json!({
        "type": "configure", "version": VERSION, "component": component, "host": host, "config": config,
    });
    line(message.to_string())
}

/// The `end` line, with its newline.
pub const END: &[u8] = b"{\"type\":\"end\"}\n";

fn line(message: String) -> Result<Vec<u8>, usize> {
    let mut bytes = message.into_bytes();
    if bytes.len() >= LIMIT_TO_PROGRAM {
        return Err(bytes.len());
    }
    bytes.push(b'\n');
    Ok(bytes)
}

impl Dialogue {
    /// Starts `phase`, at `start_ns` of CLOCK_MONOTONIC or at once; the line to send, with its
    /// newline.
    pub fn enter(
        &mut self,
        phase: &str,
        measured: bool,
        peers: &Peers,
        start_ns: Option<i64>,
    ) -> Result<Vec<u8>, EnterError> {
        let phases = self.phases.as_ref().ok_or(EnterError::NoHello)?;
        if !phases.iter().any(|p| p == phase) {
            return Err(EnterError::NotItsPhase(phases.clone()));
        }
        if let Some(current) = &self.current {
            return Err(EnterError::Busy(current.clone()));
        }
        let start = start_ns.map(|ns| format!(r#","start_ns":{ns}"#)).unwrap_or_default();
        let (peers, name) = (peers.as_str(), Value::from(phase));
        let message = format!(
            r#"{{"measured":{measured},"peers":{peers},"phase":{name}{start},"type":"phase"}}"#
        );
        let line = line(message).map_err(EnterError::TooLong)?;
        self.current = Some(phase.to_owned());
        self.awaits_begun = start_ns.is_some();
        Ok(line)
    }

    /// The phase in progress.
    pub fn current(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Handles a `line` (without newline) of the program and returns its meaning.
    pub fn receive(&mut self, line: &[u8]) -> Result<Answer, Violation> {
        let violation = |what: String| Violation { what, line: shown(line) };
        let message: Message =
            serde_json::from_slice(line).map_err(|e| violation(format!("not a message: {e}")))?;
        match message {
            Message::Hello { version, .. } if version != VERSION => Err(violation(format!(
                "it speaks version {version}, this agent speaks version {VERSION}"
            ))),
            Message::Hello { .. } if self.phases.is_some() => {
                Err(violation("a second hello".to_owned()))
            }
            Message::Hello { phases, .. } => {
                self.phases = Some(phases.clone());
                Ok(Answer::Hello(phases))
            }
            Message::Begun { phase, at_ns } => {
                if self.current.as_deref() != Some(&phase) || !self.awaits_begun {
                    return Err(violation(format!("begun {phase:?}, which is not to begin")));
                }
                self.awaits_begun = false;
                Ok(Answer::Begun { phase, at_ns })
            }
            Message::Done { phase, .. } if self.current.as_deref() != Some(&phase) => {
                Err(violation(match &self.current {
                    Some(current) => format!("done with {phase:?} during {current:?}"),
                    None => format!("done with {phase:?}, which is not in progress"),
                }))
            }
            Message::Done { values, .. }
                if !values.values().all(|v| v.is_string() || v.is_number()) =>
            {
                Err(violation("values are strings and numbers only".to_owned()))
            }
            Message::Done { phase, values } => {
                self.current = None;
                Ok(Answer::Done { phase, values })
            }
            Message::Failed { phase, error } => {
                self.current = None;
                Ok(Answer::Failed { phase, error })
            }
        }
    }

    /// The program sent more than [`LINE_LIMIT`] bytes without a newline; `start` are the first.
    pub fn overlong(&self, start: &[u8]) -> Violation {
        Violation { what: format!("a line of more than {LINE_LIMIT} bytes"), line: shown(start) }
    }
}

/// Enough of the offending text to recognise it.
fn shown(line: &[u8]) -> String {
    const SHOWN: usize = 200;
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
    format!("{text}{}", if line.len() > SHOWN { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeted() -> Dialogue {
        let mut dialogue = Dialogue::default();
        let hello = br#"{"type":"hello","version":1,"phases":["listen","run"],"more":[]}"#;
        let said = dialogue.receive(hello).unwrap();
        assert_eq!(said, Answer::Hello(vec!["listen".into(), "run".into()]));
        dialogue
    }

    #[test]
    fn a_phase_is_entered_once_and_ended_by_its_own_done() {
        let mut dialogue = greeted();
        let peers = json!({"a": {"address": "10.0.0.1"}});
        // The text comes from elsewhere, and is one line here.
        let given: Peers = format!("{peers:#}").parse().unwrap();
        let line = dialogue.enter("listen", true, &given, None).unwrap();
        assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
        assert_eq!(line.last(), Some(&b'\n'));
        let sent: Value = serde_json::from_slice(&line).unwrap();
        let wanted = json!({"type":"phase","phase":"listen","measured":true,"peers":peers});
        assert_eq!(sent, wanted);
        assert_eq!(
            dialogue.enter("run", false, &given, None),
            Err(EnterError::Busy("listen".into()))
        );
        assert!(dialogue.receive(br#"{"type":"done","phase":"run"}"#).is_err());
        let said = dialogue.receive(br#"{"type":"done","phase":"listen","values":{"port":7}}"#);
        let values = json!({"port": 7}).as_object().unwrap().clone();
        assert_eq!(said, Ok(Answer::Done { phase: "listen".into(), values }));
        assert!(dialogue.receive(br#"{"type":"done","phase":"listen"}"#).is_err());
        assert!(dialogue.enter("run", false, &given, None).is_ok());
    }

    #[test]
    fn nothing_is_entered_before_hello_or_beyond_it() {
        let mut dialogue = Dialogue::default();
        assert_eq!(dialogue.enter("run", false, &Peers::default(), None), Err(EnterError::NoHello));
        let wanted = EnterError::NotItsPhase(vec!["listen".into(), "run".into()]);
        assert_eq!(greeted().enter("connect", false, &Peers::default(), None), Err(wanted));
    }

    #[test]
    fn a_common_start_is_sent_and_answered_once() {
        let begun = br#"{"type":"begun","phase":"run","at_ns":42}"#;
        let mut dialogue = greeted();
        let line = dialogue.enter("run", true, &Peers::default(), Some(41)).unwrap();
        let sent: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(sent["start_ns"], 41);
        let other = br#"{"type":"begun","phase":"listen","at_ns":42}"#;
        assert!(dialogue.receive(other).is_err());
        let answer = dialogue.receive(begun);
        assert_eq!(answer, Ok(Answer::Begun { phase: "run".into(), at_ns: 42 }));
        assert!(dialogue.receive(begun).is_err());
        dialogue.receive(br#"{"type":"done","phase":"run"}"#).unwrap();
        // Without a start there is nothing to say.
        dialogue.enter("run", true, &Peers::default(), None).unwrap();
        assert!(dialogue.receive(begun).is_err());
    }

    #[test]
    fn what_the_protocol_forbids_names_the_text() {
        let mut dialogue = greeted();
        dialogue.enter("run", false, &Peers::default(), None).unwrap();
        for line in [
            "hello?",
            r#"{"type":"goodbye"}"#,
            r#"{"type":"hello","version":1,"phases":[]}"#,
            r#"{"type":"done"}"#,
            r#"{"type":"done","phase":"run","values":{"x":[1]}}"#,
            "",
        ] {
            let violation = dialogue.receive(line.as_bytes()).unwrap_err();
            assert!(violation.to_string().ends_with(line), "{violation}");
        }
        let other = Dialogue::default().receive(br#"{"type":"hello","version":2,"phases":[]}"#);
        assert!(other.unwrap_err().to_string().contains("version 2"));
        assert!(dialogue.overlong(&[b'x'; 5000]).to_string().len() < 400);
    }

    #[test]
    fn a_message_longer_than_a_line_is_refused() {
        let peers = json!({"a": "x".repeat(LIMIT_TO_PROGRAM)});
        let (mut dialogue, long) = (greeted(), peers.to_string().parse().unwrap());
        assert!(matches!(dialogue.enter("run", false, &long, None), Err(EnterError::TooLong(_))));
        assert_eq!(dialogue.current(), None);
        assert!(configure("c", "h", &peers).is_err());
    }
}
