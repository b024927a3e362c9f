/*
 * loopscope/clock.h: the time that all hosts share, read without a system call.
 *
 *     struct loopscope_clock_time sent = loopscope_clock_now();
 *     ...
 *     struct loopscope_clock_time now = loopscope_clock_now();
 *     struct loopscope_clock_span took = loopscope_clock_elapsed(&sent, &now);
 *     if (now.status == LOOPSCOPE_CLOCK_UNKNOWN)
 *         give_up();
 *
 * A service of the machine publishes what it knows of the global clock on a page of shared memory:
 * the file that LOOPSCOPE_CLOCK names, else /dev/shm/loopscope-clock. Reading it needs no privilege
 * and never waits, whatever became of the service; what has expired is UNKNOWN.
 *
 * Times are nanoseconds of the global clock, which begins where the reference host's counter does;
 * loopscope_clock_utc() says how far it is from UTC. The truth lies in `earliest` to `latest`, both
 * included, under the stated bound on oscillators and no other assumption.
 *
 * C99 and C++11. Any number of threads, signal handlers and forked children may call any of these,
 * but loopscope_clock_open(). Programs link with -lloopscope.
 */
#ifndef LOOPSCOPE_CLOCK_H
#define LOOPSCOPE_CLOCK_H

#if !defined(__linux__) || !defined(__LP64__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "loopscope/clock.h supports 64-bit Linux on x86-64 and aarch64"
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exported whatever the library around it is compiled with. */
#pragma GCC visibility push(default)

enum loopscope_clock_status {
    LOOPSCOPE_CLOCK_UNKNOWN = 0,      /* nothing, or nothing that still holds */
    LOOPSCOPE_CLOCK_SYNCHRONISED = 1, /* the reference answers */
    LOOPSCOPE_CLOCK_HOLDOVER = 2      /* it, or the service, has said nothing for a while; widths grow */
};

/* An instant. If its status is UNKNOWN, `earliest` and `best` are INT64_MIN, `latest` is INT64_MAX
 * and `epoch` and `calibrated` are 0. */
struct loopscope_clock_time {
    int64_t earliest; /* ns */
    int64_t best;     /* ns */
    int64_t latest;   /* ns */
    uint64_t counter; /* this machine's counter there, ticks */
    /* Maximum error of `best`, in ns, at all but a small share of instants: the service's claim,
     * proven by its figures and not by argument. */
    uint32_t calibrated;
    /* Rises when a counter or the reference was disturbed: instants of two epochs have no distance. */
    uint32_t epoch;
    enum loopscope_clock_status status;
};

/* The time between two instants of this machine. If its status is UNKNOWN, `shortest` and `best` are
 * INT64_MIN and `longest` is INT64_MAX. */
struct loopscope_clock_span {
    int64_t shortest; /* ns */
    int64_t best;     /* ns */
    int64_t longest;  /* ns */
    enum loopscope_clock_status status;
};

/* UTC less global time. */
struct loopscope_clock_utc {
    int64_t offset; /* ns */
    uint64_t error; /* maximum error of `offset`, ns; UINT64_MAX: UTC is not known */
};

/* Now. */
struct loopscope_clock_time loopscope_clock_now(void);

/* The instant of a reading of the counter that the page is about, by what is known now. That is the
 * cycle counter (rdtsc on x86-64, cntvct_el0 on aarch64), or, where a machine's is not invariant,
 * CLOCK_MONOTONIC_RAW in nanoseconds: `loopscope clock status` says which. Hours from now it is UNKNOWN, and before the last disturbance of a clock. */
struct loopscope_clock_time loopscope_clock_map(uint64_t counter);

/*
 * Now, and `best` never less than any call in this process has returned before, on whatever thread.
 * Where an estimate is corrected back, `best` stands still until time has caught up, and `latest`
 * reaches up to it. An UNKNOWN one repeats the `best` before it.
 */
struct loopscope_clock_time loopscope_clock_monotonic(void);

/*
 * From one instant to another, negative where `to` is the earlier. What is unknown of their offset
 * to global time cancels: the width is that of the counter's rate, and what the counters of two of
 * the machine's processors may be apart, as nobody knows which two were read. So of two instants that
 * are nearer than that either may have been the first. UNKNOWN where one of the two is, or where they
 * are of different epochs, or not of the present one.
 */
struct loopscope_clock_span loopscope_clock_elapsed(const struct loopscope_clock_time *from,
                                                    const struct loopscope_clock_time *to);

/* How far UTC is from global time, as the reference's kernel has it. Its error is apart from the
 * widths above, which are those of the hosts' agreement. */
struct loopscope_clock_utc loopscope_clock_utc(void);

/*
 * Opens the page at `path`, or with NULL the one that the other calls would open by themselves, and
 * stays with that path. Returns 0; or -1 and, where `size` is not 0, why, in one line in `error`.
 * For programs that want to know: the others open the page at first use and again where it was
 * replaced, looking for it ten times a second at most, and are UNKNOWN until it is there.
 *
 * To be called before other threads read the clock.
 */
int loopscope_clock_open(const char *path, char *error, size_t size);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
