//! What one process leaves for others that make the same time line: JSON with a version.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{BuildError, read};

pub(crate) trait Stored: Serialize + DeserializeOwned {
    /// In words.
    const WHAT: &str;
    /// Version of its schema.
    const VERSION: u32;
}

#[derive(Serialize, Deserialize)]
struct Document<T> {
    version: u32,
    content: T,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

pub(crate) fn store<T: Stored>(content: &T, path: &Path) -> Result<(), BuildError> {
    let io = |source| BuildError::Io { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(io)?;
    }
    let document = Document { version: T::VERSION, content };
    let text = serde_json::to_vec(&document).map_err(|error| io(error.into()))?;
    fs::write(path, text).map_err(io)
}

pub(crate) fn load<T: Stored>(path: &Path) -> Result<T, BuildError> {
    let text = read(path)?;
    let wrong = |what: String| BuildError::Stored { path: path.to_owned(), what };
    let broken = |error: serde_json::Error| wrong(format!("is no {}: {error}", T::WHAT));
    let Version { version } = serde_json::from_slice(&text).map_err(broken)?;
    if version != T::VERSION {
        return Err(wrong(format!(
            "is the {} of another loopscope: its version is {version}, known is {}; have the same \
             one on all machines",
            T::WHAT,
            T::VERSION
        )));
    }
    let document: Document<T> = serde_json::from_slice(&text).map_err(broken)?;
    Ok(document.content)
}
