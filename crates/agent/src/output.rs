//! A program's output: to its log as it is, to the watcher line by line; of much of it, the
//! beginning and the end.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::events::EventSender;
use crate::lines::{Lines, Piece};
use crate::proto::{Output, Ready, event::What};

/// Longest line of an event, in bytes; a longer one comes in several.
const LINE_LIMIT: usize = 64 * 1024;
/// Bytes of the end that are kept of what is longer than its limit.
const END: usize = 64 * 1024;
/// Bytes of lines that the watcher is told where the limit is longer, or an eighth of it where that
/// is more: each line costs the watcher some 0.1 ms, and the program's end comes after the last one.
const TOLD: u64 = 2 << 20;

/// Copies `pipe` until its end.
pub(crate) async fn copy(
    mut pipe: impl AsyncRead + Unpin,
    log: Arc<Log>,
    sender: Arc<EventSender>,
    mut ready_at: Option<String>,
) {
    let mut lines = Lines::new(LINE_LIMIT);
    let mut buffer = vec![0; 64 * 1024];
    let mut take = |line: &[u8]| {
        let line = String::from_utf8_lossy(line).into_owned();
        let ready = ready_at.as_ref().is_some_and(|text| line.contains(text));
        log.take_line(line, &sender);
        if ready {
            ready_at = None;
            sender.send(What::Ready(Ready {}));
        }
    };
    // A pipe that cannot be read has nothing more to give.
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        if let Err(error) = log.write(&buffer[..count]) {
            take(format!("loopscope: the log lacks what follows: {error}").as_bytes());
        }
        lines.push(&buffer[..count], |(Piece::Line(line) | Piece::Overlong(line))| take(line));
    }
    if let Some(line) = lines.finish() {
        take(&line);
    }
}

