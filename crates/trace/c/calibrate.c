/* What an event costs on this machine: the hot path itself, into a ring of no process. */
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

#define SUBBUFFER (256u << 10)
#define SUBBUFFERS 4

/* Fills `ticks` with the durations of batches of `count` events each, or of bare counter reads; not
 * zero on success. The calling thread's own events are not recorded meanwhile. */
int loopscope_calibrate(uint64_t *ticks, uint32_t batches, uint32_t count, int events)
{
    struct guard guard;
    uint32_t enabled = 1;
    struct loopscope_site site = {.size = sizeof site, .kind = LOOPSCOPE_KIND_EVENT,
                                  .enabled = &enabled};
    size_t mapped = LOOPSCOPE_RING_DATA + SUBBUFFER * SUBBUFFERS;
    struct loopscope_ring *ring = loopscope_map_anonymous(mapped, MADV_NORMAL);
    struct writer *w = loopscope_map_anonymous(sizeof *w, MADV_NORMAL);
    struct writer *own = loopscope_writer;
    if (ring && w) {
        if (events)
            memset(ring, 0, mapped); /* brings the pages in */
        ring->data = LOOPSCOPE_RING_DATA;
        ring->subbuffer_size = SUBBUFFER;
        ring->subbuffer_count = SUBBUFFERS;
        w->lane[0].ring = ring;
        w->lane[0].idle = 1;
        w->tid = 1;
        /* A handler's events would go into this ring. */
        loopscope_guard(&guard);
        loopscope_writer = w;
        for (uint32_t batch = 0; batch < batches; batch++) {
            ring->tail = ring->head;
            uint64_t start = loopscope_counter();
            for (uint32_t i = 0; i < count; i++) {
                if (events)
                    loopscope_event(&site, i);
                else
                    loopscope_counter();
                __asm__ volatile("" ::: "memory");
            }
            ticks[batch] = loopscope_counter() - start;
        }
        loopscope_writer = own;
        loopscope_unguard(&guard);
    }
    if (ring)
        munmap(ring, mapped);
    if (w)
        munmap(w, sizeof *w);
    return ring && w;
}
