/* worker COUNT: that many jobs, some of them slow; 0: until it is ended. */
#include <loopscope/trace.h>
#include <stdlib.h>
#include <time.h>

LOOPSCOPE_DESCRIBE("worker", "size", "B", "how much one job moves");

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 1000;
    long job;

    for (job = 1; count == 0 || job <= count; job++) {
        struct timespec work = {0, job % 100 == 0 ? 2000000 : 200000};
        unsigned size = 100 + (unsigned)(job % 50);

        LOOPSCOPE_INTERVAL_START("worker", "job");
        LOOPSCOPE_EVENT("worker", "taken", job, LOOPSCOPE_U32(size, size));
        LOOPSCOPE_HISTOGRAM_ADD("worker", "size", size);
        LOOPSCOPE_COUNTER_ADD("worker", "bytes", size);
        nanosleep(&work, NULL);
        LOOPSCOPE_INTERVAL_END("worker", "job", job);
    }
    return 0;
}
