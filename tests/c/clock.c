/* clock: says what the clock page says, in one JSON line for each command. C99 and C++11 alike.
 *
 * clock COMMAND...: `map COUNTER`, `elapsed COUNTER COUNTER`, `utc`, `now`, `open PATH`,
 * `monotonic COUNT` (from two threads: whether none went back). */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <loopscope/clock.h>

static void print_time(const struct loopscope_clock_time *time)
{
    printf("[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRIu64 ", %" PRIu32 ", %" PRIu32 ", %d]\n",
           time->earliest, time->best, time->latest, time->counter, time->calibrated, time->epoch,
           (int)time->status);
}

/* Whether the newest reading is not before the one that the other thread made known before it. */
static int64_t known;
static int back;

static void *read_on(void *count)
{
    for (long left = *(const long *)count; left > 0; left--) {
        int64_t before = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
        struct loopscope_clock_time time = loopscope_clock_monotonic();
        if (time.best < before || time.latest < time.best || time.best < time.earliest)
            __atomic_store_n(&back, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&known, time.best, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void monotonic(long count)
{
    pthread_t other;
    known = INT64_MIN;
    pthread_create(&other, NULL, read_on, &count);
    read_on(&count);
    pthread_join(other, NULL);
    printf("%s\n", back ? "true" : "false");
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *command = argv[i];
        struct loopscope_clock_time time;
        if (strcmp(command, "map") == 0 && i + 1 < argc) {
            time = loopscope_clock_map(strtoull(argv[++i], NULL, 10));
            print_time(&time);
        } else if (strcmp(command, "elapsed") == 0 && i + 2 < argc) {
            time = loopscope_clock_map(strtoull(argv[++i], NULL, 10));
            struct loopscope_clock_time to = loopscope_clock_map(strtoull(argv[++i], NULL, 10));
            struct loopscope_clock_span span = loopscope_clock_elapsed(&time, &to);
            printf("[%" PRId64 ", %" PRId64 ", %" PRId64 ", %d]\n", span.shortest, span.best,
                   span.longest, (int)span.status);
        } else if (strcmp(command, "utc") == 0) {
            struct loopscope_clock_utc utc = loopscope_clock_utc();
            printf("[%" PRId64 ", %" PRIu64 "]\n", utc.offset, utc.error);
        } else if (strcmp(command, "now") == 0) {
            time = loopscope_clock_now();
            print_time(&time);
        } else if (strcmp(command, "open") == 0 && i + 1 < argc) {
            char error[512] = "";
            const char *path = argv[++i];
            int failed = loopscope_clock_open(strcmp(path, "-") == 0 ? NULL : path, error, sizeof error);
            printf("[%d, \"%s\"]\n", failed, error);
        } else if (strcmp(command, "monotonic") == 0 && i + 1 < argc) {
            monotonic(strtol(argv[++i], NULL, 10));
        } else {
            fprintf(stderr, "clock: no command %s\n", command);
            return 2;
        }
        fflush(stdout);
    }
    return 0;
}
