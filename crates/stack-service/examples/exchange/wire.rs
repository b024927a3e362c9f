//! Two network namespaces with a pair of devices between them, each end with a service and a
//! processor of its own. Needs root.

use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use loopscope_stack_service::Service;
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, setns, unshare};
use nix::unistd::Pid;

/// The addresses of the ends.
pub(crate) const HERE: &str = "10.0.0.1";
pub(crate) const THERE: &str = "10.0.0.2";

fn namespace() -> OwnedFd {
    std::fs::File::open("/proc/thread-self/ns/net").expect("a thread has one").into()
}

/// Makes the network namespace of one end.
fn make_namespace() -> OwnedFd {
    let make = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made (as root)");
        namespace()
    };
    std::thread::spawn(make).join().expect("it was made")
}

/// Makes both ends, and the devices between them. `is_unsegmented`: these get segments one by one.
pub(crate) fn ends(is_unsegmented: bool) -> [OwnedFd; 2] {
    let namespaces = [make_namespace(), make_namespace()];
    connect(&namespaces, is_unsegmented);
    namespaces
}

fn connect(namespaces: &[OwnedFd; 2], is_unsegmented: bool) {
    let within = |namespace: &OwnedFd, act: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            let act = || {
                setns(namespace, CloneFlags::CLONE_NEWNET).expect("it is there");
                act();
            };
            scope.spawn(act).join().expect("it is done");
        });
    };
    let (pid, there) = (std::process::id(), namespaces[1].as_raw_fd());
    within(&namespaces[0], &|| {
        ip(&format!("link add here type veth peer there netns /proc/{pid}/fd/{there}"));
    });
    for (namespace, (device, address)) in namespaces.iter().zip([("here", HERE), ("there", THERE)])
    {
        within(namespace, &|| {
            if is_unsegmented {
                run("ethtool", &format!("-K {device} tso off gso off gro off"));
            }
            ip(&format!("link set {device} up"));
            ip(&format!("address add {address}/24 dev {device}"));
        });
    }
}

/// Runs `ip` with these words.
fn ip(words: &str) {
    run("ip", words);
}

/// Runs a program with these words.
pub(crate) fn run(program: &str, words: &str) {
    let done = Command::new(program).args(words.split(' ')).output().expect("it runs");
    assert!(done.status.success(), "{program} {words}: {done:?}");
}

/// This thread is in a namespace, and on a processor, from now on.
pub(crate) fn enter(namespace: OwnedFd, processor: usize) {
    setns(namespace, CloneFlags::CLONE_NEWNET).expect("it is there");
    let mut processors = CpuSet::new();
    processors.set(processor).expect("it is small");
    sched_setaffinity(Pid::from_raw(0), &processors).expect("there are two processors");
}

/// The service of the network namespace of this thread.
pub(crate) fn listen(path: &Path) -> Service {
    Service::listen(path, None).expect("a service can be there (as root)")
}

/// Starts a service in the network namespace of this thread; where it listens.
pub(crate) fn serve(name: &str) -> PathBuf {
    let path = temporary(name);
    let service = listen(&path);
    let (until, end) = nix::unistd::pipe().expect("there are descriptors");
    std::thread::spawn(move || {
        // It serves until the process ends.
        let _end = end;
        service.serve(until, |why| eprintln!("{why}")).expect("it serves");
    });
    path
}

/// Where a file of this process can be.
pub(crate) fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("exchange-{}-{name}", std::process::id()))
}

/// Where this program is.
pub(crate) fn this_program() -> PathBuf {
    std::env::current_exe().expect("it is there")
}

/// What a program says that can be connected to.
pub(crate) const READY: &str = "ready";

/// Has this program run as a server here and as a client there, with these words, by the TCP of
/// `kind`; what the client says. `prepare` is called in the namespace of each end before.
pub(crate) fn programs(
    kind: &str,
    [server, client]: [&[&str]; 2],
    prepare: impl Fn(usize) + Sync,
) -> String {
    let namespaces = ends(false);
    let start = |at: usize, words: &[&str]| {
        let (namespace, name) = (namespaces[at].try_clone(), ["here", "there"][at]);
        std::thread::scope(|scope| {
            let start = || {
                enter(namespace.expect("there are descriptors"), at);
                prepare(at);
                let mut program = match kind {
                    "kernel" => Command::new(this_program()),
                    "unmodified" => program_under(&serve(name), "adaptive"),
                    _ => panic!("no kind is called {kind}"),
                };
                program.args(words).stdout(Stdio::piped()).spawn().expect("it starts")
            };
            scope.spawn(start).join().expect("it is done")
        })
    };
    let mut server = start(0, server);
    let mut ready = String::new();
    let said = server.stdout.take().expect("a pipe");
    BufReader::new(said).read_line(&mut ready).expect("it is text");
    assert_eq!(ready.trim(), READY);
    let client = start(1, client).wait_with_output().expect("it ends");
    assert!(client.status.success() && server.wait().expect("it ends").success());
    String::from_utf8(client.stdout).expect("it is text")
}

/// This program at one end, as one that knows nothing of the stack, but is under the library of
/// crates/preload, which waits as `receive` has it and asks the service at `path`. That library has
/// to be built before.
pub(crate) fn program_under(path: &Path, receive: &str) -> Command {
    let program = this_program();
    let library = program.ancestors().nth(2).expect("a folder").join("libloopscope_preload.so");
    assert!(library.exists(), "build loopscope-preload: there is no {}", library.display());
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", library)
        .env("LOOPSCOPE_STACK", path)
        .env("LOOPSCOPE_STACK_RECEIVE", receive);
    command
}
