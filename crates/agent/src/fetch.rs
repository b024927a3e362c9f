//! Sending a folder's files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crate::proto::FileChunk;

/// Bytes in a chunk; a gRPC message holds 4 MiB.
const CHUNK: usize = 512 * 1024;

/// Hands every regular file below `folder` to `send`, in order of name, in chunks. Stops early
/// when `send` says `false`.
pub(crate) fn send_files(folder: &Path, mut send: impl FnMut(FileChunk) -> bool) -> io::Result<()> {
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        let kind = path.symlink_metadata()?.file_type();
        if kind.is_dir() {
            let mut inside =
                fs::read_dir(&path)?.map(|e| Ok(e?.path())).collect::<io::Result<Vec<_>>>()?;
            // The last is taken first.
            inside.sort_by(|a, b| b.cmp(a));
            pending.extend(inside);
        } else if kind.is_file() && !send_file(folder, &path, &mut send)? {
            return Ok(());
        }
    }
    Ok(())
}

fn send_file(
    folder: &Path,
    path: &Path,
    send: &mut impl FnMut(FileChunk) -> bool,
) -> io::Result<bool> {
    let relative = path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned();
    let mut file = File::open(path)?;
    let mut next = read_chunk(&mut file)?;
    loop {
        let data = std::mem::take(&mut next);
        // Only a full chunk can have a successor.
        let last = data.len() < CHUNK || {
            next = read_chunk(&mut file)?;
            next.is_empty()
        };
        if !send(FileChunk { path: relative.clone(), data, last }) {
            return Ok(false);
        }
        if last {
            return Ok(true);
        }
    }
}

fn read_chunk(file: &mut File) -> io::Result<Vec<u8>> {
    let mut data = vec![];
    file.take(CHUNK as u64).read_to_end(&mut data)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_byte_of_every_file_arrives_and_each_file_ends_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut wanted = BTreeMap::new();
        for (name, size) in [
            ("empty", 0),
            ("a/one", 1),
            ("a/full", CHUNK),
            ("a/b/more", 2 * CHUNK + 7),
            ("z", CHUNK - 1),
        ] {
            let content: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            fs::write(folder.path().join(name), &content).unwrap();
            wanted.insert(name.to_owned(), content);
        }
        std::os::unix::fs::symlink("empty", folder.path().join("link")).unwrap();
        let (mut got, mut ended) = (BTreeMap::<String, Vec<u8>>::new(), vec![]);
        send_files(folder.path(), |chunk| {
            assert!(!ended.contains(&chunk.path), "{} goes on after its end", chunk.path);
            got.entry(chunk.path.clone()).or_default().extend(chunk.data);
            if chunk.last {
                ended.push(chunk.path);
            }
            true
        })
        .unwrap();
        assert_eq!(got, wanted);
        ended.sort();
        assert_eq!(ended, wanted.into_keys().collect::<Vec<_>>());
    }
}
