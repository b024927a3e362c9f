//! Compiles the instrumentation's C core, the same files that make up libloopscope.

fn main() {
    let include = "../../include";
    let core = [
        "calibrate",
        "cells",
        "config",
        "control",
        "fields",
        "file",
        "filter",
        "interval",
        "predicate",
        "record",
        "ring",
        "sites",
    ];
    let mut build = cc::Build::new();
    // The hot path is compiled for speed whatever the profile of the program around it.
    build.opt_level(2).pic(true).std("gnu11").define("_GNU_SOURCE", None);
    build.flag("-fvisibility=hidden").extra_warnings(true).flag("-Wpedantic");
    build.include("c").include(include);
    for name in core {
        build.file(format!("c/{name}.c"));
    }
    // loopscope-time has the same file, for programs without call sites. Of two archives with it a
    // linker takes one.
    build.file("../time/c/counter.c");
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=../time/c");
    println!("cargo::rerun-if-changed={include}/loopscope/trace.h");
    build.compile("loopscope_core");
}
