//! Compiles the programs that record in the kernel, for its own processor (BPF). Without clang the
//! crate is built without them, and says so where they are asked for.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Each becomes an object of the same name.
const SOURCES: [&str; 5] =
    ["bpf/tcp.bpf.c", "bpf/udp.bpf.c", "bpf/sleep.bpf.c", "bpf/call.bpf.c", "bpf/histograms.bpf.c"];
const HEADERS: [&str; 3] = ["bpf/records.bpf.h", "bpf/packet.bpf.h", "bpf/threads.bpf.h"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for header in HEADERS {
        println!("cargo::rerun-if-changed={header}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let folder = env::var("OUT_DIR")?;
    SOURCES.iter().try_for_each(|source| compile(Path::new(source), Path::new(&folder)))
}

fn compile(source: &Path, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={}", source.display());
    let name = source.file_name().ok_or("a source has a name")?;
    let object = folder.join(name).with_extension("o");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    // Debug information is what the kernel's structures are found by; it names no folder.
    let options = ["-g", "-O2", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3"];
    let mut compile = Command::new(&clang);
    compile.args(options).args(["-fdebug-compilation-dir=.", "-c"]).arg(source);
    let problem = match compile.arg("-o").arg(&object).output() {
        Ok(done) if done.status.success() => return Ok(()),
        Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    for line in problem.lines() {
        println!("cargo::warning=without programs for the kernel: {clang}: {line}");
    }
    // Not there: cargo looks for clang again at the next build.
    println!("cargo::rerun-if-changed={}", object.with_extension("again").display());
    fs::write(&object, [])?;
    Ok(())
}
