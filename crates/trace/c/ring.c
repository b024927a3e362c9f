/* A thread's writer and its rings: made ahead, at its first hit or at its request; handed on at its
 * end. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime.h"

/* A process's first rings of a stream have their full size; in a crowd, later ones an eighth. */
#define FULL_SIZE_RINGS 16
#define SMALLEST_SUBBUFFER 256

/* A ring takes at most this part of the room that there is: the rest is for the next ones. Where that
 * is little, rings are made smaller, down to these. */
#define PART_OF_ROOM 8
#define LEAST_SUBBUFFER 4096u
#define LEAST_SUBBUFFERS 4u

static pthread_key_t key;
static int have_key;

/* Stamp of the directory in which this thread's writer could not be made; not tried again there. */
static __thread uint64_t refused __attribute__((tls_model("initial-exec")));

void loopscope_guard(struct guard *guard)
{
    sigset_t all;
    guard->error = errno;
    sigfillset(&all);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &guard->cancel);
    pthread_sigmask(SIG_BLOCK, &all, &guard->signals);
}

void loopscope_unguard(const struct guard *guard)
{
    pthread_sigmask(SIG_SETMASK, &guard->signals, NULL);
    pthread_setcancelstate(guard->cancel, NULL);
    errno = guard->error;
}

static size_t size_of(const struct loopscope_ring *ring)
{
    return ring->data + (size_t)ring->subbuffer_size * ring->subbuffer_count;
}

struct share *loopscope_share(uint32_t stream)
{
    struct share *share = &loopscope_process->share[stream];
    uint32_t generation = LOAD(&loopscope_control->streams[stream].generation) + 1;
    if (share->generation == generation)
        return share;
    for (uint32_t i = 0; i < share->spare_count; i++)
        munmap(share->spares[i].ring, size_of(share->spares[i].ring));
    /* Cells of the earlier use stay mapped: a thread may be adding to them. */
    share->rings = share->spare_count = 0;
    /* Both pair with the acquire loads of who sums cells (cells.c). */
    __atomic_store_n(&share->area_count, 0, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < LOOPSCOPE_MOST_AREAS; i++)
        share->taken[i] = 0;
    __atomic_store_n(&share->base, NULL, __ATOMIC_RELEASE);
    STORE(&share->generation, generation);
    return share;
}

/* Halves a ring's size until it has at most so many bytes; zero if it can be made no smaller. */
static int shrink(uint32_t *size, uint32_t *count, uint64_t most)
{
    while ((uint64_t)*size * *count > most) {
        if (*size / 2 >= LEAST_SUBBUFFER)
            *size = *size / 2 & ~7u;
        else if (*count / 2 >= LEAST_SUBBUFFERS)
            *count /= 2;
        else
            return 0;
    }
    return 1;
}

/* The file of a ring of this shape; null on any failure. */
static struct loopscope_ring *map_shape(uint32_t number, uint32_t generation, uint32_t n,
                                        uint32_t size, uint32_t count)
{
    const struct loopscope_stream *stream = &loopscope_control->streams[number];
    char path[LOOPSCOPE_PATH];
    size_t data = LOOPSCOPE_RING_DATA;
    if (stream->kind == LOOPSCOPE_FLIGHT_RECORDER)
        data = (sizeof(struct loopscope_ring) + 8 * (size_t)count + 4095) & ~(size_t)4095;
    size_t mapped = data + (size_t)size * count;
    if (!loopscope_path(path, sizeof path, "ring-%u-%u-%u", number, generation, n)) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    struct loopscope_ring *ring = loopscope_map_file(path, mapped, mapped);
    if (!ring)
        return NULL;
    /* A forked child has no use for it: its writers are zeroed, and memory stays with the files'
     * owner. */
    if (madvise(ring, mapped, MADV_DONTFORK) != 0) {
        munmap(ring, mapped);
        unlink(path);
        return NULL;
    }
    ring->version = LOOPSCOPE_LAYOUT_VERSION;
    ring->data = (uint32_t)data;
    ring->pid = loopscope_process->pid;
    ring->stream = number;
    ring->generation = generation;
    ring->kind = stream->kind;
    ring->subbuffer_size = size;
    ring->subbuffer_count = count;
    /* Pairs with the collector's acquire load of the magic. */
    __atomic_store_n(&ring->magic, LOOPSCOPE_RING_MAGIC, __ATOMIC_RELEASE);
    return ring;
}

