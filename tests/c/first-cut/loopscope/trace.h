/* Instrumentation of C (C99 and later) and C++ (C++11 and later) programs.
 *
 *     LOOPSCOPE_EVENT("pipe", "sent", id);
 *     LOOPSCOPE_EVENT("pipe", "sent", id, LOOPSCOPE_U32(size, n), LOOPSCOPE_F64(load, x));
 *
 * Group, name and id, then up to eight typed fields. Group and name are string literals of
 * printable ASCII without spaces, `:`, quotes, backslashes, `%`, `{`, `|` and `}`. The id ties the
 * events of one message together and is converted to int64_t. Id and fields are evaluated only
 * while the event is enabled, in order.
 *
 * An event that is not enabled costs two loads and a predicted branch. One that is enabled is
 * stamped with the cycle counter and written to the thread's ring, without a system call or a lock.
 * Programs link with -lloopscope; without LOOPSCOPE_RUNTIME_DIR in their environment all events
 * stay disabled.
 */
#ifndef LOOPSCOPE_TRACE_H
#define LOOPSCOPE_TRACE_H

#if !defined(__linux__) || !defined(__LP64__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "loopscope/trace.h supports 64-bit Linux on x86-64 and aarch64"
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A call site. Emitted by the macros as data; begins with its size and only ever grows. */
struct loopscope_site {
    uint32_t size;
    uint32_t kind;
    const uint32_t *enabled; /* flag word: `off` below until registered, then in the control file */
    const char *group;
    const char *name;
    const char *fields; /* per field: type code (1 byte), name, NUL; ends with code 0 */
    const char *file;
    uint32_t line;
    uint16_t index;   /* class id of its records; 0xffff until registered */
    uint16_t payload; /* size of the fields in a record, in bytes */
    uint32_t off;     /* always zero */
    uint32_t reserved;
};

/* Makes the calling thread's ring, which its first enabled event would otherwise do (some system
 * calls and page faults). For real-time threads, before their loop. Returns 0, or -1 if there is a
 * collector but no ring could be made: the thread's events are then counted as dropped. */
int loopscope_thread_init(void);

/* Registers the call sites of a module; sites that are registered already are left alone. The
 * header calls it from a constructor. */
void loopscope_register(struct loopscope_site *start, struct loopscope_site *stop);

/* Records an event of an enabled site. `payload` has the fields, packed; it must be readable up to
 * `size` rounded up to a multiple of eight. Called by the macros. */
void loopscope_event(const struct loopscope_site *site, int64_t id);
void loopscope_event_fields(const struct loopscope_site *site, int64_t id, const void *payload,
                            uint32_t size);

extern struct loopscope_site __start_loopscope_sites[]
    __attribute__((weak, visibility("hidden")));
extern struct loopscope_site __stop_loopscope_sites[]
    __attribute__((weak, visibility("hidden")));

/* Weak and hidden: one per module, whatever the number of its translation units. Its priority lets
 * events in the module's own static constructors count. */
void loopscope_register_module_(void)
    __attribute__((weak, visibility("hidden"), constructor(101)));
void loopscope_register_module_(void)
{
    loopscope_register(__start_loopscope_sites, __stop_loopscope_sites);
}

static inline int loopscope_enabled_(const struct loopscope_site *site)
{
    /* Pairs with the release store in loopscope_register: who sees the flag sees the index. */
    const uint32_t *enabled = __atomic_load_n(&site->enabled, __ATOMIC_ACQUIRE);
    return __builtin_expect(__atomic_load_n(enabled, __ATOMIC_RELAXED) != 0, 0) != 0;
}

#ifdef __cplusplus
}
#endif

#define LOOPSCOPE_U8(field, ...) (1, 1, uint8_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_U16(field, ...) (2, 2, uint16_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_U32(field, ...) (3, 4, uint32_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_U64(field, ...) (4, 8, uint64_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_I8(field, ...) (5, 1, int8_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_I16(field, ...) (6, 2, int16_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_I32(field, ...) (7, 4, int32_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_I64(field, ...) (8, 8, int64_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_F32(field, ...) (9, 4, float, #field, (__VA_ARGS__))
#define LOOPSCOPE_F64(field, ...) (10, 8, double, #field, (__VA_ARGS__))

