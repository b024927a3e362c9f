//! Programs from start to end, through the agent protocol.

mod controller;

use std::os::unix::fs::PermissionsExt;

use controller::{Agent, Watcher, lines, start, stop, streams};
use loopscope_agent::proto::event::What;
use loopscope_agent::proto::exited::How;
use loopscope_agent::proto::readiness::Rule;
use loopscope_agent::proto::{HelloRequest, ShutdownRequest, StartRequest, StopRequest};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonic::Code;

const STARTED: Rule = Rule::Started(true);

#[tokio::test]
async fn every_byte_of_output_arrives_before_the_exit() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let script = "printf 'one\\ntwo'; echo no >&2; printf 'left' > made; pwd; exit 3";
    let reply = client.start(start("a", &["sh", "-c", script], STARTED)).await.unwrap();
    let mut watcher = Watcher::of(&mut client).await;
    let (events, exited) = watcher.until_exit("a").await;
    let files = agent.path().join("hosts/h1/components/a/files");
    assert_eq!(lines(&events, false), ["one", &format!("two{}", files.display())]);
    assert_eq!(lines(&events, true), ["no"]);
    assert_eq!((exited.how, exited.stopped_by_us), (Some(How::Code(3)), false));
    assert_eq!(agent.file("hosts/h1/components/a/stderr.log"), "no\n");
    let stdout = agent.file("hosts/h1/components/a/stdout.log");
    assert_eq!(stdout, format!("one\ntwo{}\n", files.display()));
    assert_eq!(agent.file("hosts/h1/components/a/files/made"), "left");
    let exit: serde_json::Value =
        serde_json::from_str(&agent.file("hosts/h1/components/a/exit.json")).unwrap();
    assert_eq!(exit["pid"], reply.into_inner().pid);
    assert_eq!((&exit["code"], &exit["signal"]), (&3.into(), &serde_json::Value::Null));
    assert_eq!(exit["command"], serde_json::json!(["sh", "-c", script]));
    assert!(exit["ended_ns"].as_i64() > exit["started_ns"].as_i64());
}

#[tokio::test]
async fn a_last_line_without_newline_and_a_flood_before_any_watcher_are_kept() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    client.start(start("a", &["seq 1 200000; printf end"], STARTED)).await.unwrap();
    while agent.path().join("hosts/h1/components/a/exit.json").metadata().is_err() {
        tokio::task::yield_now().await;
    }
    let (events, _) = Watcher::of(&mut client).await.until_exit("a").await;
    let got = lines(&events, false);
    assert_eq!(got.len(), 200_001);
    assert!(got.iter().zip(1..).take(200_000).all(|(line, i)| *line == i.to_string()));
    assert_eq!(got[200_000], "end");
    let second = client.watch(tokio_stream::empty()).await.unwrap_err();
    assert_eq!(second.code(), Code::AlreadyExists);
}

#[tokio::test]
async fn the_exit_waits_for_what_is_still_written_into_the_pipe() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    // `kill -0` fails once the program has not only ended but been waited for.
    let script = "parent=$$; (while kill -0 $parent 2> none; do :; done; echo late) & echo early";
    client.start(start("a", &["sh", "-c", script], STARTED)).await.unwrap();
    let (events, _) = Watcher::of(&mut client).await.until_exit("a").await;
    assert_eq!(lines(&events, false), ["early", "late"]);
}

#[tokio::test]
async fn a_killed_program_tells_its_signal() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    client.start(start("a", &["kill -9 $$"], STARTED)).await.unwrap();
    let (_, exited) = Watcher::of(&mut client).await.until_exit("a").await;
    assert_eq!((exited.how, exited.stopped_by_us), (Some(How::Signal(9)), false));
    assert!(agent.file("hosts/h1/components/a/exit.json").contains("\"signal\": 9"));
}

