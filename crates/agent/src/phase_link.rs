//! The socket of the phase protocol, to one program.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::dialogue::{self, Answer, Dialogue, EnterError, LINE_LIMIT, Peers, Violation};
use crate::events::{EventSender, monotonic_ns};
use crate::lines::{Lines, Piece};
use crate::proto::{PhaseBegun, PhaseDone, PhaseFailed, PhaseHello, Ready, event::What};

/// For how long after a common start the agent does not listen to a program that takes part in it.
///
/// The program says at once that it has begun. An agent that woke up for that would take the
/// processor from programs that are still to begin: bench/control/skew.py measures by how much.
const QUIET: Duration = Duration::from_millis(1);

/// The agent's end of one program's phase socket.
#[derive(Debug)]
pub(crate) struct PhaseLink {
    dialogue: Arc<Mutex<Dialogue>>,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    /// Until when the listener is to sleep.
    quiet_until: watch::Sender<Option<Instant>>,
}

impl PhaseLink {
    /// Sends `configure` and begins to listen. The handle ends with what the program says;
    /// `ended` becomes true when the program ends.
    pub(crate) fn open(
        socket: StdUnixStream,
        configure: Vec<u8>,
        sender: Arc<EventSender>,
        ended: watch::Receiver<bool>,
    ) -> io::Result<(PhaseLink, JoinHandle<()>)> {
        socket.set_nonblocking(true)?;
        let incoming = UnixStream::from_std(socket.try_clone()?)?;
        let (outgoing, mut messages) = mpsc::unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            let mut next = Some(configure);
            while let Some(message) = next {
                // A program that has closed its end is found out by the listener.
                if write(&socket, &message).await.is_err() {
                    break;
                }
                next = messages.recv().await;
            }
        });
        let dialogue = Arc::new(Mutex::new(Dialogue::default()));
        let (quiet_until, quiet) = watch::channel(None);
        let listener = tokio::spawn(listen(incoming, dialogue.clone(), sender, quiet, ended));
        Ok((PhaseLink { dialogue, outgoing, quiet_until }, listener))
    }

    /// Starts a phase, at `start_ns` of CLOCK_MONOTONIC or at once.
    pub(crate) fn enter(
        &self,
        phase: &str,
        measured: bool,
        peers: &Peers,
        start_ns: Option<i64>,
    ) -> Result<(), EnterError> {
        let message = locked(&self.dialogue).enter(phase, measured, peers, start_ns)?;
        if let Some(start_ns) = start_ns {
            let from_now = u64::try_from(start_ns - monotonic_ns()).unwrap_or(0);
            let start = Instant::now() + Duration::from_nanos(from_now);
            self.quiet_until.send_replace(Some(start + QUIET));
        }
        self.send(message);
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

/// Writes through a registration with the runtime that lasts as long as the message: one that lasts
/// would wake up the agent for what arrives, see [`QUIET`].
async fn write(socket: &StdUnixStream, message: &[u8]) -> io::Result<()> {
    UnixStream::from_std(socket.try_clone()?)?.write_all(message).await
}

async fn listen(
    mut incoming: UnixStream,
    dialogue: Arc<Mutex<Dialogue>>,
    sender: Arc<EventSender>,
    mut quiet: watch::Receiver<Option<Instant>>,
    mut ended: watch::Receiver<bool>,
) {
    let mut lines = Lines::new(LINE_LIMIT);
    let mut buffer = vec![0; LINE_LIMIT];
    loop {
        let read = tokio::select! {
            biased;
            Ok(()) = quiet.changed() => {
                let until = quiet.borrow_and_update().unwrap_or_else(Instant::now);
                incoming = match silent(incoming, until, &mut ended).await {
                    Ok(incoming) => incoming,
                    Err(error) => {
                        let phase = locked(&dialogue).current().unwrap_or_default().to_owned();
                        let error = format!("the agent cannot listen to it any more: {error}");
                        sender.send(What::PhaseFailed(PhaseFailed { phase, error }));
                        return;
                    }
                };
                continue;
            }
            read = incoming.read(&mut buffer) => read,
        };
        // A reset connection is one that the program has closed with messages unread.
        let count = read.unwrap_or(0);
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

/// The socket again, after a time in which nothing that arrives wakes up the agent. The end of the
/// program ends it sooner.
async fn silent(
    socket: UnixStream,
    until: Instant,
    ended: &mut watch::Receiver<bool>,
) -> io::Result<UnixStream> {
    let unregistered = socket.into_std()?;
    // The time that has passed is not an error.
    let _ = tokio::time::timeout_at(until, ended.wait_for(|&ended| ended)).await;
    UnixStream::from_std(unregistered)
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::AsFd;

    use loopscope_time::Frequency;
    use tokio::sync::mpsc::UnboundedReceiver;

    use super::*;
    use crate::events::Events;
    use crate::global::GlobalClock;
    use crate::proto::Event;

    const LONG: Duration = Duration::from_secs(10);

    struct Linked {
        link: PhaseLink,
        program: StdUnixStream,
        /// The inode of the agent's end.
        inode: u64,
        end: watch::Sender<bool>,
        events: UnboundedReceiver<Option<Event>>,
    }

    impl Linked {
        /// A program that has said hello and takes part in `run`.
        async fn new() -> Linked {
            let events =
                Events::new(GlobalClock::new(None, Frequency::from_hz(1_000_000_000).unwrap()));
            let (socket, program) = StdUnixStream::pair().unwrap();
            let inode = rustix::fs::fstat(socket.as_fd()).unwrap().st_ino;
            let (end, ended) = watch::channel(false);
            let sender = Arc::new(events.sender("c"));
            let (link, _) = PhaseLink::open(socket, b"{}\n".to_vec(), sender, ended).unwrap();
            let events = events.watch().unwrap();
            let mut linked = Linked { link, program, inode, end, events };
            linked.say(r#"{"type":"hello","version":1,"phases":["run"]}"#);
            assert!(matches!(linked.heard().await, What::PhaseHello(_)));
            assert!(matches!(linked.heard().await, What::Ready(_)));
            linked
        }

        fn enter(&self, from_now: Duration) -> i64 {
            let start_ns = monotonic_ns() + i64::try_from(from_now.as_nanos()).unwrap();
            self.link.enter("run", true, &Peers::default(), Some(start_ns)).unwrap();
            start_ns
        }

        fn say(&mut self, line: &str) {
            writeln!(self.program, "{line}").unwrap();
        }

        async fn heard(&mut self) -> What {
            let event = tokio::time::timeout(LONG, self.events.recv()).await;
            event.expect("nothing is heard").unwrap().unwrap().what.unwrap()
        }

        /// Whether what arrives wakes up the agent: an epoll instance of this process watches the
        /// socket (proc_pid_fdinfo(5)).
        fn is_watched(&self) -> bool {
            let socket = format!("ino:{:x}", self.inode);
            let infos = std::fs::read_dir("/proc/self/fdinfo").unwrap();
            let mut texts =
                infos.filter_map(|info| std::fs::read_to_string(info.unwrap().path()).ok());
            texts.any(|text| text.lines().any(|l| l.split_whitespace().any(|word| word == socket)))
        }

        async fn wait_until_watched(&self, watched: bool) {
            let change = async {
                while self.is_watched() != watched {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(LONG, change).await.expect("the socket is watched, or is not");
        }
    }

    #[tokio::test]
    async fn nothing_wakes_up_the_agent_while_programs_begin() {
        let mut linked = Linked::new().await;
        assert!(linked.is_watched());
        let start_ns = linked.enter(Duration::from_millis(300));
        linked.wait_until_watched(false).await;
        let mut lines = BufReader::new(linked.program.try_clone().unwrap()).lines();
        let (configure, phase) = (lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap());
        assert!(configure == "{}" && phase.contains(&start_ns.to_string()), "{configure} {phase}");
        assert!(!linked.is_watched(), "writing has it watched again");
        linked.say(&format!(r#"{{"type":"begun","phase":"run","at_ns":{start_ns}}}"#));
        assert!(matches!(linked.heard().await, What::PhaseBegun(_)));
        assert!(monotonic_ns() >= start_ns + QUIET.as_nanos() as i64, "it was heard too early");
        linked.wait_until_watched(true).await;
        linked.say(r#"{"type":"done","phase":"run"}"#);
        assert!(matches!(linked.heard().await, What::PhaseDone(_)));
    }

    #[tokio::test]
    async fn the_last_words_of_a_program_are_heard_before_the_common_start() {
        let mut linked = Linked::new().await;
        linked.enter(Duration::from_secs(3600));
        linked.wait_until_watched(false).await;
        linked.say(r#"{"type":"failed","phase":"run","error":"no camera"}"#);
        linked.end.send_replace(true);
        let What::PhaseFailed(failed) = linked.heard().await else { panic!("no failure") };
        assert_eq!(failed.error, "no camera");
    }
}
