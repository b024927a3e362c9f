//! The key that both sides of the probes share: who does not have it is not listened to.
//!
//! A responder may have a root instead, from which the key of each follower is derived. A follower
//! with such a key cannot pass for another follower, or for the responder with another follower.

use std::borrow::Cow;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Bytes of a packet's code: half of HMAC-SHA-256, as RFC 2104 §5 allows.
pub(crate) const CODE: usize = 16;
/// Shorter keys could be guessed.
const LEAST: usize = 16;
const MOST: u64 = 4096;
/// Length of a key that is generated here, in bytes.
const LENGTH: usize = 32;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system refused.
    #[error("cannot read the clock key {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else could read or change it.
    #[error("the clock key {path} has mode {mode:04o}, so others can use it: chmod 600 {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It belongs to somebody else.
    #[error("the clock key {path} belongs to user {owner}: make one of your own, of mode 0600")]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// A new one cannot be written.
    #[error("cannot make the clock key {path}: {source}")]
    Make {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not a key.
    #[error(
        "a clock key of {length} bytes is not between {LEAST} and {MOST}: make one with \
         (umask 077; head -c 32 /dev/urandom > FILE)"
    )]
    Length {
        /// Bytes.
        length: usize,
    },
}

/// The key of a pair is the root's HMAC-SHA-256 of this and the follower's number (4 bytes,
/// little-endian).
const PAIR: &[u8] = b"loopscope clock pair";

/// A secret of the two sides, or the root of such secrets.
#[derive(Clone)]
pub struct Key {
    mac: Hmac<Sha256>,
    of: Of,
}

/// The hosts that share a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// The responder and all its followers.
    All,
    /// Nobody: a responder derives the keys of its followers from it.
    Root,
    /// The responder and the follower of this number.
    Pair(u32),
}

impl Key {
    /// A key of these bytes, 16 to 4096 of them.
    pub fn new(bytes: &[u8]) -> Result<Key, KeyError> {
        let length = bytes.len();
        if length < LEAST || length as u64 > MOST {
            return Err(KeyError::Length { length });
        }
        let mac = Hmac::new_from_slice(bytes).expect("HMAC takes keys of any length");
        Ok(Key { mac, of: Of::All })
    }

    /// The root of a responder: 16 to 4096 bytes.
    pub fn root(bytes: &[u8]) -> Result<Key, KeyError> {
        Ok(Key { of: Of::Root, ..Key::new(bytes)? })
    }

    /// The key, derived from a responder's root, of the follower of this number.
    pub fn pair(bytes: &[u8], follower: u32) -> Result<Key, KeyError> {
        Ok(Key { of: Of::Pair(follower), ..Key::new(bytes)? })
    }

    /// The number that a follower with this key has to use; `None`: any.
    pub(crate) fn follower(&self) -> Option<u32> {
        match self.of {
            Of::Pair(follower) => Some(follower),
            Of::All | Of::Root => None,
        }
    }