/// One of the two outputs of a component: its log file, and what the watcher receives.
#[derive(Debug)]
pub(crate) struct Log {
    is_stderr: bool,
    /// Bytes that are kept; `None`: all.
    limit: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` once it could not be written.
    file: Option<File>,
    /// Bytes in the file.
    written: u64,
    /// The newest bytes of those that did not fit.
    end: VecDeque<u8>,
    /// Bytes that were there before these.
    left_out: u64,
    /// Cost of the lines that the watcher was told.
    told: u64,
    /// The newest lines of those that it was not, their cost, and how many were before them.
    last_lines: VecDeque<String>,
    last_cost: u64,
    lines_left_out: u64,
    /// Nothing but what still fits is kept any more.
    settled: bool,
}

impl Log {
    pub(crate) fn create(folder: &Path, is_stderr: bool, limit: Option<u64>) -> io::Result<Log> {
        let name = if is_stderr { "stderr.log" } else { "stdout.log" };
        let state = State {
            file: Some(File::create(folder.join(name))?),
            written: 0,
            end: VecDeque::new(),
            left_out: 0,
            told: 0,
            last_lines: VecDeque::new(),
            last_cost: 0,
            lines_left_out: 0,
            settled: false,
        };
        Ok(Log { is_stderr, limit, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are kept from the beginning of the output.
    fn beginning(&self) -> u64 {
        before_end(self.limit)
    }

    /// What the lines that the watcher is told may cost; `None`: any amount.
    fn told_limit(&self) -> Option<u64> {
        self.limit.map(|limit| limit.min(TOLD).max(limit / 8))
    }

    /// Fails once; from then on there is no log.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let room = if state.end.is_empty() && state.left_out == 0 {
            self.beginning().saturating_sub(state.written)
        } else {
            0
        };
        let (fits, rest) =
            bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
        if state.settled {
            state.left_out += rest.len() as u64;
        } else {
            state.end.extend(rest);
            let beyond = state.end.len().saturating_sub(END);
            state.end.drain(..beyond);
            state.left_out += beyond as u64;
        }
        state.append(fits)
    }

    fn send_line(&self, line: String, sender: &EventSender) {
        sender.send(What::Output(Output { line, stderr: self.is_stderr }));
    }

    fn take_line(&self, line: String, sender: &EventSender) {
        let mut state = self.state();
        let is_first = state.last_lines.is_empty() && state.lines_left_out == 0;
        let limit = self.told_limit();
        if is_first && state.told + cost(&line) <= before_end(limit) {
            state.told += cost(&line);
            return self.send_line(line, sender);
        }
        state.last_cost += cost(&line);
        state.last_lines.push_back(line);
        let limit = limit.unwrap_or(u64::MAX);
        while (state.settled || state.told + state.last_cost > limit)
            && let Some(oldest) = state.last_lines.pop_front()
        {
            if state.lines_left_out == 0 {
                let note =
                    "loopscope: there is much of this; of what follows only the end is shown";
                self.send_line(note.to_owned(), sender);
            }
            state.last_cost -= cost(&oldest);
            state.lines_left_out += 1;
        }
    }

    /// Writes and tells the end of what was too long; bytes that were left out of the log. What
    /// comes after this and does not fit is lost.
    pub(crate) fn settle(&self, sender: &EventSender) -> u64 {
        let mut state = self.state();
        state.settled = true;
        let (end, left_out) = (std::mem::take(&mut state.end), state.left_out);
        let mut rest = Vec::from(end);
        if left_out > 0 {
            let mut note = format!("\nloopscope: {left_out} bytes left out here\n").into_bytes();
            note.append(&mut rest);
            rest = note;
        }
        if let Err(error) = state.append(&rest) {
            self.send_line(format!("loopscope: the log lacks its end: {error}"), sender);
        }
        if state.lines_left_out > 0 {
            let note = format!("loopscope: {} lines not shown here", state.lines_left_out);
            self.send_line(note, sender);
        }
        for line in std::mem::take(&mut state.last_lines) {
            self.send_line(line, sender);
        }
        left_out
    }
}

/// What is left of a limit for the beginning.
fn before_end(limit: Option<u64>) -> u64 {
    limit.map_or(u64::MAX, |limit| limit.saturating_sub(END as u64))
}

/// Memory that a line takes until the watcher has it, in bytes: no flood of empty lines fills the
/// memory.
fn cost(line: &str) -> u64 {
    line.len() as u64 + 128
}

impl State {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if let Err(error) = file.write_all(bytes) {
            self.file = None;
            return Err(error);
        }
        self.written += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Events;
    use crate::global::GlobalClock;

    /// The part of numbered lines that is kept, in the log and by the watcher.
    async fn kept(lines: usize, limit: Option<u64>) -> (String, Vec<String>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let events = Events::new(GlobalClock::new(
            None,
            loopscope_time::Frequency::from_hz(1_000_000_000).unwrap(),
        ));
        let sender = Arc::new(events.sender("c"));
        let log = Arc::new(Log::create(folder.path(), false, limit).unwrap());
        let text: String = (0..lines).map(|i| format!("line {i}\n")).collect();
        copy(text.as_bytes(), log.clone(), sender.clone(), None).await;
        let left_out = log.settle(&sender);
        let mut told = vec![];
        let mut receiver = events.watch().unwrap();
        while let Ok(Some(event)) = receiver.try_recv() {
            if let Some(What::Output(output)) = event.what {
                told.push(output.line);
            }
        }
        (std::fs::read_to_string(folder.path().join("stdout.log")).unwrap(), told, left_out)
    }

    #[tokio::test]
    async fn what_is_too_long_keeps_its_beginning_and_its_end_and_a_count() {
        const LIMIT: u64 = 200_000;
        let whole: String = (0..100_000).map(|i| format!("line {i}\n")).collect();
        let (log, told, left_out) = kept(100_000, Some(LIMIT)).await;
        let note = format!("\nloopscope: {left_out} bytes left out here\n");
        let (beginning, end) = log.split_once(&note).unwrap();
        assert_eq!(beginning.len() + end.len(), usize::try_from(LIMIT).unwrap());
        assert_eq!(beginning.len() + end.len() + usize::try_from(left_out).unwrap(), whole.len());
        assert!(whole.starts_with(beginning) && whole.ends_with(end));
        assert_eq!(told[0], "line 0");
        assert_eq!(told.last().unwrap(), "line 99999");
        let notes: Vec<_> = told.iter().filter(|line| line.starts_with("loopscope: ")).collect();
        assert!(notes[0].contains("there is much") && notes[1].contains("not shown"), "{notes:?}");
        let count: usize = notes[1].split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(told.len() - 2 + count, 100_000);
    }

    /// A flood must not keep its watcher from hearing of the program's end.
    #[tokio::test]
    async fn the_watcher_is_told_less_of_a_flood_than_the_log_holds() {
        const LIMIT: u64 = 16 << 20;
        let (log, told, _) = kept(1_000_000, Some(LIMIT)).await;
        assert!(log.len() as u64 > 11 << 20, "{}", log.len());
        assert!((10_000..20_000).contains(&told.len()), "{}", told.len());
        assert_eq!((told[0].as_str(), told.last().unwrap().as_str()), ("line 0", "line 999999"));
        let (_, told, _) = kept(100_000, Some(8 * LIMIT)).await;
        assert_eq!(told.len(), 100_000);
    }

    #[tokio::test]
    async fn what_just_fits_is_whole() {
        let size = |lines| (0..lines).map(|i| format!("line {i}\n").len() as u64).sum::<u64>();
        let (log, _, left_out) = kept(20_000, Some(size(20_000))).await;
        assert_eq!((log.len() as u64, left_out), (size(20_000), 0));
        let (_, told, _) = kept(1000, Some(1000 * (8 + 128))).await;
        assert_eq!(told.len(), 1000);
        let (log, told, left_out) = kept(20_000, None).await;
        assert_eq!((log.len() as u64, told.len(), left_out), (size(20_000), 20_000, 0));
    }
}
