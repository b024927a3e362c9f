/* storm TALLY SEED: threads, forks and kills at random, each thread counting its own events. */
#define _GNU_SOURCE
#include "emit.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tally *tally;

static uint64_t next(uint64_t *state)
{
    /* xorshift64 */
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void *writer(void *seed)
{
    uint64_t state = (uint64_t)(uintptr_t)seed;
    struct slot *slot = take_slot(tally);
    uint64_t rounds = next(&state) % 20;
    for (uint64_t i = 0; i < rounds; i++) {
        hits(slot, next(&state) % 2000);
        if (next(&state) % 4 == 0)
            sched_yield();
    }
    return NULL;
}

static void process(uint64_t seed, int depth)
{
    uint64_t state = seed;
    pthread_t thread[4];
    pid_t child[3];
    uint64_t threads = 1 + next(&state) % 4, children = depth > 0 ? next(&state) % 4 : 0;
    for (uint64_t t = 0; t < threads; t++)
        pthread_create(&thread[t], NULL, writer, (void *)(uintptr_t)(next(&state) | 1));
    for (uint64_t c = 0; c < children; c++) {
        uint64_t its_seed = next(&state) | 1;
        int bare = next(&state) % 2 == 0;
        child[c] = bare ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
        if (child[c] == 0) {
            /* Threads need what libc's fork prepares, so a bare child writes alone. */
            if (bare)
                writer((void *)(uintptr_t)its_seed);
            else
                process(its_seed, depth - 1);
            _exit(0);
        }
    }
    writer((void *)(uintptr_t)(next(&state) | 1));
    if (children > 0 && next(&state) % 2 == 0)
        kill(child[0], SIGKILL);
    if (next(&state) % 3 == 0)
        raise(SIGKILL);
    for (uint64_t t = 0; t < threads; t++)
        pthread_join(thread[t], NULL);
    for (uint64_t c = 0; c < children; c++)
        waitpid(child[c], NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    tally = open_tally(argv[1]);
    process(strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15ull | 1, 2);
    return 0;
}
