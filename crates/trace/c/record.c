/* The hot path: one enabled hit. No system call, no lock, nothing shared with another thread but
 * the ring's lines, which only the collector reads. */
#include <string.h>

#include "runtime.h"

/* A thread without a ring, a thread inside a hit and a forked child all have `idle` zero, so one
 * test sends them all off the hot path. */
struct writer loopscope_no_writer;
__thread struct writer *loopscope_writer __attribute__((tls_model("initial-exec"))) =
    &loopscope_no_writer;

/* Copies are made in words of eight bytes, so up to seven bytes beyond a record are overwritten. */
#define SLACK 8

/* A longer gap closes the packet: half of what a 32-bit stamp could express. */
#define LONGEST_GAP (1ull << 31)

#define HEAD ((uint32_t)sizeof(struct loopscope_packet))

enum room { ROOM, REVOKED, DROPPED };

/* Tells the open packet where it ends: at the sub-buffer's end, or at `next`. */
static void finish_packet(struct lane *lane, uint32_t next)
{
    struct loopscope_ring *ring = lane->ring;
    struct loopscope_packet *packet = (struct loopscope_packet *)(lane->subbuffer + lane->packet);
    /* Atomic, because the collector may be looking for the open sub-buffer's last packet. */
    STORE(&packet->end, lane->last);
    STORE(&packet->content_bits, (uint64_t)((uint32_t)ring->committed - lane->packet) * 8);
    STORE(&packet->packet_bits, (uint64_t)(next - lane->packet) * 8);
    STORE(&packet->discarded, ring->discarded + LOAD(&ring->reentered));
}

static void begin_packet(struct lane *lane, uint64_t number, uint32_t at, uint64_t now)
{
    struct loopscope_ring *ring = lane->ring;
    struct loopscope_packet packet = {
        .magic = LOOPSCOPE_PACKET_MAGIC,
        .begin = now,
        .end = now,
        .packet_bits = (uint64_t)(ring->subbuffer_size - at) * 8,
        .sequence = number,
        .pid = ring->pid,
        .tid = loopscope_writer->tid,
    };
    memcpy(lane->subbuffer + at, &packet, sizeof packet);
    lane->packet = at;
    lane->last = now;
    uint64_t tag = number << 32;
    /* Pairs with the collector's acquire load of committed: the packets before are whole. */
    __atomic_store_n(&ring->committed, tag | (at + HEAD), __ATOMIC_RELEASE);
    /* Sequentially consistent, as the collector's stores of revoked and limit: either it sees this
     * limit and zeroes it after us, or we see that the ring is revoked. */
    __atomic_store_n(&ring->limit, tag | (ring->subbuffer_size - SLACK), __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&ring->revoked, __ATOMIC_SEQ_CST))
        STORE(&ring->limit, 0);
}

/* Opens the next sub-buffer, or says why not. */
static enum room open_subbuffer(struct lane *lane, uint64_t now, enum loopscope_cause *cause)
{
    struct loopscope_ring *ring = lane->ring;
    uint64_t number = ring->head, count = ring->subbuffer_count, place;
    if (ring->kind == LOOPSCOPE_NORMAL) {
        /* Pairs with the collector's release store of tail: its copy of the sub-buffer is done. */
        if (number - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) >= count) {
            *cause = LOOPSCOPE_RING_FULL;
            return DROPPED;
        }
        place = number % count;
    } else {
        const struct loopscope_stream *stream = &loopscope_control->streams[ring->stream];
        /* Pairs with the store of who triggered: from then on what is there stays. */
        uint64_t freeze = __atomic_load_n(&stream->freeze, __ATOMIC_ACQUIRE);
        if (freeze != 0 && now >= freeze && number >= count) {
            *cause = LOOPSCOPE_FROZEN;
            return DROPPED;
        }
        place = number == 0 ? 0 : 1 + (number - 1) % (count - 1);
        /* Pairs with the acquire fence in copy_of (flight.rs): who reads what is written here from
         * now on sees the head that says that the oldest sub-buffer has gone. The release store of
         * head alone orders only what is before it. */
        __atomic_thread_fence(__ATOMIC_RELEASE);
        /* The hit under way is counted already, and is not in the ring yet. */
        STORE(&ring->first[place], ring->emitted - 1 - ring->discarded);
    }
    lane->subbuffer = (uint8_t *)ring + ring->data + place * ring->subbuffer_size;
    begin_packet(lane, number, 0, now);
    return ROOM;
}

