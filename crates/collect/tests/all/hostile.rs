//! A program of another user does with its own files what it likes. The recorder goes on, records
//! all other programs, and says what it does not know; it reads and writes nothing else than
//! before.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lab::{self, Lab, Steady, Trace};
use loopscope_collect::{Collector, LossReport, MAIN, StreamSpec, entities};

/// nobody
const OTHER: u32 = 65534;

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        lab::skip::skipped("needs root to start a program as another user");
    }
    root
}

fn small() -> StreamSpec {
    StreamSpec { subbuffer: 4096, subbuffers: 16, spares: 0, ..StreamSpec::default() }
}

/// Everybody may write to it.
fn open(lab: &Lab) {
    for path in [lab.out().parent().unwrap(), &lab.runtime()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
}

/// Does something as the other user, in a process directory.
fn attack(dir: &Path, script: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", script]).current_dir(dir).uid(OTHER).gid(OTHER);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What there is can be read, and its account is that of the records.
fn check(out: &Path, loss: &LossReport) -> Trace {
    let trace = Trace::read(out);
    for process in &loss.processes {
        assert_eq!(process.emitted, process.recorded + process.overwritten + process.dropped);
        let of = trace.events.iter().filter(|event| event.pid == process.pid).count() as u64;
        assert_eq!(of, process.recorded + process.finals, "{process:?}");
    }
    trace
}

/// What is done to the process directory of a program under record, and what the account says then.
const ATTACKS: [(&str, &str, &str); 14] = [
    ("rings cut to nothing", "for ring in ring-*; do truncate -s 0 $ring; done", "cut short"),
    (
        "rings cut behind their heads",
        "for ring in ring-*; do truncate -s 4096 $ring; done",
        "cut short",
    ),
    ("the control file cut", "truncate -s 0 control", "cut short"),
    ("the control file cut behind its head", "truncate -s 8192 control", "cut short"),
    (
        "a head that runs ahead",
        "for ring in ring-*; do printf '\\377\\377\\377\\377\\377' | \
        dd of=$ring bs=1 seek=64 conv=notrunc status=none; done",
        "its head makes no sense",
    ),
    ("a ring that is a link", "ln -s /etc/shadow ring-0-0-77", "a symbolic link"),
    ("a ring that is a pipe", "mkfifo ring-0-0-77", "no ordinary file"),
    ("a ring that is a directory", "mkdir ring-0-0-77", "ring-0-0-77"),
    (
        "a ring of nonsense",
        "cp ring-0-0-0 ring-0-0-77; printf '\\377\\377\\377\\377' | \
        dd of=ring-0-0-77 bs=1 seek=32 conv=notrunc status=none",
        "its head makes no sense",
    ),
    ("another directory", "cd ..; mv $OLDPWD $OLDPWD.old; mkdir $OLDPWD", "has taken its place"),
    (
        "a link to a directory",
        "cd ..; mv $OLDPWD $OLDPWD.old; ln -s /etc $OLDPWD",
        "cannot be read",
    ),
    (
        "a line of nonsense",
        "printf 'nonsense\\n' >> sites; printf '\\006' | \
        dd of=control bs=1 seek=28 conv=notrunc status=none",
        "line 6 of its sites file",
    ),
    (
        "more call sites than lines",
        "printf '\\010' | \
        dd of=control bs=1 seek=28 conv=notrunc status=none",
        "ends too early",
    ),
    (
        "a sites file beyond all sizes",
        "truncate -s 20000000 sites; printf '\\010' | \
        dd of=control bs=1 seek=28 conv=notrunc status=none",
        "it has more than 16809984 bytes",
    ),
];

#[test]
fn what_one_program_does_to_its_files_is_its_own_loss() {
    if !is_root() {
        return;
    }
    for (name, script, told) in ATTACKS {
        eprintln!("{name}");
        let lab = Lab::new(&small());
        open(&lab);
        let mut collector = lab.collector();
        let hostile = Steady::start_as(&lab, OTHER, 1);
        let dir = hostile.dir();
        let other = Steady::start(&lab, 1);
        other.dir();
        while collector.poll().unwrap().copied < 2 {}
        attack(&dir, &script.replace("cd ..;", &format!("OLDPWD={}; cd ..;", dir.display())));
        for _ in 0..50 {
            collector.poll().unwrap();
        }
        let loss = lab.finish(collector);
        let trace = check(&lab.out(), &loss);
        let of = |pid| loss.processes.iter().find(|process| process.pid == pid).unwrap();
        let (bad, good) = (of(hostile.pid()), of(other.pid()));
        assert!(bad.unknown.iter().any(|what| what.contains(told)), "{name}: {bad:?}");
        assert!(bad.recorded > 0, "{name}: {bad:?}");
        assert!(good.unknown.is_empty() && good.recorded > 0, "{name}: {good:?}");
        let ids = trace.events.iter().filter(|e| e.pid == other.pid() && e.entity == "tally:hit");
        let ids: Vec<i64> = ids.map(|event| event.id).collect();
        assert!(good.dropped - good.torn > 0 || lab::is_gapless(&ids), "{name}");
        let json = std::fs::read_to_string(lab.out().join("loss.json")).unwrap();
        assert!(json.contains("\"unknown\""), "{name}: {json}");
    }
}

/// Directories that belong to no process, and one that does.
#[test]
fn directories_of_nonsense() {
    if !is_root() {
        return;
    }
    let lab = Lab::new(&small());
    open(&lab);
    let script = "mkdir 1-1 2-2 3-3 4-4; mkfifo 1-1/control; ln -s /etc/shadow 2-2/control; \
        printf LOOPCTL1AAAA > 3-3/control; ln -s /etc 5-5; touch 6-6; ln -s 1-1 7-7";
    attack(&lab.runtime(), script);
    let other = Steady::start(&lab, 1);
    let mut collector = lab.collector();
    other.dir();
    lab::poll_until(&mut collector, other.progress(1, 3000));
    let loss = lab.finish(collector);
    check(&lab.out(), &loss);
    let unknown: Vec<_> = loss.processes.iter().filter(|p| !p.unknown.is_empty()).collect();
    let mut pids: Vec<u32> = unknown.iter().map(|process| process.pid).collect();
    pids.sort_unstable();
    // In the fourth there is nothing yet.
    assert_eq!(pids, [1, 2, 3, 5, 6, 7], "{unknown:?}");
    let good = loss.processes.iter().find(|process| process.pid == other.pid()).unwrap();
    assert!(good.recorded > 0 && good.unknown.is_empty());
    assert!(!lab.runtime().exists());
}

/// A recorder that attaches to another user's program: it is told where by the program.
struct Attached<'a> {
    lab: &'a Lab,
    program: Steady<'a>,
    dir: PathBuf,
}

impl<'a> Attached<'a> {
    fn start(lab: &'a Lab) -> Attached<'a> {
        open(lab);
        let program = Steady::start_as(lab, OTHER, 1);
        let dir = program.dir();
        Attached { lab, program, dir }
    }

    fn attach(&self, collector: &mut Collector) -> Result<(), loopscope_collect::Error> {
        collector.attach(&self.dir, None, &[small()])
    }

    fn collector(&self) -> Collector {
        Collector::new(&self.lab.out(), lab::identity(), None).unwrap()
    }
}

#[test]
fn attached_to_another_users_program() {
    if !is_root() {
        return;
    }
    let lab = lab::dormant();
    let attached = Attached::start(&lab);
    assert_eq!(
        entities::directories_of(attached.program.pid()).unwrap(),
        std::slice::from_ref(&attached.dir)
    );
    let mut collector = attached.collector();
    attached.attach(&mut collector).unwrap();
    while collector.poll().unwrap().copied == 0 {}
    // Somebody else says that his is a child of it.
    let parent = attached.dir.file_name().unwrap().to_str().unwrap();
    let false_child = lab.runtime().join("77-77");
    std::fs::create_dir(&false_child).unwrap();
    let mut control = std::fs::read(attached.dir.join("control")).unwrap();
    let (pid, stamp) = parent.split_once('-').unwrap();
    let stamp = u64::from_str_radix(stamp, 16).unwrap();
    control[48..56].copy_from_slice(&stamp.to_le_bytes());
    control[64..68].copy_from_slice(&pid.parse::<u32>().unwrap().to_le_bytes());
    std::fs::write(false_child.join("control"), control).unwrap();
    attack(&attached.dir, "truncate -s 0 ring-*");
    for _ in 0..50 {
        collector.poll().unwrap();
    }
    let loss = collector.finish().unwrap().into_stream(MAIN);
    check(&lab.out(), &loss);
    assert_eq!(loss.processes.len(), 1, "{loss:?}");
    let unknown = &loss.processes[0].unknown;
    assert!(unknown.iter().any(|what| what.contains("cut short")), "{loss:?}");
    assert!(loss.problems.iter().any(|what| what.contains("cut short")), "{loss:?}");
}

#[test]
fn nothing_is_followed_out_of_the_programs_own_directory() {
    if !is_root() {
        return;
    }
    let lab = lab::dormant();
    let attached = Attached::start(&lab);
    let pid = attached.program.pid();
    // The path leads elsewhere now.
    let runtime = lab.runtime();
    let moved = runtime.with_file_name("moved");
    std::fs::rename(&runtime, &moved).unwrap();
    attack(moved.parent().unwrap(), "ln -s moved runtime");
    assert!(attached.attach(&mut attached.collector()).is_err());
    std::fs::remove_file(&runtime).unwrap();
    std::fs::rename(&moved, &runtime).unwrap();
    assert_eq!(entities::directories_of(pid).unwrap(), std::slice::from_ref(&attached.dir));
    // What a root recorder reads of it is only what is its own.
    attack(&attached.dir, "rm sites; ln -s /etc/shadow sites");
    assert!(entities::of_pid(pid).is_err());
    attack(&attached.dir, "rm sites; mkfifo sites");
    assert!(entities::of_pid(pid).is_err());
}

/// `sweep` in a directory whose name another user has taken.
#[test]
fn a_runtime_directory_that_another_user_made() {
    if !is_root() {
        return;
    }
    let lab = lab::dormant();
    open(&lab);
    let taken = lab.runtime().join("taken");
    let kept = lab.runtime().join("kept/1-1");
    attack(&lab.runtime(), "mkdir -p taken kept/1-1; ln -s kept link");
    for name in ["taken", "link"] {
        let (removed, problems) =
            loopscope_collect::sweep::sweep(&lab.runtime().join(name)).unwrap();
        assert!(removed.is_empty() && problems.len() == 1, "{removed:?} {problems:?}");
        assert!(problems[0].contains("left alone"), "{problems:?}");
    }
    assert!(taken.exists() && kept.exists());
}
