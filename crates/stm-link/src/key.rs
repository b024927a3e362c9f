//! The key that a home and its mirrors have, and prove to each other that they have it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Shorter keys could be guessed.
const LEAST: usize = 16;
const CODE: usize = 32;
const NONCE: usize = 32;

/// A secret of a home and its mirrors.
#[derive(Clone)]
pub struct Key(Vec<u8>);

impl Key {
    /// The key of these bytes.
    ///
    /// # Errors
    /// It has less than 16.
    pub fn new(bytes: Vec<u8>) -> io::Result<Key> {
        if bytes.len() < LEAST {
            let what = format!("a key has {LEAST} bytes or more, and this one {}", bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(Key(bytes))
    }

    /// The key that is a file's bytes.
    ///
    /// # Errors
    /// It cannot be read, others can read it, or it is too short.
    pub fn read(path: &Path) -> io::Result<Key> {
        let mode = fs::metadata(path)?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            let what = format!(
                "it has mode {mode:04o}, so others can use it: chmod 600 {}",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Key::new(fs::read(path)?)
    }

    fn code(&self, role: &str, nonces: [&[u8; NONCE]; 2], name: &str) -> Hmac<Sha256> {
        let mut code = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key may have any length");
        for part in [role.as_bytes(), nonces[0], nonces[1], name.as_bytes()] {
            code.update(part);
        }
        code
    }

    /// Proves to a home that this side has the key, and has it prove the same.
    ///
    /// # Errors
    /// It has another key, or the connection ends.
    pub(crate) fn prove(&self, stream: &mut (impl Read + Write), name: &str) -> io::Result<()> {
        let own = random::<NONCE>()?;
        stream.write_all(&own)?;
        let mut their = [0; NONCE];
        stream.read_exact(&mut their)?;
        stream.write_all(&self.code("mirror", [&own, &their], name).finalize().into_bytes())?;
        let mut code = [0; CODE];
        // A home that does not like the code ends the connection.
        stream.read_exact(&mut code).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => refused(),
            _ => error,
        })?;
        self.code("home", [&own, &their], name).verify_slice(&code).map_err(|_| refused())
    }

    /// Has a mirror prove that it has the key, and proves the same to it.
    ///
    /// # Errors
    /// It has another key, or the connection ends.
    pub(crate) fn check(&self, stream: &mut (impl Read + Write), name: &str) -> io::Result<()> {
        let own = random::<NONCE>()?;
        let mut their = [0; NONCE];
        stream.read_exact(&mut their)?;
        stream.write_all(&own)?;
        let mut code = [0; CODE];
        stream.read_exact(&mut code)?;
        self.code("mirror", [&their, &own], name).verify_slice(&code).map_err(|_| refused())?;
        stream.write_all(&self.code("home", [&their, &own], name).finalize().into_bytes())
    }
}

fn refused() -> io::Error {
    let what = "the other side has another key";
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

/// Bytes that nobody can guess.
pub(crate) fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    fn meet(home: &[u8], mirror: &[u8], names: [&str; 2]) -> (io::Result<()>, io::Result<()>) {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let [home, mirror] = [home, mirror].map(|key| Key::new(key.into()).unwrap());
        let [name, other] = names.map(str::to_owned);
        let checks = thread::spawn(move || home.check(&mut here, &name));
        let proves = mirror.prove(&mut there, &other);
        (checks.join().unwrap(), proves)
    }

    #[test]
    fn both_have_to_have_the_key_and_mean_the_same_channel() {
        let (key, other) = ([7; 16], [8; 16]);
        let (checked, proved) = meet(&key, &key, ["frames", "frames"]);
        assert!(checked.is_ok() && proved.is_ok(), "{checked:?} {proved:?}");
        for (home, mirror, names) in
            [(key, other, ["frames", "frames"]), (key, key, ["frames", "poses"])]
        {
            let (checked, proved) = meet(&home, &mirror, names);
            assert_eq!(checked.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert_eq!(proved.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }

    #[test]
    fn a_key_is_long_and_its_owners_alone() {
        assert!(Key::new(vec![1; 15]).is_err());
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), [1; 32]).unwrap();
        assert!(Key::read(file.path()).is_ok());
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        fs::set_permissions(file.path(), open).unwrap();
        assert!(Key::read(file.path()).is_err());
    }
}
