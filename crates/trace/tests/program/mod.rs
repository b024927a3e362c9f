//! Builds instrumented programs, runs them without any collector, and reads what they left in their
//! process directory, as `c/layout.h` and `schema/trace.md` describe it.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use loopscope_trace::layout::Ring;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    output
}

/// Where this test program's builds go; removed by the next build, shared by its tests.
fn builds() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let exe = std::env::current_exe().unwrap();
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(exe.file_name().unwrap());
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    })
}

/// Where libloopscope.so is, from the same C files as the installed one.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-std=gnu11", "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden", "-shared"])
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wl,-z,nodelete", "-I"])
            .arg(root().join("include"));
        let files = ["crates/time/c", "crates/trace/c"].into_iter().flat_map(|folder| {
            std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path())
        });
        cc.args(files.filter(|path| path.extension().is_some_and(|e| e == "c")));
        run(cc.arg("-o").arg(builds().join("libloopscope.so")));
        builds().to_owned()
    })
}

/// Compiler with all warnings as errors and the header's directory after its own options.
pub fn compiler(command: &str) -> Command {
    let mut words = command.split_whitespace();
    let mut compiler = Command::new(words.next().unwrap());
    compiler
        .args(words)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-I"])
        .arg(root().join("include"));
    compiler
}

/// Compiles files of `tests/c` and links them with libloopscope.
pub fn build(command: &str, sources: &[&str]) -> PathBuf {
    let name: String = format!("{command} {}", sources[0])
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let program = builds().join(name);
    let library = library();
    run(compiler(command)
        .args(sources.iter().map(|source| root().join("tests/c").join(source)))
        .args(["-x", "none", "-pthread", "-lloopscope", "-L"])
        .arg(library)
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .arg("-o")
        .arg(&program));
    program
}

/// An example program of this crate, built by cargo next to its tests.
pub fn example(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "no {path:?}: with --test, first cargo build --examples");
    path
}

/// A record's interval, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start: u64,
    pub duration: u64,
}

/// What a program left.
pub struct Left {
    pub stdout: String,
    /// The lines of its sites file, split.
    pub sites: Vec<Vec<String>>,
    /// `kind group:name id field=value…`, thread by thread in the order of their first hits.
    pub records: Vec<String>,
    /// Spans of the records of intervals, each with its `group:name id`.
    pub spans: Vec<(String, Span)>,
}

/// Runs a program with everything but the group `off` enabled.
pub fn left_by(program: &Path) -> Left {
    let runtime = tempfile::tempdir().unwrap();
    let streams = "frequency 1000000000\nstream 0 main normal\nenable *\ndisable off:*\n";
    std::fs::write(runtime.path().join("streams"), streams).unwrap();
    let output = run(Command::new(program).env("LOOPSCOPE_RUNTIME_DIR", runtime.path()));
    let mut left = Left {
        stdout: String::from_utf8(output.stdout).unwrap(),
        sites: Vec::new(),
        records: Vec::new(),
        spans: Vec::new(),
    };
    let entries = std::fs::read_dir(runtime.path()).unwrap().map(|entry| entry.unwrap().path());
    let process = entries.into_iter().find(|path| path.is_dir()).expect("a process directory");
    let sites = std::fs::read_to_string(process.join("sites")).unwrap();
    left.sites = sites.lines().map(|l| l.split('\t').map(str::to_owned).collect()).collect();
    let names = std::fs::read_dir(&process).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let mut rings: Vec<(u32, String)> = names
        .filter_map(|name| Some((name.strip_prefix("ring-0-0-")?.parse().ok()?, name)))
        .collect();
    rings.sort();
    for (_, name) in rings {
        left.read_ring(&std::fs::read(process.join(name)).unwrap());
    }
    left
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, size: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(size);
        self.0 = rest;
        taken
    }

    fn number(&mut self, size: usize) -> u64 {
        self.take(size).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn signed(&mut self, size: usize) -> i64 {
        let unused = 64 - 8 * size;
        (self.number(size) << unused) as i64 >> unused
    }

    fn field(&mut self, field_type: &str) -> String {
        match field_type {
            "uint8_t" => self.number(1).to_string(),
            "uint16_t" => self.number(2).to_string(),
            "uint32_t" => self.number(4).to_string(),
            "uint64_t" => self.number(8).to_string(),
            "int8_t" => self.signed(1).to_string(),
            "int16_t" => self.signed(2).to_string(),
            "int32_t" => self.signed(4).to_string(),
            "int64_t" => self.signed(8).to_string(),
            "float32_t" => f32::from_bits(self.number(4) as u32).to_string(),
            "float64_t" => f64::from_bits(self.number(8)).to_string(),
            "string" => {
                let size = self.0.iter().position(|byte| *byte == 0).unwrap();
                let text = format!("\"{}\"", std::str::from_utf8(self.take(size)).unwrap());
                self.take(1);
                text
            }
            "bytes" => {
                let size = self.number(4) as usize;
                format!("{:02x?}", self.take(size))
            }
            other => panic!("no field type {other}"),
        }
    }
}