/* A ring without a thread. */
static int map_ring(uint32_t number, struct share *share, struct spare *spare)
{
    struct loopscope_stream *stream = &loopscope_control->streams[number];
    uint32_t size = stream->subbuffer_size, count = stream->subbuffer_count, n = share->rings++;
    uint64_t most = loopscope_room() / PART_OF_ROOM;
    struct loopscope_ring *ring;
    if (n >= FULL_SIZE_RINGS)
        size = size / 8 < SMALLEST_SUBBUFFER ? SMALLEST_SUBBUFFER : size / 8 & ~7u;
    uint64_t asked = (uint64_t)size * count;
    /* Others take room at the same time. */
    int smaller = shrink(&size, &count, most);
    while (!(ring = map_shape(number, share->generation - 1, n, size, count)) && errno == ENOSPC
           && smaller)
        smaller = shrink(&size, &count, (uint64_t)size * count / 2);
    if (!ring) {
        STORE(&stream->refusal, (uint32_t)errno);
        return 0;
    }
    if ((uint64_t)size * count < asked)
        __atomic_fetch_add(&stream->small, 1, __ATOMIC_RELAXED);
    *spare = (struct spare){.ring = ring};
    return 1;
}

static void add_spare(struct share *share, const struct spare *spare)
{
    /* Nobody's any more, but the collector's: its file tells all. */
    if (share->spare_count == LOOPSCOPE_MOST_SPARES)
        munmap(spare->ring, size_of(spare->ring));
    else
        share->spares[share->spare_count++] = *spare;
}

void loopscope_make_spares(uint32_t stream)
{
    struct share *share = loopscope_share(stream);
    struct spare spare;
    while (share->spare_count < loopscope_control->streams[stream].spares
           && map_ring(stream, share, &spare))
        add_spare(share, &spare);
}

static int is_real_time(void)
{
    int policy = sched_getscheduler(0);
    return policy != SCHED_OTHER && policy != SCHED_BATCH && policy != SCHED_IDLE;
}

/* A ring that a thread left, or one made ahead, or a new one. Threads that are not in a hurry leave
 * one for those that are. */
static int take_ring(uint32_t stream, struct share *share, struct spare *spare)
{
    while (share->spare_count > 0) {
        *spare = share->spares[--share->spare_count];
        if (!LOAD(&spare->ring->revoked)) {
            if (share->spare_count == 0 && !is_real_time())
                loopscope_make_spares(stream);
            return 1;
        }
        munmap(spare->ring, size_of(spare->ring));
    }
    return map_ring(stream, share, spare);
}

/* The writer goes first: a hit in a later destructor or in a signal handler makes a new one. */
static void end_thread(void *value)
{
    struct writer *w = value;
    struct guard guard;
    loopscope_writer = &loopscope_no_writer;
    SIGNAL_FENCE();
    loopscope_guard(&guard);
    pthread_mutex_lock(&loopscope_process->lock);
    for (uint32_t k = 0; k < LOOPSCOPE_STREAMS; k++) {
        struct lane *lane = &w->lane[k];
        struct share *share = &loopscope_process->share[k];
        if (lane->ring && lane->ring->generation + 1 == share->generation) {
            struct spare spare = {lane->ring, lane->subbuffer, lane->last, lane->packet};
            /* The next owner begins a packet of its own. */
            STORE(&lane->ring->limit, 0);
            STORE(&lane->ring->tid, 0);
            add_spare(share, &spare);
        } else if (lane->ring) {
            munmap(lane->ring, size_of(lane->ring));
        }
        if (lane->cells && lane->cells_generation == share->generation)
            share->taken[lane->area] = 0;
    }
    pthread_mutex_unlock(&loopscope_process->lock);
    munmap(w, sizeof *w);
    loopscope_unguard(&guard);
}

