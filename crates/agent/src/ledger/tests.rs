//! Entries are recorded before they are made, and undone only where they are the run's.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use super::*;
use crate::setting::Setting;

fn here() -> Identity {
    Identity::of(std::process::id().cast_signed()).unwrap()
}

#[test]
fn directories_are_recorded_first_and_undone_once() {
    let state = tempfile::tempdir().unwrap();
    let made = state.path().join("ls-made");
    let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
    ledger.make(&[Entry::Directory { path: made.clone() }]).unwrap();
    fs::write(made.join("file"), "x").unwrap();
    let (entries, problems) = read(&ledger.path).unwrap();
    assert!(matches!(entries[0], Entry::Owner { .. }));
    let entry = Box::new(Entry::Directory { path: made.clone() });
    let mark = made.metadata().unwrap().ino();
    assert_eq!(entries.last(), Some(&Entry::Marked { entry, mark }));
    assert_eq!(problems, [""; 0]);
    let first = ledger.undo();
    assert_eq!(first.removed, [format!("directory {}", made.display())]);
    assert!(!made.exists() && !ledger.path.exists());
    let second = ledger.undo();
    assert!(second.removed.is_empty() && second.problems.is_empty(), "{second:?}");
}

#[test]
fn what_could_not_be_made_is_recorded_all_the_same() {
    let state = tempfile::tempdir().unwrap();
    let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
    let entry = Entry::Directory { path: state.path().join("no/such/ls-folder") };
    assert!(matches!(ledger.make(std::slice::from_ref(&entry)), Err(LedgerError::Make { .. })));
    assert_eq!(read(&ledger.path).unwrap().0.len(), 2);
    assert!(ledger.undo().problems.is_empty());
}

#[test]
fn what_somebody_else_made_is_neither_recorded_nor_removed() {
    let state = tempfile::tempdir().unwrap();
    let theirs = state.path().join("ls-theirs");
    fs::create_dir(&theirs).unwrap();
    let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
    let refused = ledger.make(&[Entry::Directory { path: theirs.clone() }]);
    assert!(matches!(refused, Err(LedgerError::Taken(_))));
    ledger.undo();
    assert!(theirs.exists());
}

#[test]
fn what_somebody_else_made_in_between_is_theirs() {
    let state = tempfile::tempdir().unwrap();
    let theirs = state.path().join("ls-theirs");
    let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
    let entry = Entry::Directory { path: theirs.clone() };
    let lost = ledger.make_by(&entry, || {
        fs::create_dir(&theirs)?;
        fs::create_dir(&theirs)
    });
    assert!(matches!(lost, Err(LedgerError::Taken(_))), "{lost:?}");
    assert!(!read(&ledger.path).unwrap().0.contains(&entry));
    // Neither the ledger nor the agent that holds it removes it.
    let member = Ledger::join(state.path(), "r1").unwrap();
    assert!(member.make_by(&entry, || fs::create_dir(&theirs)).is_err());
    assert!(member.undo().removed.is_empty() && ledger.undo().removed.is_empty());
    assert!(theirs.exists());
}

#[test]
fn a_socket_that_somebody_else_binds_in_between_is_theirs() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join("socket");
    let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
    let mut theirs = None;
    let lost = ledger.make_by(&Entry::Socket { path: path.clone() }, || {
        theirs = Some(UnixListener::bind(&path)?);
        UnixListener::bind(&path)
    });
    assert!(matches!(lost, Err(LedgerError::Taken(_))), "{lost:?}");
    ledger.undo();
    assert!(path.exists());
}

#[test]
fn what_is_taken_back_and_made_later_is_ours() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join("ls-made");
    let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
    let entry = Entry::Directory { path: path.clone() };
    let lost = ledger.make_by(&entry, || Err::<(), _>(io::ErrorKind::AlreadyExists.into()));
    assert!(lost.is_err());
    ledger.make(std::slice::from_ref(&entry)).unwrap();
    ledger.undo();
    assert!(!path.exists());
}

