/* Instrumentation of C (C99 and later) and C++ (C++11 and later) programs.
 *
 *     LOOPSCOPE_EVENT("pipe", "sent", id);
 *     LOOPSCOPE_EVENT("pipe", "sent", id, LOOPSCOPE_U32(size, n), LOOPSCOPE_STRING(to, name));
 *
 * After LOOPSCOPE_ (with LOOPSCOPE_SHORT_NAMES defined before the include, these entities, but not
 * the fields, also go without it):
 *
 *     EVENT(group, name, id, fields...)                records id and up to eight fields
 *     INTERVAL_START(group, name)                      on one thread; intervals nest and recur
 *     INTERVAL_END(group, name, id)                    one record: start and duration
 *     INTERVAL_END_OVER(group, name, id, ns)           records only what took longer than ns
 *     INTERVAL_START_KEY(group, name, key)             across threads, by an equal key,
 *     INTERVAL_END_KEY(group, name, key)                 which becomes the id
 *     INTERVAL_END_KEY_OVER(group, name, key, ns)
 *     SCOPE(group, name, id)                           C++: an interval from here to the end of the
 *     SCOPE_OVER(group, name, id, ns)                    scope, whatever ends it
 *     COUNTER_ADD(group, name, amount)                 no record
 *     COUNTER_LOG(group, name)                         records the sum
 *     COUNTER_RESET(group, name)                       back to zero
 *     HISTOGRAM_ADD(group, name, value)                no record
 *     HISTOGRAM_LOG(group, name)                       records the counts
 *     HISTOGRAM_RESET(group, name)                     back to zero
 *     HISTOGRAM_RANGE(group, name, low, high, buckets) declares equal buckets from low up to, but
 *                                                        without, high; else they are log-linear
 *     FLOW_OUT(group, name, id, fields...)             an event: message id leaves
 *     FLOW_IN(group, name, id, fields...)              an event: message id arrives
 *     FLOW_LINK(group, name, in_id, out_id)            out_id was computed from in_id
 *     DESCRIBE(group, name, unit, description)         declares what people are told
 *     DESCRIBE_GROUP(group, description)
 *
 * Fields are LOOPSCOPE_U8, U16, U32, U64, I8, I16, I32, I64, F32, F64, STRING (field, value) and
 * LOOPSCOPE_BYTES(field, start, length), of different names other than id. Strings end with a NUL; a
 * null pointer is the empty one.
 *
 * Group and name are string literals of printable ASCII without spaces, `:`, `,`, quotes,
 * backslashes, `%`, `{`, `|` and `}`. Unit and description are string literals of any text. Ids tie
 * the records of one message together; ids, keys, amounts and values of histograms are converted to
 * int64_t. Values are evaluated only while their call site is enabled, once and in order.
 *
 * The declarations HISTOGRAM_RANGE, with integer constant expressions, and DESCRIBE are data alone;
 * they stand outside of functions or in them. The others are statements.
 *
 * A call site that is not enabled costs two loads and a predicted branch. A record of an enabled
 * one is stamped with the machine's counter and written to the thread's ring, without a lock, and
 * without a system call but where reading that counter is one. Programs link with -lloopscope; without LOOPSCOPE_RUNTIME_DIR in their environment all
 * call sites stay disabled until a stream is attached.
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

/* What a call site does. Interval, counter and histogram sites of one `group:name` belong together;
 * the last two are declarations. */
