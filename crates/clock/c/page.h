/* The clock page (schema/clock-page.md): what its writer, in Rust, and its readers agree on. */
#ifndef LOOPSCOPE_CLOCK_PAGE_H
#define LOOPSCOPE_CLOCK_PAGE_H

#include <loopscope/clock.h>

#define CLOCK_MAGIC UINT64_C(0x314b434f4c43534c) /* "LSCLOCK1" */
#define CLOCK_VERSION 4
#define CLOCK_SIZE 4096 /* of the file, bytes */
#define CLOCK_SLOTS 16

/* Value of `current`: nobody will write here any more. */
#define CLOCK_RETIRED UINT64_MAX

/* Binary places of rates, and of the fraction of a nanosecond. */
#define CLOCK_SHIFT 48
#define CLOCK_FRACTION_SHIFT 32

/* Ticks from the anchor, on both sides, that a line is good for: products stay in 128 bits and
 * their results in 63. */
#define CLOCK_REACH (UINT64_C(1) << 47)

/* A lease counts in units of 2^20 ticks. */
#define CLOCK_LEASE_SHIFT 20

/* Words of a slot. The first eight, a cache line, are all that a reading of the present needs. */
enum {
    CLOCK_ANCHOR,     /* ticks */
    CLOCK_GLOBAL,     /* ns there, signed */
    CLOCK_RATE,       /* 2^-48 ns per tick */
    CLOCK_DRIFT,      /* by how much each side of the width grows, 2^-48 ns per tick */
    CLOCK_EXPIRES,    /* first tick at which nothing of this holds */
    CLOCK_WIDTH,      /* ns before `best` (low half) and after it (high half) */
    CLOCK_FINE,       /* 2^-32 ns to add to CLOCK_GLOBAL (low half), calibrated ns (high half) */
    CLOCK_STANDING,   /* epoch (32 bits), status (8), zero (8), lease from the anchor (16) */
    CLOCK_UTC_OFFSET, /* ns, signed */
    CLOCK_UTC_ERROR,  /* ns; all ones: not known */
    CLOCK_PID,        /* the writer's, in its own pid namespace */
    CLOCK_START,      /* field 22 of its /proc/PID/stat: its start, clock ticks after boot */
    CLOCK_SERVICE,    /* bytes: role, why UTC is not known, stratum; for people */
    CLOCK_SINCE,      /* first tick at which something of this holds; not after CLOCK_ANCHOR */
    CLOCK_APART,      /* ns that two processors' counters may be apart; 0: not known; 32 bits */
    CLOCK_RESERVED,   /* zero up to the end */
    CLOCK_WORDS = 16
};

struct clock_page {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
    uint8_t boot_id[16]; /* as in /proc/sys/kernel/random/boot_id, big-endian like the text */
    uint64_t frequency;  /* the counter's, nominal, Hz */
    uint64_t made;       /* CLOCK_MONOTONIC, ns: tells the pages of one name apart */
    uint64_t counter;      /* what it is: enum loopscope_counter_kind */
    uint64_t reserved1;
    uint64_t current; /* number of the newest publication; 0: none yet; or CLOCK_RETIRED */
    uint64_t reserved2[7];
    uint64_t slots[CLOCK_SLOTS][CLOCK_WORDS]; /* publication n in slot n % CLOCK_SLOTS */
};

#pragma GCC visibility push(hidden)

/* open.c. The page at `path`, or where it is NULL the one of this process's environment; NULL and
 * why. Leaves nothing open but the mapping. */
const struct clock_page *loopscope_clock_page_open(const char *path, char *error, size_t size);
void loopscope_clock_page_close(const struct clock_page *page);

/* read.c. What the calls of clock.h say, by this page. */
struct loopscope_clock_time loopscope_clock_page_map(const struct clock_page *page,
                                                     uint64_t counter);
struct loopscope_clock_time loopscope_clock_page_now(const struct clock_page *page);
struct loopscope_clock_span loopscope_clock_page_elapsed(const struct clock_page *page,
                                                         const struct loopscope_clock_time *from,
                                                         const struct loopscope_clock_time *to);
struct loopscope_clock_utc loopscope_clock_page_utc(const struct clock_page *page);

/* The newest publication's words; not zero on success. */
int loopscope_clock_page_words(const struct clock_page *page, uint64_t words[CLOCK_WORDS]);

#pragma GCC visibility pop

#endif
