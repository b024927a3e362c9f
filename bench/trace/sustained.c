/* How many events a second go through: `sustained loopscope|lttng THREADS RATE SECONDS`, with RATE
 * events a second from each thread, 0 for as many as go. Prints events, seconds, and the CPU seconds
 * of this process. */
#define _GNU_SOURCE
#include <loopscope/trace.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "clocks.h"
#ifdef WITH_LTTNG
#include "lttng_events.h"
#endif

#define CHUNK 1000 /* between looks at the clock */

static double rate, seconds;
static int with_lttng;
static pthread_barrier_t start;

struct thread {
    pthread_t thread;
    int number;
    int64_t count, began, ended;
};

static void emit(int64_t first)
{
#ifdef WITH_LTTNG
    if (with_lttng) {
        for (int64_t i = first; i < first + CHUNK; i++)
            lttng_ust_tracepoint(bench, event, i);
        return;
    }
#endif
    for (int64_t i = first; i < first + CHUNK; i++)
        LOOPSCOPE_EVENT("bench", "event", i);
}

static void *work(void *argument)
{
    struct thread *t = argument;

    pin(t->number % (int)sysconf(_SC_NPROCESSORS_ONLN));
    loopscope_thread_init();
    pthread_barrier_wait(&start);
    t->began = now_ns();
    int64_t end = t->began + (int64_t)(seconds * 1e9);
    while ((t->ended = now_ns()) < end) {
        int64_t due = rate > 0 ? (int64_t)((double)(t->ended - t->began) * 1e-9 * rate) : INT64_MAX;

        if (t->count < due) {
            emit(t->count);
            t->count += CHUNK;
        } else if (rate > 0) {
            /* The rest is the collector's, which may share the CPU. */
            int64_t ahead = (int64_t)((double)(t->count + 1 - due) / rate * 1e9);

            pause_ns(ahead > 50000 ? ahead : 50000);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    with_lttng = strcmp(argv[1], "lttng") == 0;
    int threads = atoi(argv[2]);
    struct thread *all = calloc((size_t)threads, sizeof *all);

    rate = atof(argv[3]);
    seconds = atof(argv[4]);
    if (!all || pthread_barrier_init(&start, NULL, (unsigned)threads) != 0)
        return 1;
    for (int i = 0; i < threads; i++) {
        all[i].number = i;
        if (pthread_create(&all[i].thread, NULL, work, &all[i]) != 0)
            return 1;
    }
    int64_t count = 0, began = INT64_MAX, ended = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(all[i].thread, NULL);
        count += all[i].count;
        began = all[i].began < began ? all[i].began : began;
        ended = all[i].ended > ended ? all[i].ended : ended;
    }
    printf("%lld %.6f %.6f\n", (long long)count, (double)(ended - began) * 1e-9,
           (double)clock_ns(CLOCK_PROCESS_CPUTIME_ID) * 1e-9);
    free(all);
    return 0;
}
