//! Compiles the counter, the same file as in libloopscope.

fn main() {
    let mut build = cc::Build::new();
    // A reading is compiled for speed whatever the profile of the program around it.
    build.opt_level(2).pic(true).std("gnu11").define("_GNU_SOURCE", None);
    build.flag("-fvisibility=hidden").extra_warnings(true).flag("-Wpedantic");
    build.file("c/counter.c");
    println!("cargo::rerun-if-changed=c");
    build.compile("loopscope_counter");
}
