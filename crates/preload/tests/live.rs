//! Programs that know nothing of the stack, with and without the library. Needs root.

mod machines;
#[path = "../../../tests/skip.rs"]
mod skip;
#[path = "../../stack-service/tests/world/mod.rs"]
mod world;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use loopscope_stack_service::Service;
use machines::At::{Here, There};
use machines::{ENDS, World, assert_accelerated, in_thread, python3, talk};
use nix::sys::signal::Signal;
use serde_json::Value;
use world::PATIENCE;

/// Programs that are killed.
const TRIES: usize = 20;
/// Until the other end of one has seen the end of its stream.
const END: Duration = Duration::from_secs(5);

/// A pair of `talk.c`: one that answers there, one that calls here. What both say.
fn pair(world: &World, preload: [bool; 2], answer: &str, call: &str) -> [String; 2] {
    let [here, there] = preload;
    let mut answering = world.talk(There, there, &format!("answer {answer} 10.0.0.2 7000"));
    assert_eq!(answering.line(), "ready");
    let (act, words) = call.split_once(' ').unwrap_or((call, ""));
    let words = format!("call {act} 10.0.0.2 7000 {words}");
    let said = world.talk(Here, here, words.trim()).end();
    [said, answering.end()]
}

#[test]
fn round_trips_are_by_the_stack() {
    in_thread(|| {
        for preload in ENDS {
            let world = World::make(true);
            pair(&world, preload, "echo", "trips 5000 64");
            pair_is_accelerated(&world, preload);
        }
    });
}

fn pair_is_accelerated(world: &World, preload: [bool; 2]) {
    for (at, _) in [Here, There].into_iter().zip(preload).filter(|(_, preload)| *preload) {
        assert_accelerated(&world.connection(at));
    }
}

#[test]
fn threads_wait_as_they_are_told() {
    in_thread(|| {
        let mut world = World::make(true);
        for receive in ["spin", "block", "adaptive"] {
            world.receive = receive;
            let [said, _] = pair(&world, [true, false], "echo", "mixes");
            assert_eq!((&said[..], &world.connection(Here)["accelerated"]), ("fine", &true.into()));
            std::fs::remove_file(world.explain(Here)).unwrap();
            // Either has to be taken off its processor while it looks.
            pair(&world, [true, true], "echo", "trips 300 64");
            pair_is_accelerated(&world, [true, true]);
            let [said, _] = pair(&world, [true, false], "errors-peer", "errors");
            assert_eq!(said, "fine");
            for at in [Here, There] {
                std::fs::remove_file(world.explain(at)).unwrap();
            }
        }
        world.receive = "now and then";
        pair(&world, [true, true], "echo", "trips 300 64");
        let why = r#"LOOPSCOPE_STACK_RECEIVE is "now and then", and not adaptive, spin or block"#;
        assert_eq!(world.connection(Here)["why"], why);
    });
}

#[test]
fn files_are_sent_by_the_stack() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, true]] {
            let [said, _] = pair(&world, preload, "echo", "sends-files");
            assert_eq!(said, "fine");
        }
        let line = world.connection(Here);
        assert_eq!(line["why"], "sendfile() of what cannot be read at a place", "{line}");
        assert_accelerated(&line);
    });
}

/// Prints the times of both, in turn.
#[test]
fn round_trips_with_and_without() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[true, false], [true, true]] {
            // The second of these calls has the devices made and the connection taken over.
            let [said, _] = pair(&world, preload, "echo", "trips 3 64");
            let (_, longest) = said.split_once(' ').expect("two numbers");
            eprintln!("until the connection is taken over, {preload:?}: {longest} ns");
        }
        for preload in [[false, false], [true, false], [true, true]].repeat(3) {
            let [said, _] = pair(&world, preload, "echo", "trips 50000 64");
            let (median, high) = said.split_once(' ').expect("two numbers");
            eprintln!("64 bytes, by the stack {preload:?}: median {median} ns, p99.9 {high} ns");
        }
    });
}

