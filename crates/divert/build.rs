//! Compiles the programs that divert flows.

#[path = "../../scripts/compile_bpf.rs"]
mod compile_bpf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    compile_bpf::compile(&["bpf/divert.bpf.c"], &[])
}