#[tokio::test]
async fn what_cannot_be_started_is_named_with_where_it_was_looked_for() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let mut refused = async |request: StartRequest| client.start(request).await.unwrap_err();
    let missing = refused(start("a", &["no-such-program", "-x"], STARTED)).await;
    assert_eq!(missing.code(), Code::FailedPrecondition);
    for part in ["component a", "no-such-program -x", "/bin"] {
        assert!(missing.message().contains(part), "{part:?} not in {:?}", missing.message());
    }
    std::fs::write(agent.path().join("data"), "").unwrap();
    let data = refused(start("a", &["./data", "1"], STARTED)).await;
    assert!(data.message().contains("cannot be executed"), "{}", data.message());
    let broken = agent.path().join("broken");
    std::fs::write(&broken, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).unwrap();
    let broken = refused(start("a", &["./broken", "1"], STARTED)).await;
    assert_eq!(broken.code(), Code::FailedPrecondition);
    assert!(broken.message().contains("interpreter"), "{}", broken.message());
    let path = refused(start("../a", &["true"], STARTED)).await;
    assert_eq!(path.code(), Code::InvalidArgument);
    // None of these is in the way of a start that works, but that is in the way of another.
    client.start(start("a", &["loopscope-host", "--version"], STARTED)).await.unwrap();
    let twice = client.start(start("a", &["true"], STARTED)).await.unwrap_err();
    assert_eq!(twice.code(), Code::AlreadyExists);
    let (events, _) = Watcher::of(&mut client).await.until_exit("a").await;
    assert_eq!(lines(&events, false), [format!("loopscope-host {}", env!("CARGO_PKG_VERSION"))]);
}

#[tokio::test]
async fn a_descendant_that_keeps_the_pipe_does_not_keep_the_exit_and_ends_with_stop() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    // In a session of its own, so that the process group does not reach it.
    let script = "setsid sleep 600 & echo parent; exit 0";
    client.start(start("a", &["sh", "-c", script], STARTED)).await.unwrap();
    let mut watcher = Watcher::of(&mut client).await;
    let (events, exited) = watcher.until_exit("a").await;
    assert_eq!(lines(&events, false), ["parent"]);
    assert_eq!(exited.how, Some(How::Code(0)));
    assert_eq!(agent.remains().len(), 1, "{:?}", agent.remains());
    stop(&mut client, 0.2).await.unwrap();
    assert_eq!(agent.remains(), [""; 0]);
}

/// It has the time that its component has, and its component has one signal.
#[tokio::test]
async fn a_descendant_that_left_the_process_group_is_asked_to_end_too() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let json = client.hello(HelloRequest {}).await.unwrap().into_inner().environment_json;
    if serde_json::from_str::<serde_json::Value>(&json).unwrap()["cgroup"]["path"].is_null() {
        return controller::skipped("no cgroup can be made");
    }
    let left = "trap 'echo left; exit' TERM; echo up; while :; do sleep 0.01; done";
    // It is there when it is asked, although the other one may have ended before.
    let script = "trap 'echo asked; asked=1' TERM; setsid sh -c \"$0\" & \
                  until [ \"$asked\" ]; do wait; done; wait; wait; wait";
    client.start(start("a", &["sh", "-c", script, left], Rule::Line("up".into()))).await.unwrap();
    let mut watcher = Watcher::of(&mut client).await;
    watcher.until_ready("a").await;
    let asked = std::time::Instant::now();
    stop(&mut client, 60.0).await.unwrap();
    // Nobody waited for the grace to be over.
    assert!(asked.elapsed().as_secs() < 60);
    let (events, _) = watcher.until_exit("a").await;
    let mut told = lines(&events, false);
    told.sort_unstable();
    assert_eq!(told, ["asked", "left"]);
}

/// Nothing but the cgroup tells whose it is.
#[tokio::test]
async fn a_descendant_without_session_and_environment_ends_with_its_component() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let environment = client.hello(HelloRequest {}).await.unwrap().into_inner().environment_json;
    let environment: serde_json::Value = serde_json::from_str(&environment).unwrap();
    let cgroup = &environment["cgroup"];
    let Some(path) = cgroup["path"].as_str() else {
        return controller::skipped(&format!("no cgroup can be made: {}", cgroup["why_none"]));
    };
    // `echo` comes when the program has become another.
    let escaped = "env -i setsid sh -c 'i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; \
                   echo $$ >&2; exec sleep 600' & wait";
    for component in ["a", "b"] {
        client.start(start(component, &["sh", "-c", escaped], STARTED)).await.unwrap();
    }
    let mut watcher = Watcher::of(&mut client).await;
    let mut pids = std::collections::BTreeMap::new();
    while pids.len() < 2 {
        let event = watcher.next().await.unwrap();
        if let Some(What::Output(output)) = event.what {
            pids.insert(event.component, output.line.parse::<i32>().unwrap());
        }
    }
    for (component, pid) in &pids {
        let own = std::fs::read_to_string(format!("{path}/h1/{component}/cgroup.procs")).unwrap();
        assert!(own.lines().any(|line| line == pid.to_string()), "{own}");
    }
    let [a, b] = [pids["a"], pids["b"]].map(|pid| loopscope_agent::Identity::of(pid).unwrap());
    let only_a = StopRequest { components: vec!["a".to_owned()], grace_s: 0.1 };
    client.stop(only_a).await.unwrap();
    assert!(!a.is_alive() && b.is_alive());
    let exit: serde_json::Value =
        serde_json::from_str(&agent.file("hosts/h1/components/a/exit.json")).unwrap();
    // It took ten thousand turns of a loop.
    assert!(exit["cpu"]["user_us"].as_u64().unwrap() > 0, "{exit}");
    assert!(exit["cpu"]["system_us"].is_u64(), "{exit}");
    client.shutdown(ShutdownRequest {}).await.unwrap();
    assert!(!b.is_alive() && !std::path::Path::new(path).exists());
}

