//! `loopscope-host emulate`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use loopscope_agent::control::{Description, Reply, Request, Server};
use loopscope_agent::{ledger, rootless};
use loopscope_emulate::control::{Commands, Control, channel};
use loopscope_emulate::mover::probe::probe;
use loopscope_emulate::run::{self, Emulator};
use loopscope_emulate::settings::Document;
use loopscope_emulate::simulate::SimulateError;
use loopscope_emulate::{phases, signals, simulate};

/// Be a switch whose ports are joined by emulated links, until SIGINT or SIGTERM.
///
/// The devices are those of the current network namespace that the settings name, unbridged: one end
/// of a veth pair for each host. With mover netem the kernel is the switch, and this watches it. In an experiment the settings are its `network:`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The links, as schema/links.md describes them
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Where to write what was achieved
    #[arg(long, value_name = "FILE", default_value = "links.json")]
    report: PathBuf,
    /// Say which movers this machine allows instead, and why not the others; tried in a network
    /// namespace that is gone afterwards
    #[arg(long, conflicts_with_all = ["settings", "simulate"])]
    probe: bool,
    /// With --probe: print [{"mover": …, "works": …, "why": …}, …]
    #[arg(long, requires = "probe")]
    json: bool,
    /// Say what a link does to packets, in virtual time, instead: its settings as JSON. Packets come
    /// from standard input (CSV: at_ns,size), what becomes of them goes to standard output (CSV)
    #[arg(long, value_name = "SETTINGS", conflicts_with = "settings")]
    simulate: Option<String>,
    /// With --simulate: of every random choice, together with the link's name
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// With --simulate: the link's name
    #[arg(long, default_value = "h1 -> h2")]
    name: String,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.probe {
        return print_probe(arguments.json);
    }
    if let Some(settings) = &arguments.simulate {
        return simulate_link(settings, arguments);
    }
    // Before anything is made that has to be taken away again.
    let (control, commands) = channel()?;
    signals::end_on_signals(control.clone())?;
    // And before anything is moved: making a ring takes system calls and page faults.
    if let Err(problem) = loopscope_emulate::prepare_events() {
        eprintln!("warning: {problem}; the links' events are lost, and counted as such");
    }
    let mut opened = None;
    let session = phases::connect(|config| {
        let document = run::read_value(&phases::document(config));
        opened =
            Some(document.and_then(|document| Ok((document.clone(), Emulator::open(document)?))));
    })?;
    match session.zip(opened) {
        Some((mut session, opened)) => match opened {
            Ok((document, emulator)) => {
                let reachable = Reachable::start(&document, control.clone());
                phases::follow(session, control)?;
                emulate(&document, emulator, &arguments.report, &commands, reachable)
            }
            Err(error) => {
                phases::refuse(&mut session, &error.to_string());
                Err(error.into())
            }
        },
        None => {
            let Some(path) = &arguments.settings else {
                bail!("there are no links to emulate: name a file of them by --settings");
            };
            let place = || path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(place)?;
            let document = run::read(&text).with_context(place)?;
            let emulator = Emulator::open(document.clone()).with_context(place)?;
            let reachable = Reachable::start(&document, control);
            emulate(&document, emulator, &arguments.report, &commands, reachable)
        }
    }
}

/// Works until the end.
fn emulate(
    document: &Document,
    mut emulator: Emulator,
    report_path: &Path,
    commands: &Commands,
    reachable: Reachable,
) -> anyhow::Result<ExitCode> {
    let (mover, why) = emulator.mover();
    println!("emulating {} hosts' links by {mover}: {why}", document.ports.len());
    let (report, result) = emulator.run(commands);
    drop(reachable);
    print!("{}", report.table());
    let written = report.write(report_path);
    result?;
    written.with_context(|| format!("cannot write {}", report_path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The socket by which `loopscope net` reaches this process; dropping it removes it.
struct Reachable(Option<PathBuf>);

impl Reachable {
    fn start(document: &Document, control: Control) -> Reachable {
        let state_dir = ledger::state_dir();
        let serve = Server::bind(&state_dir).and_then(|server| {
            let path = server.path().to_owned();
            let description = describe(document);
            let serve = move || {
                loop {
                    server.wait();
                    server.answer(|request| answer(request, &description, &control));
                }
            };
            std::thread::Builder::new().name("control".into()).spawn(serve)?;
            Ok(path)
        });
        if let Err(error) = &serve {
            eprintln!(
                "warning: `loopscope net` cannot reach these links: no socket in {}: {error}",
                state_dir.display()
            );
        }
        Reachable(serve.ok())
    }
}

impl Drop for Reachable {
    fn drop(&mut self) {
        // If it is gone, that is as well.
        let _ = self.0.as_ref().map(std::fs::remove_file);
    }
}

fn describe(document: &Document) -> Description {
    let hosts: Vec<&str> = document.ports.iter().map(|port| port.host.as_str()).collect();
    let hosts = hosts.join(", ");
    let of_run = std::env::var(ledger::RUN_MARK).map(|run| format!("run {run}: {hosts}"));
    let mut pids = vec![std::process::id()];
    if !rootless::has_own_numbers() {
        pids.push(std::os::unix::process::parent_id());
    }
    Description {
        kind: "links".into(),
        pids,
        what: of_run.unwrap_or(hosts),
        flight_recorders: vec![],
    }
}

fn answer(request: Request, description: &Description, control: &Control) -> Reply {
    let answer = match request {
        Request::Describe => return Reply::Description(description.clone()),
        Request::Links => control.show(),
        Request::SetLink { from, to, change } => control.set(&from, &to, change),
        Request::Trigger { .. } | Request::Choose { .. } => Err("nothing is recorded here".into()),
    };
    answer.map_or_else(Reply::Refused, Reply::Links)
}

fn print_probe(json: bool) -> anyhow::Result<ExitCode> {
    let tried = probe();
    if json {
        println!("{}", serde_json::to_string_pretty(&tried)?);
    } else {
        for each in &tried {
            let works = if each.works { "works" } else { "does not work" };
            println!("{} {works}: {}", each.mover, each.why);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn simulate_link(settings: &str, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { seed, name, .. } = arguments;
    match simulate::run(settings, *seed, name, io::stdin().lock(), io::stdout().lock()) {
        // The reader has seen enough (`emulate … | head`).
        Err(SimulateError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
        done => done?,
    }
    Ok(ExitCode::SUCCESS)
}
