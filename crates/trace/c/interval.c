/* Intervals: a start is remembered, the end writes the one record. */
#include <string.h>

#include "runtime.h"

struct record {
    uint64_t start;
    uint64_t duration;
};

/* `ns` in ticks, rounded down; the most there are if the frequency is not known. */
static uint64_t to_ticks(uint64_t ns)
{
    uint64_t frequency = LOAD(&loopscope_control->frequency);
    wide ticks = (wide)ns * frequency / 1000000000u;
    return frequency == 0 || ticks > UINT64_MAX ? UINT64_MAX : (uint64_t)ticks;
}

static void finish(const struct loopscope_site *site, uint32_t streams, uint32_t started_in,
                   int64_t id, uint64_t start, uint64_t now)
{
    struct record record = {start, now - start};
    struct source source = {(const uint8_t *)&record, NULL, NULL, sizeof record};
    /* A forked child counts in a directory of its own. */
    if (unlikely(loopscope_writer->tid == 0))
        loopscope_make_writer();
    uint32_t without = streams & ~started_in & ~LOOPSCOPE_SLOW;
    for (; without != 0; without &= without - 1)
        loopscope_drop(site, (uint32_t)__builtin_ctz(without), LOOPSCOPE_NO_START);
    uint32_t with = streams & started_in & ~LOOPSCOPE_SLOW;
    if (streams & LOOPSCOPE_SLOW)
        loopscope_hit(site, with, id, &source, now);
    else if (with != 0)
        loopscope_record(site, (uint32_t)__builtin_ctz(with), id, &source, now);
}

static void finish_without_start(const struct loopscope_site *site, uint32_t streams)
{
    finish(site, streams, 0, 0, 0, 0);
}

LOOPSCOPE_EXPORT void loopscope_interval_start(const struct loopscope_site *site)
{
    struct writer *w = loopscope_writer;
    uint32_t streams = LOAD(site->enabled);
    if (unlikely(w->tid == 0 && !(w = loopscope_make_writer())))
        return; /* its end will find no start */
    /* Taken before it is filled: a handler's intervals come and go above it. The oldest makes room:
     * a start that was never ended goes that way. */
    uint32_t depth = w->depth;
    STORE(&w->depth, depth + 1);
    SIGNAL_FENCE();
    struct open_interval *open = &w->open[depth % LOOPSCOPE_OPEN_INTERVALS];
    open->entity = site->entity + 1;
    open->streams = streams;
    open->start = loopscope_counter();
}

/* Takes the entity's newest start; not zero if there is one. */
static int take_start(struct writer *w, uint32_t entity, struct open_interval *found)
{
    uint32_t depth = w->depth;
    for (uint32_t n = 0; n < LOOPSCOPE_OPEN_INTERVALS && n < depth; n++) {
        struct open_interval *open = &w->open[(depth - 1 - n) % LOOPSCOPE_OPEN_INTERVALS];
        if (open->entity != entity + 1)
            continue;
        *found = *open;
        open->entity = 0;
        SIGNAL_FENCE();
        /* Intervals that overlap without nesting leave holes; they go when they are on top. */
        while (depth > 0 && w->open[(depth - 1) % LOOPSCOPE_OPEN_INTERVALS].entity == 0)
            depth--;
        STORE(&w->depth, depth);
        return 1;
    }
    return 0;
}

LOOPSCOPE_EXPORT void loopscope_interval_end(const struct loopscope_site *site, int64_t id,
                                             uint64_t over_ns)
{
    uint64_t now = loopscope_counter();
    uint32_t streams = LOAD(site->enabled);
    struct open_interval open;
    if (!take_start(loopscope_writer, site->entity, &open)) {
        finish_without_start(site, streams);
        return;
    }
    /* The counter of the processor that started may be some ticks ahead. */
    if (now < open.start)
        now = open.start;
    if (over_ns != 0 && now - open.start <= to_ticks(over_ns))
        return;
    finish(site, streams, open.streams, id, open.start, now);
}

/* Starts that other threads may end, by entity and key. An entry is found in one of the places that
 * follow its hash; when they are all taken the first is given up. */
#define PLACES 4096
#define PROBES 16

enum { EMPTY, BUSY, FULL };

static struct {
    uint32_t state;
    uint32_t entity;
    int64_t key;
    uint64_t start;
    uint32_t streams;
} keyed[PLACES];

static uint32_t place_of(uint32_t entity, int64_t key)
{
    uint64_t hash = ((uint64_t)key ^ (uint64_t)entity << 32) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash >> 52);
}

static int claim(uint32_t place, uint32_t from)
{
    /* Acquire pairs with the release stores of FULL and EMPTY below: the entry is whole. */
    return __atomic_compare_exchange_n(&keyed[place].state, &from, BUSY, 0, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

LOOPSCOPE_EXPORT void loopscope_interval_start_key(const struct loopscope_site *site, int64_t key)
{
    uint32_t streams = LOAD(site->enabled), home = place_of(site->entity, key);
    uint32_t place = home;
    for (uint32_t n = 0; n < PROBES; n++) {
        place = (home + n) % PLACES;
        if (claim(place, EMPTY))
            goto claimed;
    }
    place = home;
    if (!claim(place, FULL))
        return; /* its end will find no start */
claimed:
    /* Relaxed: who compares reads them again once the entry is claimed. */
    STORE(&keyed[place].entity, site->entity);
    STORE(&keyed[place].key, key);
    keyed[place].streams = streams;
    keyed[place].start = loopscope_counter();
    /* Pairs with the acquire in claim. */
    __atomic_store_n(&keyed[place].state, FULL, __ATOMIC_RELEASE);
}

LOOPSCOPE_EXPORT void loopscope_interval_end_key(const struct loopscope_site *site, int64_t key,
                                                 uint64_t over_ns)
{
    uint64_t now = loopscope_counter();
    uint32_t streams = LOAD(site->enabled), home = place_of(site->entity, key);
    for (uint32_t n = 0; n < PROBES; n++) {
        uint32_t place = (home + n) % PLACES;
        if (LOAD(&keyed[place].entity) != site->entity || LOAD(&keyed[place].key) != key
            || !claim(place, FULL))
            continue;
        int same = keyed[place].entity == site->entity && keyed[place].key == key;
        uint64_t start = keyed[place].start;
        uint32_t started_in = keyed[place].streams;
        /* Pairs with the acquire in claim. */
        __atomic_store_n(&keyed[place].state, same ? EMPTY : FULL, __ATOMIC_RELEASE);
        if (!same)
            continue;
        /* The counter of the processor that started may be some ticks ahead. */
        if (now < start)
            now = start;
        if (over_ns == 0 || now - start > to_ticks(over_ns))
            finish(site, streams, started_in, key, start, now);
        return;
    }
    finish_without_start(site, streams);
}
