/* A reading of the clock page: which publication, and what it makes of a counter. */
#include "../../time/c/counter.h"
#include "page.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* A reader loses a publication when fifteen more are made while it copies. It has to be taken off
 * its CPU in some ten nanoseconds for that, so losing this often in a row is nobody's bad luck. */
#define ATTEMPTS 8

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

/*
 * Copies the first `count` words of the newest publication; zero where there is none.
 *
 * No word of the copy is older than publication n: the acquire load of n pairs with the release store
 * of `current` that the writer (crates/clocksync/src/page/ring.rs) makes after n's words.
 *
 * And none is newer: the slot is used again for publication n + CLOCK_SLOTS, whose words the writer
 * stores after a release fence, which comes after its store (or a new writer's load) of `current`
 * being n + CLOCK_SLOTS - 1. If a load below saw one of those words, the acquire fence pairs with that
 * release fence, and the second load of `current` sees at least n + CLOCK_SLOTS - 1.
 *
 * A writer that stopped anywhere has left `current` and the slot that it names as they are.
 */
static inline __attribute__((always_inline)) int copy(const struct clock_page *page,
                                                      uint64_t *words, unsigned count)
{
    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        uint64_t n = __atomic_load_n(&page->current, __ATOMIC_ACQUIRE);
        const uint64_t *slot = page->slots[n % CLOCK_SLOTS];
        if (n == 0 || n == CLOCK_RETIRED)
            return 0;
        for (unsigned i = 0; i < count; i++)
            words[i] = __atomic_load_n(&slot[i], __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (likely(__atomic_load_n(&page->current, __ATOMIC_RELAXED) - n < CLOCK_SLOTS - 1))
            return 1;
    }
    return 0;
}

int loopscope_clock_page_words(const struct clock_page *page, uint64_t words[CLOCK_WORDS])
{
    return copy(page, words, CLOCK_WORDS);
}

static inline uint64_t magnitude(int64_t number)
{
    return number < 0 ? -(uint64_t)number : (uint64_t)number;
}

/* Whether the line holds at a counter, unless that is before the anchor. */
static inline int lasts(const uint64_t *words, uint64_t counter)
{
    return (int64_t)(counter - words[CLOCK_EXPIRES]) < 0
           && magnitude((int64_t)(counter - words[CLOCK_ANCHOR])) < CLOCK_REACH;
}

/* Whether it holds there; `words` up to CLOCK_SINCE. */
static inline int holds(const uint64_t *words, uint64_t counter)
{
    return lasts(words, counter)
           && ((int64_t)(counter - words[CLOCK_ANCHOR]) >= 0
               || (int64_t)(counter - words[CLOCK_SINCE]) >= 0);
}

/* Copies a line that holds at a counter; zero where there is none. */
static inline __attribute__((always_inline)) int line(const struct clock_page *page,
                                                      uint64_t *words, uint64_t counter)
{
    if (unlikely(!copy(page, words, CLOCK_STANDING + 1) || !lasts(words, counter)))
        return 0;
    if (likely((int64_t)(counter - words[CLOCK_ANCHOR]) >= 0))
        return 1;
    /* The counter lies before the anchor. Since when the line holds is on another cache line. The copy
     * may be of a later publication, which is as good. */
    return copy(page, words, CLOCK_SINCE + 1) && holds(words, counter);
}

/* Ticks in ns, rounded down, after `fraction` of 2^-48 ns was added. */
static inline int64_t scale(const uint64_t *words, int64_t ticks, int64_t fraction)
{
    return (int64_t)(((int128)ticks * (int64_t)words[CLOCK_RATE] + fraction) >> CLOCK_SHIFT);
}

/* By how much each side grows over a distance, ns, rounded down: the page's widths, and a caller that has
 * none, make up for that. */
static inline int64_t growth(const uint64_t *words, uint64_t ticks)
{
    return (int64_t)((uint128)ticks * words[CLOCK_DRIFT] >> CLOCK_SHIFT);
}

/* Whether nobody has said, at that counter, that the reference still answers. */
static inline int stale(const uint64_t *words, uint64_t counter)
{
    int64_t lease = (int64_t)(words[CLOCK_STANDING] >> 48 << CLOCK_LEASE_SHIFT);
    return (int64_t)(counter - words[CLOCK_ANCHOR]) >= lease;
}

/* What a counter's time is worth. */
static inline enum loopscope_clock_status status(const uint64_t *words, uint64_t counter)
{
    uint64_t status = words[CLOCK_STANDING] >> 32 & 0xff;
    if (status == LOOPSCOPE_CLOCK_SYNCHRONISED && stale(words, counter))
        return LOOPSCOPE_CLOCK_HOLDOVER;
    return status <= LOOPSCOPE_CLOCK_HOLDOVER ? (enum loopscope_clock_status)status
                                              : LOOPSCOPE_CLOCK_UNKNOWN;
}

