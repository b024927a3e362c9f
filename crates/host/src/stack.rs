//! `loopscope-host stack`: the machine's service of the user-mode TCP stack.

use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::Context as _;
use loopscope_stack_service::{Service, keep};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use nix::unistd::geteuid;

use crate::stack_table;

/// TCP connections that a program transfers by itself.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Give programs of all users devices, take their TCP connections over from the kernel and give
    /// them back, until SIGINT, SIGTERM or SIGHUP comes
    ///
    /// It serves the network namespace that it runs in, as root. `loopscope accelerate` runs
    /// programs that use it, by a library that it loads into them. If the service is killed, a
    /// second process gives the connections back to the kernel and removes the devices.
    Serve {
        /// Where programs find it; @NAME is a socket without a file
        #[arg(long, value_name = "PATH", default_value = "/run/loopscope/stack.sock")]
        socket: PathBuf,
        /// Prepare the device with this address before the first connection needs it; may be given
        /// several times
        #[arg(long, value_name = "ADDRESS")]
        prepare: Vec<IpAddr>,
    },
    /// Show the connections that programs of this machine transfer by themselves now
    Status {
        /// Where the service is
        #[arg(long, value_name = "PATH", default_value = "/run/loopscope/stack.sock")]
        socket: PathBuf,
        /// Print one JSON object: the number of programs, and each connection. Bytes, and µs
        #[arg(long)]
        json: bool,
    },
    /// Undo what the service at standard input leaves when it is killed.
    #[command(hide = true)]
    Keep,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.verb {
        Verb::Serve { socket, prepare } => serve(&socket, &prepare),
        Verb::Status { socket, json } => status(&socket, json),
        Verb::Keep => {
            let service = std::io::stdin().as_fd().try_clone_to_owned()?;
            keep(&UnixStream::from(service), complain)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn serve(path: &Path, prepared: &[IpAddr]) -> anyhow::Result<ExitCode> {
    // Before there are other threads, which would take them otherwise.
    let endings = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    endings.thread_block().context("cannot wait for signals")?;
    let came = SignalFd::new(&endings).context("cannot wait for signals")?;
    let hint = match geteuid().is_root() {
        false => " as an ordinary user: start it as root",
        true if !is_of_machine() => " as root of a user namespace: start it as root of the machine",
        true => "",
    };
    let at = || format!("cannot serve programs at {}{hint}", path.display());
    let folder = Folder::make(path).with_context(at)?;
    // Each connection takes two descriptors here, and as many of the keeper, which inherits the limit.
    raise_limit().context("cannot have more descriptors")?;
    let (own, of_keeper) = UnixStream::pair().context("cannot make sockets")?;
    let mut keeper = start_keeper(of_keeper)?;
    let served = Service::listen(path, Some(own)).with_context(at).and_then(|service| {
        for address in prepared {
            // It is prepared when it is needed.
            if let Err(error) = service.prepare(*address) {
                complain(&format!("cannot prepare the device with the address {address}: {error}"));
            }
        }
        let mut out = std::io::stdout();
        writeln!(out, "serving programs at {}", path.display())?;
        out.flush()?;
        service.serve(came, complain).with_context(at)
    });
    // The service is gone, and the keeper has nothing left to do.
    let kept = keeper.wait().context("cannot wait for the keeper");
    drop(folder);
    served.and(kept)?;
    Ok(ExitCode::SUCCESS)
}

fn status(path: &Path, is_json: bool) -> anyhow::Result<ExitCode> {
    let (programs, connections) = loopscope_stack_service::status(path).with_context(|| {
        let start = format!("loopscope-host stack serve --socket {}", path.display());
        format!("no service of the stack answers at {}; start one as root: {start}", path.display())
    })?;
    let mut out = std::io::stdout().lock();
    if is_json {
        let told = serde_json::json!({ "programs": programs, "connections": connections });
        writeln!(out, "{told}")?;
    } else {
        stack_table::write(&mut out, programs, &connections)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether root is the machine's, and not that of a user namespace, which may load no programs into
/// the kernel.
fn is_of_machine() -> bool {
    // Where it cannot be read there are no user namespaces.
    fs::read_to_string("/proc/self/uid_map")
        .map_or(true, |map| map.split_whitespace().eq(["0", "0", &u32::MAX.to_string()]))
}

fn raise_limit() -> nix::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)
}

/// Starts this program as the keeper. Signals of the terminal do not reach it.
fn start_keeper(stream: UnixStream) -> anyhow::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["stack", "keep"]).process_group(0);
    command.stdin(Stdio::from(OwnedFd::from(stream))).stdout(Stdio::null());
    command.spawn().context("cannot start the keeper of the service")
}

fn complain(why: &str) {
    eprintln!("loopscope-host: {why}");
}

/// The folder of the socket, which is removed if it was made, and nothing else is in it.
struct Folder(Option<PathBuf>);

impl Folder {
    fn make(path: &Path) -> std::io::Result<Folder> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let Some(folder) = folder else { return Ok(Folder(None)) };
        match DirBuilder::new().mode(0o755).create(folder) {
            Ok(()) => Ok(Folder(Some(folder.into()))),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(Folder(None)),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = self.0.as_ref().map(fs::remove_dir);
    }
}