    /// The key of the packets between the responder and the follower of this number.
    pub(crate) fn with(&self, follower: u32) -> Cow<'_, Key> {
        if self.of != Of::Root {
            return Cow::Borrowed(self);
        }
        let mac = Hmac::new_from_slice(&self.derived(follower));
        let mac = mac.expect("HMAC takes keys of any length");
        Cow::Owned(Key { mac, of: Of::Pair(follower) })
    }

    /// The bytes for [`Key::pair`] that follow from this root for the follower of this number.
    pub fn derived(&self, follower: u32) -> [u8; 32] {
        let root = self.mac.clone();
        let code = root.chain_update(PAIR).chain_update(follower.to_le_bytes()).finalize();
        code.into_bytes().into()
    }

    /// A key of a file's bytes as they are. The file must be the caller's or root's, and nobody
    /// else's to read or write.
    pub fn read(path: &Path) -> Result<Key, KeyError> {
        let error = |source| KeyError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(error)?;
        let metadata = file.metadata().map_err(error)?;
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Open { path: path.to_owned(), mode });
        }
        let owner = metadata.uid();
        if owner != 0 && owner != nix::unistd::geteuid().as_raw() {
            return Err(KeyError::Owner { path: path.to_owned(), owner });
        }
        let mut bytes = Vec::new();
        file.take(MOST + 1).read_to_end(&mut bytes).map_err(error)?;
        Key::new(&bytes)
    }

    /// Makes a file of mode 0600 with a random key, unless there is one; whether it did.
    pub fn make(path: &Path) -> Result<bool, KeyError> {
        let error = |source| KeyError::Make { path: path.to_owned(), source };
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(mut file) => {
                let mut bytes = [0; LENGTH];
                let mut random = File::open("/dev/urandom").map_err(error)?;
                random.read_exact(&mut bytes).map_err(error)?;
                file.write_all(&bytes).map_err(error)?;
                Ok(true)
            }
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(problem) => Err(error(problem)),
        }
    }

    /// The code of `bytes`.
    pub(crate) fn code(&self, bytes: &[u8]) -> [u8; CODE] {
        let full = self.mac.clone().chain_update(bytes).finalize().into_bytes();
        let mut code = [0; CODE];
        code.copy_from_slice(&full[..CODE]);
        code
    }

    /// Whether `code` is that of `bytes`, in a time that does not tell how much of it is right.
    pub(crate) fn agrees(&self, bytes: &[u8], code: &[u8]) -> bool {
        code.len() == CODE
            && self.mac.clone().chain_update(bytes).verify_truncated_left(code).is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    /// RFC 4231, test case 6: a key longer than a block.
    #[test]
    fn codes_are_those_of_the_standard() {
        let key = Key::new(&[0xaa; 131]).unwrap();
        let data = b"Test Using Larger Than Block-Size Key - Hash Key First";
        let code = key.code(data);
        assert_eq!(code[..8], [0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f]);
        assert!(key.agrees(data, &code));
        assert!(!key.agrees(data, &code[..8]));
        assert!(!key.agrees(&data[1..], &code));
        assert!(!Key::new(&[0xab; 131]).unwrap().agrees(data, &code));
    }

    #[test]
    fn a_key_that_others_can_use_is_refused_with_the_remedy() {
        assert!(Key::read(file(&[7; 32], 0o600).path()).is_ok());
        for mode in [0o640, 0o604, 0o620, 0o660] {
            let file = file(&[7; 32], mode);
            let error = Key::read(file.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("chmod 600 {}", file.path().display())), "{error}");
            assert!(error.contains(&format!("{mode:04o}")), "{error}");
        }
        for length in [0, 15, 4097] {
            let error = Key::read(file(&vec![7; length], 0o600).path()).unwrap_err();
            assert!(matches!(error, KeyError::Length { .. }), "{error}");
        }
        let none = Key::read(Path::new("/nonexistent/key")).unwrap_err().to_string();
        assert!(none.contains("/nonexistent/key"), "{none}");
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
        assert!(Key::make(&one).unwrap() && Key::make(&other).unwrap());
        assert!(!Key::make(&one).unwrap());
        let codes = [&one, &other].map(|path| Key::read(path).unwrap().code(b"x"));
        assert_ne!(codes[0], codes[1]);
        let nowhere = Key::make(&directory.path().join("no/key")).unwrap_err().to_string();
        assert!(nowhere.contains("no/key"), "{nowhere}");
    }

    /// The controller makes the same keys: tests/control/test_clock_keys.py has the same numbers.
    #[test]
    fn each_follower_has_a_key_of_its_own_derived_from_the_root() {
        let root = Key::root(&[7; 32]).unwrap();
        let code = |key: &Key| key.code(b"x").map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(code(&root.with(1)), "9dc68c695174eadc7a59ead66d0cb52b");
        assert_ne!(code(&root.with(1)), code(&root.with(2)));
        let shared = Key::new(&[7; 32]).unwrap();
        assert_eq!(code(&shared.with(1)), code(&shared.with(2)));
        assert_eq!((root.with(5).follower(), shared.follower()), (Some(5), None));
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{:?}", Key::new(b"0123456789abcdef").unwrap()), "Key(…)");
    }
}