#[test]
fn agents_of_hosts_use_no_cgroup_that_could_not_be_made() {
    let state = tempfile::tempdir().unwrap();
    let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
    let path = state.path().join("ls-r1");
    let entry = Entry::Cgroup { path: path.clone() };
    ledger.record(&entry).unwrap();
    assert_eq!(Ledger::join(state.path(), "r1").unwrap().cgroup(), Some(&*path));
    ledger.disown(&entry).unwrap();
    let host = Ledger::join(state.path(), "r1").unwrap();
    assert!(host.cgroup().is_none() && host.why_no_cgroup().is_some());
}

#[test]
fn a_note_is_a_process_entry() {
    let state = tempfile::tempdir().unwrap();
    let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
    for pid in [1, 47, 4_194_304, i32::MAX] {
        ledger.note("a \"b\"").write(pid).unwrap();
        let (entries, problems) = read(&ledger.path).unwrap();
        assert_eq!(problems, [""; 0]);
        assert_eq!(entries.last(), Some(&Entry::Process { what: "a \"b\"".into(), pid }));
    }
}

/// A ledger's agent in a network namespace of its own, so that its sysctls are nobody else's.
fn in_own_network(test: impl FnOnce(&Path, Setting) + Send) {
    if !nix::unistd::geteuid().is_root() {
        return crate::skip::skipped("makes a network namespace, needs root");
    }
    let _one_at_a_time = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let state = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let work = || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            // That of the thread, whose namespace it is.
            let path = PathBuf::from("/proc/sys/net/ipv4/ip_forward");
            test(state.path(), Setting::File { path });
        };
        scope.spawn(work).join().unwrap();
    });
}

/// The machine's lock is one for all tests.
static MACHINE: Mutex<()> = Mutex::new(());

#[test]
fn a_setting_gets_its_value_back_if_it_is_still_as_set() {
    in_own_network(|state, setting| {
        for somebody in [None, Some("0"), Some("1")] {
            setting.write("0").unwrap();
            let ledger = Ledger::create(state, "r1", here()).unwrap();
            ledger.set(&setting, "1").unwrap();
            assert_eq!(setting.read().unwrap(), "1");
            if let Some(value) = somebody {
                setting.write(value).unwrap();
            }
            let undone = ledger.undo();
            assert!(undone.problems.is_empty(), "{undone:?}");
            let restored = somebody != Some("0");
            assert_eq!(undone.removed.len(), usize::from(restored), "{undone:?}");
            // It is what it was before, which nobody has to be told.
            assert!(undone.left.is_empty(), "{undone:?}");
            assert_eq!(setting.read().unwrap(), "0");
        }
    });
}

#[test]
fn a_setting_that_changes_twice_gets_its_first_value_back() {
    in_own_network(|state, _| {
        let setting = Setting::File { path: "/proc/sys/net/ipv4/ip_default_ttl".into() };
        let before = setting.read().unwrap();
        let ledger = Ledger::create(state, "r1", here()).unwrap();
        for value in ["70", "71"] {
            ledger.set(&setting, value).unwrap();
        }
        ledger.undo();
        assert_eq!(setting.read().unwrap(), before);
    });
}