/* Finds a place for a record that the open packet does not take. */
static enum room make_room(struct lane *lane, uint64_t now, uint32_t size,
                           enum loopscope_cause *cause)
{
    struct loopscope_ring *ring = lane->ring;
    /* Pairs with the collector's store: its stream was disabled before. */
    if (__atomic_load_n(&ring->revoked, __ATOMIC_ACQUIRE))
        return REVOKED;
    uint32_t most = ring->subbuffer_size - SLACK;
    *cause = LOOPSCOPE_TOO_LARGE;
    if (size > most - HEAD)
        return DROPPED;
    uint32_t used = (uint32_t)ring->committed;
    if (used != 0 && ring->committed >> 32 == (uint32_t)ring->head) {
        /* A long gap or another thread takes a packet, a full sub-buffer the next one. */
        uint32_t next = (used + 7) & ~7u;
        int full = ring->limit != 0 && now - lane->last < LONGEST_GAP;
        if (!full && next <= most - HEAD && size <= most - HEAD - next) {
            finish_packet(lane, next);
            begin_packet(lane, ring->head, next, now);
            return ROOM;
        }
        finish_packet(lane, ring->subbuffer_size);
        /* Pairs with the collector's acquire load of head: it sees the whole sub-buffer. */
        __atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
        ring->limit = 0;
    }
    return open_subbuffer(lane, now, cause);
}

static inline __attribute__((always_inline)) void
put(struct lane *lane, const struct loopscope_site *site, int64_t id, const uint8_t *payload,
    const struct source *source, uint32_t size, uint64_t now)
{
    struct loopscope_ring *ring = lane->ring;
    uint64_t committed = ring->committed;
    uint8_t *record = lane->subbuffer + (uint32_t)committed;
    uint32_t stamp = (uint32_t)now;
    memcpy(record, &site->index, 2);
    memcpy(record + 2, &stamp, 4);
    memcpy(record + 6, &id, 8);
    if (source && source->write) {
        source->write(record + LOOPSCOPE_RECORD, source);
    } else {
        for (uint32_t at = 0; at < size; at += 8) {
            memcpy(record + LOOPSCOPE_RECORD + at, payload + at, 8);
            /* Keeps the compiler from making this a call of memcpy. */
            __asm__("" : "+r"(at));
        }
    }
    lane->last = now;
    /* Pairs with the collector's acquire load: the record is whole. */
    __atomic_store_n(&ring->committed, committed + LOOPSCOPE_RECORD + size, __ATOMIC_RELEASE);
    SIGNAL_FENCE();
    STORE(&lane->idle, 1);
}

static __attribute__((noinline)) void
put_elsewhere(struct lane *lane, const struct loopscope_site *site, int64_t id,
              const uint8_t *payload, const struct source *source, uint32_t size, uint64_t now)
{
    struct loopscope_ring *ring = lane->ring;
    uint32_t stream = ring->stream;
    enum loopscope_cause cause;
    switch (make_room(lane, now, LOOPSCOPE_RECORD + size, &cause)) {
    case ROOM:
        put(lane, site, id, payload, source, size, now);
        return;
    case REVOKED: {
        struct source again = {payload, NULL, NULL, size};
        loopscope_abandon_ring(lane);
        loopscope_record(site, stream, id, source ? source : &again, now);
        return;
    }
    case DROPPED:
        loopscope_drop(site, stream, cause);
        /* Pairs with the collector's acquire load: it sees the site's drop too. */
        __atomic_store_n(&ring->discarded, ring->discarded + 1, __ATOMIC_RELEASE);
        SIGNAL_FENCE();
        STORE(&lane->idle, 1);
    }
}