#[tokio::test]
async fn stop_asks_first_and_kills_who_does_not_listen() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let polite = "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done";
    let deaf = "trap '' TERM; echo up; while :; do sleep 0.01; done";
    let up = || Rule::Line("up".to_owned());
    client.start(start("polite", &["sh", "-c", polite], up())).await.unwrap();
    client.start(start("deaf", &["sh", "-c", deaf], up())).await.unwrap();
    let mut watcher = Watcher::of(&mut client).await;
    let mut ready = 0;
    while ready < 2 {
        ready += i32::from(matches!(watcher.next().await.unwrap().what, Some(What::Ready(_))));
    }
    let request = StopRequest { components: vec!["polite".to_owned()], grace_s: 20.0 };
    client.stop(request).await.unwrap();
    let (events, exited) = watcher.until_exit("polite").await;
    assert_eq!(lines(&events, false), ["bye"]);
    assert_eq!((exited.how, exited.stopped_by_us), (Some(How::Code(5)), true));
    stop(&mut client, 0.3).await.unwrap();
    let (_, exited) = watcher.until_exit("deaf").await;
    assert_eq!((exited.how, exited.stopped_by_us), (Some(How::Signal(9)), true));
    let unknown = StopRequest { components: vec!["nobody".to_owned()], grace_s: 1.0 };
    assert_eq!(client.stop(unknown).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn each_readiness_rule_holds_when_it_says() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let mut watcher = Watcher::of(&mut client).await;
    client.start(start("started", &["cat"], STARTED)).await.unwrap();
    let events = watcher.until_exit("started").await.0;
    assert!(matches!(events[..], [What::Ready(_)]), "{events:?}");

    let say = "echo warming up; echo now serving requests; echo now serving more";
    let rule = Rule::Line("serving".to_owned());
    client.start(start("line", &["sh", "-c", say], rule)).await.unwrap();
    let events = watcher.until_ready("line").await;
    assert_eq!(lines(&events, false), ["warming up", "now serving requests"]);
    let rest = watcher.until_exit("line").await.0;
    assert!(!rest.iter().any(|e| matches!(e, What::Ready(_))), "ready twice");

    client.start(start("wanted", &["exit 4 "], Rule::Exit(4))).await.unwrap();
    let events = watcher.until_exit("wanted").await.0;
    assert!(matches!(events[..], [What::Ready(_)]), "{events:?}");
    client.start(start("other", &["exit 5 "], Rule::Exit(4))).await.unwrap();
    let events = watcher.until_exit("other").await.0;
    assert!(events.is_empty(), "{events:?}");

    for kind in ["STREAM", "DGRAM"] {
        // Free a moment ago.
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let server = format!(
            "import socket, sys, time\n\
             s = socket.socket(socket.AF_INET, socket.SOCK_{kind})\n\
             import os\n\
             print('before', flush=True)\n\
             while not os.path.exists('go'): time.sleep(0.001)\n\
             s.bind(('127.0.0.1', {port}))\n\
             if '{kind}' == 'STREAM': s.listen()\n\
             time.sleep(600)"
        );
        let request = start(kind, &["python3", "-c", &server], Rule::Port(port.into()));
        client.start(request).await.unwrap();
        let events = watcher.until(kind, |what| matches!(what, What::Output(_))).await;
        assert_eq!(lines(&events, false), ["before"]);
        assert_eq!(events.len(), 1, "{events:?}");
        let go = agent.path().join(format!("hosts/h1/components/{kind}/files/go"));
        std::fs::write(go, "").unwrap();
        watcher.until_ready(kind).await;
    }
    let nonsense = client.start(start("p", &["true"], Rule::Port(65536))).await.unwrap_err();
    assert_eq!(nonsense.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_host_writes_its_part_of_the_run_directory_and_holds_it_while_it_lives() {
    let mut agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let script = "head -c 1500000 /dev/zero > big; : > empty; mkdir sub; echo x > sub/y";
    client.start(start("a", &["sh", "-c", script], STARTED)).await.unwrap();
    let environment = client.hello(HelloRequest {}).await.unwrap().into_inner().environment_json;
    Watcher::of(&mut client).await.until_exit("a").await;
    let files = agent.path().join("hosts/h1/components/a/files");
    assert_eq!(files.join("big").metadata().unwrap().len(), 1_500_000);
    assert_eq!(files.join("empty").metadata().unwrap().len(), 0);
    assert_eq!(agent.file("hosts/h1/components/a/files/sub/y"), "x\n");
    assert_eq!(agent.file("hosts/h1/env.json"), environment);
    let environment: serde_json::Value = serde_json::from_str(&environment).unwrap();
    assert!(environment["kernel"]["release"].is_string(), "{environment:#}");
    let place = agent.path().to_owned();
    let folder = || std::fs::File::open(&place).unwrap();
    let exclusive = FlockArg::LockExclusiveNonblock;
    assert!(Flock::lock(folder(), exclusive).is_err(), "nobody says that the agent writes there");
    drop(agent.stdin.take());
    assert!(agent.child.wait().unwrap().success());
    assert!(Flock::lock(folder(), exclusive).is_ok());
}

#[tokio::test]
async fn shutdown_ends_everything_and_then_the_agent() {
    let mut agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let mut watcher = Watcher::of(&mut client).await;
    let mut request = start("a", &["sleep", "600"], STARTED);
    request.streams_json = streams("none:*");
    client.start(request).await.unwrap();
    assert_eq!(agent.remains().len(), 2, "{:?}", agent.remains());
    let problems = client.shutdown(ShutdownRequest {}).await.unwrap().into_inner().problems;
    assert_eq!(problems, [""; 0]);
    assert_eq!(watcher.until_exit("a").await.1.how, Some(How::Signal(15)));
    assert_eq!(watcher.next().await, None);
    drop((watcher, client));
    assert!(agent.child.wait().unwrap().success());
    assert_eq!(agent.remains(), [""; 0]);
    assert!(agent.state_dir().join("ledger").read_dir().unwrap().next().is_none());
    assert!(!agent.path().join("a.sock").exists());
}

#[tokio::test]
async fn a_signal_ends_everything_too() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut agent = Agent::start(&["--host", "h1"]);
        let mut client = agent.client().await;
        let mut watcher = Watcher::of(&mut client).await;
        let request = start("a", &["trap '' TERM; echo up; sleep 600 "], Rule::Line("up".into()));
        client.start(request).await.unwrap();
        watcher.until_ready("a").await;
        kill(Pid::from_raw(agent.child.id().cast_signed()), signal).unwrap();
        assert!(agent.child.wait().unwrap().success());
        // The component ends because the agent does, and could be taken for the cause.
        while let Some(event) = watcher.next().await {
            assert!(!matches!(event.what, Some(What::Exited(_))), "{event:?}");
        }
        assert_eq!(agent.remains(), [""; 0]);
        assert!(agent.state_dir().join("ledger").read_dir().unwrap().next().is_none());
    }
}

