//! Channels by their names, as the machine's service knows them.

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::channel::Shared;
use crate::error::{FileError, Kind};
use crate::wire::{Answer, Listed, Request, Settings};
use loopscope_unix_lines::{receive, send};

/// Why the service does not do something.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// There is none.
    #[error(
        "no service of channels answers at {path}: {cause}; start one by `loopscope stm serve`, or \
         say by LOOPSCOPE_STM where it is"
    )]
    NoService {
        /// Its socket.
        path: PathBuf,
        /// Why it cannot be reached.
        cause: io::Error,
    },
    /// It has ended, or is another program.
    #[error("the service of channels does not answer: {0}")]
    Broken(#[from] io::Error),
    /// It refuses.
    #[error("{0}")]
    Refused(String),
    /// The channel cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<&ServiceError> for Kind {
    fn from(_: &ServiceError) -> Kind {
        Kind::Failed
    }
}

/// A process's way to the service. The service knows by it that the process is there.
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
}

/// A connection to the home of a mirror, by which items are put, and how many loans it may have.
fn way_home(path: &Path, name: &str, incarnation: u64) -> Result<(TcpStream, u32), ServiceError> {
    let request = Request::Output { name: name.into(), incarnation };
    let (answer, files) = Client::connect(path)?.ask(&request)?;
    match (answer, <[OwnedFd; 1]>::try_from(files)) {
        (Answer::Loans(loans), Ok([stream])) => Ok((stream.into(), loans)),
        (other, _) => Err(unexpected(&other)),
    }
}

impl Client {
    /// Connects to the service at a path, see [`crate::socket_path`].
    ///
    /// # Errors
    /// There is none, or it refuses, because this process is another user's or in another PID namespace.
    pub fn connect(path: &Path) -> Result<Client, ServiceError> {
        let no_service = |cause| ServiceError::NoService { path: path.into(), cause };
        let stream = loopscope_unix_lines::connect(path).map_err(no_service)?;
        match ask(&stream, &Request::Hello { pid: std::process::id() })? {
            (Answer::Refused(why), _) => Err(ServiceError::Refused(why)),
            _ => Ok(Client { stream, path: path.into() }),
        }
    }

    /// Makes a channel; whether it is new. One of this name may be there with the same options.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub fn create(
        &mut self,
        name: &str,
        options: impl Into<Settings>,
    ) -> Result<bool, ServiceError> {
        let (name, options) = (name.into(), options.into());
        match self.ask(&Request::Create { name, options })? {
            (Answer::Done(is_new), _) => Ok(is_new),
            other => Err(unexpected(&other.0)),
        }
    }

    /// Uses a channel; `puts`: to put items, too.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub fn open(&mut self, name: &str, puts: bool) -> Result<Shared, ServiceError> {
        let (answer, files) = self.ask(&Request::Open { name: name.into(), puts })?;
        match <[OwnedFd; 2]>::try_from(files) {
            Ok(files) => {
                let [control, payload] = files.map(File::from);
                let mut shared = Shared::open_named(&control, &payload, Some(name), true)?;
                if puts {
                    let (path, name) = (self.path.clone(), name.to_owned());
                    shared.way_home = Some(Arc::new(move |incarnation| {
                        way_home(&path, &name, incarnation).map_err(|error| error.to_string())
                    }));
                }
                Ok(shared)
            }
            Err(_) => Err(unexpected(&answer)),
        }
    }

    /// The service's channels, by their names.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub fn list(&mut self) -> Result<Vec<Listed>, ServiceError> {
        match self.ask(&Request::List)? {
            (Answer::Listed(channels), _) => Ok(channels),
            other => Err(unexpected(&other.0)),
        }
    }

    /// Has the service forget a channel. Those that use it go on.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub fn remove(&mut self, name: &str) -> Result<(), ServiceError> {
        self.ask(&Request::Remove { name: name.into() }).map(|_| ())
    }

    /// Asks the service, or the next one if that is there by now.
    fn ask(&mut self, request: &Request) -> Result<(Answer, Vec<OwnedFd>), ServiceError> {
        let answered = match ask(&self.stream, request) {
            Ok(answered) => answered,
            Err(error) => {
                let Ok(next) = Client::connect(&self.path) else { return Err(error.into()) };
                self.stream = next.stream;
                ask(&self.stream, request)?
            }
        };
        match answered {
            (Answer::Refused(why), _) => Err(ServiceError::Refused(why)),
            answered => Ok(answered),
        }
    }
}

fn ask(stream: &UnixStream, request: &Request) -> io::Result<(Answer, Vec<OwnedFd>)> {
    send(stream, request, &[])?;
    receive(stream)?.ok_or_else(|| io::Error::other("it has ended"))
}

fn unexpected(answer: &Answer) -> ServiceError {
    io::Error::other(format!("its answer is {answer:?}")).into()
}