#[test]
fn long_messages_are_by_the_stack() {
    in_thread(|| {
        for preload in ENDS {
            let world = World::make(true);
            pair(&world, preload, "echo", "trips 300 60000");
            pair_is_accelerated(&world, preload);
        }
    });
}

#[test]
fn errors_and_times_are_those_of_the_kernel() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, true]] {
            let [said, _] = pair(&world, preload, "errors-peer", "errors");
            assert_eq!(said, "fine");
        }
        let line = world.connection(Here);
        assert_eq!(line["why"], "flags that are the kernel's", "{line}");
    });
}

#[test]
fn what_is_known_of_a_connection_is_told() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, false]] {
            let [said, _] = pair(&world, preload, "echo", "tells");
            assert_eq!(said, "fine");
        }
        assert_accelerated(&world.connection(Here));
    });
}

#[test]
fn pieces_and_messages_are_those_of_the_kernel() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, true]] {
            let [said, _] = pair(&world, preload, "echo", "pieces");
            assert_eq!(said, "fine");
        }
        let line = world.connection(Here);
        assert_eq!(line["why"], "dup()", "{line}");
        assert!(line["received"].as_u64() > Some(0), "{line}");
    });
}

#[test]
fn a_program_closes_by_a_system_call() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, false]] {
            let [said, _] = pair(&world, preload, "echo", "closes-itself");
            assert_eq!(said, "fine");
        }
        let line = world.connection(Here);
        assert_eq!(line["why"], "the program has closed it", "{line}");
        assert!(line["received"].as_u64() > Some(0), "{line}");
    });
}

/// So does the service end what it has of them: the next one is served.
#[test]
fn the_other_end_of_a_program_that_is_killed_sees_its_end() {
    in_thread(|| {
        let world = World::make(true);
        let mut rng = fastrand::Rng::new();
        for time in 0..TRIES {
            let is_also_there = time % 2 == 0;
            let words = "answer echo-to-end 10.0.0.2 7000";
            let mut there = world.talk(There, is_also_there, words);
            assert_eq!(there.line(), "ready");
            let here = world.talk(Here, true, "call trips 10.0.0.2 7000 1000000 64");
            assert_eq!(there.line(), "connected");
            std::thread::sleep(Duration::from_micros(rng.u64(0..150_000)));
            here.stop(Signal::SIGKILL);
            let killed = Instant::now();
            assert_eq!(there.end(), "ended");
            assert!(killed.elapsed() < END, "{:?}", killed.elapsed());
        }
        pair(&world, [true, true], "echo", "trips 5000 64");
        let line = world.explained(Here).pop().unwrap();
        assert_accelerated(&line);
    });
}

#[test]
fn a_handler_jumps_out_of_a_call() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, true]] {
            let [said, _] = pair(&world, preload, "echo", "jumps");
            assert_eq!(said, "fine");
        }
        let line = world.connection(Here);
        assert_eq!(line["why"], "the program has ended", "{line}");
    });
}

/// What the stack does not do goes back, and the program sees no difference.
#[test]
fn a_program_does_what_the_stack_does_not() {
    in_thread(|| {
        for (role, why) in [
            ("nests", "its instance of epoll is polled itself"),
            ("watches-alone", "epoll_ctl()"),
            ("urges", "flags that are the kernel's"),
            ("moves", "splice()"),
            ("spawns", "the program has forked while it had the connection"),
        ] {
            let world = World::make(true);
            for preload in [[false, false], [true, true]] {
                let [said, _] = pair(&world, preload, "echo", role);
                assert_eq!(said, "fine", "{role}");
            }
            let line = world.connection(Here);
            assert_eq!(line["why"], why, "{role}: {line}");
            assert!(line["received_by_stack"].as_u64() > Some(0), "{role}: {line}");
        }
    });
}

#[test]
fn a_program_corks_and_acknowledges_at_once() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, false]] {
            let [said, _] = pair(&world, preload, "echo", "corks");
            assert_eq!(said, "fine");
        }
        assert_accelerated(&world.connection(Here));
    });
}

