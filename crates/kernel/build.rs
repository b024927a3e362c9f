//! Compiles the programs that record in the kernel.

#[path = "../../scripts/compile_bpf.rs"]
mod compile_bpf;

const SOURCES: [&str; 5] =
    ["bpf/tcp.bpf.c", "bpf/udp.bpf.c", "bpf/sleep.bpf.c", "bpf/call.bpf.c", "bpf/histograms.bpf.c"];
const HEADERS: [&str; 3] = ["bpf/records.bpf.h", "bpf/packet.bpf.h", "bpf/threads.bpf.h"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    compile_bpf::compile(&SOURCES, &HEADERS)
}