#define LOOPSCOPE_EVENT(group, name, ...)                                                         \
    LOOPSCOPE_PICK_(__VA_ARGS__, LOOPSCOPE_EVENT8_, LOOPSCOPE_EVENT7_, LOOPSCOPE_EVENT6_,         \
                    LOOPSCOPE_EVENT5_, LOOPSCOPE_EVENT4_, LOOPSCOPE_EVENT3_, LOOPSCOPE_EVENT2_,   \
                    LOOPSCOPE_EVENT1_, LOOPSCOPE_EVENT0_, ~)                                      \
    (group, name, __VA_ARGS__)
#define LOOPSCOPE_PICK_(i, f1, f2, f3, f4, f5, f6, f7, f8, picked, ...) picked

#define LOOPSCOPE_TEXT_(x) LOOPSCOPE_TEXT2_(x)
#define LOOPSCOPE_TEXT2_(x) #x

#if defined(__x86_64__)
#define LOOPSCOPE_ADDRESS_ "leaq 990b(%%rip), %0\n"
#else
#define LOOPSCOPE_ADDRESS_ "adrp %0, 990b\n\tadd %0, %0, :lo12:990b\n"
#endif

/* The descriptor is data in the asm, not a C object: the compiler refuses a static object in a
 * section that functions in COMDAT groups (inline functions, templates) and plain functions share.
 * The `?` puts it into the function's own group, so that it is linked exactly when its code is. */
#define LOOPSCOPE_SITE_(site, group, name, fields, payload)                                       \
    const struct loopscope_site *site;                                                            \
    __asm__(".pushsection loopscope_strings,\"a?\",@progbits\n"                                   \
            "991:\t.asciz \"" group "\"\n"                                                        \
            "992:\t.asciz \"" name "\"\n"                                                         \
            "993:\t" fields ".byte 0\n"                                                           \
            "994:\t.asciz " LOOPSCOPE_TEXT_(__FILE__) "\n"                                        \
            ".popsection\n"                                                                       \
            ".pushsection loopscope_sites,\"aw?\",@progbits\n"                                    \
            "\t.balign 8\n"                                                                       \
            "990:\t.4byte 64, 1\n"                                                                \
            "\t.8byte 990b+56, 991b, 992b, 993b, 994b\n"                                          \
            "\t.4byte " LOOPSCOPE_TEXT_(__LINE__) "\n"                                            \
            "\t.2byte 0xffff, 0" payload "\n"                                                     \
            "\t.4byte 0, 0\n"                                                                     \
            ".popsection\n\t" LOOPSCOPE_ADDRESS_                                                  \
            : "=r"(site))

#define LOOPSCOPE_DESCRIBE_(code, size, type, field, value)                                       \
    ".byte " #code "\n\t.asciz \"" field "\"\n\t"
#define LOOPSCOPE_SIZE_(code, size, type, field, value) "+" #size
#define LOOPSCOPE_TYPE_(code, size, type, field, value) type
#define LOOPSCOPE_VALUE_(code, size, type, field, value) value

#define LOOPSCOPE_EVENT0_(group, name, i)                                                         \
    do {                                                                                          \
        LOOPSCOPE_SITE_(loopscope_site_, group, name, "", "");                                    \
        if (loopscope_enabled_(loopscope_site_)) {                                                \
            int64_t loopscope_id_ = (i);                                                          \
            loopscope_event(loopscope_site_, loopscope_id_);                                      \
        }                                                                                         \
    } while (0)

/* Assignments to typed members let the compiler check the values as it checks arguments. */
#define LOOPSCOPE_RECORD_(group, name, i, describe, size, members, assign)                        \
    do {                                                                                          \
        LOOPSCOPE_SITE_(loopscope_site_, group, name, describe, size);                            \
        if (loopscope_enabled_(loopscope_site_)) {                                                \
            int64_t loopscope_id_ = (i);                                                          \
            union {                                                                               \
                struct {                                                                          \
                    members                                                                       \
                } __attribute__((packed)) v;                                                      \
                uint64_t room[8];                                                                 \
            } loopscope_;                                                                         \
            assign loopscope_event_fields(loopscope_site_, loopscope_id_, &loopscope_,            \
                                          sizeof loopscope_.v);                                   \
        }                                                                                         \
    } while (0)

#define LOOPSCOPE_D_(f) LOOPSCOPE_DESCRIBE_ f
#define LOOPSCOPE_S_(f) LOOPSCOPE_SIZE_ f
#define LOOPSCOPE_M_(m, f) LOOPSCOPE_TYPE_ f m;
#define LOOPSCOPE_A_(m, f) loopscope_.v.m = LOOPSCOPE_VALUE_ f;

