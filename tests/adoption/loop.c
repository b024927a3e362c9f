/* Two threads, each with events that carry fields, for another architecture's machine. */
#include <loopscope/trace.h>

#include <pthread.h>

#define COUNT 20000

static void *work(void *thread)
{
    int64_t first = *(int64_t *)thread * COUNT;
    int64_t i;

    for (i = first; i < first + COUNT; i++)
        LOOPSCOPE_EVENT("arm", "tick", i, LOOPSCOPE_U32(twice, (uint32_t)(2 * i)),
                        LOOPSCOPE_F64(half, (double)i / 2));
    return NULL;
}

int main(void)
{
    int64_t numbers[2] = {0, 1};
    pthread_t other;

    if (pthread_create(&other, NULL, work, &numbers[1]) != 0)
        return 1;
    work(&numbers[0]);
    pthread_join(other, NULL);
    return 3;
}
