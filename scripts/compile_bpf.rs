//! Compiles C to programs for the kernel's own processor (BPF), for build scripts. Without clang the
//! objects are empty, and the crate says so where they are asked for.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Each source becomes an object of the same name in the folder of what is built.
pub fn compile(sources: &[&str], headers: &[&str]) -> Result<(), Box<dyn Error>> {
    for header in headers {
        println!("cargo::rerun-if-changed={header}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let folder = env::var("OUT_DIR")?;
    sources.iter().try_for_each(|source| compile_one(Path::new(source), Path::new(&folder)))
}

fn compile_one(source: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
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
