/* Counters and histograms: each thread adds to cells of its own, without a lock. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"

/* One instruction where there is one: a signal handler of the same thread may add too. */
static inline void add_to(uint64_t *cell, uint64_t amount)
{
#if defined(__x86_64__)
    __asm__("addq %1, %0" : "+m"(*cell) : "er"(amount) : "cc");
#else
    __atomic_fetch_add(cell, amount, __ATOMIC_RELAXED);
#endif
}

static struct loopscope_cells *map_cells(uint32_t stream, const struct share *share, uint32_t n)
{
    char path[LOOPSCOPE_PATH];
    if (!loopscope_path(path, sizeof path, "cells-%u-%u-%u", stream, share->generation - 1, n))
        return NULL;
    struct loopscope_cells *cells =
        loopscope_map_file(path, sizeof *cells, sizeof *cells - sizeof cells->cell);
    if (!cells)
        return NULL;
    if (madvise(cells, sizeof *cells, MADV_DONTFORK) != 0) {
        munmap(cells, sizeof *cells);
        unlink(path);
        return NULL;
    }
    cells->version = LOOPSCOPE_LAYOUT_VERSION;
    cells->pid = loopscope_process->pid;
    cells->stream = stream;
    cells->generation = share->generation - 1;
    /* Pairs with the collector's acquire load of the magic. */
    __atomic_store_n(&cells->magic, LOOPSCOPE_CELLS_MAGIC, __ATOMIC_RELEASE);
    return cells;
}

/* Makes sure that a file has that many cells; not zero on success. */
static int extend(struct loopscope_cells *cells, uint32_t stream, uint32_t n, uint32_t count)
{
    char path[LOOPSCOPE_PATH];
    if (cells->count >= count)
        return 1;
    if (!loopscope_path(path, sizeof path, "cells-%u-%u-%u", stream, cells->generation, n))
        return 0;
    size_t from = sizeof *cells - sizeof cells->cell + 8 * (size_t)cells->count;
    if (!loopscope_allocate(path, (uint8_t *)cells + from, from, 8 * (size_t)(count - cells->count)))
        return 0;
    /* Pairs with the acquire loads of who sums: the cells are there. */
    __atomic_store_n(&cells->count, count, __ATOMIC_RELEASE);
    return 1;
}

/* With the process lock held: cells that no thread has. Number n is in file n + 1. */
static struct loopscope_cells *take_area(uint32_t stream, struct share *share, uint32_t *n)
{
    for (*n = 0; *n < share->area_count; (*n)++)
        if (!share->taken[*n]) {
            share->taken[*n] = 1;
            return share->areas[*n];
        }
    if (*n == LOOPSCOPE_MOST_AREAS)
        return NULL;
    struct loopscope_cells *cells = map_cells(stream, share, *n + 1);
    if (!cells)
        return NULL;
    share->areas[*n] = cells;
    share->taken[*n] = 1;
    /* Pairs with the acquire load in sum_of. */
    __atomic_store_n(&share->area_count, *n + 1, __ATOMIC_RELEASE);
    return cells;
}

int loopscope_make_cells(uint32_t stream, uint32_t count)
{
    struct writer *w = loopscope_make_writer();
    /* Pairs with the release store of who set the stream up. */
    if (!w
        || __atomic_load_n(&loopscope_control->streams[stream].state, __ATOMIC_ACQUIRE)
               != LOOPSCOPE_ACTIVE)
        return 0;
    struct lane *lane = &w->lane[stream];
    struct guard guard;
    loopscope_guard(&guard);
    pthread_mutex_lock(&loopscope_process->lock);
    struct share *share = loopscope_share(stream);
    int made = lane->cells && lane->cells_generation == share->generation;
    if (!made) {
        struct loopscope_cells *cells = take_area(stream, share, &lane->area);
        lane->cell_count = 0;
        lane->cells = cells ? cells->cell : NULL;
        lane->cells_generation = share->generation;
        made = cells != NULL;
    }
    made = made && extend(share->areas[lane->area], stream, lane->area + 1, count);
    if (made)
        lane->cell_count = count;
    else
        STORE(&loopscope_control->streams[stream].refusal, (uint32_t)errno);
    pthread_mutex_unlock(&loopscope_process->lock);
    loopscope_unguard(&guard);
    return made;
}

/* The calling thread's cells up to a number; null, and the hit is counted as dropped while the stream
 * is recorded, if it cannot have them. */
