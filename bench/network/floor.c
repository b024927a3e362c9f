// Spins to the beats of an interval without doing anything at them: what this machine's clock and
// its own pauses make of a program that has nothing to send. Writes when it saw each beat, as
// native 64-bit nanoseconds.
//
// floor INTERVAL_NS COUNT
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int64_t interval = atoll(argv[1]);
    size_t count = strtoull(argv[2], NULL, 10);
    int64_t *seen = calloc(count, sizeof *seen);
    if (!seen)
        return 1;
    for (size_t i = 0; i < count; i++)
        seen[i] = 1; // its page is there
    int64_t start = now() + interval;
    for (size_t i = 0; i < count; i++) {
        int64_t beat = start + (int64_t)i * interval;
        while ((seen[i] = now()) < beat)
            ;
    }
    return fwrite(seen, sizeof *seen, count, stdout) != count;
}
