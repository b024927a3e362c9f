//! What is read from a program's file is what the program says of itself when it runs.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::lab::{self, Lab};
use loopscope_collect::entities::{self, Buckets, EntitySite, Error};
use loopscope_collect::{RUNTIME_DIR, StreamSpec};
use loopscope_trace::event;

/// A site as a line of the `sites` file, from the second column on and without the last one.
fn line(site: &EntitySite) -> String {
    let fields =
        site.fields.iter().map(|field| format!("{}:{}", field.field_type.tsdl(), field.name));
    let fields = fields.collect::<Vec<_>>().join(",");
    let EntitySite { group, name, file, line, .. } = site;
    format!("{}\t{group}\t{name}\t{fields}\t{file}\t{line}", site.kind.name())
}

fn lines(sites: &[EntitySite]) -> BTreeSet<String> {
    let set: BTreeSet<String> = sites.iter().map(line).collect();
    assert_eq!(set.len(), sites.len(), "a call site is listed twice");
    set
}

/// The `sites` files of the processes that used a runtime directory.
fn files(lab: &Lab) -> impl Iterator<Item = PathBuf> {
    let processes = std::fs::read_dir(lab.runtime()).unwrap().map(|entry| entry.unwrap().path());
    processes.filter(|path| path.is_dir()).map(|path| path.join("sites"))
}

/// What the processes that used a runtime directory wrote of their call sites.
fn told(lab: &Lab) -> BTreeSet<String> {
    let text: String = files(lab).map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let columns = text.lines().map(|line| line.split('\t').skip(1).take(6).collect::<Vec<_>>());
    let sites = columns.filter(|c| c[0] != "describe" && c[0] != "histogram-range");
    sites.map(|columns| columns.join("\t")).collect()
}