static uint64_t *cells_for(const struct loopscope_site *site, uint32_t stream, uint32_t count)
{
    struct lane *lane = &loopscope_writer->lane[stream];
    uint32_t generation = LOAD(&loopscope_control->streams[stream].generation) + 1;
    if (lane->cell_count >= count && lane->cells_generation == generation)
        return lane->cells;
    if (!loopscope_make_cells(stream, LOAD(&loopscope_control->cells))) {
        loopscope_no_ring(site, stream);
        return NULL;
    }
    return loopscope_writer->lane[stream].cells;
}

static __attribute__((noinline)) void add_elsewhere(const struct loopscope_site *site,
                                                    uint32_t streams, uint32_t end, uint32_t cell,
                                                    uint64_t amount, int64_t sum_cell,
                                                    uint64_t sum)
{
    for (streams &= ~LOOPSCOPE_SLOW; streams != 0; streams &= streams - 1) {
        uint64_t *cells = cells_for(site, (uint32_t)__builtin_ctz(streams), end);
        if (!cells)
            continue;
        add_to(&cells[cell], amount);
        if (sum_cell >= 0)
            add_to(&cells[sum_cell], sum);
    }
}

/* The calling thread's cells in the one stream that has a hit enabled, up to `last`; null if there is
 * more to do than to add: several streams, no cells yet, or those of an earlier use of the slot. */
static inline uint64_t *cells_at_hand(uint32_t streams, uint32_t last)
{
    /* The lane after the last stream's has no cells. */
    uint32_t k = (uint32_t)__builtin_ctz(streams | LOOPSCOPE_SLOW);
    const struct lane *lane = &loopscope_writer->lane[k];
    if (unlikely((int32_t)streams <= 0 || last >= lane->cell_count
                 || lane->cells_generation != LOAD(&loopscope_control->streams[k].generation) + 1))
        return NULL;
    return lane->cells;
}

LOOPSCOPE_EXPORT void loopscope_counter_add(const struct loopscope_site *site, int64_t amount)
{
    uint32_t streams = LOAD(site->enabled), cell = site->entity;
    uint64_t *cells = cells_at_hand(streams, cell);
    if (unlikely(!cells))
        add_elsewhere(site, streams, cell + 1, cell, (uint64_t)amount, -1, 0);
    else
        add_to(&cells[cell], (uint64_t)amount);
}

/* Place of a value among its histogram's cells. */
static inline uint32_t bucket_of(const struct buckets *b, int64_t value)
{
    if (b->range == 0) {
        if (value < 32)
            return value < 0 ? 0 : 1 + (uint32_t)value;
        uint32_t e = 63 - (uint32_t)__builtin_clzll((unsigned long long)value);
        return 1 + 32 * (e - 4) + ((uint32_t)((uint64_t)value >> (e - 5)) & 31);
    }
    uint64_t x = (uint64_t)value - (uint64_t)b->low;
    if (value < b->low)
        return 0;
    if (x >= b->range)
        return 1 + b->count;
    if (b->factor != 0)
        return 1 + (uint32_t)((wide)x * b->factor >> 64);
    return 1 + (uint32_t)((wide)x * b->count / b->range);
}

LOOPSCOPE_EXPORT void loopscope_histogram_add(const struct loopscope_site *site, int64_t value)
{
    uint32_t streams = LOAD(site->enabled);
    const struct buckets *b = &loopscope_histograms[site->entity];
    uint32_t bucket = b->cell + bucket_of(b, value), sum = b->cell + b->count + 2;
    uint64_t *cells = cells_at_hand(streams, sum);
    if (unlikely(!cells)) {
        add_elsewhere(site, streams, sum + 1, bucket, 1, (int64_t)sum, (uint64_t)value);
        return;
    }
    add_to(&cells[bucket], 1);
    add_to(&cells[sum], (uint64_t)value);
}

static uint64_t in_file(struct loopscope_cells *cells, uint32_t cell)
{
    /* Pairs with the release store in extend. */
    return cell < __atomic_load_n(&cells->count, __ATOMIC_ACQUIRE) ? LOAD(&cells->cell[cell]) : 0;
}

/* What the process has of a stream; null while nothing was added to it in this use of its slot. */
static const struct share *share_now(uint32_t stream)
{
    const struct share *share = &loopscope_process->share[stream];
    uint32_t generation = LOAD(&loopscope_control->streams[stream].generation) + 1;
    return LOAD(&share->generation) == generation ? share : NULL;
}

static uint64_t sum_of(const struct share *share, uint32_t cell)
{
    uint64_t sum = 0;
    /* Pairs with the release store in take_area. */
    uint32_t areas = __atomic_load_n(&share->area_count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < areas; i++)
        sum += in_file(share->areas[i], cell);
    return sum;
}

static uint64_t state_of(const struct share *share, uint32_t cell)
{
    if (!share)
        return 0;
    /* Pairs with the release store in reset. */
    struct loopscope_cells *base = __atomic_load_n(&share->base, __ATOMIC_ACQUIRE);
    return sum_of(share, cell) - (base ? in_file(base, cell) : 0);
}

