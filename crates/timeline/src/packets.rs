//! Where a stream's packets are: stream files, looked through by the heads of their packets.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use loopscope_ctf::packet::{self, RECORDS};
use loopscope_time::Counter;

use crate::error::BuildError;

/// Packets that follow each other in a stream file, none of which says that it begins before the end
/// of its predecessor. A stream whose stamps are damaged has several runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where in the file.
    pub from: u64,
    /// The first byte after it.
    pub until: u64,
    /// Counter at its begin.
    pub begin: Counter,
}

/// A problem of a stream, and the byte of its file where it is.
pub(crate) type Damage = (u64, String);

/// Read at once: what tells small packets apart costs no system call for each, and of large ones no
/// more than a page is read.
const PIECE: usize = 4096;

/// Finds a stream's packets, and what is wrong with them. `declared` are its stream classes.
pub(crate) fn find(
    path: &Path,
    declared: impl Fn(u32) -> bool,
) -> Result<(Vec<Run>, Vec<Damage>), BuildError> {
    let at = |source| BuildError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(at)?;
    let size = file.metadata().map_err(at)?.len();
    let (mut runs, mut damage) = (Vec::<Run>::new(), Vec::new());
    let mut next_sequence = 0;
    let (mut offset, mut last) = (0, Counter(0));
    let (mut piece, mut piece_at) = (Vec::new(), 0);
    while offset < size {
        let wanted = RECORDS.min((size - offset) as usize);
        if piece.is_empty() || offset + wanted as u64 > piece_at + piece.len() as u64 {
            piece.resize(PIECE.min((size - offset) as usize), 0);
            file.read_exact_at(&mut piece, offset).map_err(at)?;
            piece_at = offset;
        }
        let head = &piece[(offset - piece_at) as usize..];
        let context = match packet::get_context(head, size - offset) {
            Ok(context) => context,
            Err(what) => {
                let what =
                    format!("at byte {offset}: {what}; the rest of the stream is unreadable");
                damage.push((offset, what));
                break;
            }
        };
        if context.sequence != next_sequence {
            let what =
                format!("packet {} is where packet {next_sequence} should be", context.sequence);
            damage.push((offset, what));
        }
        next_sequence = context.sequence.wrapping_add(1);
        if !declared(context.stream_id) {
            let what = format!("stream class {} is not declared", context.stream_id);
            damage.push((offset, what));
        }
        let until = offset + context.packet_size as u64;
        match runs.last_mut() {
            Some(run) if context.begin >= last => run.until = until,
            _ => runs.push(Run { from: offset, until, begin: context.begin }),
        }
        (offset, last) = (until, context.begin.max(context.end));
    }
    Ok((runs, damage))
}

/// The stream files of a trace directory, by name.
pub(crate) fn files(dir: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let at = |source: io::Error| BuildError::Io { path: dir.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(at)? {
        let entry = entry.map_err(at)?;
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        if !hidden && name != "metadata" && entry.file_type().map_err(at)?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}
