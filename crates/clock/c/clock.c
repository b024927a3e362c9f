/* The process's own clock: one page, opened at first use and again where it was replaced. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "page.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define LOOK_EVERY_NS 100000000

/* Never unmapped, once it was here: another thread may be reading it. */
static const struct clock_page *opened;
/* What loopscope_clock_open() was given; NULL is what the environment says. */
static const char *chosen;
/* CLOCK_MONOTONIC_COARSE, ns, from which somebody may look for a page. */
static uint64_t next_look;
/* The largest `best` that loopscope_clock_monotonic() has returned; on a cache line that the other
 * calls do not read. */
static int64_t last __attribute__((aligned(64))) = INT64_MIN;

/* The release store pairs with the acquire loads of `opened`: who sees the address sees the mapping
 * and the header that was checked. Returns what is opened now. */
static const struct clock_page *adopt(const struct clock_page *page)
{
    const struct clock_page *before = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
    if (page && before && page->made == before->made) {
        loopscope_clock_page_close(page);
        return before;
    }
    __atomic_store_n(&opened, page, __ATOMIC_RELEASE);
    return page;
}

/* There is no page, or no valid one. The thread that moves `next_look` on looks, so that there
 * is no lock for a fork or a signal handler to stop at. */
static __attribute__((noinline, cold)) const struct clock_page *look_again(void)
{
    int before = errno;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    uint64_t next = __atomic_load_n(&next_look, __ATOMIC_RELAXED);
    /* Relaxed: nothing is handed over by it. */
    if (ns >= next
        && __atomic_compare_exchange_n(&next_look, &next, ns + LOOK_EVERY_NS, 0, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED)) {
        const char *path = __atomic_load_n(&chosen, __ATOMIC_ACQUIRE);
        const struct clock_page *page = loopscope_clock_page_open(path, NULL, 0);
        if (page)
            adopt(page);
    }
    errno = before;
    return __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
}

struct loopscope_clock_time loopscope_clock_map(uint64_t counter)
{
    const struct clock_page *page = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
    struct loopscope_clock_time time = loopscope_clock_page_map(page, counter);
    if (likely(time.status != LOOPSCOPE_CLOCK_UNKNOWN))
        return time;
    return loopscope_clock_page_map(look_again(), counter);
}

struct loopscope_clock_time loopscope_clock_now(void)
{
    const struct clock_page *page = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
    struct loopscope_clock_time time = loopscope_clock_page_now(page);
    if (likely(time.status != LOOPSCOPE_CLOCK_UNKNOWN))
        return time;
    return loopscope_clock_page_now(look_again());
}

struct loopscope_clock_time loopscope_clock_monotonic(void)
{
    struct loopscope_clock_time time = loopscope_clock_now();
    /* Relaxed: it is one variable, whose changes have one order, and a call that happens before
     * another one is before it in that order too. */
    int64_t before = __atomic_load_n(&last, __ATOMIC_RELAXED);
    while (before < time.best)
        if (__atomic_compare_exchange_n(&last, &before, time.best, 1, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return time;
    time.best = before;
    if (time.latest < before)
        time.latest = before;
    return time;
}

struct loopscope_clock_span loopscope_clock_elapsed(const struct loopscope_clock_time *from,
                                                    const struct loopscope_clock_time *to)
{
    const struct clock_page *page = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
    struct loopscope_clock_span span = loopscope_clock_page_elapsed(page, from, to);
    if (likely(span.status != LOOPSCOPE_CLOCK_UNKNOWN))
        return span;
    return loopscope_clock_page_elapsed(look_again(), from, to);
}

struct loopscope_clock_utc loopscope_clock_utc(void)
{
    const struct clock_page *page = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
    struct loopscope_clock_utc utc = loopscope_clock_page_utc(page);
    return likely(utc.error != UINT64_MAX) ? utc : loopscope_clock_page_utc(look_again());
}

int loopscope_clock_open(const char *path, char *error, size_t size)
{
    const struct clock_page *page = loopscope_clock_page_open(path, error, size);
    /* Lives as long as the process, as a reader on another thread may be looking at it. Without
     * memory for it nothing would be found again. */
    const char *copy = path ? strdup(path) : NULL;
    if (path && !copy) {
        if (page)
            loopscope_clock_page_close(page);
        if (size != 0)
            snprintf(error, size, "cannot read the clock page %s: %s", path, strerror(ENOMEM));
        return -1;
    }
    __atomic_store_n(&chosen, copy, __ATOMIC_RELEASE);
    adopt(page);
    return page ? 0 : -1;
}
