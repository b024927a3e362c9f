//! Channels by their names.

#[path = "../../../tests/skip.rs"]
mod skip;
mod small;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::thread::{self, JoinHandle};

use loopscope_stm::{Config, From, Which};
use loopscope_stm_shared::{Client, Options, Service, ServiceError, Until};
use rustix::process::geteuid;
use rustix::thread::{Uid, set_thread_uid};
use small::OPTIONS;

/// A service that goes on until what is returned is dropped.
fn serve(path: &Path) -> Serving {
    let service = Service::listen(path).unwrap();
    let (until, end) = UnixStream::pair().unwrap();
    let thread = thread::spawn(move || service.serve(until).unwrap());
    Serving { end: Some(end), thread: Some(thread) }
}

struct Serving {
    end: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn channels_are_found_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own/socket");
    let serving = serve(&path);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    let mut client = Client::connect(&path).unwrap();
    assert_eq!(client.list().unwrap(), []);
    assert!(client.create("frames", &OPTIONS).unwrap());
    assert!(!client.create("frames", &OPTIONS).unwrap(), "it is there already");
    let putter = client.open("frames", true).unwrap();
    assert_eq!((*putter.config(), putter.item_bytes()), (OPTIONS.config, 1024));
    let getter = Client::connect(&path).unwrap().open("frames", false).unwrap();
    assert!(getter.output().is_err());
    putter.output().unwrap().put(3, 0, b"three", Until::Now).unwrap();
    let mut input = getter.input(From::Oldest, true, 1).unwrap();
    assert_eq!(&input.get(Which::Newest, Until::Now).unwrap()[..], b"three");

    // The service is not one of the processes that may use it.
    let one = Options { processes: 1, ..OPTIONS };
    client.create("scans", &one).unwrap();
    let scans = client.open("scans", false).unwrap();
    let why = client.open("scans", false).err().unwrap().to_string();
    assert_eq!(why, "as many processes use the channel as may");
    drop(scans);
    let names: Vec<_> = client.list().unwrap().into_iter().map(|each| each.name).collect();
    assert_eq!(names, ["frames", "scans"]);
    client.remove("frames").unwrap();
    assert_eq!(&input.get(Which::Newest, Until::Now).unwrap()[..], b"three");
    let why = client.open("frames", true).err().unwrap().to_string();
    assert_eq!(why, "there is no channel frames; there are scans");

    // Its socket and its directory go with it.
    drop(serving);
    assert!(!folder.path().join("own").exists());
}

#[test]
fn the_next_service_goes_on_with_channels_that_are_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("socket"), folder.path().join("other"));
    let serving = serve(&path);
    let mut client = Client::connect(&path).unwrap();
    for name in ["frames", "removed"] {
        client.create(name, &OPTIONS).unwrap();
    }
    let putter = client.open("frames", true).unwrap();
    let mut output = putter.output().unwrap();
    output.put(1, 0, b"one", Until::Now).unwrap();
    let removed = client.open("removed", false).unwrap();
    client.remove("removed").unwrap();
    // Each operation goes on while there is none.
    drop(serving);
    let mut input = putter.input(From::Oldest, false, 2).unwrap();
    output.put(2, 0, b"two", Until::Now).unwrap();
    // One of another place has nothing to do with it.
    let stranger = serve(&other);
    assert_eq!(Client::connect(&other).unwrap().list().unwrap(), []);
    drop(stranger);

    let serving = serve(&path);
    // A program's way to the service is made anew. A channel that was removed is not found.
    let found = client.list().unwrap();
    let names: Vec<_> = found.iter().map(|each| &each.name[..]).collect();
    assert_eq!(names, ["frames"]);
    assert_eq!((found[0].items, found[0].inputs.len(), found[0].outputs.len()), (2, 1, 1));
    assert!(!client.create("frames", &OPTIONS).unwrap(), "it is there already");
    let bigger = Options { item_bytes: 4096, ..OPTIONS };
    assert!(client.create("frames", &bigger).is_err());
    output.put(3, 0, b"three", Until::Now).unwrap();
    let getter = Client::connect(&path).unwrap().open("frames", false).unwrap();
    let mut late = getter.input(From::Oldest, true, 3).unwrap();
    for (time, bytes) in [(1, &b"one"[..]), (2, b"two"), (3, b"three")] {
        assert_eq!(&late.get(Which::Exact(time), Until::Now).unwrap()[..], bytes);
    }
    input.consume_until(3).unwrap();
    drop(late);
    assert_eq!(client.list().unwrap()[0].items, 0);
    drop((serving, removed));
}

