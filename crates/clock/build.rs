//! Compiles the reader of the clock page, the same files as in libloopscope.

fn main() {
    let include = "../../include";
    let mut build = cc::Build::new();
    // A reading is compiled for speed whatever the profile of the program around it.
    build.opt_level(2).pic(true).std("gnu11").define("_GNU_SOURCE", None);
    build.flag("-fvisibility=hidden").extra_warnings(true).flag("-Wpedantic");
    build.include(include);
    for name in ["clock", "open", "read"] {
        build.file(format!("c/{name}.c"));
    }
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=../time/c");
    println!("cargo::rerun-if-changed={include}/loopscope/clock.h");
    build.compile("loopscope_clock");
}
