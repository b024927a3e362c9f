/* A control loop's events: `loop PERIOD_US SECONDS` wakes each PERIOD_US, computes for a while that
 * differs from time to time, and stamps begin, output and end. */
#define _GNU_SOURCE
#include <loopscope/trace.h>

#include "clocks.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int64_t period = atoll(argv[1]) * 1000;
    int64_t count = atoll(argv[2]) * 1000000000 / period;
    int64_t due = clock_ns(CLOCK_MONOTONIC);
    uint32_t random = 1;

    for (int64_t id = 0; id < count; id++) {
        struct timespec t = {due / 1000000000, due % 1000000000};

        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        LOOPSCOPE_EVENT("bench", "begin", id);
        random = random * 1664525 + 1013904223;
        for (volatile uint32_t i = 0; i < 2000 + random / 1000000; i++)
            ;
        LOOPSCOPE_EVENT("bench", "output", id);
        LOOPSCOPE_EVENT("bench", "end", id);
        due += period;
    }
    return 0;
}
