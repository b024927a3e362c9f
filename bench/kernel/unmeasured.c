// Measures system calls on the last processor that it may use, for so many seconds.
// Usage: unmeasured SECONDS
// Prints the medians of batches, ns a call, as JSON. The kernel's buffers are emptied while it
// sleeps between two batches.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 1000, MOST = 10000 };

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + 1e-9 * at.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, int count) {
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

int main(int argc, char **argv) {
    static double getppids[MOST], reads[MOST];
    if (argc != 2) return 2;
    cpu_set_t mine, last;
    if (sched_getaffinity(0, sizeof mine, &mine)) return 1;
    int cpu = CPU_SETSIZE - 1;
    while (!CPU_ISSET(cpu, &mine)) cpu--;
    CPU_ZERO(&last);
    CPU_SET(cpu, &last);
    int zeros = open("/dev/zero", O_RDONLY);
    if (zeros < 0 || sched_setaffinity(0, sizeof last, &last)) return 1;
    struct timespec nap = {.tv_nsec = 3000000};
    char byte;
    int count = 0;
    for (double end = now() + atof(argv[1]); count < MOST && now() < end; count++) {
        double begin = now();
        for (int i = 0; i < CALLS; i++) syscall(SYS_getppid);
        getppids[count] = (now() - begin) * 1e9 / CALLS;
        nanosleep(&nap, NULL);
        begin = now();
        for (int i = 0; i < CALLS; i++)
            if (read(zeros, &byte, 1) != 1) return 1;
        reads[count] = (now() - begin) * 1e9 / CALLS;
        nanosleep(&nap, NULL);
    }
    if (count == 0) return 1;
    printf("{\"getppid_ns\": %.2f, \"read_ns\": %.2f}\n", median(getppids, count),
           median(reads, count));
    return 0;
}
