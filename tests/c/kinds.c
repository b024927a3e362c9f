/* A call site of each kind, spelt out as data, with nothing behind it: for readers of files. */
#include "loopscope/trace.h"

#define SITE(kind, group, name, fields, line)                                                       \
    {                                                                                              \
        sizeof(struct loopscope_site), kind, 0, group, name, (const char *)(fields), "kinds.c",     \
            line, 0xffff, 0, 0, 0                                                                  \
    }

static const struct {
    int64_t low, high;
    uint64_t buckets;
} range = {-5, 1000, 50};

/* The second half of the last one is what a newer header may add. */
struct loopscope_site sites[] __attribute__((section("loopscope_sites"))) = {
    SITE(LOOPSCOPE_KIND_EVENT, "all", "event",
         "\001a\0\002b\0\003c\0\004d\0\005e\0\006f\0\007g\0\010h\0", 1),
    SITE(LOOPSCOPE_KIND_EVENT, "all", "event", "\011x\0\012y\0\013text\0\014data\0", 2),
    SITE(LOOPSCOPE_KIND_EVENT, "all", "event", "\011x\0\012y\0\013text\0\014data\0", 2),
    SITE(LOOPSCOPE_KIND_INTERVAL_START, "all", "interval", "", 3),
    SITE(LOOPSCOPE_KIND_INTERVAL_END, "all", "interval", "", 4),
    SITE(LOOPSCOPE_KIND_COUNTER_ADD, "all", "counter", "", 5),
    SITE(LOOPSCOPE_KIND_COUNTER_LOG, "all", "counter", "", 6),
    SITE(LOOPSCOPE_KIND_COUNTER_RESET, "all", "counter", "", 7),
    SITE(LOOPSCOPE_KIND_HISTOGRAM_ADD, "all", "linear", "", 8),
    SITE(LOOPSCOPE_KIND_HISTOGRAM_LOG, "all", "linear", "", 9),
    SITE(LOOPSCOPE_KIND_HISTOGRAM_RESET, "all", "loglinear", "", 10),
    SITE(LOOPSCOPE_KIND_FLOW_OUT, "all", "flow", "", 11),
    SITE(LOOPSCOPE_KIND_FLOW_IN, "all", "flow", "", 12),
    SITE(LOOPSCOPE_KIND_FLOW_LINK, "all", "flow", "", 13),
    SITE(LOOPSCOPE_KIND_HISTOGRAM_RANGE, "all", "linear", &range, 14),
    SITE(LOOPSCOPE_KIND_DESCRIBE, "all", "linear", "ms\0how long it took\0", 15),
    SITE(LOOPSCOPE_KIND_DESCRIBE, "all", "*", "\0one of each\0", 16),
    {2 * sizeof(struct loopscope_site), LOOPSCOPE_KIND_EVENT, 0, "all", "grown", "", "kinds.c", 17,
     0xffff, 0, 0, 0},
    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
};

void loopscope_register(struct loopscope_site *start, struct loopscope_site *stop)
{
    (void)start;
    (void)stop;
}

int main(void)
{
    return 0;
}
