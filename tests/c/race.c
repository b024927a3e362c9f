/* race: writers and a reader hand sub-buffers to each other in one process, for ThreadSanitizer. The
 * reader follows the protocol of layout.h as the collector does; both see the rings at the same
 * addresses, which the sanitizer needs and two processes do not have. Prints the records read.
 *
 * race ROUNDS closed|open: threads follow each other on the same rings, each with an equal number of
 * events; `open` looks into the open sub-buffers too while they are written. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loopscope/trace.h"
#include "runtime.h"

#define WRITERS 2
#define EVENTS 3000
#define MOST_RINGS 64

static struct loopscope_ring *rings[MOST_RINGS];
static pthread_mutex_t rings_lock = PTHREAD_MUTEX_INITIALIZER;
static int done, look_into_open;

static void *write_events(void *unused)
{
    (void)unused;
    loopscope_thread_init();
    struct loopscope_ring *ring = loopscope_writer->lane[0].ring;
    unsigned i = 0;
    pthread_mutex_lock(&rings_lock);
    while (rings[i] && rings[i] != ring)
        i++;
    __atomic_store_n(&rings[i], ring, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&rings_lock);
    for (int64_t id = 0; id < EVENTS; id++) {
        LOOPSCOPE_EVENT("race", "plain", id);
        LOOPSCOPE_EVENT("race", "fields", id, LOOPSCOPE_U64(twice, (uint64_t)id * 2));
        /* The reader is much slower under the sanitizer; drops are counted, not hidden. */
        if (id % 16 == 0)
            sched_yield();
    }
    return NULL;
}

static uint64_t records;

/* Class of the event with a field: compilers lay the sites out in either order. */
static uint16_t with_field(void)
{
    const struct loopscope_site *site = __start_loopscope_sites;
    return site->payload != 0 ? site->index : site[1].index;
}

/* Reads every byte of the records from `at` on; what it finds has to make sense. */
static void read_packet(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint16_t index;
        int64_t id;
        memcpy(&index, at, 2);
        memcpy(&id, at + 6, 8);
        at += LOOPSCOPE_RECORD;
        if (index > 1 || id < 0 || id >= EVENTS)
            abort();
        if (index == with_field()) {
            uint64_t twice;
            memcpy(&twice, at, 8);
            if (twice != 2 * (uint64_t)id)
                abort();
            at += 8;
        }
        records++;
    }
    if (at != end)
        abort();
}

static void read_subbuffer(struct loopscope_ring *ring, uint64_t number, uint32_t used)
{
    uint8_t *start = (uint8_t *)ring + ring->data
                     + number % ring->subbuffer_count * ring->subbuffer_size;
    uint32_t at = 0;
    while (at < used) {
        /* Only the begin of the open packet is there for good. */
        struct loopscope_packet *packet = (struct loopscope_packet *)(start + at);
        if (packet->magic != LOOPSCOPE_PACKET_MAGIC)
            abort();
        uint32_t size = (uint32_t)(LOAD(&packet->packet_bits) / 8);
        uint32_t content = (uint32_t)(LOAD(&packet->content_bits) / 8);
        int last_of_open = used < ring->subbuffer_size && at + size >= used;
        uint32_t end = last_of_open ? used : at + content;
        read_packet(start + at + sizeof *packet, start + end);
        at += size;
    }
}

static void read_ring(struct loopscope_ring *ring)
{
    uint64_t tail = ring->tail;
    uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
    for (; tail < head; tail++) {
        read_subbuffer(ring, tail, ring->subbuffer_size);
        __atomic_store_n(&ring->tail, tail + 1, __ATOMIC_RELEASE);
    }
    if (look_into_open) {
        uint64_t committed = __atomic_load_n(&ring->committed, __ATOMIC_ACQUIRE), before = records;
        /* Nobody takes its place while the tail stands where it is. */
        if (committed >> 32 == (uint32_t)tail)
            read_subbuffer(ring, tail, (uint32_t)committed);
        records = before;
    }
}

static void *read_rings(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
        for (unsigned i = 0; i < MOST_RINGS; i++) {
            struct loopscope_ring *ring = __atomic_load_n(&rings[i], __ATOMIC_ACQUIRE);
            if (ring)
                read_ring(ring);
        }
        sched_yield();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int rounds = atoi(argv[1]);
    look_into_open = strcmp(argv[2], "open") == 0;
    pthread_t reader, writer[WRITERS];
    pthread_create(&reader, NULL, read_rings, NULL);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < WRITERS; i++)
            pthread_create(&writer[i], NULL, write_events, NULL);
        for (int i = 0; i < WRITERS; i++)
            pthread_join(writer[i], NULL);
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    pthread_join(reader, NULL);
    uint64_t emitted = 0, dropped = 0;
    look_into_open = 0;
    for (unsigned i = 0; i < MOST_RINGS && rings[i]; i++) {
        struct loopscope_ring *ring = rings[i];
        read_ring(ring);
        uint64_t committed = __atomic_load_n(&ring->committed, __ATOMIC_ACQUIRE);
        if (committed >> 32 == (uint32_t)ring->head)
            read_subbuffer(ring, ring->head, (uint32_t)committed);
        emitted += ring->emitted;
        dropped += ring->discarded;
    }
    printf("%llu = %llu + %llu\n", (unsigned long long)emitted, (unsigned long long)records,
           (unsigned long long)dropped);
    return emitted == records + dropped && emitted == 2ull * EVENTS * WRITERS * (unsigned)rounds
               ? 0
               : 1;
}
