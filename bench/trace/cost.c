/* What an entity's hit costs.
 *
 *     cost batches ROUNDS   per line: round, what, nanoseconds of one (median over batches)
 *     cost singles ROUNDS   per line: what, then percentiles of single hits in nanoseconds
 *     cost counter ROUNDS   as batches, of an event and of clock_gettime(CLOCK_MONOTONIC) alone
 *
 * Both with LTTng-UST's events next to ours where it is compiled in (WITH_LTTNG); what is not enabled
 * by the environment is measured as what it then is, dormant. */
#define _GNU_SOURCE
#include <loopscope/trace.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clocks.h"
#ifdef WITH_LTTNG
#include "lttng_events.h"
#endif

#define BATCH 1000
#define BATCHES 250
/* What fits into a ring, of ours and of LTTng's: a dropped event is not a recorded one. */
#define BATCHES_A_PAUSE 20
#define SINGLES 200000
#define SINGLES_A_PAUSE 20000
#define PAUSE_NS 40000000

LOOPSCOPE_HISTOGRAM_RANGE("bench", "linear", 0, 1000, 50);

static volatile uint64_t sink;

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Median over batches of the time of one `body`; the pauses are for what writes records. */
#define MEASURE(round, what, pauses, body)                                                        \
    do {                                                                                          \
        static int64_t batches_[BATCHES];                                                         \
        int b_, i;                                                                                \
        for (b_ = 0; b_ < BATCHES; b_++) {                                                        \
            int64_t began_;                                                                       \
            if (pauses && b_ % BATCHES_A_PAUSE == 0)                                              \
                pause_ns(PAUSE_NS);                                                               \
            began_ = now_ns();                                                                    \
            for (i = 0; i < BATCH; i++) {                                                         \
                body;                                                                             \
                __asm__ volatile("" ::: "memory");                                                \
            }                                                                                     \
            batches_[b_] = now_ns() - began_;                                                     \
        }                                                                                         \
        qsort(batches_, BATCHES, sizeof batches_[0], compare);                                    \
        printf("%d %s %.4f\n", round, what, (double)batches_[BATCHES / 2] / BATCH);               \
    } while (0)

static void batches(int rounds)
{
    for (int round = 0; round < rounds; round++) {
        MEASURE(round, "empty", 0, (void)i);
        MEASURE(round, "counter-read", 0, sink = read_counter());
        MEASURE(round, "event", 1, LOOPSCOPE_EVENT("bench", "event", i));
#ifdef WITH_LTTNG
        MEASURE(round, "lttng-event", 1, lttng_ust_tracepoint(bench, event, i));
#endif
        MEASURE(round, "dormant", 0, LOOPSCOPE_EVENT("dormant", "event", i));
#ifdef WITH_LTTNG
        MEASURE(round, "lttng-dormant", 0, lttng_ust_tracepoint(bench, dormant, i));
#endif
        MEASURE(round, "fields", 1,
                LOOPSCOPE_EVENT("bench", "fields", i, LOOPSCOPE_U32(size, (uint32_t)i),
                                LOOPSCOPE_F64(load, 0.5)));
#ifdef WITH_LTTNG
        MEASURE(round, "lttng-fields", 1, lttng_ust_tracepoint(bench, fields, i, (uint32_t)i, 0.5));
#endif
        MEASURE(round, "counter-add", 0, LOOPSCOPE_COUNTER_ADD("bench", "counter", i));
        MEASURE(round, "histogram-linear", 0, LOOPSCOPE_HISTOGRAM_ADD("bench", "linear", i));
        MEASURE(round, "histogram-log", 0, LOOPSCOPE_HISTOGRAM_ADD("bench", "log", i));
        MEASURE(round, "interval", 1, LOOPSCOPE_INTERVAL_START("bench", "interval");
                LOOPSCOPE_INTERVAL_END("bench", "interval", i));
    }
}

static void counter(int rounds)
{
    for (int round = 0; round < rounds; round++) {
        MEASURE(round, "clock-gettime", 0, sink = (uint64_t)clock_ns(CLOCK_MONOTONIC));
        MEASURE(round, "event", 1, LOOPSCOPE_EVENT("bench", "event", i));
    }
}

/* How often each difference of the counter came, so that taking notes touches the same few lines of
 * memory again and again: an array of samples would put its own page faults into the tail. */
#define LONGEST 8192

struct tail {
    uint32_t count[LONGEST + 1]; /* the last one: that long or longer */
    uint64_t longest;
};

