//! Builds the C programs of the tests with the C helper, as strictly as the compiler can.

#[path = "../../../../tests/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `programs/<name>.c`; with sanitizers where the compiler has them.
pub fn program(name: &str) -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compile = |sanitize: &[&str]| {
        let output = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
            .args(["-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
            .args(sanitize)
            .arg("-I")
            .arg(crate_dir.join("../../include"))
            .arg("-I")
            .arg(crate_dir.join("c"))
            .arg(crate_dir.join("tests/programs").join(name).with_extension("c"))
            .args(
                ["phase", "functions", "json", "text", "values"]
                    .map(|c| crate_dir.join("c").join(c).with_extension("c")),
            )
            .arg("-o")
            .arg(&out)
            .arg("-lm")
            .output()
            .expect("a C compiler is needed: set CC, or install one as cc");
        output.status.success().then_some(()).ok_or(String::from_utf8(output.stderr))
    };
    if compile(&["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]).is_err() {
        compile(&[]).unwrap_or_else(|errors| panic!("{name}.c: {}", errors.unwrap()));
        skip::skipped(&format!("no sanitizers in this C compiler; {name}.c runs without"));
    }
    out
}