int loopscope_ring_init(void)
{
    have_key = pthread_key_create(&key, end_thread) == 0;
    return have_key;
}

/* In a library that is unloaded, threads that end later must not call end_thread. After the module's
 * other destructors, because a first hit of a thread in one of them has a use for the key. */
__attribute__((destructor(101))) static void forget_key(void)
{
    if (have_key)
        pthread_key_delete(key);
}

static struct writer *make_writer(void)
{
    pthread_mutex_lock(&loopscope_process->lock);
    int ready = loopscope_ready();
    pthread_mutex_unlock(&loopscope_process->lock);
    if (!ready)
        return NULL;
    /* The thread that forked this process left its pages here, zeroed. */
    struct writer *w = loopscope_writer;
    if (w == &loopscope_no_writer)
        w = loopscope_map_anonymous(sizeof *w, MADV_WIPEONFORK);
    if (!w)
        return NULL;
    if (pthread_setspecific(key, w) != 0) {
        munmap(w, sizeof *w);
        loopscope_writer = &loopscope_no_writer;
        return NULL;
    }
    w->tid = (uint32_t)syscall(SYS_gettid);
    loopscope_writer = w;
    return w;
}

struct writer *loopscope_make_writer(void)
{
    struct writer *w = loopscope_writer;
    if (w->tid != 0)
        return w;
    /* Pairs with the release stores in loopscope_ready. */
    int orphan = __atomic_load_n(&loopscope_process->state, __ATOMIC_ACQUIRE) == PROCESS_ORPHAN;
    if (orphan || (refused != 0 && refused == loopscope_process->stamp))
        return NULL;
    struct guard guard;
    loopscope_guard(&guard);
    w = make_writer();
    if (!w)
        refused = loopscope_process->stamp;
    loopscope_unguard(&guard);
    return w;
}

int loopscope_make_ring(uint32_t number)
{
    struct loopscope_stream *stream = &loopscope_control->streams[number];
    struct writer *w = loopscope_make_writer();
    /* Pairs with the release store of who set the stream up. */
    if (!w || __atomic_load_n(&stream->state, __ATOMIC_ACQUIRE) != LOOPSCOPE_ACTIVE)
        return 0;
    struct lane *lane = &w->lane[number];
    if (lane->refused == LOAD(&stream->generation) + 1)
        return 0;
    struct guard guard;
    struct spare spare;
    loopscope_guard(&guard);
    pthread_mutex_lock(&loopscope_process->lock);
    struct share *share = loopscope_share(number);
    int made = take_ring(number, share, &spare);
    if (made) {
        lane->subbuffer = spare.subbuffer;
        lane->last = spare.last;
        lane->packet = spare.packet;
        STORE(&spare.ring->tid, w->tid);
        lane->ring = spare.ring;
        lane->idle = 1;
    } else {
        lane->refused = share->generation;
    }
    pthread_mutex_unlock(&loopscope_process->lock);
    loopscope_unguard(&guard);
    return made;
}

void loopscope_abandon_ring(struct lane *lane)
{
    struct loopscope_ring *ring = lane->ring;
    lane->ring = NULL;
    SIGNAL_FENCE();
    munmap(ring, size_of(ring));
}

LOOPSCOPE_EXPORT int loopscope_thread_init(void)
{
    struct loopscope_control *control = loopscope_control;
    int made = 1;
    for (uint32_t k = 0; control && k < LOOPSCOPE_STREAMS; k++) {
        uint32_t state = LOAD(&control->streams[k].state);
        if (state == LOOPSCOPE_BARE)
            made = 0;
        if (state != LOOPSCOPE_ACTIVE)
            continue;
        if (!loopscope_writer->lane[k].ring)
            made = loopscope_make_ring(k) && made;
        made = loopscope_make_cells(k, LOAD(&control->cells)) && made;
    }
    return made ? 0 : -1;
}