fn at<'a>(bytes: &'a [u8], offset: usize) -> Reader<'a> {
    Reader(&bytes[offset..])
}

impl Left {
    /// The packets of the one sub-buffer that such a small program fills.
    fn read_ring(&mut self, ring: &[u8]) {
        assert_eq!(at(ring, offset_of!(Ring, head)).number(8), 0);
        let committed = at(ring, offset_of!(Ring, committed)).number(4) as usize;
        let data = at(ring, offset_of!(Ring, data)).number(4) as usize;
        let mut packets = &ring[data..data + committed];
        while !packets.is_empty() {
            let content = at(packets, 40).number(8) as usize / 8;
            let size = at(packets, 48).number(8) as usize / 8;
            // The last one has not been closed.
            let end = if size >= packets.len() { packets.len() } else { content };
            self.read_packet(&packets[80..end]);
            packets = &packets[size.min(packets.len())..];
        }
    }

    fn read_packet(&mut self, records: &[u8]) {
        let mut reader = Reader(records);
        while !reader.0.is_empty() {
            let (class, stamp) = (reader.number(2) as usize, reader.number(4) as u32);
            let id = reader.signed(8);
            let site = &self.sites[class];
            let entity = format!("{}:{} {id}", site[2], site[3]);
            let mut text = format!("{} {entity}", site[1]);
            match site[1].as_str() {
                "interval-end" => {
                    let span = Span { start: reader.number(8), duration: reader.number(8) };
                    assert_eq!(span.start.wrapping_add(span.duration) as u32, stamp, "{text}");
                    self.spans.push((entity, span));
                }
                "counter-log" => write!(text, " value={}", reader.signed(8)).unwrap(),
                "histogram-log" => {
                    let (count, sum) = (reader.number(8), reader.signed(8));
                    let (below, above) = (reader.number(8), reader.number(8));
                    let buckets = reader.number(4) as usize;
                    let indexes: Vec<u64> = (0..buckets).map(|_| reader.number(2)).collect();
                    write!(text, " count={count} sum={sum} below={below} above={above}").unwrap();
                    for index in indexes {
                        write!(text, " {index}:{}", reader.number(8)).unwrap();
                    }
                }
                _ => {
                    for field in site[4].split(',').filter(|field| !field.is_empty()) {
                        let (field_type, name) = field.split_once(':').unwrap();
                        write!(text, " {name}={}", reader.field(field_type)).unwrap();
                    }
                }
            }
            self.records.push(text);
        }
    }

    /// The records of one group, its name left out.
    pub fn of(&self, group: &str) -> Vec<String> {
        let group = format!(" {group}:");
        let records = self.records.iter().filter(|record| record.contains(&group));
        records.map(|record| record.replacen(&group, " ", 1)).collect()
    }

    /// The spans of one `group:name id`.
    pub fn spans_of(&self, entity: &str) -> Vec<Span> {
        self.spans.iter().filter(|(of, _)| of == entity).map(|(_, span)| *span).collect()
    }

    /// Fields and cell of the site of this kind and entity.
    pub fn site(&self, kind: &str, group: &str, name: &str) -> &[String] {
        let mut sites = self.sites.iter().filter(|s| s[1..4] == [kind, group, name]);
        let site = sites.next().unwrap_or_else(|| panic!("no {kind} {group}:{name}"));
        assert!(sites.next().is_none(), "{kind} {group}:{name} more than once");
        site
    }
}