#define LOOPSCOPE_EVENT1_(group, name, i, f1)                                                     \
    LOOPSCOPE_RECORD_(group, name, i,                                                             \
                      LOOPSCOPE_D_(f1),                                                           \
                      LOOPSCOPE_S_(f1),                                                           \
                      LOOPSCOPE_M_(m1, f1),                                                       \
                      LOOPSCOPE_A_(m1, f1))
#define LOOPSCOPE_EVENT2_(group, name, i, f1, f2)                                                 \
    LOOPSCOPE_RECORD_(group, name, i,                                                             \
                      LOOPSCOPE_D_(f1) LOOPSCOPE_D_(f2),                                          \
                      LOOPSCOPE_S_(f1) LOOPSCOPE_S_(f2),                                          \
                      LOOPSCOPE_M_(m1, f1) LOOPSCOPE_M_(m2, f2),                                  \
                      LOOPSCOPE_A_(m1, f1) LOOPSCOPE_A_(m2, f2))
#define LOOPSCOPE_EVENT3_(group, name, i, f1, f2, f3)                                             \
    LOOPSCOPE_RECORD_(group, name, i,                                                             \
                      LOOPSCOPE_D_(f1) LOOPSCOPE_D_(f2) LOOPSCOPE_D_(f3),                         \
                      LOOPSCOPE_S_(f1) LOOPSCOPE_S_(f2) LOOPSCOPE_S_(f3),                         \
                      LOOPSCOPE_M_(m1, f1) LOOPSCOPE_M_(m2, f2) LOOPSCOPE_M_(m3, f3),             \
                      LOOPSCOPE_A_(m1, f1) LOOPSCOPE_A_(m2, f2) LOOPSCOPE_A_(m3, f3))
#define LOOPSCOPE_EVENT4_(group, name, i, f1, f2, f3, f4)                                         \
    LOOPSCOPE_RECORD_(group, name, i,                                                             \
                      LOOPSCOPE_D_(f1) LOOPSCOPE_D_(f2) LOOPSCOPE_D_(f3) LOOPSCOPE_D_(f4),        \
                      LOOPSCOPE_S_(f1) LOOPSCOPE_S_(f2) LOOPSCOPE_S_(f3) LOOPSCOPE_S_(f4),        \
                      LOOPSCOPE_M_(m1, f1) LOOPSCOPE_M_(m2, f2) LOOPSCOPE_M_(m3, f3)              \
                      LOOPSCOPE_M_(m4, f4),                                                       \
                      LOOPSCOPE_A_(m1, f1) LOOPSCOPE_A_(m2, f2) LOOPSCOPE_A_(m3, f3)              \
                      LOOPSCOPE_A_(m4, f4))
#define LOOPSCOPE_EVENT5_(group, name, i, f1, f2, f3, f4, f5)                                     \
    LOOPSCOPE_RECORD_(group, name, i,                                                             \
                      LOOPSCOPE_D_(f1) LOOPSCOPE_D_(f2) LOOPSCOPE_D_(f3) LOOPSCOPE_D_(f4)         \
                      LOOPSCOPE_D_(f5),                                                           \
                      LOOPSCOPE_S_(f1) LOOPSCOPE_S_(f2) LOOPSCOPE_S_(f3) LOOPSCOPE_S_(f4)         \
                      LOOPSCOPE_S_(f5),                                                           \
                      LOOPSCOPE_M_(m1, f1) LOOPSCOPE_M_(m2, f2) LOOPSCOPE_M_(m3, f3)              \
                      LOOPSCOPE_M_(m4, f4) LOOPSCOPE_M_(m5, f5),                                  \
                      LOOPSCOPE_A_(m1, f1) LOOPSCOPE_A_(m2, f2) LOOPSCOPE_A_(m3, f3)              \
                      LOOPSCOPE_A_(m4, f4) LOOPSCOPE_A_(m5, f5))
