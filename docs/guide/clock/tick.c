#include <inttypes.h>
#include <stdio.h>

#include <loopscope/clock.h>

int main(void)
{
    char error[512];
    if (loopscope_clock_open(NULL, error, sizeof error) != 0)
        fprintf(stderr, "%s\n", error);

    struct loopscope_clock_time start = loopscope_clock_now();
    struct loopscope_clock_time end = loopscope_clock_now();
    if (end.status == LOOPSCOPE_CLOCK_UNKNOWN) {
        puts("the time is not known");
        return 1;
    }
    printf("it is %" PRId64 " to %" PRId64 " ns\n", end.earliest, end.latest);

    struct loopscope_clock_span took = loopscope_clock_elapsed(&start, &end);
    printf("a reading takes %" PRId64 " ns, at most %" PRId64 "\n", took.best, took.longest);
    return 0;
}