/* `lane` is idle; `read` stamps the hit where `now` is zero. */
static inline __attribute__((always_inline)) void
record(struct lane *lane, const struct loopscope_site *site, int64_t id, const uint8_t *payload,
       const struct source *source, uint32_t size, uint64_t now, uint64_t (*read)(void))
{
    STORE(&lane->idle, 0);
    /* A handler that runs from here on is counted as a re-entry; one that ran before has left the
     * lane idle again, and nothing of the ring was read yet. */
    SIGNAL_FENCE();
    struct loopscope_ring *ring = lane->ring;
    STORE(&ring->emitted, ring->emitted + 1);
    SIGNAL_FENCE();
    if (now == 0)
        now = read();
    /* Counters of two processors may differ by a few ticks; readers take one tick back for a jump
     * of 2^32. */
    if (now < lane->last)
        now = lane->last;
    if (unlikely(ring->committed + LOOPSCOPE_RECORD + size > LOAD(&ring->limit)
                 || now - lane->last >= LONGEST_GAP)) {
        put_elsewhere(lane, site, id, payload, source, size, now);
        return;
    }
    put(lane, site, id, payload, source, size, now);
}

void loopscope_record(const struct loopscope_site *site, uint32_t stream, int64_t id,
                      const struct source *source, uint64_t now)
{
    struct lane *lane = &loopscope_writer->lane[stream];
    if (LOAD(&lane->idle) == 0) {
        if (lane->ring) {
            loopscope_drop(site, stream, LOOPSCOPE_SIGNAL_REENTRY);
            __atomic_fetch_add(&lane->ring->reentered, 1, __ATOMIC_RELAXED);
            return;
        }
        if (!loopscope_make_ring(stream)) {
            loopscope_no_ring(site, stream);
            return;
        }
        lane = &loopscope_writer->lane[stream];
    }
    record(lane, site, id, source->payload, source, source->size, now, loopscope_counter);
}