#define LOOPSCOPE_EVENT6_(group, name, i, f1, f2, f3, f4, f5, f6)                                 \
    LOOPSCOPE_RECORD_(group, name, i,                                                             \
                      LOOPSCOPE_D_(f1) LOOPSCOPE_D_(f2) LOOPSCOPE_D_(f3) LOOPSCOPE_D_(f4)         \
                      LOOPSCOPE_D_(f5) LOOPSCOPE_D_(f6),                                          \
                      LOOPSCOPE_S_(f1) LOOPSCOPE_S_(f2) LOOPSCOPE_S_(f3) LOOPSCOPE_S_(f4)         \
                      LOOPSCOPE_S_(f5) LOOPSCOPE_S_(f6),                                          \
                      LOOPSCOPE_M_(m1, f1) LOOPSCOPE_M_(m2, f2) LOOPSCOPE_M_(m3, f3)              \
                      LOOPSCOPE_M_(m4, f4) LOOPSCOPE_M_(m5, f5) LOOPSCOPE_M_(m6, f6),             \
                      LOOPSCOPE_A_(m1, f1) LOOPSCOPE_A_(m2, f2) LOOPSCOPE_A_(m3, f3)              \
                      LOOPSCOPE_A_(m4, f4) LOOPSCOPE_A_(m5, f5) LOOPSCOPE_A_(m6, f6))
#define LOOPSCOPE_EVENT7_(group, name, i, f1, f2, f3, f4, f5, f6, f7)                             \
    LOOPSCOPE_RECORD_(group, name, i,                                                             \
                      LOOPSCOPE_D_(f1) LOOPSCOPE_D_(f2) LOOPSCOPE_D_(f3) LOOPSCOPE_D_(f4)         \
                      LOOPSCOPE_D_(f5) LOOPSCOPE_D_(f6) LOOPSCOPE_D_(f7),                         \
                      LOOPSCOPE_S_(f1) LOOPSCOPE_S_(f2) LOOPSCOPE_S_(f3) LOOPSCOPE_S_(f4)         \
                      LOOPSCOPE_S_(f5) LOOPSCOPE_S_(f6) LOOPSCOPE_S_(f7),                         \
                      LOOPSCOPE_M_(m1, f1) LOOPSCOPE_M_(m2, f2) LOOPSCOPE_M_(m3, f3)              \
                      LOOPSCOPE_M_(m4, f4) LOOPSCOPE_M_(m5, f5) LOOPSCOPE_M_(m6, f6)              \
                      LOOPSCOPE_M_(m7, f7),                                                       \
                      LOOPSCOPE_A_(m1, f1) LOOPSCOPE_A_(m2, f2) LOOPSCOPE_A_(m3, f3)              \
                      LOOPSCOPE_A_(m4, f4) LOOPSCOPE_A_(m5, f5) LOOPSCOPE_A_(m6, f6)              \
                      LOOPSCOPE_A_(m7, f7))
#define LOOPSCOPE_EVENT8_(group, name, i, f1, f2, f3, f4, f5, f6, f7, f8)                         \
    LOOPSCOPE_RECORD_(group, name, i,                                                             \
                      LOOPSCOPE_D_(f1) LOOPSCOPE_D_(f2) LOOPSCOPE_D_(f3) LOOPSCOPE_D_(f4)         \
                      LOOPSCOPE_D_(f5) LOOPSCOPE_D_(f6) LOOPSCOPE_D_(f7) LOOPSCOPE_D_(f8),        \
                      LOOPSCOPE_S_(f1) LOOPSCOPE_S_(f2) LOOPSCOPE_S_(f3) LOOPSCOPE_S_(f4)         \
                      LOOPSCOPE_S_(f5) LOOPSCOPE_S_(f6) LOOPSCOPE_S_(f7) LOOPSCOPE_S_(f8),        \
                      LOOPSCOPE_M_(m1, f1) LOOPSCOPE_M_(m2, f2) LOOPSCOPE_M_(m3, f3)              \
                      LOOPSCOPE_M_(m4, f4) LOOPSCOPE_M_(m5, f5) LOOPSCOPE_M_(m6, f6)              \
                      LOOPSCOPE_M_(m7, f7) LOOPSCOPE_M_(m8, f8),                                  \
                      LOOPSCOPE_A_(m1, f1) LOOPSCOPE_A_(m2, f2) LOOPSCOPE_A_(m3, f3)              \
                      LOOPSCOPE_A_(m4, f4) LOOPSCOPE_A_(m5, f5) LOOPSCOPE_A_(m6, f6)              \
                      LOOPSCOPE_A_(m7, f7) LOOPSCOPE_A_(m8, f8))

#endif
