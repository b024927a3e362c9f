//! The socket of the phase protocol, to one program.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::dialogue::{self, Answer, Dialogue, EnterError, LINE_LIMIT, Violation};
use crate::events::EventSender;
use crate::lines::{Lines, Piece};
use crate::proto::{PhaseBegun, PhaseDone, PhaseFailed, PhaseHello, Ready, event::What};

/// The agent's end of one program's phase socket.
#[derive(Debug)]
pub(crate) struct PhaseLink {
    dialogue: Arc<Mutex<Dialogue>>,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
}

impl PhaseLink {
    /// Sends `configure` and begins to listen. The handle ends with what the program says;
    /// `ended` becomes true when the program ends.
    pub(crate) fn open(
        socket: std::os::unix::net::UnixStream,
        configure: Vec<u8>,
        sender: Arc<EventSender>,
        ended: watch::Receiver<bool>,
    ) -> io::Result<(PhaseLink, JoinHandle<()>)> {
        socket.set_nonblocking(true)?;
        let (incoming, mut to_program) = UnixStream::from_std(socket)?.into_split();
        let (outgoing, mut messages) = mpsc::unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            let mut next = Some(configure);
            while let Some(message) = next {
                // A program that has closed its end is found out by the listener.
                if to_program.write_all(&message).await.is_err() {
                    break;
                }
                next = messages.recv().await;
            }
        });
        let dialogue = Arc::new(Mutex::new(Dialogue::default()));
        let listener = tokio::spawn(listen(incoming, dialogue.clone(), sender, ended));
        Ok((PhaseLink { dialogue, outgoing }, listener))
    }

    /// Starts a phase, at `start_ns` of CLOCK_MONOTONIC or at once.
    pub(crate) fn enter(
        &self,
        phase: &str,
        measured: bool,
        peers: &Value,
        start_ns: Option<i64>,
    ) -> Result<(), EnterError> {
        self.send(locked(&self.dialogue).enter(phase, measured, peers, start_ns)?);
        Ok(())
    }

    /// Asks the program to finish.
    pub(crate) fn end(&self) {
        self.send(dialogue::END.to_vec());
    }

    fn send(&self, message: Vec<u8>) {
        // The writer is gone when the program has closed its end; the listener says so.
        let _ = self.outgoing.send(message);
    }
}

fn locked(dialogue: &Mutex<Dialogue>) -> std::sync::MutexGuard<'_, Dialogue> {
    dialogue.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn listen(
    mut incoming: OwnedReadHalf,
    dialogue: Arc<Mutex<Dialogue>>,
    sender: Arc<EventSender>,
    mut ended: watch::Receiver<bool>,
) {
    let mut lines = Lines::new(LINE_LIMIT);
    let mut buffer = vec![0; LINE_LIMIT];
    loop {
        // A reset connection is one that the program has closed with messages unread.
        let count = incoming.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            break;
        }
        let mut violated = false;
        lines.push(&buffer[..count], |piece| {
            if violated {
                return;
            }
            let mut dialogue = locked(&dialogue);
            let phase = dialogue.current().unwrap_or_default().to_owned();
            let answer = match piece {
                Piece::Line(line) => dialogue.receive(line),
                Piece::Overlong(start) => Err(dialogue.overlong(start)),
            };
            drop(dialogue);
            violated = answer.is_err();
            report(answer, phase, &sender);
        });
        if violated {
            // Later messages cannot be trusted. The program is not read from any more, but its
            // socket stays open: it is for the controller to end it.
            ended.wait_for(|&ended| ended).await.ok();
            return;
        }
    }
    let Some(phase) = locked(&dialogue).current().map(str::to_owned) else { return };
    // Most often it is about to end, and how it ends says more.
    let end = ended.wait_for(|&ended| ended);
    if tokio::time::timeout(Duration::from_secs(1), end).await.is_err() {
        let error = "closed its phase socket without ending the phase".to_owned();
        sender.send(What::PhaseFailed(PhaseFailed { phase, error }));
    }
}

fn report(answer: Result<Answer, Violation>, phase: String, sender: &EventSender) {
    match answer {
        Ok(Answer::Hello(phases)) => {
            sender.send(What::PhaseHello(PhaseHello { phases }));
            sender.send(What::Ready(Ready {}));
        }
        Ok(Answer::Begun { phase, at_ns }) => {
            sender.send_of(at_ns, What::PhaseBegun(PhaseBegun { phase }));
        }
        Ok(Answer::Done { phase, values }) => {
            let values_json = Value::Object(values).to_string();
            sender.send(What::PhaseDone(PhaseDone { phase, values_json }));
        }
        Ok(Answer::Failed { phase, error }) => {
            sender.send(What::PhaseFailed(PhaseFailed { phase, error }));
        }
        Err(violation) => {
            let error = violation.to_string();
            sender.send(What::PhaseFailed(PhaseFailed { phase, error }));
        }
    }
}
