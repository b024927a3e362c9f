/* realtime: a real-time thread's first event takes a ring that was made before. Prints the rings
 * made before its event and after it; 77 where real-time scheduling is not allowed. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "loopscope/trace.h"
#include "runtime.h"

static uint32_t before, after, own;

static void *write_event(void *unused)
{
    (void)unused;
    before = loopscope_process->share[0].rings;
    LOOPSCOPE_EVENT("realtime", "first", 1);
    after = loopscope_process->share[0].rings;
    own = loopscope_writer->lane[0].ring != NULL;
    return NULL;
}

int main(void)
{
    pthread_attr_t attributes;
    struct sched_param priority = {.sched_priority = 1};
    pthread_t thread;
    LOOPSCOPE_EVENT("realtime", "main", 0);
    pthread_attr_init(&attributes);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
    pthread_attr_setschedparam(&attributes, &priority);
    if (pthread_create(&thread, &attributes, write_event, NULL) != 0)
        return 77;
    pthread_join(thread, NULL);
    printf("%u %u %u\n", before, after, own);
    return 0;
}
