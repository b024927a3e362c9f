//! The collector's calls into the C core: what a program does for its call sites when it registers
//! them, done from outside to a running one, and what it asks before it removes what others left.
//! One implementation decides what matches, compiles the filters and knows who is alive.

use core::ffi::{CStr, c_char, c_int};

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
    fn loopscope_heir(control: *const Control, name: *const c_char) -> u32;
    fn loopscope_glob_matches(
        value: *const c_char,
        length: usize,
        full_name: *const c_char,
        rest: *mut *const c_char,
    ) -> c_int;
}

/// A process that still uses the control file of a process directory with this name although the
/// process that made it has ended: a child that it forked, which has had no hit yet. A look at
/// every process, unless the one found last lives.
#[allow(unsafe_code)]
pub fn heir(control: &Control, name: &CStr) -> Option<u32> {
    // SAFETY: the core reads the name up to its end, keeps no pointer, and changes the control file
    // with atomics alone.
    let heir = unsafe { loopscope_heir(control, name.as_ptr()) };
    (heir != 0).then_some(heir)
}

/// Whether programs take an entity's full name for one that the pattern means.
#[allow(unsafe_code)]
pub fn glob_matches(glob: &CStr, full_name: &CStr) -> bool {
    let mut rest = core::ptr::null();
    // SAFETY: the core reads both texts up to their ends and keeps no pointer but `rest`, into
    // `glob`.
    let matches = unsafe {
        let length = glob.to_bytes().len();
        loopscope_glob_matches(glob.as_ptr(), length, full_name.as_ptr(), &raw mut rest)
    };
    matches != 0
}

/// A call site as its line in the sites file tells it.
#[derive(Clone, Copy, Debug)]
pub struct SiteText<'a> {
    /// The kind, numbered as in `enum loopscope_kind` of include/loopscope/trace.h.
    pub kind: u32,
    /// `group:name`.
    pub full_name: &'a CStr,
    /// Per field its type's code, its name and NUL; then code 0.
    pub fields: &'a [u8],
}

/// Applies the lines about `stream` of a `streams` file's text to one call site of a running
/// process: sets or clears its bit in the flag word, makes or removes its filter. The stream's
/// section must be allocated in the control file.
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
