//! Compiles the programs that write TCP's ledger, for the kernel's own processor (BPF). Without
//! clang the crate is built without them, and says so where they are asked for.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "bpf/tcp.bpf.c";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let object = Path::new(&env::var("OUT_DIR")?).join("tcp.bpf.o");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    // Debug information is what the kernel's structures are found by; it names no folder.
    let options = ["-g", "-O2", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3"];
    let mut compile = Command::new(&clang);
    compile.args(options).arg("-fdebug-compilation-dir=.").args(["-c", SOURCE, "-o"]).arg(&object);
    let problem = match compile.output() {
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
