/* page ROUNDS COUNT: nanoseconds of each of COUNT readings in a row, in ROUNDS rounds that take the
 * forms in turn; JSON of all rounds. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <loopscope/clock.h>

static uint64_t sink;

static uint64_t ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void counter(void)
{
#if defined(__x86_64__)
    sink += __builtin_ia32_rdtsc();
#else
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    sink += ticks;
#endif
}

static void now(void)
{
    sink += (uint64_t)loopscope_clock_now().best;
}

static void monotonic(void)
{
    sink += (uint64_t)loopscope_clock_monotonic().best;
}

static void elapsed(void)
{
    static struct loopscope_clock_time from;
    struct loopscope_clock_time to = loopscope_clock_now();
    sink += (uint64_t)loopscope_clock_elapsed(&from, &to).best;
    from = to;
}

static void realtime(void)
{
    sink += ns(CLOCK_REALTIME);
}

/* Inlined with each form, so that the loop costs no call. */
static inline __attribute__((always_inline)) double cost(void (*read)(void), long count)
{
    uint64_t start = ns(CLOCK_MONOTONIC_RAW);
    for (long i = 0; i < count; i++)
        read();
    return (double)(ns(CLOCK_MONOTONIC_RAW) - start) / (double)count;
}

#define FORMS 5

int main(int argc, char **argv)
{
    static const char *const names[FORMS] = {"counter", "now", "monotonic", "elapsed", "realtime"};
    static double costs[FORMS][1000];
    long rounds = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
    long count = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    char error[512];
    if (rounds < 1 || rounds > 1000 || count < 1) {
        fprintf(stderr, "usage: page ROUNDS COUNT, of 1 to 1000 rounds\n");
        return 2;
    }
    if (loopscope_clock_open(NULL, error, sizeof error) != 0
        || loopscope_clock_now().status == LOOPSCOPE_CLOCK_UNKNOWN) {
        fprintf(stderr, "page: no clock: %s\n", error);
        return 1;
    }
    for (long round = 0; round < rounds; round++) {
        costs[0][round] = cost(counter, count);
        costs[1][round] = cost(now, count);
        costs[2][round] = cost(monotonic, count);
        costs[3][round] = cost(elapsed, count);
        costs[4][round] = cost(realtime, count);
    }
    /* An unknown clock is cheaper. */
    if (loopscope_clock_now().status == LOOPSCOPE_CLOCK_UNKNOWN) {
        fprintf(stderr, "page: the page expired before the last reading\n");
        return 1;
    }
    printf("{");
    for (int form = 0; form < FORMS; form++) {
        printf("%s\"%s_ns\": [", form ? ", " : "", names[form]);
        for (long round = 0; round < rounds; round++)
            printf("%s%.3f", round ? ", " : "", costs[form][round]);
        printf("]");
    }
    printf("}\n");
    return sink == 0;
}
