//! Call sites as data, as the C header emits them.

/// Emits the call site's description into the object file and gives its address. A local generic
/// function takes the fields' types from the values' closure.
#[doc(hidden)]
#[macro_export]
macro_rules! __site {
    ($kind:ident, $group:literal, $name:literal) => {
        $crate::__site!($kind, $group, $name, || ((), ()););
    };
    ($kind:ident, $group:literal, $name:literal, $values:expr; $($field:ident)*) => {{
        #[inline(always)]
        #[allow(non_camel_case_types)]
        fn site<LoopscopeValues, LoopscopeId, $($field),*>(_: &LoopscopeValues) -> &'static $crate::Site
        where
            LoopscopeValues: FnOnce() -> (LoopscopeId, ($($field,)*)),
            $($field: $crate::Field,)*
        {
            let site: *const $crate::Site;
            // SAFETY: emits data and takes its address; no memory is touched at run time.
            unsafe {
                ::core::arch::asm!(
                    ".pushsection loopscope_strings,\"a?\",@progbits",
                    concat!("991: .asciz \"", $group, "\""),
                    concat!("992: .asciz \"", $name, "\""),
                    "993:",
                    $(concat!(".byte {", stringify!($field), "}"),
                      concat!(".asciz \"", stringify!($field), "\""),)*
                    ".byte 0",
                    concat!("994: .asciz \"", file!(), "\""),
                    ".popsection",
                    ".pushsection loopscope_sites,\"aw?\",@progbits",
                    ".balign 8",
                    "990: .4byte 64, {loopscope_kind}",
                    ".8byte 990b+56, 991b, 992b, 993b, 994b",
                    concat!(".4byte ", line!()),
                    ".2byte 0xffff, {loopscope_payload}",
                    ".4byte 0, 0",
                    ".popsection",
                    $crate::__site_address!(),
                    out(reg) site,
                    $($field = const <$field as $crate::Field>::CODE,)*
                    loopscope_kind = const $crate::kind::$kind,
                    loopscope_payload = const 0 $(+ <$field as $crate::Field>::SIZE)*,
                    options(pure, nomem, nostack, preserves_flags),
                );
                &*site
            }
        }
        site(&$values)
    }};
}

/// The instruction that takes the address of the site just emitted.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! __site_address {
    () => {
        "lea {0}, [rip + 990b]"
    };
}

/// The instructions that take the address of the site just emitted.
#[cfg(target_arch = "aarch64")]
#[doc(hidden)]
#[macro_export]
macro_rules! __site_address {
    () => {
        "adrp {0}, 990b\nadd {0}, {0}, :lo12:990b"
    };
}

/// A declaration: an item, data alone.
#[doc(hidden)]
#[macro_export]
macro_rules! __declaration {
    ($kind:ident, $group:literal, $name:literal, $fields:expr) => {
        const _: () = {
            const FIELDS: &[u8] = $fields;
            #[used]
            #[unsafe(link_section = "loopscope_sites")]
            static SITE: $crate::Site = $crate::Site::declaration(
                $crate::kind::$kind,
                concat!($group, "\0"),
                concat!($name, "\0"),
                FIELDS,
                concat!(file!(), "\0"),
                line!(),
            );
        };
    };
}
