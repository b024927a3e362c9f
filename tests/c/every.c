/* Each entity of the header, in C99 and in C++. Prints how often values were evaluated: those of
 * disabled call sites, then those of enabled ones. */
#define LOOPSCOPE_SHORT_NAMES
#include "loopscope/trace.h"

#include <pthread.h>
#include <stdio.h>

#define GROUP "every"
#define HIGH 100u
enum { BUCKETS = 10 };

LOOPSCOPE_HISTOGRAM_RANGE("every", "range", -(int)HIGH, HIGH, BUCKETS * sizeof(char));
LOOPSCOPE_DESCRIBE("every", "range", "%", "50% of \"all\", {a|b}, back\\slash, \302\265s\tand" " more");
LOOPSCOPE_DESCRIBE_GROUP(GROUP, "Everything.");

static int evaluated;

static int next_value(void)
{
    return ++evaluated;
}

static const char *next_text(void)
{
    static const char *const text[] = {"zero", "one", "two", "three", "four"};
    return text[++evaluated % 5];
}

/* Hits each kind of site of a disabled entity. */
static void disabled(void)
{
    LOOPSCOPE_EVENT("off", "e", next_value(), LOOPSCOPE_STRING(s, next_text()));
    LOOPSCOPE_FLOW_OUT("off", "e", next_value(), LOOPSCOPE_U8(s, (uint8_t)next_value()));
    LOOPSCOPE_FLOW_IN("off", "e", next_value());
    LOOPSCOPE_FLOW_LINK("off", "e", next_value(), next_value());
    LOOPSCOPE_INTERVAL_START("off", "i");
    LOOPSCOPE_INTERVAL_END("off", "i", next_value());
    LOOPSCOPE_INTERVAL_END_OVER("off", "i", next_value(), (uint64_t)next_value());
    LOOPSCOPE_INTERVAL_START_KEY("off", "i", next_value());
    LOOPSCOPE_INTERVAL_END_KEY("off", "i", next_value());
    LOOPSCOPE_INTERVAL_END_KEY_OVER("off", "i", next_value(), (uint64_t)next_value());
    LOOPSCOPE_COUNTER_ADD("off", "c", next_value());
    LOOPSCOPE_COUNTER_LOG("off", "c");
    LOOPSCOPE_COUNTER_RESET("off", "c");
    LOOPSCOPE_HISTOGRAM_ADD("off", "h", next_value());
    LOOPSCOPE_HISTOGRAM_LOG("off", "h");
    LOOPSCOPE_HISTOGRAM_RESET("off", "h");
}

static void events(void)
{
    const char bytes[] = {0, 1, '\n', (char)0xff};
    char text[] = "in a buffer";
    LOOPSCOPE_EVENT("every", "plain", 1);
    LOOPSCOPE_EVENT(GROUP, "fixed", 2, LOOPSCOPE_U16(a, 7), LOOPSCOPE_F64(b, -0.5));
    LOOPSCOPE_EVENT("every", "text", 3, LOOPSCOPE_STRING(a, text), LOOPSCOPE_U8(b, 9),
                    LOOPSCOPE_STRING(c, NULL));
    LOOPSCOPE_EVENT("every", "bytes", 4, LOOPSCOPE_BYTES(a, bytes, sizeof bytes),
                    LOOPSCOPE_I64(b, -4), LOOPSCOPE_BYTES(c, NULL, 0));
    LOOPSCOPE_EVENT("every", "order", next_value(), LOOPSCOPE_I32(a, next_value()),
                    LOOPSCOPE_STRING(b, next_text()), LOOPSCOPE_U64(c, (uint64_t)next_value()),
                    LOOPSCOPE_F32(d, 1), LOOPSCOPE_BYTES(e, bytes, 1), LOOPSCOPE_U32(f, 6),
                    LOOPSCOPE_I8(g, -7), LOOPSCOPE_I16(h, -8));
}

static void flows(void)
{
    LOOPSCOPE_FLOW_IN("every", "in", 10);
    LOOPSCOPE_FLOW_LINK("every", "link", 10, -11);
    LOOPSCOPE_FLOW_OUT("every", "out", -11, LOOPSCOPE_U32(size, 12), LOOPSCOPE_STRING(to, "x y"));
}

