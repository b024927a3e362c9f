/* A program's own count of its events, in a file that outlives it: begun before each event, done
 * after it. One slot per thread. */
#ifndef EMIT_H
#define EMIT_H

#include <stdint.h>

struct slot {
    uint64_t pid;
    uint64_t begun;
    uint64_t done;
    uint64_t handler; /* events in signal handlers, complete ones */
};

struct tally {
    uint64_t slots;
    uint64_t padding[3];
    struct slot slot[16383];
};

struct tally *open_tally(const char *path);
struct slot *take_slot(struct tally *tally);

/* An event whose id is the slot's next number. */
void hit(struct slot *slot);
void hits(struct slot *slot, uint64_t count);

#endif
