//! Empty: without a build script cargo ignores the features of build dependencies.
fn main() {}
