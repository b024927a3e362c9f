//! Compiles the services of `proto`. protox stands in for a system protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Asked when it runs: checkouts that share a target directory share this program too.
    let folder = format!("{}/../../proto", std::env::var("CARGO_MANIFEST_DIR")?);
    let files = ["agent", "machine"].map(|name| format!("{folder}/{name}.proto"));
    for file in &files {
        println!("cargo::rerun-if-changed={file}");
    }
    tonic_prost_build::configure().compile_fds(protox::compile(files, [folder])?)?;
    Ok(())
}
