/* Writes COUNT events of each kind, with values that differ from one to the next. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "provider.h"

#include <pthread.h>
#include <stdlib.h>

static long count;

static void *write_events(void *of)
{
    uint64_t number = (uint64_t) (uintptr_t) of;
    /* None is empty: babeltrace2 2.0 then prints the text of an earlier event. */
    static const char *const texts[] = {"x", "text", "quoted \"text\" \\ and\ttab", "Gr\303\266\303\237e"};
    int32_t values[8];

    for (long i = 0; i < count; i++) {
        number = number * 6364136223846793005u + 1442695040888963407u;
        for (int k = 0; k < 8; k++)
            values[k] = (int32_t) (number >> (k + 20));
        const char *text = texts[number >> 62];
        size_t length = 0;
        while (text[length] != 0 && length < 8)
            length++;
        lttng_ust_tracepoint(sample, empty);
        lttng_ust_tracepoint(sample, numbers, (int64_t) number, (double) (int64_t) number / 3e9);
        lttng_ust_tracepoint(sample, many, text, length, values, (int) (number >> 33) % 13 - 1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t other;

    count = argc > 1 ? atol(argv[1]) : 1;
    pthread_create(&other, NULL, write_events, (void *) 7);
    write_events((void *) 3);
    pthread_join(other, NULL);
    return 0;
}
