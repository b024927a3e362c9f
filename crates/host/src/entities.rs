//! `loopscope-host entities`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use loopscope_collect::entities::{self, Buckets, EntitySite};

/// List the entities that a program has, without running it, or those of a running process.
///
/// Of a file: those of the program or shared library itself, not of the libraries that it loads. Of
/// a process: those that it has registered, or while it is dormant those of all that it has loaded.
#[derive(clap::Args)]
pub struct Arguments {
    /// A program, a shared library, or a process id (write ./123 for a file of that name)
    #[arg(value_name = "BINARY-or-PID")]
    target: PathBuf,
    /// Print a list of call sites as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let sites = match arguments.target.to_str().map(str::parse) {
        Some(Ok(pid)) => entities::of_pid(pid)?,
        _ => entities::of_file(&arguments.target)?,
    };
    let text = if arguments.json { serde_json::to_string(&sites)? + "\n" } else { table(&sites) };
    match io::stdout().write_all(text.as_bytes()) {
        // The reader has seen enough (`entities … | head`).
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    Ok(ExitCode::SUCCESS)
}

fn table(sites: &[EntitySite]) -> String {
    let rows: Vec<[String; 4]> = sites.iter().map(row).collect();
    let mut widths = [0; 4];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    });
    lines.collect()
}

/// Entity, kind, what it carries, place.
fn row(site: &EntitySite) -> [String; 4] {
    let fields =
        site.fields.iter().map(|field| format!("{} {}", field.field_type.tsdl(), field.name));
    let mut carries = fields.collect::<Vec<_>>();
    match site.buckets {
        Some(Buckets::Linear { low, high, buckets }) => {
            carries.push(format!("{low} to {high} in {buckets}"));
        }
        Some(Buckets::Log) => carries.push("log".to_owned()),
        None => {}
    }
    carries.extend((!site.unit.is_empty()).then(|| site.unit.clone()));
    [
        format!("{}:{}", site.group, site.name),
        site.kind.name().to_owned(),
        carries.join(", "),
        format!("{}:{}", site.file, site.line),
    ]
}
