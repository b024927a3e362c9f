//! What programs in the kernel record.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use loopscope_ctf::Value;
use loopscope_kernel::programs::{self, Number};
use loopscope_kernel::recorder::Recorder;
use loopscope_kernel::recording::{Account, Recording};
use loopscope_kernel::transcode::transcode;

use super::{Place, check_cost, records, skip};

/// An event of a trace.
#[derive(Debug)]
pub struct Event {
    pub name: String,
    pub counter: u64,
    pub tid: i64,
    /// Ticks by which the counter may be off: the test's counter has one for a nanosecond.
    pub within: u64,
    pub numbers: BTreeMap<String, u64>,
    pub texts: BTreeMap<String, String>,
}

/// The events of a trace, in the counter's order.
fn events(trace: &Path) -> Vec<Event> {
    let mut found = vec![];
    records(trace, |_, class, record, fields| {
        let mut event = Event {
            name: class.name.clone(),
            counter: record.counter.0,
            tid: record.id,
            within: 0,
            numbers: BTreeMap::new(),
            texts: BTreeMap::new(),
        };
        for (name, value) in class.values(fields) {
            match value {
                Value::Unsigned(number) => {
                    event.numbers.insert(name.to_owned(), number);
                }
                Value::String(text) => {
                    let text = String::from_utf8_lossy(text).into_owned();
                    event.texts.insert(name.to_owned(), text);
                }
                other => panic!("{name} is {other:?}"),
            }
        }
        event.within = event.numbers.remove("within_ns").unwrap_or_default();
        found.push(event);
    });
    found.sort_by_key(|event| event.counter);
    found
}

/// Records events of a class, and `numbers` of messages, while `work` goes on, in this thread's network namespace; `None`,
/// loudly, where that is not possible.
pub fn recorded(
    class: &str,
    names: &[&str],
    numbers: &[Number],
    test: &str,
    buffer: u64,
    work: impl FnOnce(),
) -> Option<(Vec<Event>, Account)> {
    let mut place = Place::make()?;
    let folder = tempfile::tempdir().unwrap();
    let mut request = place.request(folder.path(), test, buffer, &[]);
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    let asked = names.iter().map(|name| format!("bpf/{name}")).collect();
    request.programs = Some(programs::Request {
        classes: BTreeMap::from([(class.to_owned(), asked)]),
        namespaces: vec![u32::try_from(namespace).unwrap()],
        numbers: numbers.to_vec(),
        chosen: programs::Chosen::default(),
    });
    let (recorder, recording) = Recorder::start(&request).unwrap();
    if let Some(error) = recorder.without.get(class) {
        skip::skipped(&error.to_string());
        recorder.finish().unwrap();
        return None;
    }
    assert_eq!(recording.absent, [""; 0]);
    check_cost(&recorder, class);
    assert_eq!(recording.classes[class].programs.len(), names.len());
    work();
    let account = recorder.finish().unwrap();
    assert_eq!(account.problems, [""; 0]);
    transcode(folder.path(), folder.path()).unwrap();
    if !Recording::load(folder.path()).unwrap().threads_known {
        skip::skipped("threads have other numbers here than the kernel gives them");
        return None;
    }
    Some((events(&folder.path().join("trace")), account))
}

/// How many events of a class were recorded, and dropped.
pub fn counted(account: &Account, class: &str) -> (u64, u64) {
    let of_class = account.classes[class].values();
    of_class.fold((0, 0), |sum, each| (sum.0 + each.recorded, sum.1 + each.dropped))
}