LOOPSCOPE_EXPORT void loopscope_counter_log(const struct loopscope_site *site)
{
    uint32_t streams = LOAD(site->enabled) & ~LOOPSCOPE_SLOW;
    for (; streams != 0; streams &= streams - 1) {
        uint32_t stream = (uint32_t)__builtin_ctz(streams);
        uint64_t value = state_of(share_now(stream), site->entity);
        struct source source = {(const uint8_t *)&value, NULL, NULL, sizeof value};
        loopscope_hit(site, 1u << stream, 0, &source, 0);
    }
}

/* A histogram's record: its filled buckets, as many as were counted when its place was taken. */
struct snapshot {
    const struct share *share;
    const struct buckets *buckets;
    uint32_t filled;
};

#define SNAPSHOT_HEAD 36

static void write_snapshot(uint8_t *to, const struct source *source)
{
    const struct snapshot *snapshot = source->context;
    const struct buckets *b = snapshot->buckets;
    uint64_t below = state_of(snapshot->share, b->cell);
    uint64_t above = state_of(snapshot->share, b->cell + 1 + b->count);
    uint64_t total = below + above, sum = state_of(snapshot->share, b->cell + b->count + 2);
    uint8_t *bucket = to + SNAPSHOT_HEAD, *n = bucket + 2 * (size_t)snapshot->filled;
    uint32_t written = 0;
    for (uint32_t i = 0; i < b->count && written < snapshot->filled; i++) {
        uint64_t values = state_of(snapshot->share, b->cell + 1 + i);
        uint32_t left = b->count - i;
        /* Never fewer than announced, though a reset may have emptied some meanwhile. */
        if (values == 0 && left > snapshot->filled - written)
            continue;
        uint16_t index = (uint16_t)i;
        memcpy(bucket + 2 * (size_t)written, &index, 2);
        memcpy(n + 8 * (size_t)written, &values, 8);
        written++;
        total += values;
    }
    memcpy(to, &total, 8);
    memcpy(to + 8, &sum, 8);
    memcpy(to + 16, &below, 8);
    memcpy(to + 24, &above, 8);
    memcpy(to + 32, &snapshot->filled, 4);
}

LOOPSCOPE_EXPORT void loopscope_histogram_log(const struct loopscope_site *site)
{
    const struct buckets *b = &loopscope_histograms[site->entity];
    uint32_t streams = LOAD(site->enabled) & ~LOOPSCOPE_SLOW;
    for (; streams != 0; streams &= streams - 1) {
        uint32_t stream = (uint32_t)__builtin_ctz(streams);
        struct snapshot snapshot = {share_now(stream), b, 0};
        for (uint32_t i = 0; i < b->count; i++)
            snapshot.filled += state_of(snapshot.share, b->cell + 1 + i) != 0;
        struct source source = {NULL, write_snapshot, &snapshot,
                                SNAPSHOT_HEAD + 10 * snapshot.filled};
        loopscope_hit(site, 1u << stream, 0, &source, 0);
    }
}

/* Adds that other threads make meanwhile count for either side of the reset. */
static void reset(const struct loopscope_site *site, uint32_t cell, uint32_t cells)
{
    uint32_t streams = LOAD(site->enabled) & ~LOOPSCOPE_SLOW;
    for (; streams != 0; streams &= streams - 1) {
        uint32_t stream = (uint32_t)__builtin_ctz(streams);
        struct guard guard;
        loopscope_guard(&guard);
        pthread_mutex_lock(&loopscope_process->lock);
        int ready = loopscope_ready();
        struct share *share = loopscope_share(stream);
        struct loopscope_cells *base = share->base;
        if (ready && !base)
            base = map_cells(stream, share, 0);
        if (ready && base && extend(base, stream, 0, cell + cells)) {
            for (uint32_t i = 0; i < cells; i++)
                STORE(&base->cell[cell + i], sum_of(share, cell + i));
            /* Pairs with the acquire load in state_of. */
            __atomic_store_n(&share->base, base, __ATOMIC_RELEASE);
        } else {
            loopscope_no_ring(site, stream);
        }
        pthread_mutex_unlock(&loopscope_process->lock);
        loopscope_unguard(&guard);
    }
}

LOOPSCOPE_EXPORT void loopscope_counter_reset(const struct loopscope_site *site)
{
    reset(site, site->entity, 1);
}

LOOPSCOPE_EXPORT void loopscope_histogram_reset(const struct loopscope_site *site)
{
    const struct buckets *b = &loopscope_histograms[site->entity];
    reset(site, b->cell, b->count + 3);
}
