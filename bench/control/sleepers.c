// Processes that sleep to the same instants of CLOCK_MONOTONIC and do nothing at them: what the
// kernel and this machine's pauses make of a common start. Writes when each process woke up for each
// instant, a row per process, as native 64-bit nanoseconds.
//
// sleepers PROCESSES COUNT INTERVAL_NS
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void sleep_to_each(int64_t start, int64_t interval, size_t count, int64_t *woken)
{
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    for (size_t i = 0; i < count; i++)
        woken[i] = 1; // its page is there
    for (size_t i = 0; i < count; i++) {
        int64_t at = start + (int64_t)i * interval;
        struct timespec time = {at / 1000000000, at % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
        woken[i] = now();
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int processes = atoi(argv[1]);
    size_t count = strtoull(argv[2], NULL, 10);
    int64_t interval = atoll(argv[3]);
    size_t size = (size_t)processes * count * sizeof(int64_t);
    int64_t *woken = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (woken == MAP_FAILED)
        return 1;
    int64_t start = now() + 100000000;
    for (int i = 0; i < processes; i++) {
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child == 0) {
            sleep_to_each(start, interval, count, woken + (size_t)i * count);
            _exit(0);
        }
    }
    for (int i = 0; i < processes; i++)
        if (wait(NULL) < 0)
            return 1;
    return fwrite(woken, 1, size, stdout) != size;
}
