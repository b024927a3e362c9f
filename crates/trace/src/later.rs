//! Call sites that a library registers at a time of its own.

#[allow(unsafe_code)]
unsafe extern "C" {
    safe fn loopscope_register_here();
}

/// Registers the call sites of this library: see [`register_later!`](crate::register_later). Further
/// calls do nothing.
pub fn register_here() {
    loopscope_register_here();
}

/// Leaves the call sites of this library dormant until it calls
/// [`register_here`](crate::register_here). An item; goes once into a library for LD_PRELOAD, whose
/// constructor would otherwise make a directory for each process that is started with it.
#[macro_export]
macro_rules! register_later {
    () => {
        const _: () = {
            /// In place of the weak function of this name in `include/loopscope/trace.h`, which the
            /// loader calls.
            #[unsafe(no_mangle)]
            extern "C" fn loopscope_register_module_() {}
        };
    };
}
