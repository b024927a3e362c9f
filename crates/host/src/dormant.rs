//! Has the call sites of `loopscope-host limited` wait for no attach.
//!
//! A program that nobody records makes a directory in /dev/shm before `main`. sudo starts this one
//! as root and without `LOOPSCOPE_RUNTIME_DIR`, which would prevent that, and when it has become its
//! user it could not remove root's directory.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

use nix::libc::setenv;

// Numbered functions come before those without a number, by which call sites register.
// SAFETY: the section holds pointers to functions that glibc calls once each, with the arguments of
// `main`, before it.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static BEFORE_CALL_SITES: extern "C" fn(c_int, *const *const c_char) = before_call_sites;

extern "C" fn before_call_sites(count: c_int, arguments: *const *const c_char) {
    if count < 2 {
        return;
    }
    // SAFETY: there are `count` pointers to strings that end with a zero, as for `main`.
    let subcommand = unsafe { CStr::from_ptr(*arguments.add(1)) };
    if subcommand.to_bytes() == loopscope_agent::installation::SUBCOMMAND.as_bytes() {
        // SAFETY: both are such strings, and no other thread is there that reads the environment.
        unsafe { setenv(c"LOOPSCOPE_RUNTIME_DIR".as_ptr(), c"".as_ptr(), 1) };
    }
}