#[test]
fn a_program_makes_system_calls_itself() {
    in_thread(|| {
        for (role, why) in [
            ("polls-itself", "the program waits by system calls without the C library"),
            ("splices-itself", "syscall()"),
            ("doubles-itself", "syscall()"),
        ] {
            let world = World::make(true);
            for preload in [[false, false], [true, false]] {
                let [said, _] = pair(&world, preload, "echo", role);
                assert_eq!(said, "fine", "{role}");
            }
            let line = world.connection(Here);
            assert_eq!(line["why"], why, "{line}");
            assert!(line["received_by_stack"].as_u64() > Some(0), "{line}");
        }
    });
}

#[test]
fn a_handler_of_a_signal_writes_to_the_connection() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, true]] {
            let [said, _] = pair(&world, preload, "echo", "handlers");
            assert_eq!(said, "fine");
        }
        assert_accelerated(&world.connection(Here));
    });
}

#[test]
fn one_thread_writes_and_another_one_reads() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, true]] {
            let [said, _] = pair(&world, preload, "echo", "threads");
            assert_eq!(said, "fine");
        }
        // It is taken over when one thread calls while the other one does not.
        assert_eq!(world.connection(Here)["accelerated"], true);
        assert_accelerated(&world.connection(There));
    });
}

#[test]
fn a_thread_that_waits_in_the_kernel_is_not_left_there() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, true]] {
            let [said, _] = pair(&world, preload, "echo", "waits-first");
            assert_eq!(said, "fine");
        }
    });
}

#[test]
fn what_the_stack_cannot_share_goes_back() {
    in_thread(|| {
        for (answer, call) in
            [("echo", "starts"), ("echo", "closes"), ("echo-twice", "passes"), ("echo", "cancels")]
        {
            let world = World::make(true);
            for preload in [[false, false], [true, true]] {
                let [said, _] = pair(&world, preload, answer, call);
                assert_eq!(said, "fine", "{call}");
            }
            let mut lines = world.explained(Here).into_iter();
            assert!(lines.any(|line| line["accelerated"] == true), "{call}");
        }
    });
}

#[test]
fn the_service_ends_meanwhile() {
    in_thread(|| {
        let mut world = World::make(true);
        let mut answering = world.talk(There, true, "answer echo 10.0.0.2 7000");
        assert_eq!(answering.line(), "ready");
        let calling = world.talk(Here, true, "call trips 10.0.0.2 7000 50000 2000");
        std::thread::sleep(Duration::from_millis(200));
        world.here.as_mut().unwrap().end();
        std::thread::sleep(Duration::from_millis(100));
        world.there.as_mut().unwrap().end();
        calling.end();
        answering.end();
        for at in [Here, There] {
            let line = world.connection(at);
            assert_eq!(line["accelerated"], true, "{line}");
            assert_ne!(line["why"], "the program has ended", "{line}");
        }
    });
}

/// A service that is a process of its own, until its standard input ends.
#[test]
fn as_a_service() {
    let Some(path) = std::env::var_os("LOOPSCOPE_TEST_SERVICE") else { return };
    let service = Service::listen(Path::new(&path), None).unwrap();
    service.serve(std::io::stdin(), |why| panic!("{why}")).unwrap();
}