/// The settings of a link that the namespace has of its own.
#[test]
fn settings_of_interfaces_come_back() {
    in_own_network(|state, _| {
        let shell = |command: &str| {
            let done = Command::new("sh").args(["-c", command]).output().unwrap();
            assert!(done.status.success(), "{command}: {done:?}");
            String::from_utf8(done.stdout).unwrap()
        };
        shell("ip link add eth1 type veth peer name far; ip link set eth1 up");
        let interface = || "eth1".to_owned();
        let settings = [
            (Setting::Offload { interface: interface(), offload: "gso".to_owned() }, "on", "off"),
            (Setting::Offload { interface: interface(), offload: "gro".to_owned() }, "off", "on"),
            (Setting::Qdisc { interface: interface() }, "default", "pfifo"),
            (Setting::Link { interface: interface(), attribute: "mtu".into() }, "1500", "4000"),
            (Setting::Link { interface: interface(), attribute: "txqueuelen".into() }, "1000", "9"),
        ];
        let shown = || shell("ip link show eth1; tc qdisc show dev eth1; ethtool -k eth1");
        let before = shown();
        let ledger = Ledger::create(state, "r1", here()).unwrap();
        for (setting, was, value) in &settings {
            assert_eq!(setting.read().unwrap(), *was, "{setting:?}");
            ledger.set(setting, value).unwrap();
            assert_eq!(setting.read().unwrap(), *value, "{setting:?}");
        }
        let set = shown();
        for told in [
            "mtu 4000",
            "qlen 9",
            "qdisc pfifo 4c53:",
            "generic-segmentation-offload: off",
            "generic-receive-offload: on",
        ] {
            assert!(set.contains(told), "{set}");
        }
        let undone = ledger.undo();
        assert_eq!((undone.removed.len(), undone.problems.len()), (5, 0), "{undone:?}");
        assert_eq!(shown(), before);
        // What somebody has given it is neither replaced nor removed.
        let ledger = Ledger::create(state, "r2", here()).unwrap();
        let (qdisc, ..) = &settings[2];
        ledger.set(qdisc, "pfifo").unwrap();
        shell("tc qdisc replace dev eth1 root handle 1: pfifo limit 7");
        let undone = ledger.undo();
        assert_eq!(undone.left.len(), 1, "{undone:?}");
        assert!(undone.left[0].contains("somebody has set it to pfifo 1:"), "{undone:?}");
        let ledger = Ledger::create(state, "r3", here()).unwrap();
        let refused = ledger.set(qdisc, "pfifo").unwrap_err().to_string();
        assert!(refused.contains("could not be restored exactly"), "{refused}");
        assert!(ledger.undo().removed.is_empty() && shown().contains("limit 7p"));
    });
}

/// What the kernel makes another value of, refuses, or would not take back: nothing is left of it.
#[test]
fn a_setting_that_does_not_become_what_was_asked_for_is_as_before() {
    in_own_network(|state, forwarding| {
        let sysctl = |name: &str| Setting::File { path: format!("/proc/sys/{name}").into() };
        let timeout = sysctl("net/ipv4/tcp_fin_timeout");
        let ledger = Ledger::create(state, "r1", here()).unwrap();
        let changed = ledger.set(&timeout, "0x10").unwrap_err();
        assert!(matches!(changed, LedgerError::Changed { ref became, .. } if became == "16"));
        let refused = ledger.set(&timeout, "long").unwrap_err();
        assert!(matches!(refused, LedgerError::Set { errno: Some(_), .. }), "{refused}");
        // Written only.
        let unread = ledger.set(&sysctl("net/ipv4/route/flush"), "1").unwrap_err().to_string();
        assert!(unread.contains("cannot set /proc/sys/net/ipv4/route/flush"), "{unread}");
        let absent = sysctl("net/ipv4/ls_absent");
        assert!(ledger.set(&absent, "1").is_err() && absent.read().is_err());
        assert_eq!(timeout.read().unwrap(), "60");
        // Numbers are the same with any blanks between them.
        let sizes = sysctl("net/ipv4/tcp_rmem");
        ledger.set(&sizes, "4096  90000 600000").unwrap();
        ledger.set(&forwarding, "1").unwrap();
        let (entries, _) = read(&ledger.path).unwrap();
        let left = entries.iter().filter(|entry| matches!(entry, Entry::Setting { .. })).count();
        assert_eq!(left, 2, "{entries:?}");
        let undone = ledger.undo();
        assert_eq!((undone.removed.len(), undone.problems.len()), (2, 0), "{undone:?}");
        assert!(undone.left.is_empty(), "{undone:?}");
    });
}