static void nested(int depth)
{
    LOOPSCOPE_INTERVAL_START("every", "nested");
    if (depth > 0)
        nested(depth - 1);
    LOOPSCOPE_INTERVAL_END("every", "nested", depth);
}

static void *other_thread(void *unused)
{
    LOOPSCOPE_INTERVAL_END_KEY("every", "across", 21);
    LOOPSCOPE_INTERVAL_END_KEY_OVER("every", "across", 22, 3600000000000);
    LOOPSCOPE_INTERVAL_END_KEY_OVER("every", "across", 23, 0);
    return unused;
}

static void intervals(void)
{
    pthread_t thread;
    nested(2);
    LOOPSCOPE_INTERVAL_START("every", "short");
    LOOPSCOPE_INTERVAL_END_OVER("every", "short", 20, 3600000000000);
    for (int key = 21; key <= 23; key++)
        LOOPSCOPE_INTERVAL_START_KEY("every", "across", key);
    pthread_create(&thread, NULL, other_thread, NULL);
    pthread_join(thread, NULL);
}

static void counters(void)
{
    DESCRIBE("every", "sum", "B", "in a function");
    for (int i = 1; i <= 4; i++)
        LOOPSCOPE_COUNTER_ADD("every", "sum", i);
    LOOPSCOPE_COUNTER_LOG("every", "sum");
    LOOPSCOPE_COUNTER_RESET("every", "sum");
    LOOPSCOPE_COUNTER_ADD("every", "sum", INT64_MIN);
    LOOPSCOPE_COUNTER_LOG("every", "sum");
}

static void histograms(void)
{
    HISTOGRAM_RANGE("every", "inner", 0, 4, 2);
    for (int i = -101; i <= 100; i++)
        LOOPSCOPE_HISTOGRAM_ADD("every", "range", i);
    LOOPSCOPE_HISTOGRAM_LOG("every", "range");
    LOOPSCOPE_HISTOGRAM_RESET("every", "range");
    LOOPSCOPE_HISTOGRAM_LOG("every", "range");
    LOOPSCOPE_HISTOGRAM_ADD("every", "inner", 3);
    LOOPSCOPE_HISTOGRAM_LOG("every", "inner");
    LOOPSCOPE_HISTOGRAM_ADD("every", "log", 5);
    LOOPSCOPE_HISTOGRAM_ADD("every", "log", 1000);
    LOOPSCOPE_HISTOGRAM_LOG("every", "log");
}

/* What takes several values evaluates them from left to right. */
static void orders(void)
{
    evaluated = 0;
    LOOPSCOPE_FLOW_LINK("order", "link", next_value(), next_value());
    LOOPSCOPE_INTERVAL_START("order", "interval");
    LOOPSCOPE_INTERVAL_END_OVER("order", "interval", next_value(), 0u * (uint64_t)next_value());
    LOOPSCOPE_INTERVAL_START_KEY("order", "keyed", 5);
    LOOPSCOPE_INTERVAL_END_KEY_OVER("order", "keyed", next_value(), 0u * (uint64_t)next_value());
}

/* One of each again, by its short name. */
static void short_names(void)
{
    EVENT("short", "event", 1, LOOPSCOPE_U8(a, 2));
    FLOW_OUT("short", "out", 1);
    FLOW_IN("short", "in", 1);
    FLOW_LINK("short", "link", 1, 2);
    INTERVAL_START("short", "interval");
    INTERVAL_END("short", "interval", 1);
    INTERVAL_START("short", "interval");
    INTERVAL_END_OVER("short", "interval", 2, 0);
    INTERVAL_START_KEY("short", "interval", 3);
    INTERVAL_END_KEY("short", "interval", 3);
    INTERVAL_START_KEY("short", "interval", 4);
    INTERVAL_END_KEY_OVER("short", "interval", 4, 0);
    COUNTER_ADD("short", "counter", 1);
    COUNTER_LOG("short", "counter");
    COUNTER_RESET("short", "counter");
    HISTOGRAM_ADD("short", "histogram", 1);
    HISTOGRAM_LOG("short", "histogram");
    HISTOGRAM_RESET("short", "histogram");
    DESCRIBE_GROUP("short", "");
}

int main(void)
{
    disabled();
    printf("%d ", evaluated);
    events();
    printf("%d\n", evaluated);
    flows();
    intervals();
    counters();
    histograms();
    orders();
    short_names();
    return 0;
}
