//! A directory that is made: whole, or not there.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ImportError, io};

/// It is made next to its place and moved there at the end.
pub(crate) struct Output {
    out: PathBuf,
    partial: PathBuf,
}

impl Output {
    pub fn new(out: &Path) -> Result<Output, ImportError> {
        if out.symlink_metadata().is_ok() {
            let empty = fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_none());
            if !empty {
                return Err(ImportError::Taken(out.to_owned()));
            }
        }
        let out = std::path::absolute(out).map_err(io(out))?;
        let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let partial = out.with_file_name(format!(".{name}.partial-{}", std::process::id()));
        fs::create_dir_all(&partial).map_err(io(&partial))?;
        Ok(Output { out, partial })
    }

    /// Where to make it.
    pub fn place(&self) -> &Path {
        &self.partial
    }

    /// Moves what was made to its place.
    pub fn keep(self) -> Result<(), ImportError> {
        fs::rename(&self.partial, &self.out).map_err(io(&self.out))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // After it was moved there is nothing here.
        let _ = fs::remove_dir_all(&self.partial);
    }
}