/* The hard maximum error, if that is more: who has stopped publishing claims no finer one any longer. */
static uint32_t hard(const struct loopscope_clock_time *time, uint32_t calibrated)
{
    int64_t below = time->best - time->earliest, above = time->latest - time->best;
    int64_t half = below > above ? below : above;
    if (half <= calibrated)
        return calibrated;
    return half < UINT32_MAX ? (uint32_t)half : UINT32_MAX;
}

struct loopscope_clock_time loopscope_clock_page_map(const struct clock_page *page,
                                                     uint64_t counter)
{
    struct loopscope_clock_time time = {INT64_MIN, INT64_MIN, INT64_MAX, counter, 0, 0,
                                        LOOPSCOPE_CLOCK_UNKNOWN};
    uint64_t words[CLOCK_SINCE + 1];
    if (likely(page && line(page, words, counter)
               && status(words, counter) != LOOPSCOPE_CLOCK_UNKNOWN)) {
        int64_t ticks = (int64_t)(counter - words[CLOCK_ANCHOR]);
        int64_t fraction = (int64_t)(uint32_t)words[CLOCK_FINE]
                           << (CLOCK_SHIFT - CLOCK_FRACTION_SHIFT);
        int64_t grown = growth(words, magnitude(ticks));
        time.best = (int64_t)words[CLOCK_GLOBAL] + scale(words, ticks, fraction);
        time.earliest = time.best - (int64_t)(uint32_t)words[CLOCK_WIDTH] - grown;
        time.latest = time.best + (int64_t)(words[CLOCK_WIDTH] >> 32) + grown;
        time.calibrated = (uint32_t)(words[CLOCK_FINE] >> 32);
        if (unlikely(stale(words, counter)))
            time.calibrated = hard(&time, time.calibrated);
        time.epoch = (uint32_t)words[CLOCK_STANDING];
        time.status = status(words, counter);
    }
    return time;
}

/* Without a page, a reading that nothing is known of. */
static inline uint64_t read_counter(const struct clock_page *page)
{
    if (unlikely(!page))
        return loopscope_counter();
    /* The page's, whatever this process stamps its events with. */
    return likely(page->counter == LOOPSCOPE_COUNTER_CYCLES)
               ? loopscope_cycles()
               : loopscope_counter_read_as(page->counter);
}

struct loopscope_clock_time loopscope_clock_page_now(const struct clock_page *page)
{
    return loopscope_clock_page_map(page, read_counter(page));
}

struct loopscope_clock_span loopscope_clock_page_elapsed(const struct clock_page *page,
                                                         const struct loopscope_clock_time *from,
                                                         const struct loopscope_clock_time *to)
{
    struct loopscope_clock_span span = {INT64_MIN, INT64_MIN, INT64_MAX, LOOPSCOPE_CLOCK_UNKNOWN};
    uint64_t words[CLOCK_APART + 1];
    if (page && from->status != LOOPSCOPE_CLOCK_UNKNOWN && to->status != LOOPSCOPE_CLOCK_UNKNOWN
        && copy(page, words, CLOCK_APART + 1) && from->epoch == (uint32_t)words[CLOCK_STANDING]
        && to->epoch == from->epoch && holds(words, from->counter) && holds(words, to->counter)) {
        int64_t ticks = (int64_t)(to->counter - from->counter);
        /* Half a nanosecond of `best`, and less than a whole one that growth() cut off. The two
         * counters may be those of two processors. */
        int64_t half = growth(words, magnitude(ticks)) + 2 + (uint32_t)words[CLOCK_APART];
        span.best = scale(words, ticks, INT64_C(1) << (CLOCK_SHIFT - 1));
        span.shortest = span.best - half;
        span.longest = span.best + half;
        /* The status of the later one. */
        span.status = status(words, ticks < 0 ? from->counter : to->counter);
        if (span.status == LOOPSCOPE_CLOCK_UNKNOWN) {
            span.shortest = span.best = INT64_MIN;
            span.longest = INT64_MAX;
        }
    }
    return span;
}

struct loopscope_clock_utc loopscope_clock_page_utc(const struct clock_page *page)
{
    struct loopscope_clock_utc utc = {0, UINT64_MAX};
    uint64_t words[CLOCK_WORDS];
    if (page && copy(page, words, CLOCK_WORDS) && words[CLOCK_UTC_ERROR] != UINT64_MAX) {
        utc.offset = (int64_t)words[CLOCK_UTC_OFFSET];
        utc.error = words[CLOCK_UTC_ERROR];
    }
    return utc;
}
