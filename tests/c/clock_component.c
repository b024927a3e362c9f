/* clock_component COUNT: that many readings of the clock page, each between two events. */
#include <loopscope/clock.h>
#include <loopscope/trace.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    const struct timespec pause = {0, 1000000};
    long count = argc > 1 ? atol(argv[1]) : 1000;
    long number;

    for (number = 1; number <= count; number++) {
        struct loopscope_clock_time time;

        LOOPSCOPE_EVENT("reading", "before", number);
        time = loopscope_clock_now();
        LOOPSCOPE_EVENT("reading", "after", number, LOOPSCOPE_I64(earliest, time.earliest),
                        LOOPSCOPE_I64(latest, time.latest), LOOPSCOPE_U32(status, time.status));
        nanosleep(&pause, NULL);
    }
    return 0;
}