#[test]
fn a_program_that_does_not_call_outlives_the_process_of_the_service() {
    in_thread(|| {
        for act in ["looks-on", "waits-on", "sleeps-on"] {
            let world = World::make(false);
            let path = world.folder.path().join("stack.sock");
            let mut service = Command::new("/proc/self/exe")
                .args(["--exact", "as_a_service", "--nocapture", "--quiet"])
                .env("LOOPSCOPE_TEST_SERVICE", &path)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let begin = Instant::now();
            while std::os::unix::net::UnixStream::connect(&path).is_err() {
                assert!(begin.elapsed() < PATIENCE, "it does not listen");
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut answering = world.talk(There, false, "answer late 10.0.0.2 7000");
            assert_eq!(answering.line(), "ready");
            let words = format!("call {act} 10.0.0.2 7000");
            let words: Vec<&str> = words.split(' ').collect();
            let mut calling = world.start_by(&path, Here, talk(), &words);
            assert_eq!(calling.line(), "ready");
            drop(service.stdin.take());
            assert!(service.wait().unwrap().success());
            assert_eq!(calling.end(), "fine", "{act}");
            answering.end();
            let line = world.connection(Here);
            assert_eq!(line["accelerated"], true, "{line}");
        }
    });
}

#[test]
fn a_program_that_does_not_call_outlives_the_service() {
    in_thread(|| {
        for act in ["looks-on", "waits-on", "sleeps-on"] {
            let mut world = World::make(true);
            let mut answering = world.talk(There, false, "answer late 10.0.0.2 7000");
            assert_eq!(answering.line(), "ready");
            let mut calling = world.talk(Here, true, &format!("call {act} 10.0.0.2 7000"));
            assert_eq!(calling.line(), "ready");
            world.here.as_mut().unwrap().end();
            assert_eq!(calling.end(), "fine", "{act}");
            answering.end();
            assert_eq!(world.connection(Here)["accelerated"], true);
        }
    });
}

#[test]
fn a_program_forks() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, true]] {
            let [said, _] = pair(&world, preload, "echo", "forks");
            assert_eq!(said, "fine");
        }
        let line = world.explained(Here).into_iter().find(|line| line["accelerated"] == true);
        let line = line.expect("it was accelerated before");
        assert_eq!(line["why"], "the program has forked while it had the connection", "{line}");
    });
}

#[test]
fn a_program_executes_another_one() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, true]] {
            pair(&world, preload, "echo", "executes");
        }
    });
}

#[test]
fn what_was_not_sent_is_sent_when_the_program_has_ended() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, true], [true, false]] {
            let [_, said] = pair(&world, preload, "slow", "unsent");
            assert_eq!(said, (40 << 16).to_string());
        }
    });
}

#[test]
fn the_other_end_resets() {
    in_thread(|| {
        let world = World::make(true);
        for preload in [[false, false], [true, true], [true, false]] {
            let [said, _] = pair(&world, preload, "resets-at-word", "is-reset");
            assert_eq!(said, "fine");
        }
        for line in world.explained(Here) {
            assert!(line["received_by_stack"].as_u64() > Some(0), "{line}");
            assert_eq!(line["accelerated"], true, "{line}");
            assert_eq!(line["why"], "the other end has reset the connection", "{line}");
        }
    });
}

#[test]
fn the_other_end_is_answered_while_the_program_computes() {
    in_thread(|| {
        let world = World::make(true);
        let said = pair(&world, [true, false], "counts", "computes");
        assert_eq!(said, ["fine", "0"]);
        assert_eq!(world.connection(Here)["accelerated"], true);
    });
}

#[test]
fn a_connection_that_is_left_alone_takes_no_time() {
    in_thread(|| {
        let world = World::make(true);
        let share = |_| -> f64 {
            let [said, _] = pair(&world, [true, false], "echo", "idles");
            said.parse().unwrap()
        };
        // Other work of the machine may count as the program's, so the least of some counts.
        let share = (0..3).map(share).fold(1.0, f64::min);
        assert!(world.explained(Here).iter().all(|line| line["accelerated"] == true));
        eprintln!("share of a processor while a connection is left alone: {share}");
        // The limit of the design, four times what it takes.
        assert!(share < 0.001, "{share} of a processor");
    });
}

/// A python program that echoes, and one that calls it; both say a digest of what they have got.
fn python(world: &World, preload: [bool; 2], way: &str) {
    let (way, host) = match way.strip_suffix(" IPv6") {
        Some(way) => (way, "fd00::2"),
        None => (way, "10.0.0.2"),
    };
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/talk.py");
    let [here, there] = preload;
    let words = |act| [program, act, way, host, "7001"];
    let mut answering = world.start(There, there, python3(), &words("answer"));
    assert_eq!(answering.line(), "ready");
    let said = world.start(Here, here, python3(), &words("call")).end();
    assert_eq!(said, answering.end());
}

