/* state THREADS ADDS [killed]: counters and histograms that several threads add to, one after the
 * other and at once; value i is added as i, and logged and reset on the way. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#include "loopscope/trace.h"

LOOPSCOPE_HISTOGRAM_RANGE("state", "linear", -10, 990, 50);
LOOPSCOPE_DESCRIBE("state", "linear", "ms", "a declared range");
LOOPSCOPE_DESCRIBE("state", "sum", "B", "all values");

static uint64_t adds;

static void *adder(void *unused)
{
    (void)unused;
    for (uint64_t i = 0; i < adds; i++) {
        LOOPSCOPE_COUNTER_ADD("state", "sum", (int64_t)i);
        LOOPSCOPE_COUNTER_ADD("state", "reset", 1);
        LOOPSCOPE_HISTOGRAM_ADD("state", "linear", (int64_t)i - 20);
        LOOPSCOPE_HISTOGRAM_ADD("state", "log", (int64_t)(i * i));
    }
    return NULL;
}

static void round_of(uint64_t threads)
{
    pthread_t thread[64];
    for (uint64_t t = 0; t < threads; t++)
        pthread_create(&thread[t], NULL, adder, NULL);
    for (uint64_t t = 0; t < threads; t++)
        pthread_join(thread[t], NULL);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    uint64_t threads = strtoull(argv[1], NULL, 10);
    adds = strtoull(argv[2], NULL, 10);
    round_of(threads);
    LOOPSCOPE_COUNTER_LOG("state", "sum");
    LOOPSCOPE_HISTOGRAM_LOG("state", "linear");
    LOOPSCOPE_COUNTER_RESET("state", "reset");
    LOOPSCOPE_HISTOGRAM_RESET("state", "log");
    round_of(threads);
    if (threads > 64) /* never: there to be known and never hit */
        LOOPSCOPE_COUNTER_ADD("state", "untouched", 1);
    if (argc > 3)
        raise(SIGKILL);
    return 0;
}