/* A stream's trigger has been hit: its rings keep what they hold once `post` has passed. */
static void pull_trigger(const struct loopscope_site *site, uint32_t number, int64_t id,
                         uint64_t now)
{
    struct loopscope_stream *stream = &loopscope_control->streams[number];
    uint64_t none = 0;
    /* Acquire pairs with the collector's release store of 0: it has cleared the rest before. */
    if (!__atomic_compare_exchange_n(&stream->trigger, &none, now, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return;
    STORE(&stream->trigger_id, id);
    STORE(&stream->trigger_site, site->index + 1u);
    /* Pairs with the acquire loads of writers and collector: they see who triggered. */
    __atomic_store_n(&stream->freeze, now + stream->post, __ATOMIC_RELEASE);
}

/* A site's filter in a stream, 0 for none; false if the stream has it enabled no more: the filter may
 * have gone, and a hit that the end overtakes is nobody's. */
static int filter_of(const struct loopscope_section *section, const struct loopscope_site *site,
                     uint32_t stream, uint32_t *filter)
{
    /* Pairs with the release stores in loopscope_apply: the filter is whole; and where it has gone,
     * the bit has gone before it. */
    *filter = __atomic_load_n(&section->filter[site->index], __ATOMIC_ACQUIRE);
    if (*filter != 0)
        return 1;
    /* Pairs with the release in change: where the bit came again, the filter came before it. */
    if (!(__atomic_load_n(site->enabled, __ATOMIC_ACQUIRE) & 1u << stream))
        return 0;
    *filter = __atomic_load_n(&section->filter[site->index], __ATOMIC_ACQUIRE);
    return 1;
}

/* Looks at a filter that is being changed over and over. */
#define MOST_LOOKS 1000

/* What a stream's filter says of a site's hit; zero if the hit is nobody's. */
static int ask_filter(struct loopscope_section *section, const struct loopscope_site *site,
                      uint32_t stream, const struct hit *hit, unsigned *says)
{
    for (unsigned looks = 0; looks < MOST_LOOKS; looks++) {
        /* Pairs with the release in loopscope_filter_give_back: who sees that a filter has left its
         * blocks sees where it is now. */
        uint64_t changes = __atomic_load_n(&section->filter_changes, __ATOMIC_ACQUIRE);
        uint32_t place;
        *says = FILTER_KEEP;
        if (!filter_of(section, site, stream, &place))
            return 0;
        if (place == 0)
            return 1;
        if (place == LOOPSCOPE_FILTER_REFUSED)
            break;
        if (loopscope_filter_ask(section, place, changes, hit, says))
            return 1;
    }
    *says = FILTER_UNKNOWN;
    return 1;
}

/* A hit that several streams have, or that a filter looks at. */
static __attribute__((noinline)) void
hit_streams(const struct loopscope_site *site, uint32_t streams, int64_t id,
            const struct source *source, uint64_t now)
{
    struct loopscope_control *control = loopscope_control;
    if (now == 0)
        now = loopscope_counter();
    struct hit hit = {site->index, id, source->payload, LOAD(&control->frequency), now};
    /* A forked child counts what its filters keep out in a directory of its own. */
    if (unlikely(loopscope_writer->tid == 0))
        loopscope_make_writer();
    for (; streams != 0; streams &= streams - 1) {
        uint32_t stream = (uint32_t)__builtin_ctz(streams);
        struct loopscope_section *section = &control->sections[stream];
        unsigned says;
        if (LOAD(&control->streams[stream].state) == LOOPSCOPE_BARE) {
            loopscope_no_ring(site, stream);
            continue;
        }
        if (!ask_filter(section, site, stream, &hit, &says))
            continue;
        if (says & FILTER_KEEP)
            loopscope_record(site, stream, id, source, now);
        else if (says & FILTER_UNKNOWN)
            loopscope_drop(site, stream, LOOPSCOPE_NO_FILTER);
        else
            __atomic_fetch_add(&section->filtered[site->index], 1, __ATOMIC_RELAXED);
        if (says & FILTER_TRIGGER)
            pull_trigger(site, stream, id, now);
    }
}

void loopscope_hit(const struct loopscope_site *site, uint32_t streams, int64_t id,
                   const struct source *source, uint64_t now)
{
    hit_streams(site, streams & ~LOOPSCOPE_SLOW, id, source, now);
}

static __attribute__((noinline)) void event_elsewhere(const struct loopscope_site *site,
                                                      uint32_t streams, int64_t id,
                                                      const uint8_t *payload, uint32_t size,
                                                      uint64_t now)
{
    struct source source = {payload, NULL, NULL, size};
    /* Zero: disabled since the caller looked. */
    if (streams & LOOPSCOPE_SLOW)
        hit_streams(site, streams & ~LOOPSCOPE_SLOW, id, &source, now);
    else if (streams != 0)
        loopscope_record(site, (uint32_t)__builtin_ctz(streams), id, &source, now);
}

static inline __attribute__((always_inline)) void
event(const struct loopscope_site *site, int64_t id, const uint8_t *payload, uint32_t size,
      uint64_t now, uint64_t (*read)(void))
{
    uint32_t streams = LOAD(site->enabled);
    if (unlikely((int32_t)streams <= 0)) {
        event_elsewhere(site, streams, id, payload, size, now);
        return;
    }
    struct lane *lane = &loopscope_writer->lane[__builtin_ctz(streams)];
    if (unlikely(LOAD(&lane->idle) == 0)) {
        event_elsewhere(site, streams, id, payload, size, now);
        return;
    }
    record(lane, site, id, payload, NULL, size, now, read);
}

/* Code of its own, so that a hit that reads cycles pays one branch for it, and saves no registers for
 * a call. */
static __attribute__((noinline)) void event_by_call(const struct loopscope_site *site, int64_t id,
                                                    const uint8_t *payload, uint32_t size)
{
    event(site, id, payload, size, 0, loopscope_counter_read);
}

LOOPSCOPE_EXPORT void loopscope_event(const struct loopscope_site *site, int64_t id)
{
    if (loopscope_counts_cycles())
        event(site, id, NULL, 0, 0, loopscope_cycles);
    else
        event_by_call(site, id, NULL, 0);
}

LOOPSCOPE_EXPORT void loopscope_event_fields(const struct loopscope_site *site, int64_t id,
                                             const void *payload, uint32_t size)
{
    if (loopscope_counts_cycles())
        event(site, id, payload, size, 0, loopscope_cycles);
    else
        event_by_call(site, id, payload, size);
}

void loopscope_event_fields_at(const struct loopscope_site *site, int64_t id, const void *payload,
                               uint32_t size, uint64_t counter)
{
    event(site, id, payload, size, counter, loopscope_counter);
}