#[test]
fn a_socket_may_have_a_name_and_no_file() {
    let name = format!("@loopscope-test-{}", std::process::id());
    let path = Path::new(&name);
    let serving = serve(path);
    let error = Service::listen(path).err().unwrap().to_string();
    assert!(error.ends_with("already"), "{error}");
    Client::connect(path).unwrap().create("frames", &OPTIONS).unwrap();
    assert_eq!(Client::connect(path).unwrap().list().unwrap().len(), 1);
    assert!(!path.exists());
    drop(serving);
    assert!(matches!(Client::connect(path), Err(ServiceError::NoService { .. })));
    drop(serve(path));
}

#[test]
fn another_users_service_is_refused() {
    if !geteuid().is_root() {
        skip::skipped("only root can be another user");
        return;
    }
    // Anybody may listen at a name that has no file.
    let name = format!("@loopscope-other-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name[1..]).unwrap();
    let listening = thread::spawn(move || {
        // This thread alone becomes another user; the socket keeps who it was.
        set_thread_uid(Uid::from_raw(65534)).unwrap();
        UnixListener::bind_addr(&address).unwrap()
    });
    let _listener = listening.join().unwrap();
    let error = Client::connect(Path::new(&name)).err().unwrap().to_string();
    assert!(error.contains("it is user 65534's, and you are user 0"), "{error}");
}

#[test]
fn what_cannot_be_is_refused_and_said_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let error = Client::connect(&path).err().unwrap();
    assert!(matches!(error, ServiceError::NoService { .. }), "{error}");
    let _serving = serve(&path);
    let error = Service::listen(&path).err().unwrap().to_string();
    assert!(error.ends_with("socket already"), "{error}");
    let mut client = Client::connect(&path).unwrap();
    client.create("frames", &OPTIONS).unwrap();
    let other = Options { item_bytes: 999, ..OPTIONS };
    let mut refused = |name: &str, options: &Options, what: &str| {
        let error = client.create(name, options).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    refused("frames", &other, "with other options: ahead 3, capacity 4");
    refused("", &OPTIONS, "1 to 100 bytes");
    refused("a\nb", &OPTIONS, "1 to 100 bytes");
    refused(&"x".repeat(101), &OPTIONS, "1 to 100 bytes");
    refused("none", &Options { processes: 0, ..OPTIONS }, "no room for so many");
    let huge = Options {
        item_bytes: 1 << 30,
        config: Config { capacity: 1 << 20, slots: 1 << 20, ..OPTIONS.config },
        ..OPTIONS
    };
    refused("huge", &huge, "bytes of memory, and");

    // A program that does not keep to the protocol ends its own connection alone.
    for line in ["{}\n", "\u{7f}\n", "{\"do\": \"remove\", \"more\": 1}\n"] {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        assert_eq!(stream.read_to_end(&mut vec![]).unwrap(), 0);
    }
    let mut stream = UnixStream::connect(&path).unwrap();
    let mut says = |request: &[u8]| {
        stream.write_all(request).unwrap();
        let mut answer = [0; 256];
        let count = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..count]).into_owned()
    };
    assert_eq!(says(b"{\"do\": \"list\"}\n"), "{\"refused\":\"say first who you are\"}\n");
    let answer = says(b"{\"do\": \"hello\", \"pid\": 1}\n");
    assert!(answer.contains("in another PID namespace"), "{answer}");
    assert_eq!(client.list().unwrap().len(), 1);
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let error = Service::listen(&open.join("socket")).err().unwrap().to_string();
    assert!(error.contains("other users may write to"), "{error}");
    // As /tmp is.
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    drop(Service::listen(&open.join("socket")).unwrap());
    assert!(!open.join("socket").exists());
}