/// Else the second would restore what the first had set.
#[test]
fn settings_of_a_machine_are_one_run_s_at_a_time() {
    in_own_network(|state, setting| {
        let first = Ledger::create(state, "r1", here()).unwrap();
        let second = Ledger::create(state, "r2", here()).unwrap();
        first.set(&setting, "1").unwrap();
        let refused = second.set(&setting, "0").unwrap_err().to_string();
        assert!(refused.contains("another run"), "{refused}");
        assert!(second.undo().problems.is_empty());
        assert_eq!(setting.read().unwrap(), "1");
        first.undo();
        let third = Ledger::create(state, "r3", here()).unwrap();
        third.set(&setting, "1").unwrap();
        // A killed agent's is undone when nobody holds the lock.
        let path = third.path.clone();
        assert_eq!(undo_file(&path, "r3", None).problems.len(), 1);
        assert!(path.exists() && setting.read().unwrap() == "1");
        drop(third);
        assert!(undo_file(&path, "r3", None).problems.is_empty());
        assert_eq!(setting.read().unwrap(), "0");
    });
}

#[test]
fn what_is_no_setting_is_not_written() {
    let state = tempfile::tempdir().unwrap();
    let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
    let victim = state.path().join("file");
    fs::write(&victim, "a\n").unwrap();
    let odd = format!("/proc/sys/../..{}", victim.display());
    let others = ["/proc/sys", "/proc/irq/1/spurious", "/sys/class/net/lo/operstate"];
    let others = others.into_iter().chain(["/sys/class/net/mtu", "/sys/class/net/lo/../lo/mtu"]);
    let paths = others.map(PathBuf::from).chain([victim.clone(), odd.into()]);
    for path in paths {
        let setting = Setting::File { path };
        assert!(ledger.set(&setting, "b").is_err(), "{setting:?}");
        let entry = Entry::Setting { setting, before: "b".into(), set: "a".into() };
        ledger.write(&[entry]).unwrap();
    }
    let undone = ledger.undo();
    assert_eq!((undone.removed.len(), undone.problems.len()), (0, 7), "{undone:?}");
    assert_eq!(fs::read_to_string(victim).unwrap(), "a\n");
}

/// A process of another start of the machine has a number that anybody may have now.
#[test]
fn after_a_start_of_the_machine_only_files_are_left_to_undo() {
    let state = tempfile::tempdir().unwrap();
    let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
    let made = state.path().join("ls-made");
    ledger.make(&[Entry::Directory { path: made.clone() }]).unwrap();
    let mut other = Command::new("sleep").arg("600").env(RUN_MARK, "r1").spawn().unwrap();
    let text = fs::read_to_string(&ledger.path).unwrap();
    fs::write(&ledger.path, text.replace(&boot_id(), "another")).unwrap();
    let undone = ledger.undo();
    let lives = other.try_wait().unwrap().is_none();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(lives && !made.exists() && !ledger.path.exists(), "{undone:?}");
}

#[test]
fn what_is_mounted_in_a_directory_of_ours_is_not_removed() {
    if !nix::unistd::geteuid().is_root() {
        return crate::skip::skipped("mounts, needs root");
    }
    let state = tempfile::tempdir().unwrap();
    let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
    let made = state.path().join("ls-made");
    ledger.make(&[Entry::Directory { path: made.clone() }]).unwrap();
    let precious = state.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "x").unwrap();
    let flags = nix::mount::MsFlags::MS_BIND;
    nix::mount::mount(Some(&precious), &made, None::<&str>, flags, None::<&str>).unwrap();
    let undone = ledger.undo();
    nix::mount::umount(&made).unwrap();
    assert!(precious.join("file").exists(), "{undone:?}");
}

#[test]
fn an_unfinished_last_line_is_no_entry_but_nonsense_is_a_problem() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join("x.jsonl");
    fs::write(&path, "{\"kind\":\"namespace\",\"name\":\"ls-a\"}\n{\"kind\":\"names").unwrap();
    let (entries, problems) = read(&path).unwrap();
    assert_eq!((entries.len(), problems.len()), (1, 0));
    fs::write(&path, "{\"kind\":\"moon-phase\"}\n").unwrap();
    let undone = undo_file(&path, "x", None);
    assert!(undone.problems[0].contains("moon-phase"), "{undone:?}");
    assert!(path.exists(), "a ledger that was not understood must stay");
}

