//! Kernel events of a run: found among the hosts' files, made CTF, and placed by a host's clock.

use std::fs;
use std::path::Path;

use loopscope_kernel::recording::Recording;
use loopscope_kernel::transcode::transcode;
use loopscope_timeline::{HostClock, Progress, Solution, SolvedHost};

use crate::Failure;

/// Makes CTF of what was recorded of kernels under `hosts`, in `<host>/kernel/` under `out`. A
/// kernel that several hosts share has a directory of its own, and becomes a host of the solution
/// with the clock of the host that its recording names.
pub fn add(
    hosts: &Path,
    out: &Path,
    solution: &mut Solution,
    follow: &mut Progress,
) -> Result<(), Failure> {
    let mut names = Vec::new();
    for entry in fs::read_dir(hosts)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if Recording::path(&entry.path().join("kernel")).exists() {
            names.push(name);
        }
    }
    names.sort();
    for name in names {
        if !follow(0, 0) {
            return Err("stopped".into());
        }
        let (folder, made) = (hosts.join(&name).join("kernel"), out.join(&name).join("kernel"));
        fs::create_dir_all(&made)?;
        match fs::remove_dir_all(made.join("trace")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        transcode(&folder, &made)?;
        if solution.hosts.iter().any(|host| host.host == name) {
            continue;
        }
        let recording = Recording::load(&folder)?;
        let by = solution.hosts.iter().find(|host| host.host == recording.host);
        let clock = by.map(|host| host.clock.clone()).ok_or_else(|| {
            let (path, host) = (Recording::path(&folder), &recording.host);
            format!("{}: host {host}, whose clock stamps it, has no clock", path.display())
        })?;
        let clock = HostClock {
            reference: false,
            exchanges: 0,
            rejected: 0,
            readings: Vec::new(),
            events: Vec::new(),
            ..clock
        };
        solution.hosts.push(SolvedHost { host: name, clock, problems: Vec::new() });
    }
    Ok(())
}
