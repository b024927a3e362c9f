//! The directory of the tables: whole, or not there.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ImportError, ImportSummary, io};

/// Tables are made beside their place and moved there at the end.
pub(super) struct Output {
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

    /// Where to make the tables.
    pub fn place(&self) -> &Path {
        &self.partial
    }

    /// Moves the tables to their place, with the summary.
    pub fn keep(self, summary: &ImportSummary) -> Result<(), ImportError> {
        let file = self.partial.join("import.json");
        let text = serde_json::to_string_pretty(summary)
            .map_err(|error| io(&file)(std::io::Error::other(error)))?;
        fs::write(&file, text + "\n").map_err(io(&file))?;
        fs::rename(&self.partial, &self.out).map_err(io(&self.out))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // After it was moved there is nothing here.
        let _ = fs::remove_dir_all(&self.partial);
    }
}
