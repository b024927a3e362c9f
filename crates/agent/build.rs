//! Compiles the agent protocol. protox stands in for a system protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Asked when it runs: checkouts that share a target directory share this program too.
    let folder = format!("{}/../../proto", std::env::var("CARGO_MANIFEST_DIR")?);
    let file = format!("{folder}/agent.proto");
    println!("cargo::rerun-if-changed={file}");
    tonic_prost_build::configure().compile_fds(protox::compile([file], [folder])?)?;
    Ok(())
}