#[test]
fn a_run_has_one_ledger_and_only_living_ledgers_are_joined() {
    let state = tempfile::tempdir().unwrap();
    assert!(matches!(Ledger::join(state.path(), "r1"), Err(LedgerError::Missing(_))));
    let owner = Ledger::create(state.path(), "r1", here()).unwrap();
    let again = Ledger::create(state.path(), "r1", here());
    assert!(matches!(again, Err(LedgerError::Exists(_))));
    let member = Ledger::join(state.path(), "r1").unwrap();
    let made = state.path().join("ls-of-member");
    member.make(&[Entry::Directory { path: made.clone() }]).unwrap();
    let of_owner = state.path().join("ls-of-owner");
    owner.make(&[Entry::Directory { path: of_owner.clone() }]).unwrap();
    member.undo();
    assert!(!made.exists() && of_owner.exists());
    member.make(&[Entry::Directory { path: made.clone() }]).unwrap();
    owner.undo();
    assert!(!made.exists() && !of_owner.exists());
}

/// The writer does not matter: a line can only name what loopscope makes.
#[test]
fn what_no_ledger_can_contain_is_left_alone_and_told() {
    let state = tempfile::tempdir().unwrap();
    let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
    let theirs = state.path().join("precious");
    fs::create_dir(&theirs).unwrap();
    let made = state.path().join("ls-made");
    std::os::unix::fs::symlink(&theirs, &made).unwrap();
    let odd = state.path().join("ls-x/../precious");
    let directory = |path: &Path| Entry::Directory { path: path.to_owned() };
    let entries = [
        directory(&theirs),
        directory(&odd),
        directory(Path::new("ls-relative")),
        Entry::Namespace { name: "somebody".into() },
        Entry::Namespace { name: "ls-/../../x".into() },
    ];
    for entry in &entries {
        let refused = ledger.make(std::slice::from_ref(entry));
        assert!(matches!(refused, Err(LedgerError::Make { .. })), "{entry:?}");
    }
    ledger.write(&entries).unwrap();
    ledger.write(&[directory(&made)]).unwrap();
    let undone = ledger.undo();
    assert_eq!((undone.removed.len(), undone.problems.len()), (0, 6), "{undone:?}");
    assert!(theirs.exists() && made.symlink_metadata().is_ok() && ledger.path.exists());
}

#[test]
fn a_state_directory_of_anybody_is_no_ones() {
    let state = tempfile::tempdir().unwrap();
    let folder = folder(state.path());
    make_own(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = Ledger::create(state.path(), "r1", here()).unwrap_err().to_string();
    assert!(refused.contains("other users may write to it"), "{refused}");
    let refused = crate::reset::reset(state.path()).unwrap_err().to_string();
    assert!(refused.contains("LOOPSCOPE_STATE_DIR"), "{refused}");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o707)).unwrap();
    let refused = crate::reset::reset(state.path()).unwrap_err().to_string();
    assert!(refused.contains("rename what is in it"), "{refused}");
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o700)).unwrap();
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(state.path(), Some(65534), None).unwrap();
        let refused = crate::reset::reset(state.path()).unwrap_err().to_string();
        assert!(refused.contains("belongs to user 65534"), "{refused}");
        std::os::unix::fs::chown(state.path(), Some(0), None).unwrap();
        std::os::unix::fs::chown(&folder, Some(65534), None).unwrap();
        let refused = crate::reset::reset(state.path()).unwrap_err().to_string();
        assert!(refused.contains("belongs to user 65534"), "{refused}");
    }
}

const KILLED_IN: &str = "LOOPSCOPE_TEST_KILLED_IN";