enum loopscope_kind {
    LOOPSCOPE_KIND_EVENT = 1,
    LOOPSCOPE_KIND_INTERVAL_START,
    LOOPSCOPE_KIND_INTERVAL_END,
    LOOPSCOPE_KIND_COUNTER_ADD,
    LOOPSCOPE_KIND_COUNTER_LOG,
    LOOPSCOPE_KIND_COUNTER_RESET,
    LOOPSCOPE_KIND_HISTOGRAM_ADD,
    LOOPSCOPE_KIND_HISTOGRAM_LOG,
    LOOPSCOPE_KIND_HISTOGRAM_RESET,
    LOOPSCOPE_KIND_FLOW_OUT,
    LOOPSCOPE_KIND_FLOW_IN,
    LOOPSCOPE_KIND_FLOW_LINK,
    LOOPSCOPE_KIND_HISTOGRAM_RANGE, /* fields: lowest value, first value above, buckets; 8 bytes each */
    LOOPSCOPE_KIND_DESCRIBE         /* fields: unit, NUL, description, NUL; name "*" is the group */
};

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
    uint16_t payload; /* size of the fields in a record, in bytes; strings and bytes count nothing */
    uint32_t off;     /* always zero */
    uint32_t entity;  /* of intervals, counters and histograms: set when registered */
};

/* A field of type bytes as it is handed over. */
struct loopscope_bytes {
    const void *start;
    uint32_t size;
} __attribute__((packed));

/* Makes the calling thread's rings, which its first enabled hits would otherwise do (some system
 * calls and page faults). For real-time threads, before their loop. Returns 0, or -1 if there is a
 * collector but no ring could be made: the thread's hits are then counted as dropped. */
int loopscope_thread_init(void);

/* Registers the call sites of a module; sites that are registered already are left alone. The
 * header calls it from a constructor; languages without linker sections call it with sites of their
 * own making, which must live as long as the process. */
void loopscope_register(struct loopscope_site *start, struct loopscope_site *stop);

/* The calls behind the macros, each for an enabled site of its kind. */

/* An event or flow without fields; a link's id is the input's. */
void loopscope_event(const struct loopscope_site *site, int64_t id);
/* With fields of fixed size, packed in `payload`, which must be readable up to `size` rounded up to
 * a multiple of eight. A link's payload is the output's id. */
void loopscope_event_fields(const struct loopscope_site *site, int64_t id, const void *payload,
                            uint32_t size);
/* With strings or bytes among the fields: in `payload`, packed, a string is a pointer (null is the
 * empty string) and bytes are a struct loopscope_bytes. */
void loopscope_event_variable(const struct loopscope_site *site, int64_t id, const void *payload);
/* The same for languages whose strings carry their length: `lengths` has a number for each field,
 * of which those of strings count. A NUL still ends a string. */
void loopscope_event_sized(const struct loopscope_site *site, int64_t id, const void *payload,
                           const size_t *lengths);

/* An interval of the calling thread; intervals nest and recur. The end records the entity's newest
 * start if more than `over_ns` have passed since; without one it is counted as a drop. */
void loopscope_interval_start(const struct loopscope_site *site);
void loopscope_interval_end(const struct loopscope_site *site, int64_t id, uint64_t over_ns);
/* Across threads: start and end with the same key, which becomes the record's id. */
void loopscope_interval_start_key(const struct loopscope_site *site, int64_t key);
void loopscope_interval_end_key(const struct loopscope_site *site, int64_t key, uint64_t over_ns);

/* Adding costs no record. */
void loopscope_counter_add(const struct loopscope_site *site, int64_t amount);
void loopscope_counter_log(const struct loopscope_site *site);
void loopscope_counter_reset(const struct loopscope_site *site);
void loopscope_histogram_add(const struct loopscope_site *site, int64_t value);
void loopscope_histogram_log(const struct loopscope_site *site);
void loopscope_histogram_reset(const struct loopscope_site *site);

extern struct loopscope_site __start_loopscope_sites[]
    __attribute__((weak, visibility("hidden")));
extern struct loopscope_site __stop_loopscope_sites[]
    __attribute__((weak, visibility("hidden")));

/* Weak and hidden: one per module, whatever the number of its translation units. Its priority lets
 * events in the module's own static constructors count. A library that registers its sites later has
 * another function of this name, which does nothing. */
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

/* Too long for a record stays too long. */
static inline uint32_t loopscope_length_(uint64_t length)
{
    return length > UINT32_MAX ? UINT32_MAX : (uint32_t)length;
}

#ifdef __cplusplus
}
#endif