static inline void note(struct tail *tail, uint64_t ticks)
{
    tail->count[ticks < LONGEST ? ticks : LONGEST]++;
    if (ticks > tail->longest)
        tail->longest = ticks;
}

static double percentile(const struct tail *tail, double part)
{
    uint64_t all = 0, seen = 0;

    for (int i = 0; i <= LONGEST; i++)
        all += tail->count[i];
    for (int i = 0; i < LONGEST; i++) {
        seen += tail->count[i];
        if ((double)seen >= (double)all * part)
            return i;
    }
    return (double)tail->longest;
}

static void print_percentiles(const char *what, const struct tail *tail, double ns_per_tick)
{
    printf("%s %.2f %.2f %.2f %.2f\n", what, percentile(tail, 0.5) * ns_per_tick,
           percentile(tail, 0.99) * ns_per_tick, percentile(tail, 0.999) * ns_per_tick,
           (double)tail->longest * ns_per_tick);
}

/* The counter's step: the difference that most pairs of reads have. */
static void print_step(const struct tail *bare, double ns_per_tick)
{
    int most = 1;

    for (int i = 1; i < LONGEST; i++)
        if (bare->count[i] > bare->count[most])
            most = i;
    printf("step %.2f\n", most * ns_per_tick);
}

/* The same record by hand, into shared memory of a default ring's size: what memory alone costs. */
#define PLAIN_SIZE (1 << 20)
#define RECORD 14

static uint8_t *map_plain(void)
{
    int fd = memfd_create("plain", MFD_CLOEXEC);
    void *map = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, PLAIN_SIZE) == 0)
        map = mmap(NULL, PLAIN_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (map == MAP_FAILED)
        exit(1);
    return map;
}

static inline void plain_record(uint8_t *record, int64_t id)
{
    uint16_t class = 7;
    uint32_t stamp = (uint32_t)read_counter();

    memcpy(record, &class, sizeof class);
    memcpy(record + 2, &stamp, sizeof stamp);
    memcpy(record + 6, &id, sizeof id);
}

/* Between two reads of the counter: nothing, a plain record, one event, one of LTTng's; in turn, so
 * that all see the same machine. */
static void singles(uint8_t *memory)
{
    static struct tail bare, plain, event, lttng;
    uint32_t place = 0;
    int64_t began_ns = now_ns();
    uint64_t began = read_counter();

    memset(&bare, 0, sizeof bare);
    memset(&plain, 0, sizeof plain);
    memset(&event, 0, sizeof event);
    memset(&lttng, 0, sizeof lttng);
    for (int i = 0; i < SINGLES; i++) {
        uint64_t t0, t1;

        if (i % SINGLES_A_PAUSE == 0)
            pause_ns(PAUSE_NS);
        t0 = read_counter();
        t1 = read_counter();
        note(&bare, t1 - t0);
        t0 = read_counter();
        plain_record(memory + place, i);
        t1 = read_counter();
        note(&plain, t1 - t0);
        place = place + 2 * RECORD > PLAIN_SIZE ? 0 : place + RECORD;
        t0 = read_counter();
        LOOPSCOPE_EVENT("bench", "single", i);
        t1 = read_counter();
        note(&event, t1 - t0);
#ifdef WITH_LTTNG
        t0 = read_counter();
        lttng_ust_tracepoint(bench, event, i);
        t1 = read_counter();
        note(&lttng, t1 - t0);
#endif
    }
    double ns_per_tick = (double)(now_ns() - began_ns) / (double)(read_counter() - began);
    print_percentiles("counter-read", &bare, ns_per_tick);
    print_percentiles("plain-record", &plain, ns_per_tick);
    print_percentiles("event", &event, ns_per_tick);
#ifdef WITH_LTTNG
    print_percentiles("lttng-event", &lttng, ns_per_tick);
#endif
    print_step(&bare, ns_per_tick);
}

int main(int argc, char **argv)
{
    pin((int)sysconf(_SC_NPROCESSORS_ONLN) - 1);
    if (argc == 3 && strcmp(argv[1], "batches") == 0)
        batches(atoi(argv[2]));
    else if (argc == 3 && strcmp(argv[1], "counter") == 0)
        counter(atoi(argv[2]));
    else if (argc == 3 && strcmp(argv[1], "singles") == 0) {
        uint8_t *memory = map_plain();

        for (int round = atoi(argv[2]); round > 0; round--)
            singles(memory);
    } else
        return 2;
    return 0;
}
