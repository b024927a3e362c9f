//! Programs of others, unmodified: with the library they do what they do without. Needs root, and
//! these programs, which `scripts/setup --test` installs.
//!
//! A connection is long if more than [`LONG`] bytes go over it one way. Of these bytes the stack
//! transfers 99 %, as the kernel counts them where packets are diverted. Where a program does what
//! the stack does not know, the kernel has its connections, and the line of each says why.

mod machines;
#[path = "../../../tests/skip.rs"]
mod skip;
#[path = "../../stack-service/tests/world/mod.rs"]
mod world;

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use machines::At::{self, Here, There};
use machines::{ENDS, Running, World, compile, in_thread, python3, talk};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// Without the library, and with it at these ends.
const WAYS: [[bool; 2]; 4] = [[false, false], ENDS[0], ENDS[1], ENDS[2]];
/// Without the library and with it at both ends, for tests that take long.
const FEW: [[bool; 2]; 2] = [WAYS[0], WAYS[1]];
const LONG: u64 = 100_000;

/// Why the kernel has the connections of a server that forks.
const FORKED: &str = "the program has forked while it had the connection";

/// A folder that all users may read.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path(), 0o755);
    folder
}

fn open(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Writes a file of so many bytes that are not like each other.
fn write_random(path: &Path, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    fastrand::Rng::with_seed(count as u64).fill(&mut bytes);
    std::fs::write(path, &bytes).unwrap();
    bytes
}

fn command(program: &str, words: &str) -> Command {
    let mut command = Command::new(program);
    command.args(words.split(' ')).stdin(Stdio::null());
    command
}

/// Has a program run there with these words, and nothing to read.
fn start(world: &World, at: At, preload: bool, program: &str, words: &str) -> Running {
    world.spawn(at, preload, &mut command(program, words))
}

/// The same, and it reads a file.
fn start_with(
    world: &World,
    (at, preload): (At, bool),
    program: &str,
    words: &str,
    input: &Path,
) -> Running {
    let file = File::open(input).unwrap();
    world.spawn(at, preload, command(program, words).stdin(file))
}

/// The bytes of both streams of a connection: those by the stack, and all.
fn streams(line: &Value) -> [[u64; 2]; 2] {
    let of = |key: &str| line[key].as_u64().unwrap_or(0);
    [["received_by_stack", "received"], ["written_to_stack", "written"]].map(|keys| keys.map(of))
}

/// The lines of long connections.
fn long(world: &World, at: At) -> Vec<Value> {
    let mut lines = world.explained(at);
    lines.retain(|line| streams(line).iter().any(|[_, all]| *all > LONG));
    lines
}

/// Asserts that there were so many long connections at least, all by the stack. `what` is said with
/// their share.
fn assert_long(world: &World, at: At, least: usize, what: &str) {
    let lines = long(world, at);
    assert!(lines.len() >= least, "{what}: {} of {least}: {:?}", lines.len(), world.explained(at));
    let mut sum = [0; 2];
    for line in &lines {
        assert_eq!(line["accelerated"], true, "{what}: {line}");
        for [stack, all] in streams(line).into_iter().filter(|[_, all]| *all > LONG) {
            // The kernel counts the end of a stream as a byte.
            assert!(stack * 100 >= all * 99, "{what}: {stack} of {all}: {line}");
            sum = [sum[0] + stack, sum[1] + all];
        }
    }
    say(what, at, lines.len(), sum[0], sum[1]);
}

/// Says which share of their bytes the stack had.
fn say(what: &str, at: At, count: usize, stack: u64, all: u64) {
    let end = if at == Here { "client" } else { "server" };
    let share = stack as f64 / all as f64;
    eprintln!("{what}, {end}: {count} long connections, {share:.5} of {all} bytes");
}

/// The same at both ends, where there is the library.
fn assert_long_at(world: &World, preload: [bool; 2], least: usize, what: &str) {
    for (at, _) in [Here, There].into_iter().zip(preload).filter(|(_, preload)| *preload) {
        assert_long(world, at, least, what);
    }
}

#[test]
fn nc() {
    in_thread(|| {
        let folder = folder();
        let file = folder.path().join("file");
        let bytes = write_random(&file, 60_000_000);
        for preload in WAYS {
            let world = World::make(true);
            let receiver = start(&world, There, preload[1], "nc", "-l 10.0.0.2 7000");
            world.wait_for(7000);
            let words = "-N 10.0.0.2 7000";
            let sender = start_with(&world, (Here, preload[0]), "nc", words, &file);
            assert!(receiver.bytes() == bytes, "the file is another: {preload:?}");
            assert_eq!(sender.end(), "");
            assert_long_at(&world, preload, 1, "nc");
        }
    });
}

#[test]
fn socat() {
    in_thread(|| {
        let folder = folder();
        let file = folder.path().join("file");
        let bytes = write_random(&file, 60_000_000);
        for preload in WAYS {
            let world = World::make(true);
            let words = "-u TCP-LISTEN:7000,bind=10.0.0.2 STDOUT";
            let receiver = start(&world, There, preload[1], "socat", words);
            world.wait_for(7000);
            let words = format!("-u FILE:{} TCP:10.0.0.2:7000", file.display());
            let sender = start(&world, Here, preload[0], "socat", &words);
            assert!(receiver.bytes() == bytes, "the file is another: {preload:?}");
            sender.end();
            assert_long_at(&world, preload, 1, "socat");
        }
    });
}

/// Both send at the same time. Who has sent all ends its stream, and the kernel has the rest.
#[test]
fn socat_both_ways() {
    in_thread(|| {
        let folder = folder();
        let names = ["here", "there", "got-here", "got-there"];
        let files = names.map(|name| folder.path().join(name));
        let sent = [0, 1].map(|place| write_random(&files[place], 30_000_000 + place));
        for preload in WAYS {
            let world = World::make(true);
            let files = |place: usize| {
                let [from, to] = [place, place + 2].map(|place| files[place].display());
                format!("-t 20 FILE:{from}!!CREATE:{to}")
            };
            let words = format!("{} TCP-LISTEN:7000,bind=10.0.0.2", files(1));
            let there = start(&world, There, preload[1], "socat", &words);
            world.wait_for(7000);
            let words = format!("{} TCP:10.0.0.2:7000", files(0));
            start(&world, Here, preload[0], "socat", &words).end();
            there.end();
            for (place, other) in [(2, 1), (3, 0)] {
                let got = std::fs::read(folder.path().join(names[place])).unwrap();
                assert!(got == sent[other], "{} is another: {preload:?}", names[place]);
            }
            for (at, _) in [Here, There].into_iter().zip(preload).filter(|(_, is)| *is) {
                assert_eq!(world.connection(at)["accelerated"], true);
            }
        }
    });
}

fn redis_server(world: &World, preload: bool, folder: &Path) -> Running {
    let words = format!(
        "--bind 10.0.0.2 --port 6379 --appendonly no --protected-mode no --dir {} --save",
        folder.display()
    );
    let mut command = command("redis-server", &words);
    let server = world.spawn(There, preload, command.arg(""));
    world.wait_for(6379);
    server
}

#[test]
fn redis_answers_as_before() {
    in_thread(|| {
        let folder = folder();
        let [big, file] = ["big", "commands"].map(|name| folder.path().join(name));
        write_random(&big, 5_000_000);
        let of = |n: usize| format!("SET key:{n} {}\nGET key:{n}\n", "v".repeat(n % 1000 + 1));
        let lists = |n| format!("RPUSH list {n}\nINCRBY sum {n}\nLRANGE list 0 -1\nNO {n}\n");
        // To save its data the server forks, and from then on the kernel has the connection.
        let save = ["BGSAVE\n".to_owned()];
        let commands = (0..1000).map(of).chain(save).chain((0..100).map(lists)).collect::<String>();
        std::fs::write(&file, commands).unwrap();
        let mut before = None;
        for preload in WAYS {
            let world = World::make(true);
            let server = redis_server(&world, preload[1], folder.path());
            let cli = |words: &str, input: &Path| {
                let words = format!("-h 10.0.0.2 {words}");
                start_with(&world, (Here, preload[0]), "redis-cli", words.trim_end(), input).bytes()
            };
            let said = [cli("", &file), cli("-x SET big", &big), cli("GET big", &big)];
            let before = before.get_or_insert_with(|| said.clone());
            assert!(*before == said, "the answers are others: {preload:?}");
            server.stop(Signal::SIGTERM);
            if preload[0] {
                // The first value is written by one call, which is the kernel's, and the second is
                // read by many.
                let accelerated = |line: &&Value| line["accelerated"] == true;
                assert!(long(&world, Here).iter().filter(accelerated).count() >= 2);
            }
            if preload[1] {
                let lines = long(&world, There);
                assert_eq!(lines[0]["why"], FORKED, "{lines:?}");
                lines.iter().for_each(|line| assert_eq!(line["accelerated"], true, "{line}"));
            }
        }
    });
}

#[test]
fn redis_benchmark() {
    in_thread(|| {
        let folder = folder();
        for preload in WAYS {
            let world = World::make(true);
            let server = redis_server(&world, preload[1], folder.path());
            let words = "-h 10.0.0.2 -t set,get -n 20000 -c 10 -d 200 --csv";
            let said = start(&world, Here, preload[0], "redis-benchmark", words).end();
            eprintln!("{preload:?}: {said}");
            assert_eq!(said.lines().count(), 3, "{said}");
            server.stop(Signal::SIGTERM);
            assert_long_at(&world, preload, 10, "redis-benchmark");
        }
    });
}

/// Says a digest of what memcached answers.
const MEMCACHED: &str = r#"
import hashlib, os, socket
s = socket.create_connection(("10.0.0.2", 11211))
f = s.makefile("rb")
digest = hashlib.sha256()
def ask(words, lines=1):
    s.sendall(words)
    for _ in range(lines):
        digest.update(f.readline())
ask(b"version\r\n")
for n in range(300):
    value = bytes([n % 251]) * (n * 100)
    ask(b"set k%d 0 0 %d\r\n%s\r\n" % (n, len(value), value))
for n in range(300):
    s.sendall(b"get k%d\r\n" % n)
    digest.update(f.readline())
    digest.update(f.read(n * 100 + 2))
    digest.update(f.readline())
own = b"own%d" % os.getpid()
ask(b"set %s 0 0 1\r\n1\r\n" % own)
for n in range(1000):
    ask(b"incr %s %d\r\n" % (own, n))
ask(b"wrong\r\n")
print(digest.hexdigest())
"#;

#[test]
fn memcached() {
    in_thread(|| {
        let mut before = None;
        for preload in FEW {
            let world = World::make(true);
            // It becomes another user, and has four threads.
            let words = "-l 10.0.0.2 -p 11211 -u nobody -t 4";
            let server = start(&world, There, preload[1], "memcached", words);
            world.wait_for(11211);
            let clients: Vec<Running> = (0..3)
                .map(|_| world.start(Here, preload[0], python3(), &["-c", MEMCACHED]))
                .collect();
            for client in clients {
                let said = client.end();
                assert_eq!(*before.get_or_insert_with(|| said.clone()), said, "{preload:?}");
            }
            server.stop(Signal::SIGTERM);
            assert_long_at(&world, preload, 3, "memcached");
        }
    });
}

/// Asserts that an end of iperf3 has so many connections, and that the stack had what the program
/// has sent, or has got. What comes when the program has ended is the kernel's.
fn assert_streams(world: &World, at: At, count: usize, got: Option<u64>) {
    let lines = long(world, at);
    assert_eq!(lines.len(), count, "{lines:?}");
    let sum = |way: usize, of: usize| lines.iter().map(|line| streams(line)[way][of]).sum::<u64>();
    let (stack, all) = match got {
        Some(got) => (sum(0, 0), got),
        None => (sum(1, 0), sum(1, 1)),
    };
    assert!(stack * 100 >= all * 99, "{stack} of {all}: {lines:?}");
    say("iperf3", at, lines.len(), stack, all);
}

#[test]
fn iperf3() {
    in_thread(|| {
        // Two streams share what is to be sent as they come to it, but each has a second.
        // With -Z it calls sendfile(2).
        let acts: [(_, _, &[[bool; 2]]); 4] = [
            ("-n 100M", 1, &WAYS),
            ("-n 100M -R", 1, &WAYS),
            ("-t 1 -P 2", 2, &FEW),
            ("-n 100M -Z", 1, &FEW),
        ];
        for (act, count, ways) in acts {
            for &preload in ways {
                let world = World::make(true);
                let server = start(&world, There, preload[1], "iperf3", "-s -1 -B 10.0.0.2 -J");
                world.wait_for(5201);
                let words = format!("-c 10.0.0.2 -J {act}");
                let said = start(&world, Here, preload[0], "iperf3", &words).end();
                let told = [said, server.end()].map(|said| {
                    let told: Value = serde_json::from_str(&said).unwrap();
                    assert_eq!(told["error"], Value::Null, "{said}");
                    let end = &told["end"];
                    let rate = end["sum_received"]["bits_per_second"].as_f64().unwrap() / 1e9;
                    eprintln!("iperf3 {act} {preload:?}: {rate:.2} Gbit/s");
                    ["sum_sent", "sum_received"].map(|way| end[way]["bytes"].as_u64().unwrap())
                });
                // What was asked for was sent, and both ends say the same. What is on its way when
                // all was sent does not count as received.
                let [[sent, received], of_server] = told;
                assert!(!act.contains("-n") || sent >= 100 << 20, "{told:?}");
                let way = usize::from(!act.contains("-R"));
                assert_eq!(of_server[way], if way == 0 { sent } else { received }, "{told:?}");
                for (place, at) in [Here, There].into_iter().enumerate() {
                    if preload[place] {
                        let way = if place == way { Some(received) } else { None };
                        assert_streams(&world, at, count, way);
                    }
                }
            }
        }
    });
}

/// A server with two workers, which are another user's processes.
fn nginx(world: &World, preload: bool, folder: &Path, sendfile: &str) -> Running {
    let at = folder.display();
    let config = folder.join("nginx.conf");
    let text = format!(
        "daemon off; worker_processes 2; user nobody nogroup; pid {at}/pid; error_log {at}/errors;
         events {{ worker_connections 256; }}
         http {{ access_log off; sendfile {sendfile}; keepalive_requests 1000000;
         client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;
         fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
         server {{ listen 10.0.0.2:8080; root {at}/www; }} }}"
    );
    std::fs::write(&config, text).unwrap();
    let words = format!("-e {at}/errors -c {}", config.display());
    let server = start(world, There, preload, "nginx", &words);
    world.wait_for(8080);
    server
}

/// A folder with files for a server, and the bytes of one of them.
fn site() -> (TempDir, Vec<u8>) {
    let folder = folder();
    let www = folder.path().join("www");
    std::fs::create_dir(&www).unwrap();
    write_random(&www.join("small"), 5000);
    let bytes = write_random(&www.join("file"), 60_000_000);
    (folder, bytes)
}

#[test]
fn nginx_with_two_workers_and_wrk() {
    in_thread(|| {
        let (folder, bytes) = site();
        for preload in FEW {
            let world = World::make(true);
            let server = nginx(&world, preload[1], folder.path(), "off");
            let words = "-t2 -c8 -d1s http://10.0.0.2:8080/small";
            let said = start(&world, Here, preload[0], "wrk", words).end();
            eprintln!(
                "{preload:?}: {}",
                said.lines().find(|l| l.contains("Requests/sec")).unwrap()
            );
            assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
            let words = "-sS http://10.0.0.2:8080/file";
            let got = start(&world, Here, preload[0], "curl", words).bytes();
            assert!(got == bytes, "the file is another: {preload:?}");
            server.stop(Signal::SIGTERM);
            assert_long_at(&world, preload, 9, "nginx");
        }
    });
}

#[test]
fn nginx_sends_files_by_the_stack() {
    in_thread(|| {
        let (folder, bytes) = site();
        let world = World::make(true);
        let server = nginx(&world, true, folder.path(), "on");
        for name in ["file", "file"] {
            let words = format!("-sS http://10.0.0.2:8080/{name}");
            let got = start(&world, Here, true, "curl", &words).bytes();
            assert!(got == bytes, "the file is another");
        }
        server.stop(Signal::SIGTERM);
        assert_long_at(&world, [true, true], 2, "nginx with sendfile");
    });
}

/// A folder with the keys and configurations of sshd and ssh.
fn keys() -> TempDir {
    let folder = folder();
    let at = folder.path().display();
    for name in ["host", "id"] {
        world::run("ssh-keygen", &format!("-q -t ed25519 -N  -f {at}/{name}"));
    }
    let host = std::fs::read_to_string(folder.path().join("host.pub")).unwrap();
    let known = format!("10.0.0.2 {host}");
    let sshd = format!(
        "Port 22\nListenAddress 10.0.0.2\nHostKey {at}/host\nPidFile none\nUsePAM no
StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no
AuthorizedKeysFile {at}/id.pub\n"
    );
    let ssh =
        format!("User root\nIdentityFile {at}/id\nUserKnownHostsFile {at}/known\nBatchMode yes\n");
    for (name, text) in [("known", known), ("sshd", sshd), ("ssh", ssh)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    // sshd asks for a folder in /run, and for an account that may log in.
    let boot = format!(
        "set -e; mount --make-rprivate /; mount -t tmpfs -o mode=755 tmpfs /run; mkdir /run/sshd
echo 'root:*:1::::::' >{at}/shadow; mount --bind {at}/shadow /etc/shadow
exec /usr/sbin/sshd -D -E {at}/log -f {at}/sshd"
    );
    std::fs::write(folder.path().join("boot"), boot).unwrap();
    folder
}

fn sshd(world: &World, preload: bool, keys: &TempDir) -> Running {
    let words = format!("-m sh {}/boot", keys.path().display());
    let server = start(world, There, preload, "unshare", &words);
    world.wait_for(22);
    server
}

#[test]
fn ssh() {
    in_thread(|| {
        let keys = keys();
        let file = keys.path().join("file");
        let bytes = write_random(&file, 10_000_000);
        for preload in WAYS {
            let world = World::make(true);
            let server = sshd(&world, preload[1], &keys);
            let words = format!("-F {}/ssh 10.0.0.2 cat", keys.path().display());
            let client = start_with(&world, (Here, preload[0]), "ssh", &words, &file);
            assert!(client.bytes() == bytes, "it says something else: {preload:?}");
            server.stop(Signal::SIGTERM);
            assert_long_at(&world, [preload[0], false], 1, "ssh");
            if preload[1] {
                assert!(!world.explained(There).is_empty());
                world.explained(There).iter().for_each(|line| assert_eq!(line["why"], FORKED));
            }
        }
    });
}

/// A folder with files and folders for rsync.
fn tree() -> TempDir {
    let folder = folder();
    let from = folder.path().join("from");
    for place in 0..20 {
        let within = from.join(format!("folder-{}", place % 4));
        std::fs::create_dir_all(&within).unwrap();
        write_random(&within.join(format!("file-{place}")), place * 1000);
    }
    write_random(&from.join("large"), 60_000_000);
    for name in ["module", "to"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    // The daemon is another user, who sets its times.
    world::run("chown", &format!("nobody {}", folder.path().join("module").display()));
    folder
}

/// Asserts that two folders have the same in them.
fn assert_same(one: &Path, other: &Path) {
    let words = format!("-r {} {}", one.display(), other.display());
    assert_eq!(world::run("diff", &words), "");
}

#[test]
fn rsync_to_a_daemon_and_from_it() {
    in_thread(|| {
        for preload in FEW {
            let world = World::make(true);
            let tree = tree();
            let at = |name: &str| tree.path().join(name);
            let text = format!(
                "use chroot = yes\nuid = nobody\ngid = nogroup\nlog file = {}\n
                 [files]\npath = {}\nread only = no\n",
                at("log").display(),
                at("module").display()
            );
            std::fs::write(at("config"), text).unwrap();
            let words = "--daemon --no-detach --address=10.0.0.2 --port=8730 --config";
            let mut command = command("rsync", words);
            let server = world.spawn(There, preload[1], command.arg(at("config")));
            world.wait_for(8730);
            let copy = |from: &str, to: &str| {
                let words = format!("-rt {from} {to}");
                assert_eq!(start(&world, Here, preload[0], "rsync", &words).end(), "");
            };
            let module = "rsync://10.0.0.2:8730/files/";
            copy(&format!("{}/", at("from").display()), module);
            assert_same(&at("from"), &at("module"));
            if preload[0] {
                assert_long(&world, Here, 1, "rsync that sends");
                std::fs::write(world.explain(Here), "").unwrap();
            }
            copy(module, &at("to").display().to_string());
            assert_same(&at("from"), &at("to"));
            if preload[0] {
                // The client that receives is two processes.
                assert_eq!(world.connection(Here)["why"], FORKED);
            }
            server.stop(Signal::SIGTERM);
        }
    });
}

#[test]
fn rsync_over_ssh() {
    in_thread(|| {
        let keys = keys();
        for preload in FEW {
            let world = World::make(true);
            let tree = tree();
            let at = |name: &str| tree.path().join(name).display().to_string();
            let server = sshd(&world, preload[1], &keys);
            let mut command = command("rsync", "-rt -e");
            let shell = format!("ssh -F {}/ssh", keys.path().display());
            let words = [shell, at("from/"), format!("10.0.0.2:{}", at("to/"))];
            let client = world.spawn(Here, preload[0], command.args(words));
            assert_eq!(client.end(), "");
            assert_same(&tree.path().join("from"), &tree.path().join("to"));
            server.stop(Signal::SIGTERM);
            assert_long_at(&world, [preload[0], false], 1, "rsync over ssh");
        }
    });
}

#[test]
fn sockperf() {
    in_thread(|| {
        let world = World::make(true);
        let words = "sr --tcp -i 10.0.0.2 -p 11111";
        let server = start(&world, There, true, "sockperf", words);
        world.wait_for(11111);
        let words = "pp --tcp -i 10.0.0.2 -p 11111 -t 1 -m 100 --full-rtt";
        let said = start(&world, Here, true, "sockperf", words).end();
        let of = |word| said.lines().find(|line| line.contains(word)).expect(&said);
        eprintln!("{}", of("Summary"));
        let lost = of("# dropped messages = ");
        for what in ["dropped", "duplicated", "out-of-order"] {
            assert!(lost.contains(&format!("# {what} messages = 0")), "{said}");
        }
        server.stop(Signal::SIGINT);
        assert_long_at(&world, [true, true], 1, "sockperf");
    });
}

/// The loader puts no library into it, so nothing says anything.
#[test]
fn a_static_program() {
    in_thread(|| {
        let program = compile("talk.c", &["-static"]);
        let world = World::make(true);
        for [here, there] in [[&*program.path, talk()], [talk(), &*program.path]] {
            let words = ["answer", "echo", "10.0.0.2", "7000"];
            let mut server = world.start(There, true, there, &words);
            assert_eq!(server.line(), "ready");
            let words = ["call", "trips", "10.0.0.2", "7000", "3000", "64"];
            world.start(Here, true, here, &words).end();
            server.end();
        }
        for at in [Here, There] {
            assert_eq!(world.connection(at)["accelerated"], true);
        }
    });
}

#[test]
#[ignore = "half a minute; run by make test-all"]
fn a_program_in_go() {
    in_thread(|| {
        if Command::new("go").arg("version").output().is_err() {
            return skip::skipped("there is no Go here");
        }
        let (folder, kept) = (folder(), Path::new(env!("CARGO_TARGET_TMPDIR")));
        let program = folder.path().join("echo");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/echo.go");
        let made = Command::new("go")
            .args([Path::new("build"), Path::new("-o"), &program, Path::new(source)])
            .envs([("GO111MODULE", "off"), ("CGO_ENABLED", "0"), ("GOTELEMETRY", "off")])
            .env("GOCACHE", kept.join("go"))
            .status()
            .unwrap();
        assert!(made.success());
        let world = World::make(true);
        let mut echo = world.start(There, true, &program, &["10.0.0.2:7000"]);
        assert_eq!(echo.line(), "ready");
        let words = ["call", "trips", "10.0.0.2", "7000", "3000", "64"];
        world.start(Here, true, talk(), &words).end();
        echo.end();
        assert!(world.explained(There).is_empty());
        assert_long(&world, Here, 1, "the client of a program in Go");
    });
}

#[test]
fn ping() {
    in_thread(|| {
        for preload in [false, true] {
            let world = World::make(true);
            let said = start(&world, Here, preload, "ping", "-c 5 -i 0.01 10.0.0.2").end();
            assert!(said.contains("5 packets transmitted, 5 received, 0% packet loss"), "{said}");
            // It connects a socket of UDP to learn its own address.
            let lines = world.explained(Here);
            let is_left = |line: &Value| line["accelerated"] == false && line["protocol"] == "UDP";
            assert!(lines.iter().all(is_left), "{lines:?}");
        }
    });
}

/// From the ring on, all is the kernel's: what it had before goes back, and no more is taken.
#[test]
fn an_io_uring_echo() {
    in_thread(|| {
        let program = compile("uring.c", &[]);
        let probe = Command::new(&program.path).output().unwrap();
        if !probe.status.success() {
            return skip::skipped(String::from_utf8_lossy(&probe.stderr).trim());
        }
        for preload in WAYS {
            let world = World::make(true);
            let mut echo = world.start(There, preload[1], &program.path, &["10.0.0.2"]);
            assert_eq!(echo.line(), "ready");
            for _ in 0..2 {
                let words = ["call", "trips", "10.0.0.2", "7000", "3000", "64"];
                world.start(Here, preload[0], talk(), &words).end();
            }
            assert_eq!(echo.end(), "fine");
            if preload[0] {
                assert_long(&world, Here, 2, "the client of an io_uring echo");
            }
            if preload[1] {
                let lines = long(&world, There);
                assert_eq!(lines.len(), 2, "{lines:?}");
                for (line, was_taken) in lines.iter().zip([true, false]) {
                    assert_eq!(line["accelerated"], was_taken, "{line}");
                    assert_eq!(line["why"], "the program uses io_uring", "{line}");
                }
            }
        }
    });
}