#[test]
fn programs_in_python_talk_as_before() {
    in_thread(|| {
        let by_epoll = ["epoll", "edges", "oneshot", "asyncio", "blocking IPv6"];
        let ways = ["blocking", "timeouts", "select", "poll", "file", "threads"];
        for way in ways.into_iter().chain(by_epoll) {
            for preload in ENDS {
                let world = World::make(true);
                python(&world, preload, way);
                match way {
                    // Its descriptor is one of stdio of Python, which reads by the same calls.
                    "file" => {}
                    // It is taken over when one thread calls while the other one does not; and what
                    // is sent without waiting for an answer comes before it is taken over.
                    "threads" | "asyncio" => {
                        for (at, _) in [Here, There].into_iter().zip(preload).filter(|(_, is)| *is)
                        {
                            assert_eq!(world.connection(at)["accelerated"], true);
                        }
                    }
                    _ => pair_is_accelerated(&world, preload),
                }
            }
        }
    });
}

#[test]
fn many_threads_have_a_connection_each() {
    in_thread(|| {
        for preload in ENDS {
            let world = World::make(true);
            python(&world, preload, "many");
            for (at, _) in [Here, There].into_iter().zip(preload).filter(|(_, is)| *is) {
                let lines = world.explained(at);
                assert_eq!(lines.len(), 12);
                lines.iter().for_each(assert_accelerated_mostly);
            }
        }
    });
}

fn assert_accelerated_mostly(line: &Value) {
    assert_eq!(line["accelerated"], true, "{line}");
    let of = |key: &str| line[key].as_u64().unwrap();
    assert!(of("received_by_stack") * 10 >= of("received") * 9, "{line}");
}

#[test]
fn a_file_comes_whole_from_pythons_server_to_curl() {
    in_thread(|| {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = vec![0; 50_000_000];
        fastrand::Rng::with_seed(1).fill(&mut bytes);
        std::fs::write(folder.path().join("file"), &bytes).unwrap();
        for preload in [[false, false]].into_iter().chain(ENDS) {
            let world = World::make(true);
            // What a shell starts in the background ignores SIGINT, and so would the server.
            let words = [
                "--default-signal=INT",
                python3(),
                "-u",
                "-m",
                "http.server",
                "-b",
                "10.0.0.2",
                "-d",
                folder.path().to_str().unwrap(),
                "8000",
            ];
            let mut server = world.start(There, preload[1], "env", &words);
            assert!(server.line().starts_with("Serving"));
            let got = folder.path().join("got");
            let words = ["-sS", "-o", got.to_str().unwrap(), "http://10.0.0.2:8000/file"];
            let begin = Instant::now();
            world.start(Here, preload[0], "curl", &words).end();
            eprintln!("50 MB, by the stack {preload:?}: {:?}", begin.elapsed());
            assert!(std::fs::read(&got).unwrap() == bytes, "the file is another");
            if preload[0] {
                let line = world.connection(Here);
                assert_eq!(line["accelerated"], true, "{line}");
                let of = |key: &str| line[key].as_u64().unwrap();
                assert!(of("received_by_stack") * 100 >= of("received") * 99, "{line}");
            }
            if preload[1] {
                let id = nix::unistd::Pid::from_raw(server.child.id() as i32);
                nix::sys::signal::kill(id, Signal::SIGINT).unwrap();
                let _ = server.child.wait();
                let line = world.connection(There);
                let of = |key: &str| line[key].as_u64().unwrap();
                assert!(of("written_to_stack") * 100 >= of("written") * 99, "{line}");
            }
        }
    });
}

#[test]
fn without_a_service_the_kernel_does_all() {
    in_thread(|| {
        let world = World::make(false);
        for (answer, call) in [
            ("echo", "trips 1000 64"),
            ("errors-peer", "errors"),
            ("echo", "forks"),
            ("echo", "cancels"),
        ] {
            pair(&world, [true, true], answer, call);
        }
        for line in world.explained(Here) {
            assert_eq!(line["accelerated"], false, "{line}");
        }
    });
}
