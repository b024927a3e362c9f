// Makes system calls at a rate, each of which is two events of the class syscall.
// Usage: calls CALLS_PER_SECOND SECONDS
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + 1e-9 * at.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    double rate = atof(argv[1]), seconds = atof(argv[2]), begin = now();
    long made = 0;
    while (now() - begin < seconds) {
        long due = (long)((now() - begin) * rate);
        for (; made < due; made++) syscall(SYS_getppid);
    }
    // Those that the time was too short for are not made.
    printf("%ld\n", made);
    return 0;
}