/* A field: type code, size in a record (0: it varies), type, name, how to assign what. */
#define LOOPSCOPE_U8(field, ...) LOOPSCOPE_FIELD_(1, 1, uint8_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_U16(field, ...) LOOPSCOPE_FIELD_(2, 2, uint16_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_U32(field, ...) LOOPSCOPE_FIELD_(3, 4, uint32_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_U64(field, ...) LOOPSCOPE_FIELD_(4, 8, uint64_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_I8(field, ...) LOOPSCOPE_FIELD_(5, 1, int8_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_I16(field, ...) LOOPSCOPE_FIELD_(6, 2, int16_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_I32(field, ...) LOOPSCOPE_FIELD_(7, 4, int32_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_I64(field, ...) LOOPSCOPE_FIELD_(8, 8, int64_t, #field, (__VA_ARGS__))
#define LOOPSCOPE_F32(field, ...) LOOPSCOPE_FIELD_(9, 4, float, #field, (__VA_ARGS__))
#define LOOPSCOPE_F64(field, ...) LOOPSCOPE_FIELD_(10, 8, double, #field, (__VA_ARGS__))
#define LOOPSCOPE_STRING(field, ...) LOOPSCOPE_FIELD_(11, 0, const char *, #field, (__VA_ARGS__))
#define LOOPSCOPE_BYTES(field, start, length)                                                     \
    (12, 0, struct loopscope_bytes, #field, LOOPSCOPE_ASSIGN_BYTES_, (start), (length))
#define LOOPSCOPE_FIELD_(code, size, type, field, value)                                          \
    (code, size, type, field, LOOPSCOPE_ASSIGN_VALUE_, value)

/* Kinds are the numbers of enum loopscope_kind, as text: the assembler reads them. */
#define LOOPSCOPE_EVENT(group, name, ...) LOOPSCOPE_RECORD_("1", group, name, __VA_ARGS__)
#define LOOPSCOPE_FLOW_OUT(group, name, ...) LOOPSCOPE_RECORD_("10", group, name, __VA_ARGS__)
#define LOOPSCOPE_FLOW_IN(group, name, ...) LOOPSCOPE_RECORD_("11", group, name, __VA_ARGS__)
#define LOOPSCOPE_FLOW_LINK(group, name, in_id, out_id)                                           \
    LOOPSCOPE_RECORD_("12", group, name, in_id, LOOPSCOPE_I64(out, out_id))

#define LOOPSCOPE_INTERVAL_START(group, name)                                                     \
    LOOPSCOPE_HIT_("2", group, name, loopscope_interval_start(loopscope_site_);)
#define LOOPSCOPE_INTERVAL_END(group, name, id) LOOPSCOPE_INTERVAL_END_OVER(group, name, id, 0)
#define LOOPSCOPE_INTERVAL_END_OVER(group, name, id, ns)                                          \
    LOOPSCOPE_HIT_("3", group, name,                                                              \
                   int64_t loopscope_id_ = (id); uint64_t loopscope_over_ = (ns);                 \
                   loopscope_interval_end(loopscope_site_, loopscope_id_, loopscope_over_);)
#define LOOPSCOPE_INTERVAL_START_KEY(group, name, key)                                            \
    LOOPSCOPE_HIT_("2", group, name, loopscope_interval_start_key(loopscope_site_, (key));)
#define LOOPSCOPE_INTERVAL_END_KEY(group, name, key)                                              \
    LOOPSCOPE_INTERVAL_END_KEY_OVER(group, name, key, 0)
#define LOOPSCOPE_INTERVAL_END_KEY_OVER(group, name, key, ns)                                     \
    LOOPSCOPE_HIT_("3", group, name,                                                              \
                   int64_t loopscope_id_ = (key); uint64_t loopscope_over_ = (ns);                \
                   loopscope_interval_end_key(loopscope_site_, loopscope_id_, loopscope_over_);)

#define LOOPSCOPE_COUNTER_ADD(group, name, amount)                                                \
    LOOPSCOPE_HIT_("4", group, name, loopscope_counter_add(loopscope_site_, (amount));)
#define LOOPSCOPE_COUNTER_LOG(group, name)                                                        \
    LOOPSCOPE_HIT_("5", group, name, loopscope_counter_log(loopscope_site_);)
#define LOOPSCOPE_COUNTER_RESET(group, name)                                                      \
    LOOPSCOPE_HIT_("6", group, name, loopscope_counter_reset(loopscope_site_);)

#define LOOPSCOPE_HISTOGRAM_ADD(group, name, value)                                               \
    LOOPSCOPE_HIT_("7", group, name, loopscope_histogram_add(loopscope_site_, (value));)
#define LOOPSCOPE_HISTOGRAM_LOG(group, name)                                                      \
    LOOPSCOPE_HIT_("8", group, name, loopscope_histogram_log(loopscope_site_);)
#define LOOPSCOPE_HISTOGRAM_RESET(group, name)                                                    \
    LOOPSCOPE_HIT_("9", group, name, loopscope_histogram_reset(loopscope_site_);)

/* The numbers are converted by the compiler, not by the assembler: any constant expression will do.
 * Outside of functions no asm takes operands, hence an object in C and a lambda in C++, named after
 * their place. */
#ifdef __cplusplus
#define LOOPSCOPE_HISTOGRAM_RANGE(group, name, low, high, buckets)                                \
    __attribute__((unused)) const int LOOPSCOPE_PLACE_(loopscope_range_) = [] {                   \
        enum : int64_t { loopscope_low_ = (low), loopscope_high_ = (high) };                      \
        enum : int64_t { loopscope_buckets_ = (buckets) };                                        \
        static_assert(LOOPSCOPE_IS_RANGE_(loopscope_low_, loopscope_high_, loopscope_buckets_),   \
                      LOOPSCOPE_NO_RANGE_);                                                       \
        __asm__ volatile(LOOPSCOPE_DECLARATION_("13", group, name, ".8byte %c0, %c1, %c2\n")      \
                         :                                                                        \
                         : "i"(loopscope_low_), "i"(loopscope_high_), "i"(loopscope_buckets_));   \
        return 0;                                                                                 \
    }()
#else
#define LOOPSCOPE_HISTOGRAM_RANGE(group, name, low, high, buckets)                                \
    __extension__ _Static_assert(LOOPSCOPE_IS_RANGE_(low, high, buckets), LOOPSCOPE_NO_RANGE_);   \
    static const int64_t LOOPSCOPE_PLACE_(loopscope_numbers_)[3] = {(low), (high), (buckets)};    \
    static struct loopscope_site LOOPSCOPE_PLACE_(loopscope_range_)                               \
        __attribute__((used, section("loopscope_sites"), aligned(8))) = {                         \
            sizeof(struct loopscope_site),                                                        \
            LOOPSCOPE_KIND_HISTOGRAM_RANGE,                                                       \
            &LOOPSCOPE_PLACE_(loopscope_range_).off,                                              \
            "" group,                                                                             \
            "" name,                                                                              \
            (const char *)LOOPSCOPE_PLACE_(loopscope_numbers_),                                   \
            __FILE__,                                                                             \
            __LINE__,                                                                             \
            UINT16_MAX,                                                                           \
            0,                                                                                    \
            0,                                                                                    \
            0}
#endif
#define LOOPSCOPE_IS_RANGE_(low, high, buckets)                                                   \
    ((int64_t)((low) | 0) < (int64_t)((high) | 0) && ((buckets) | 0) >= 1 && (buckets) <= 60000   \
     && (uint64_t)(high) - (uint64_t)(low) <= INT64_MAX                                           \
     && (uint64_t)(buckets) <= (uint64_t)(high) - (uint64_t)(low))
#define LOOPSCOPE_NO_RANGE_ "a histogram has low < high, 1 to 60000 buckets, none below one wide"

/* The texts pass through the assembler, which reads C's \n, \t, \", \\ and octal escapes alike. */
#define LOOPSCOPE_DESCRIBE(group, name, unit, description)                                        \
    __asm__(LOOPSCOPE_DECLARATION_("14", group, name,                                             \
                                   ".ascii " LOOPSCOPE_TEXT_(unit) "\n\t.byte 0\n"                \
                                   "\t.ascii " LOOPSCOPE_TEXT_(description) "\n\t.byte 0\n"))
#define LOOPSCOPE_DESCRIBE_GROUP(group, description) LOOPSCOPE_DESCRIBE(group, "*", "", description)

#define LOOPSCOPE_TEXT_(x) LOOPSCOPE_TEXT2_(x)
#define LOOPSCOPE_TEXT2_(x) #x
#define LOOPSCOPE_JOIN_(a, b, c, d) LOOPSCOPE_JOIN2_(a, b, c, d)
#define LOOPSCOPE_JOIN2_(a, b, c, d) a##b##c##d
#define LOOPSCOPE_PLACE_(prefix) LOOPSCOPE_JOIN_(prefix, __INCLUDE_LEVEL__, _, __LINE__)

#if defined(__x86_64__)
#define LOOPSCOPE_ADDRESS_ "leaq 990b(%%rip), %0\n"
#else
#define LOOPSCOPE_ADDRESS_ "adrp %0, 990b\n\tadd %0, %0, :lo12:990b\n"
#endif

/* A struct loopscope_site and what it points to. `group` is empty or "?". */
#define LOOPSCOPE_DATA_(in_group, kind, group, name, fields, payload)                             \
    ".pushsection loopscope_strings,\"a" in_group "\",@progbits\n"                                \
    "991:\t.asciz \"" group "\"\n"                                                                \
    "992:\t.asciz \"" name "\"\n"                                                                 \
    "993:\t" fields                                                                               \
    "994:\t.asciz " LOOPSCOPE_TEXT_(__FILE__) "\n"                                                \
    ".popsection\n"                                                                               \
    ".pushsection loopscope_sites,\"aw" in_group "\",@progbits\n"                                 \
    "\t.balign 8\n"                                                                               \
    "990:\t.4byte 64, " kind "\n"                                                                 \
    "\t.8byte 990b+56, 991b, 992b, 993b, 994b\n"                                                  \
    "\t.4byte " LOOPSCOPE_TEXT_(__LINE__) "\n"                                                    \
    "\t.2byte 0xffff, 0" payload "\n"                                                             \
    "\t.4byte 0, 0\n"                                                                             \
    ".popsection\n"

/* Nothing refers to a declaration, so it belongs to no function's group. */
#define LOOPSCOPE_DECLARATION_(kind, group, name, fields)                                         \
    LOOPSCOPE_DATA_("", kind, group, name, fields, "")

/* The descriptor is data in the asm, not a C object: the compiler refuses a static object in a
 * section that functions in COMDAT groups (inline functions, templates) and plain functions share.
 * The `?` puts it into the function's own group, so that it is linked exactly when its code is. */
#define LOOPSCOPE_SITE_(site, kind, group, name, fields, payload)                                 \
    const struct loopscope_site *site;                                                            \
    __asm__(LOOPSCOPE_DATA_("?", kind, group, name, fields ".byte 0\n", payload)                  \
            "\t" LOOPSCOPE_ADDRESS_                                                               \
            : "=r"(site))

/* In C a pointer given for an integer, or the other way round, is only warned of. */
#ifdef __cplusplus
#define LOOPSCOPE_STRICT_
#define LOOPSCOPE_AS_BEFORE_
#else
#define LOOPSCOPE_STRICT_                                                                         \
    _Pragma("GCC diagnostic push")                                                                \
    _Pragma("GCC diagnostic error \"-Wint-conversion\"")                                          \
    _Pragma("GCC diagnostic error \"-Wincompatible-pointer-types\"")
#define LOOPSCOPE_AS_BEFORE_ _Pragma("GCC diagnostic pop")
#endif

#define LOOPSCOPE_HIT_(kind, group, name, ...)                                                    \
    LOOPSCOPE_HIT_WITH_(kind, group, name, "", "", __VA_ARGS__)
#define LOOPSCOPE_HIT_WITH_(kind, group, name, fields, payload, ...)                              \
    do {                                                                                          \
        LOOPSCOPE_SITE_(loopscope_site_, kind, group, name, fields, payload);                     \
        if (loopscope_enabled_(loopscope_site_)) {                                                \
            LOOPSCOPE_STRICT_                                                                     \
            __VA_ARGS__                                                                           \
            LOOPSCOPE_AS_BEFORE_                                                                  \
        }                                                                                         \
    } while (0)

#define LOOPSCOPE_RECORD_(kind, group, name, ...)                                                 \
    LOOPSCOPE_PICK_(__VA_ARGS__, LOOPSCOPE_RECORD8_, LOOPSCOPE_RECORD7_, LOOPSCOPE_RECORD6_,      \
                    LOOPSCOPE_RECORD5_, LOOPSCOPE_RECORD4_, LOOPSCOPE_RECORD3_,                   \
                    LOOPSCOPE_RECORD2_, LOOPSCOPE_RECORD1_, LOOPSCOPE_RECORD0_, ~)                \
    (kind, group, name, __VA_ARGS__)
#define LOOPSCOPE_PICK_(i, f1, f2, f3, f4, f5, f6, f7, f8, picked, ...) picked

#define LOOPSCOPE_RECORD0_(kind, group, name, id)                                                 \
    LOOPSCOPE_HIT_(kind, group, name, int64_t loopscope_id_ = (id);                               \
                   loopscope_event(loopscope_site_, loopscope_id_);)
#define LOOPSCOPE_RECORD1_(kind, group, name, id, ...)                                            \
    LOOPSCOPE_RECORDN_(kind, group, name, id, LOOPSCOPE_EACH1_, __VA_ARGS__)
#define LOOPSCOPE_RECORD2_(kind, group, name, id, ...)                                            \
    LOOPSCOPE_RECORDN_(kind, group, name, id, LOOPSCOPE_EACH2_, __VA_ARGS__)
#define LOOPSCOPE_RECORD3_(kind, group, name, id, ...)                                            \
    LOOPSCOPE_RECORDN_(kind, group, name, id, LOOPSCOPE_EACH3_, __VA_ARGS__)
#define LOOPSCOPE_RECORD4_(kind, group, name, id, ...)                                            \
    LOOPSCOPE_RECORDN_(kind, group, name, id, LOOPSCOPE_EACH4_, __VA_ARGS__)
#define LOOPSCOPE_RECORD5_(kind, group, name, id, ...)                                            \
    LOOPSCOPE_RECORDN_(kind, group, name, id, LOOPSCOPE_EACH5_, __VA_ARGS__)
#define LOOPSCOPE_RECORD6_(kind, group, name, id, ...)                                            \
    LOOPSCOPE_RECORDN_(kind, group, name, id, LOOPSCOPE_EACH6_, __VA_ARGS__)
#define LOOPSCOPE_RECORD7_(kind, group, name, id, ...)                                            \
    LOOPSCOPE_RECORDN_(kind, group, name, id, LOOPSCOPE_EACH7_, __VA_ARGS__)
#define LOOPSCOPE_RECORD8_(kind, group, name, id, ...)                                            \
    LOOPSCOPE_RECORDN_(kind, group, name, id, LOOPSCOPE_EACH8_, __VA_ARGS__)

#define LOOPSCOPE_EACH1_(m, f1) m(m1, f1)
#define LOOPSCOPE_EACH2_(m, f1, f2) LOOPSCOPE_EACH1_(m, f1) m(m2, f2)
#define LOOPSCOPE_EACH3_(m, f1, f2, f3) LOOPSCOPE_EACH2_(m, f1, f2) m(m3, f3)
#define LOOPSCOPE_EACH4_(m, f1, f2, f3, f4) LOOPSCOPE_EACH3_(m, f1, f2, f3) m(m4, f4)
#define LOOPSCOPE_EACH5_(m, f1, f2, f3, f4, f5) LOOPSCOPE_EACH4_(m, f1, f2, f3, f4) m(m5, f5)
#define LOOPSCOPE_EACH6_(m, f1, f2, f3, f4, f5, f6)                                               \
    LOOPSCOPE_EACH5_(m, f1, f2, f3, f4, f5) m(m6, f6)
#define LOOPSCOPE_EACH7_(m, f1, f2, f3, f4, f5, f6, f7)                                           \
    LOOPSCOPE_EACH6_(m, f1, f2, f3, f4, f5, f6) m(m7, f7)
#define LOOPSCOPE_EACH8_(m, f1, f2, f3, f4, f5, f6, f7, f8)                                       \
    LOOPSCOPE_EACH7_(m, f1, f2, f3, f4, f5, f6, f7) m(m8, f8)

/* Assignments to typed members let the compiler check the values as it checks arguments. They are
 * one expression with the call: a C++ temporary that a string points into lives as long. */
#define LOOPSCOPE_RECORDN_(kind, group, name, id, each, ...)                                      \
    LOOPSCOPE_HIT_WITH_(kind, group, name, each(LOOPSCOPE_TYPED_NAME_, __VA_ARGS__),              \
                        each(LOOPSCOPE_PLUS_SIZE_, __VA_ARGS__), int64_t loopscope_id_ = (id);    \
                        union {                                                                   \
                            struct {                                                              \
                                each(LOOPSCOPE_MEMBER_, __VA_ARGS__)                              \
                            } __attribute__((packed)) v;                                          \
                            uint64_t room[8];                                                     \
                        } loopscope_;                                                             \
                        each(LOOPSCOPE_ASSIGN_, __VA_ARGS__)                                      \
                        (each(LOOPSCOPE_VARIES_OR_, __VA_ARGS__) 0)                               \
                            ? loopscope_event_variable(loopscope_site_, loopscope_id_,            \
                                                       &loopscope_)                               \
                            : loopscope_event_fields(loopscope_site_, loopscope_id_, &loopscope_, \
                                                     sizeof loopscope_.v);)

#define LOOPSCOPE_TYPED_NAME_(m, f) LOOPSCOPE_TYPED_NAME2_ f
#define LOOPSCOPE_TYPED_NAME2_(code, size, type, field, ...)                                      \
    ".byte " #code "\n\t.asciz \"" field "\"\n\t"
#define LOOPSCOPE_PLUS_SIZE_(m, f) LOOPSCOPE_PLUS_SIZE2_ f
#define LOOPSCOPE_PLUS_SIZE2_(code, size, ...) "+" #size
#define LOOPSCOPE_VARIES_OR_(m, f) LOOPSCOPE_VARIES_OR2_ f
#define LOOPSCOPE_VARIES_OR2_(code, size, ...) size == 0 ||
#define LOOPSCOPE_MEMBER_(m, f) LOOPSCOPE_TYPE_ f m;
#define LOOPSCOPE_TYPE_(code, size, type, ...) type
#define LOOPSCOPE_ASSIGN_(m, f) LOOPSCOPE_ASSIGN2_(m, LOOPSCOPE_BARE_ f)
#define LOOPSCOPE_BARE_(...) __VA_ARGS__
#define LOOPSCOPE_ASSIGN2_(...) LOOPSCOPE_ASSIGN3_(__VA_ARGS__)
#define LOOPSCOPE_ASSIGN3_(m, code, size, type, field, assign, ...) assign(m, __VA_ARGS__)
#define LOOPSCOPE_ASSIGN_VALUE_(m, value) loopscope_.v.m = value,
#define LOOPSCOPE_ASSIGN_BYTES_(m, from, length)                                                  \
    loopscope_.v.m.start = from, loopscope_.v.m.size = loopscope_length_(length),

#ifdef __cplusplus
/* From here to the end of the scope. Its end counts only if its start did. */
#define LOOPSCOPE_SCOPE(group, name, id) LOOPSCOPE_SCOPE_OVER(group, name, id, 0)
#define LOOPSCOPE_SCOPE_OVER(group, name, id, ns)                                                 \
    loopscope_scope_ LOOPSCOPE_PLACE_(loopscope_scope_);                                          \
    LOOPSCOPE_HIT_("2", group, name,                                                              \
                   int64_t loopscope_id_ = (id); uint64_t loopscope_over_ = (ns);                 \
                   LOOPSCOPE_SITE_(loopscope_end_, "3", group, name, "",                          \
                                   "");                                                           \
                   LOOPSCOPE_PLACE_(loopscope_scope_)                                             \
                       .start(loopscope_site_, loopscope_end_, loopscope_id_, loopscope_over_);)

class loopscope_scope_ {
public:
    loopscope_scope_() noexcept : end_(nullptr), id_(0), over_ns_(0) {}
    loopscope_scope_(const loopscope_scope_ &) = delete;
    loopscope_scope_ &operator=(const loopscope_scope_ &) = delete;
    ~loopscope_scope_()
    {
        if (end_ && loopscope_enabled_(end_))
            loopscope_interval_end(end_, id_, over_ns_);
    }
    void start(const loopscope_site *start, const loopscope_site *end, int64_t id,
               uint64_t over_ns) noexcept
    {
        end_ = end;
        id_ = id;
        over_ns_ = over_ns;
        loopscope_interval_start(start);
    }

private:
    const loopscope_site *end_;
    int64_t id_;
    uint64_t over_ns_;
};
#endif

#ifdef LOOPSCOPE_SHORT_NAMES
#define EVENT(...) LOOPSCOPE_EVENT(__VA_ARGS__)
#define INTERVAL_START(...) LOOPSCOPE_INTERVAL_START(__VA_ARGS__)
#define INTERVAL_END(...) LOOPSCOPE_INTERVAL_END(__VA_ARGS__)
#define INTERVAL_END_OVER(...) LOOPSCOPE_INTERVAL_END_OVER(__VA_ARGS__)
#define INTERVAL_START_KEY(...) LOOPSCOPE_INTERVAL_START_KEY(__VA_ARGS__)
#define INTERVAL_END_KEY(...) LOOPSCOPE_INTERVAL_END_KEY(__VA_ARGS__)
#define INTERVAL_END_KEY_OVER(...) LOOPSCOPE_INTERVAL_END_KEY_OVER(__VA_ARGS__)
#define COUNTER_ADD(...) LOOPSCOPE_COUNTER_ADD(__VA_ARGS__)
#define COUNTER_LOG(...) LOOPSCOPE_COUNTER_LOG(__VA_ARGS__)
#define COUNTER_RESET(...) LOOPSCOPE_COUNTER_RESET(__VA_ARGS__)
#define HISTOGRAM_ADD(...) LOOPSCOPE_HISTOGRAM_ADD(__VA_ARGS__)
#define HISTOGRAM_LOG(...) LOOPSCOPE_HISTOGRAM_LOG(__VA_ARGS__)
#define HISTOGRAM_RESET(...) LOOPSCOPE_HISTOGRAM_RESET(__VA_ARGS__)
#define HISTOGRAM_RANGE(...) LOOPSCOPE_HISTOGRAM_RANGE(__VA_ARGS__)
#define FLOW_OUT(...) LOOPSCOPE_FLOW_OUT(__VA_ARGS__)
#define FLOW_IN(...) LOOPSCOPE_FLOW_IN(__VA_ARGS__)
#define FLOW_LINK(...) LOOPSCOPE_FLOW_LINK(__VA_ARGS__)
#define DESCRIBE(...) LOOPSCOPE_DESCRIBE(__VA_ARGS__)
#define DESCRIBE_GROUP(...) LOOPSCOPE_DESCRIBE_GROUP(__VA_ARGS__)
#ifdef __cplusplus
#define SCOPE(...) LOOPSCOPE_SCOPE(__VA_ARGS__)
#define SCOPE_OVER(...) LOOPSCOPE_SCOPE_OVER(__VA_ARGS__)
#endif
#endif

#endif
