//! A program's output: to its log as it is, to the watcher line by line.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::events::Voice;
use crate::lines::{Lines, Piece};
use crate::proto::{Output, Ready, event::What};

/// Longest line of an event, in bytes; a longer one comes in several.
const LINE_LIMIT: usize = 64 * 1024;

/// Copies `pipe` until its end.
pub(crate) async fn copy(
    mut pipe: impl AsyncRead + Unpin,
    mut log: Log,
    voice: Arc<Voice>,
    mut ready_at: Option<String>,
) {
    let mut lines = Lines::new(LINE_LIMIT);
    let mut buffer = vec![0; 64 * 1024];
    let stderr = log.is_stderr;
    let mut say = |line: &[u8]| {
        let line = String::from_utf8_lossy(line).into_owned();
        let ready = ready_at.as_ref().is_some_and(|text| line.contains(text));
        voice.say(What::Output(Output { line, stderr }));
        if ready {
            ready_at = None;
            voice.say(What::Ready(Ready {}));
        }
    };
    // A pipe that cannot be read has nothing more to give.
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        if let Err(error) = log.write(&buffer[..count]) {
            say(format!("loopscope: the log lacks what follows: {error}").as_bytes());
        }
        lines.push(&buffer[..count], |(Piece::Line(line) | Piece::Overlong(line))| say(line));
    }
    if let Some(line) = lines.finish() {
        say(&line);
    }
}

/// The file beside the component's others that has its output.
#[derive(Debug)]
pub(crate) struct Log {
    /// `None` once it could not be written.
    file: Option<File>,
    is_stderr: bool,
}

impl Log {
    pub(crate) fn create(folder: &Path, is_stderr: bool) -> io::Result<Log> {
        let name = if is_stderr { "stderr.log" } else { "stdout.log" };
        Ok(Log { file: Some(File::create(folder.join(name))?), is_stderr })
    }

    /// Fails once; from then on there is no log.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes).inspect_err(|_| self.file = None)
    }
}