fn run_in(lab: &Lab, program: &Path, arguments: &[&Path]) -> BTreeSet<String> {
    let output = lab.command(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    told(lab)
}

fn run(program: &Path, arguments: &[&Path]) -> BTreeSet<String> {
    run_in(&Lab::new(&StreamSpec::default()), program, arguments)
}

#[test]
fn c_program() {
    let sources = ["forms.c", "forms_other.c"];
    let program = lab::build("entities-c", &["cc", "-std=c99", "-O2"], &sources);
    let read = lines(&entities::of_file(&program).unwrap());
    assert!(read.len() > 10);
    assert_eq!(read, run(&program, &[]));
}

/// Every macro of the header, in both languages; declarations too.
#[test]
fn every_macro() {
    for (name, compiler) in [("c", ["cc", "-std=c99"]), ("cpp", ["c++", "-std=c++17"])] {
        let source: &[&str] = if name == "c" { &[] } else { &["-x", "c++"] };
        let compiler = [&compiler[..], source].concat();
        let program = lab::build(&format!("entities-every-{name}"), &compiler, &["every.c"]);
        let sites = entities::of_file(&program).unwrap();
        let lab = Lab::new(&StreamSpec::default());
        assert_eq!(lines(&sites), run_in(&lab, &program, &[]), "{name}");
        let said: String = files(&lab).map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let declared = |kind: &str, group: &str, name: &str| {
            let start = format!("\t{kind}\t{group}\t{name}\t");
            let (_, rest) = said.split_once(&start)?;
            rest.split('\t').next().map(ToOwned::to_owned)
        };
        let mut ranges = 0;
        for site in &sites {
            let text = declared("describe", &site.group, &site.name);
            let (unit, description) = (&site.unit, &site.description);
            assert_eq!(format!("{unit}\x1f{description}"), text.unwrap_or("\x1f".into()));
            let group = declared("describe", &site.group, "*").unwrap_or("\x1f".into());
            assert_eq!(format!("\x1f{}", site.group_description), group);
            if let Some(Buckets::Linear { low, high, buckets }) = site.buckets {
                let range = declared("histogram-range", &site.group, &site.name);
                assert_eq!(range, Some(format!("{low},{high},{buckets}")));
                ranges += 1;
            }
        }
        assert!(ranges > 0);
        assert!(sites.iter().any(|site| site.description.contains("50%")), "{name}");
    }
}

#[test]
fn cpp_program_and_library() {
    let sources = ["forms.cpp", "forms_other.cpp"];
    let program = lab::build("entities-cpp", &["c++", "-std=c++17", "-O2"], &sources);
    let library = ["c++", "-std=c++17", "-O2", "-fPIC", "-shared"];
    let plugin = lab::build("entities-plugin.so", &library, &["plugin.cpp"]);
    let mut read = lines(&entities::of_file(&program).unwrap());
    let of_plugin = lines(&entities::of_file(&plugin).unwrap());
    assert!(of_plugin.iter().any(|site| site.contains("\tplugin\tentered\t")));
    assert!(!read.iter().any(|site| site.contains("\tplugin\t")));
    read.extend(of_plugin);
    assert_eq!(read, run(&program, &[&plugin]));
}

#[test]
fn rust_program() {
    let program = lab::example("rust_events");
    assert_eq!(lines(&entities::of_file(&program).unwrap()), run(&program, &[]));
}

/// Links the sites of tests/c/kinds.c; `None`, loudly, where the linker cannot.
fn kinds(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kinds-{name}"));
    let mut command = Command::new("cc");
    command.arg("-I").arg(root.join("include")).args(flags);
    command.arg("-o").arg(&program).arg(root.join("tests/c/kinds.c"));
    let output = command.output().unwrap();
    if !output.status.success() {
        lab::skip::skipped(&format!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    Some(program)
}

const KINDS: &str = "\
    counter-add\tall\tcounter\t\tkinds.c\t5\n\
    counter-log\tall\tcounter\t\tkinds.c\t6\n\
    counter-reset\tall\tcounter\t\tkinds.c\t7\n\
    event\tall\tevent\t\
    uint8_t:a,uint16_t:b,uint32_t:c,uint64_t:d,int8_t:e,int16_t:f,int32_t:g,int64_t:h\tkinds.c\t1\n\
    event\tall\tevent\tfloat32_t:x,float64_t:y,string:text,bytes:data\tkinds.c\t2\n\
    flow-in\tall\tflow\t\tkinds.c\t12\n\
    flow-link\tall\tflow\t\tkinds.c\t13\n\
    flow-out\tall\tflow\t\tkinds.c\t11\n\
    event\tall\tgrown\t\tkinds.c\t17\n\
    histogram-add\tall\tlinear\t\tkinds.c\t8\n\
    histogram-log\tall\tlinear\t\tkinds.c\t9\n\
    histogram-reset\tall\tloglinear\t\tkinds.c\t10\n\
    interval-end\tall\tinterval\t\tkinds.c\t4\n\
    interval-start\tall\tinterval\t\tkinds.c\t3";

#[test]
fn every_kind_in_every_form_of_file() {
    let forms: [(&str, &[&str]); 7] = [
        ("pie", &["-fpie", "-pie"]),
        ("no-pie", &["-fno-pie", "-no-pie"]),
        ("static", &["-fno-pie", "-no-pie", "-static"]),
        ("static-pie", &["-fpie", "-static-pie"]),
        ("library", &["-fPIC", "-shared"]),
        ("relr", &["-fpie", "-pie", "-Wl,-z,pack-relative-relocs"]),
        ("stripped", &["-fpie", "-pie", "-s"]),
    ];
    let mut read = 0;
    for (name, flags) in forms {
        let Some(program) = kinds(name, flags) else { continue };
        let sites = entities::of_file(&program).unwrap();
        assert_eq!(lines(&sites), KINDS.lines().map(ToOwned::to_owned).collect(), "{name}");
        for site in &sites {
            assert_eq!(site.group_description, "one of each");
            let (unit, description, buckets) = match (site.name.as_str(), site.line) {
                ("linear", _) => {
                    let linear = Buckets::Linear { low: -5, high: 1000, buckets: 50 };
                    ("ms", "how long it took", Some(linear))
                }
                ("loglinear", _) => ("", "", Some(Buckets::Log)),
                _ => ("", "", None),
            };
            let told = (site.unit.as_str(), site.description.as_str(), site.buckets);
            assert_eq!(told, (unit, description, buckets), "{name}: {site:?}");
        }
        read += 1;
    }
    assert!(read >= 4, "too few forms could be linked");
}

/// A program that waits until it is dropped.
struct Waiting(Child);

impl Waiting {
    fn start(mut command: Command) -> Waiting {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut up = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut up).unwrap();
        assert_eq!(up, "up\n");
        Waiting(child)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn processes() {
    let program = lab::build("entities-waits", &["cc", "-std=c99", "-O2"], &["waits.c"]);
    let of_file = entities::of_file(&program).unwrap();
    assert_eq!(of_file.len(), 2);

    let lab = Lab::new(&StreamSpec::default());
    let recorded = Waiting::start(lab.command(&program));
    assert_eq!(entities::of_pid(recorded.0.id()).unwrap(), of_file);
    // It is the process's own word that counts.
    let process = std::fs::read_dir(lab.runtime()).unwrap().map(|entry| entry.unwrap().path());
    let sites = process.map(|path| path.join("sites")).find(|path| path.exists()).unwrap();
    std::fs::write(&sites, "0\tflow-in\tother\tsaid\tstring:text\tx.c\t9\t-\n1\tflow").unwrap();
    let said = entities::of_pid(recorded.0.id()).unwrap();
    assert_eq!(
        said.iter().map(line).collect::<Vec<_>>(),
        ["flow-in\tother\tsaid\tstring:text\tx.c\t9"]
    );

    let mut dormant = Command::new(&program);
    dormant.env(RUNTIME_DIR, "");
    let dormant = Waiting::start(dormant);
    assert_eq!(entities::of_pid(dormant.0.id()).unwrap(), of_file);
}

#[test]
fn of_this_process() {
    event!("entities", "here", 1, part = 1_u16);
    let sites = entities::of_pid(std::process::id()).unwrap();
    let here = sites.iter().find(|site| site.group == "entities").unwrap();
    assert_eq!((here.name.as_str(), here.file.ends_with("entities.rs")), ("here", true));
}

#[test]
fn what_cannot_be_read_is_told() {
    let said = |path: &Path| entities::of_file(path).unwrap_err().to_string();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    assert!(matches!(entities::of_file(&file), Err(Error::Read { .. })));
    assert!(matches!(entities::of_file(directory.path()), Err(Error::Read { .. })));
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    assert!(said(&file).contains("not an ELF program"));
    std::fs::write(&file, "").unwrap();
    assert!(said(&file).contains("not an ELF program"));
    assert!(matches!(entities::of_file(Path::new("/bin/sh")), Err(Error::NoSites(_))));

    let whole = std::fs::read(kinds("whole", &["-fno-pie", "-no-pie"]).unwrap()).unwrap();
    // e_shoff, e_shnum and e_shstrndx of the ELF header, as sstrip leaves them.
    let mut stripped = whole.clone();
    stripped[0x28..0x30].fill(0);
    stripped[0x3c..0x40].fill(0);
    std::fs::write(&file, &stripped).unwrap();
    assert!(said(&file).contains("section table"), "{}", said(&file));
    // A kind that nobody knows, in the first site.
    let first = whole.windows(8).position(|bytes| bytes == [64, 0, 0, 0, 1, 0, 0, 0]).unwrap();
    let mut newer = whole.clone();
    newer[first + 4] = 99;
    std::fs::write(&file, &newer).unwrap();
    assert!(said(&file).contains("kind 99"), "{}", said(&file));
    // Cut off at every length, it is an error or what can be read, never a panic.
    for length in (0..whole.len()).step_by(97) {
        std::fs::write(&file, &whole[..length]).unwrap();
        let _ = entities::of_file(&file);
    }

    assert!(matches!(entities::of_pid(u32::MAX), Err(Error::NoProcess(_))));
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let told = entities::of_pid(sleeper.id()).unwrap_err().to_string();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(told.contains("have no call sites") || told.contains("no process"), "{told}");
}