#[test]
fn an_agent_that_cannot_start_leaves_nothing() {
    let agent = Agent::start(&["--host", "h1"]);
    let socket = agent.path().join("a.sock");
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let output = std::process::Command::new(controller::BINARY)
        .args(["agent", "--run", "second", "--dir", "/nonexistent", "--socket"])
        .arg(&socket)
        .env("LOOPSCOPE_STATE_DIR", agent.state_dir())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a.sock exists already"), "{said}");
    assert!(socket.exists(), "the other agent's socket");
    assert_eq!(agent.state_dir().join("ledger").read_dir().unwrap().count(), 1);
}

#[test]
fn a_socket_path_that_does_not_fit_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("x".repeat(108));
    let output = std::process::Command::new(controller::BINARY)
        .args(["agent", "--dir", "/nonexistent", "--socket"])
        .arg(socket)
        .env("LOOPSCOPE_STATE_DIR", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("longer than 107 bytes"), "{said}");
}

/// Its own folder by its path too, its outputs by theirs, and no more of the agent's environment than
/// it says.
#[tokio::test]
async fn a_component_runs_as_its_user() {
    if !controller::has_root("a_component_runs_as_its_user") {
        return;
    }
    let agent = Agent::start_in(&["--host", "h1"], &[("SECRET", "x"), ("LC_TIME", "C")]);
    // These are not the agent's to open.
    for path in [agent.path().to_owned(), agent.path().join("hosts")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o711)).unwrap();
    }
    let mut client = agent.client().await;
    let mut watcher = Watcher::of(&mut client).await;
    let script = "id -un; id -G; echo made > made; cat \"$PWD/made\"; echo again > /dev/stdout; \
                  ls -ld . | cut -c 1-10; umask; ls .. 2>&1 | tail -n 1 | grep -c denied; \
                  env | cut -d = -f 1 | grep -v '^LOOPSCOPE_' | sort | xargs; \
                  echo $HOME; kill -0 1 2> /dev/null || echo powerless";
    let mut request = start("a", &["sh", "-c", script], STARTED);
    request.user = "nobody".to_owned();
    request.inherit = vec!["LC_*".to_owned()];
    client.start(request).await.unwrap();
    let (events, exited) = watcher.until_exit("a").await;
    assert_eq!(exited.how, Some(How::Code(0)), "{events:?}");
    let user = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let (group, home) = (user.gid.to_string(), user.dir.display().to_string());
    let names = "HOME LC_TIME LOGNAME PATH PWD SHELL USER";
    let umask = std::process::Command::new("sh").args(["-c", "umask"]).output().unwrap().stdout;
    let umask = String::from_utf8(umask).unwrap();
    let wanted = [
        "nobody",
        &group,
        "made",
        "again",
        "drwx------",
        umask.trim(),
        "1",
        names,
        &home,
        "powerless",
    ];
    assert_eq!(lines(&events, false), wanted, "{:?}", lines(&events, true));

    let mut request = start("b", &["true"], STARTED);
    request.user = "no-such-user".to_owned();
    let refused = client.start(request).await.unwrap_err();
    assert!(refused.message().contains("no user \"no-such-user\""), "{}", refused.message());
    // A program that the user may not run.
    let mut request = start("c", &["./secret"], STARTED);
    request.user = "nobody".to_owned();
    std::fs::write(agent.path().join("secret"), "#!/bin/sh\n").unwrap();
    let secret = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(agent.path().join("secret"), secret).unwrap();
    let refused = client.start(request).await.unwrap_err();
    assert!(refused.message().contains("its user may not execute it"), "{}", refused.message());
}

