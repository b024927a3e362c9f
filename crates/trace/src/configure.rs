//! The collector's call into the C core: what a program does for its call sites when it registers
//! them, done from outside to a running one. One implementation decides what matches and compiles
//! the filters.

use core::ffi::{CStr, c_char};

use crate::layout::{Control, MAX_SITES, STREAMS};

#[allow(unsafe_code)]
unsafe extern "C" {
    fn loopscope_apply(
        control: *const Control,
        stream: u32,
        index: u32,
        kind: u32,
        full_name: *const c_char,
        fields: *const c_char,
        text: *const c_char,
    );
}

/// A call site as its line in the sites file tells it.
#[derive(Clone, Copy, Debug)]
pub struct SiteText<'a> {
    /// As `enum loopscope_kind` in include/loopscope/trace.h counts.
    pub kind: u32,
    /// `group:name`.
    pub full_name: &'a CStr,
    /// Per field its type's code, its name and NUL; then code 0.
    pub fields: &'a [u8],
}

/// Applies the lines about `stream` of a `streams` file's text to one call site of a running process:
/// sets or clears its bit in the flag word, makes or removes its filter. The stream's section must
/// be allocated in the control file.
///
/// # Panics
/// If stream or index are beyond the layout's or the fields do not end with code 0.
#[allow(unsafe_code)]
pub fn apply(control: &Control, stream: usize, index: usize, site: SiteText<'_>, text: &CStr) {
    assert!(stream < STREAMS && index < MAX_SITES);
    assert!(site.fields == [0] || site.fields.ends_with(&[0, 0]), "fields end with code 0");
    // SAFETY: the core reads the texts only up to their ends, which are there as the types and the
    // assertion say, keeps no pointer, and changes the control file with atomics alone, like the
    // program that shares it.
    unsafe {
        loopscope_apply(
            control,
            stream as u32,
            index as u32,
            site.kind,
            site.full_name.as_ptr(),
            site.fields.as_ptr().cast(),
            text.as_ptr(),
        );
    }
}