/// This very test again, in a process that is killed where `make_marked` has recorded `entry` and
/// somebody else has just been first to make it; the ledger that it leaves.
fn lose_and_die(test: &str, entry: &Entry, theirs: impl FnOnce() + Send) -> PathBuf {
    if let Some(state) = std::env::var_os(KILLED_IN) {
        let ledger = Ledger::create(Path::new(&state), "r1", here()).unwrap();
        let _ = ledger.make_marked(entry, || {
            theirs();
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
        });
        panic!("it lives");
    }
    let state = tempfile::tempdir().unwrap().keep();
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", &format!("ledger::tests::{test}")]).env(KILLED_IN, &state);
    let ended = again.output().unwrap();
    assert_eq!(ended.status.signal(), Some(9), "{ended:?}");
    let path = folder(&state).join("r1.jsonl");
    assert!(!fs::read_to_string(&path).unwrap().contains("not-ours"));
    path
}

#[test]
fn killed_after_losing_a_race_for_a_namespace() {
    if !nix::unistd::geteuid().is_root() {
        return crate::skip::skipped("makes a network namespace, needs root");
    }
    let name = "ls-test-lost-race";
    let entry = Entry::Namespace { name: name.to_owned() };
    let theirs = || namespace::add(name).unwrap();
    let path = lose_and_die("killed_after_losing_a_race_for_a_namespace", &entry, theirs);
    let cookie = namespace::cookie_of(name);
    // A program of the winner's, in its namespace.
    let mut program = Command::new("nsenter")
        .arg(format!("--net={}", namespace::path(name).display()))
        .args(["sleep", "1000"])
        .spawn()
        .unwrap();
    while crate::processes::namespace_of(&namespace::path(name)).is_some_and(|of| {
        let own = format!("/proc/{}/ns/net", program.id());
        crate::processes::namespace_of(Path::new(&own)) != Some(of)
    }) {
        std::thread::yield_now();
    }
    let undone = undo_file(&path, "r1", None);
    let lives = program.try_wait().unwrap().is_none();
    let found = namespace::cookie_of(name);
    let _ = program.kill();
    let _ = program.wait();
    let _ = namespace::delete(name);
    fs::remove_dir_all(path.ancestors().nth(2).unwrap()).unwrap();
    assert!(undone.removed.is_empty() && undone.problems.is_empty(), "{undone:?}");
    assert!(lives, "the winner's program was killed");
    assert_eq!(found.unwrap(), cookie.unwrap());
}

#[test]
fn killed_after_losing_a_race_for_a_directory() {
    let theirs = std::env::temp_dir().join("ls-test-lost-race");
    let entry = Entry::Directory { path: theirs.clone() };
    let make = || fs::create_dir(&theirs).unwrap();
    let path = lose_and_die("killed_after_losing_a_race_for_a_directory", &entry, make);
    let undone = undo_file(&path, "r1", None);
    let there = theirs.exists();
    let _ = fs::remove_dir(&theirs);
    fs::remove_dir_all(path.ancestors().nth(2).unwrap()).unwrap();
    // Only what it had made and not named yet.
    assert!(undone.problems.is_empty() && undone.removed.len() == 1, "{undone:?}");
    assert!(there && undone.removed[0].contains("ls-staged-"), "{undone:?}");
}

/// What a crash leaves in between creating a namespace's file and mounting on it goes; a namespace
/// that has the name but another cookie stays, and one with the right cookie goes.
#[test]
fn a_marked_namespace_is_known_by_its_cookie() {
    if !nix::unistd::geteuid().is_root() {
        return crate::skip::skipped("makes a network namespace, needs root");
    }
    let name = "ls-test-cookie";
    let mut cookie = None;
    namespace::add_recorded(name, |found| {
        cookie = found;
        Ok(())
    })
    .unwrap();
    let cookie = cookie.unwrap();
    assert_eq!(namespace::cookie_of(name).unwrap(), cookie);
    assert!(!namespace::delete_marked(name, cookie + 1).unwrap() && namespace::path(name).exists());
    assert!(namespace::delete_marked(name, cookie).unwrap() && !namespace::path(name).exists());
    assert!(!namespace::delete_marked(name, cookie).unwrap());
    File::create(namespace::path(name)).unwrap();
    assert!(namespace::delete_marked(name, cookie).unwrap() && !namespace::path(name).exists());
}
