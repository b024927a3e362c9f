/* many ROUNDS [THREADS]: a thousand call sites, each hit once in a round of each thread with the
 * round's number as id. */
#include <pthread.h>
#include <stdlib.h>

#include "loopscope/trace.h"

#define SITE(a, b, c) LOOPSCOPE_EVENT("many", "s" #a #b #c, round, LOOPSCOPE_U32(size, 7));
#define TEN(a, b)                                                                                 \
    SITE(a, b, 0) SITE(a, b, 1) SITE(a, b, 2) SITE(a, b, 3) SITE(a, b, 4)                          \
    SITE(a, b, 5) SITE(a, b, 6) SITE(a, b, 7) SITE(a, b, 8) SITE(a, b, 9)
#define HUNDRED(a)                                                                                \
    TEN(a, 0) TEN(a, 1) TEN(a, 2) TEN(a, 3) TEN(a, 4)                                              \
    TEN(a, 5) TEN(a, 6) TEN(a, 7) TEN(a, 8) TEN(a, 9)

static void *hit(void *argument)
{
    long rounds = *(long *)argument;
    for (long round = 0; round < rounds; round++) {
        HUNDRED(0) HUNDRED(1) HUNDRED(2) HUNDRED(3) HUNDRED(4)
        HUNDRED(5) HUNDRED(6) HUNDRED(7) HUNDRED(8) HUNDRED(9)
    }
    return NULL;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 0;
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    pthread_t made[16];
    for (int n = 1; n < threads && n < 16; n++)
        pthread_create(&made[n], NULL, hit, &rounds);
    hit(&rounds);
    for (int n = 1; n < threads && n < 16; n++)
        pthread_join(made[n], NULL);
    return 0;
}