#[tokio::test]
async fn output_beyond_its_limit_is_counted() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let mut request = start("a", &["seq 1 200000; echo broken pump >&2"], STARTED);
    request.output_limit = 100_000;
    client.start(request).await.unwrap();
    let (events, exited) = Watcher::of(&mut client).await.until_exit("a").await;
    let log = agent.file("hosts/h1/components/a/stdout.log");
    let note = format!("\nloopscope: {} bytes left out here\n", exited.stdout_left_out);
    let (first, last) = log.split_once(&note).unwrap();
    let whole: String = (1..=200_000).map(|i| format!("{i}\n")).collect();
    assert_eq!((first.len() + last.len()), 100_000);
    assert_eq!(whole.len() as u64, 100_000 + exited.stdout_left_out);
    assert_eq!(exited.stderr_left_out, 0);
    assert_eq!(lines(&events, false).last(), Some(&"200000"));
    assert_eq!(lines(&events, true), ["broken pump"]);
    let exit = agent.file("hosts/h1/components/a/exit.json");
    let exit: serde_json::Value = serde_json::from_str(&exit).unwrap();
    assert_eq!(exit["stdout_left_out"], exited.stdout_left_out);
}

#[tokio::test]
async fn paths_in_a_command_begin_where_the_program_is_looked_up() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    std::fs::write(agent.path().join("data"), "here\n").unwrap();
    client.start(start("a", &["cat", "./data"], STARTED)).await.unwrap();
    let (events, _) = Watcher::of(&mut client).await.until_exit("a").await;
    assert_eq!(lines(&events, false), ["here"], "{events:?}");
}
