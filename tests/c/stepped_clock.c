/* Preloaded into the programs of a host: steps its CLOCK_MONOTONIC_RAW, which is its counter there.
 *
 * STEP_FILE has the nanoseconds to add, as a 64-bit integer of this machine's order. It is read at
 * every reading, so that a test steps the clock of all these programs at once. The programs of
 * other hosts do not read it: STEP_HOST is a word that an agent's command has to have.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *step;

static int is_of_host(const char *host)
{
    char words[4096] = {0};
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t size = read(file, words, sizeof words - 1);
    close(file);
    for (ssize_t at = 0; at < size; at += (ssize_t)strlen(words + at) + 1)
        if (strcmp(words + at, host) == 0)
            return 1;
    return 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("STEP_FILE"), *host = getenv("STEP_HOST");
    if (!path || (host && !is_of_host(host)))
        return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    void *at = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (at != MAP_FAILED)
        step = at;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock != CLOCK_MONOTONIC_RAW || !step || result != 0)
        return result;
    int64_t nanoseconds = now->tv_nsec + *step;
    now->tv_sec += nanoseconds / 1000000000;
    now->tv_nsec = nanoseconds % 1000000000;
    return result;
}
