/* What the library shares with the collector: the files of a process directory.
 *
 *     <runtime dir>/streams                what to record, text (config.c)
 *     <runtime dir>/<pid>-<hex counter>/   one per process image and per forked child
 *         control                          struct loopscope_control
 *         sites                            one line per registered site, in the order of indexes
 *         ring-<stream>-<generation>-<n>   struct loopscope_ring, then its sub-buffers
 *         cells-<stream>-<generation>-<n>  struct loopscope_cells
 *
 * crates/trace/src/layout.rs says the same in Rust; tests/layout.rs holds the two together. */
#ifndef LOOPSCOPE_LAYOUT_H
#define LOOPSCOPE_LAYOUT_H

#include <stdint.h>

#define LOOPSCOPE_CONTROL_MAGIC 0x314c5443504f4f4cull /* "LOOPCTL1" */
#define LOOPSCOPE_RING_MAGIC 0x31474e52504f4f4cull    /* "LOOPRNG1" */
#define LOOPSCOPE_CELLS_MAGIC 0x31534c43504f4f4cull   /* "LOOPCLS1" */
#define LOOPSCOPE_LAYOUT_VERSION 4
#define LOOPSCOPE_MAX_SITES 4096
#define LOOPSCOPE_STREAMS 31

/* A site's flag word: a bit for each stream that has it enabled. With this bit set a hit cannot be
 * recorded straight away: several streams have it, or a filter or trigger looks at it. */
#define LOOPSCOPE_SLOW (1u << 31)

/* A hit of ring-full, too-large and frozen is in its ring's `emitted` and `discarded` too; a hit of
 * the others reaches no ring and is counted as a drop alone, in one step: no kill can come between
 * a hit and its drop. */
enum loopscope_cause {
    LOOPSCOPE_RING_FULL,
    LOOPSCOPE_SIGNAL_REENTRY, /* in a signal handler that interrupted a hit of the same stream */
    LOOPSCOPE_NO_RING,
    LOOPSCOPE_NO_START,  /* end of an interval whose start was not seen */
    LOOPSCOPE_TOO_LARGE, /* larger than a sub-buffer */
    LOOPSCOPE_FROZEN,    /* a triggered flight recorder waits for the collector */
    LOOPSCOPE_NO_FILTER, /* whether the site's filter would keep it is unknown: it found no room */
    LOOPSCOPE_CAUSES
};

enum loopscope_stream_kind { LOOPSCOPE_NORMAL, LOOPSCOPE_FLIGHT_RECORDER };

/* A stream's state. Who finds a slot free takes it by compare-and-swap. A bare stream is one whose
 * tables found no memory: its section must not be touched, and its hits count in `uncounted`. */
enum loopscope_stream_state { LOOPSCOPE_FREE, LOOPSCOPE_TAKEN, LOOPSCOPE_ACTIVE, LOOPSCOPE_BARE };

/* A stream's slot in the control file. */
struct loopscope_stream {
    uint32_t state;
    uint32_t kind;
    uint32_t subbuffer_size;
    uint32_t subbuffer_count;
    uint32_t spares;     /* rings made ahead */
    uint32_t generation; /* of the slot's use: in the names of its rings and cells */
    uint64_t post;       /* ticks that a flight recorder goes on after its trigger */
    uint64_t trigger;    /* stamp of the trigger; 0: none yet. From 0 by compare-and-swap */
    uint64_t freeze;     /* stamp from which rings overwrite nothing; 0: none */
    uint32_t trigger_site; /* index plus 1; 0: it came from outside */
    uint32_t refusal;   /* errno of the newest ring, cells or tables that could not be made; 0: none */
    int64_t trigger_id; /* of the hit that triggered */
    uint64_t uncounted; /* of a bare stream: hits, all dropped, of whatever site */
    uint32_t small;     /* rings that were made smaller than asked for, to leave room */
    uint8_t padding[52];
};

/* Filters lie in blocks; one filter's are contiguous. */
#define LOOPSCOPE_FILTER_BLOCK 32
#define LOOPSCOPE_FILTER_BLOCKS 4096
/* In `filter`: the site's filter found no room, or makes no sense. */
#define LOOPSCOPE_FILTER_REFUSED UINT32_MAX

/* A stream's tables. Those before `filters_ready` are there (allocated) from the time that its slot
 * is taken, the others only once that is not zero. */
struct loopscope_section {
    uint64_t drops[LOOPSCOPE_MAX_SITES][LOOPSCOPE_CAUSES];
    uint64_t filtered[LOOPSCOPE_MAX_SITES]; /* hits that a filter kept out: neither emitted nor dropped */
    uint32_t filter[LOOPSCOPE_MAX_SITES];   /* first block of the site's filter plus 1; 0: none */
    uint64_t filter_changes;                /* filters whose blocks were given back; see filter.c */
    uint32_t filters_ready;                 /* released after what follows is allocated */
    uint8_t padding[4096 - 12];
    uint64_t counted[LOOPSCOPE_MAX_SITES]; /* hits that the site's `every` has seen */
    uint64_t window[LOOPSCOPE_MAX_SITES];  /* of its `rate`: second, and hits let through in it */
    uint8_t block_taken[LOOPSCOPE_FILTER_BLOCKS];
    uint64_t block[LOOPSCOPE_FILTER_BLOCKS][LOOPSCOPE_FILTER_BLOCK / 8];
};

/* The magic is stored last (release): who sees it sees a whole header. */
struct loopscope_control {
    uint64_t magic;
    uint32_t version;
    uint32_t size; /* of the whole file, sparse */
    uint32_t pid;
    uint32_t max_sites;
    uint32_t causes;
    uint32_t site_count; /* released after the sites' lines are written */
    uint32_t sites_refused;
    uint32_t orphans; /* forked children that count their hits here, as drops */
    uint64_t pid_namespace; /* inode of the namespace that pid counts in; 0 is unknown */
    uint64_t parent_stamp;  /* of the directory of the process that forked this one; 0: none */
    uint64_t frequency;     /* of the counter in Hz, told by the collector's side; 0: unknown */
    uint32_t parent_pid;
    uint32_t cells;   /* cells that entities take so far */
    char process[64]; /* program's short name, NUL-terminated */
    uint32_t sites_error; /* errno of the newest site that was refused for lack of room; 0: none */
    uint32_t forked;      /* not zero: forked children may use this file when the process has ended */
    uint32_t heir;        /* such a child, as it was last found; 0: none yet */
    uint32_t counter;     /* what stamps the hits: enum loopscope_counter_kind */
    uint8_t padding[4096 - 152];
    uint32_t flags[LOOPSCOPE_MAX_SITES]; /* by site: see LOOPSCOPE_SLOW */
    struct loopscope_stream streams[LOOPSCOPE_STREAMS];
    uint8_t padding2[4096 - LOOPSCOPE_STREAMS * 128];
    struct loopscope_section sections[LOOPSCOPE_STREAMS];
};

/* Bytes of the control file that are there from the start. */
#define LOOPSCOPE_CONTROL_HEAD (4096 + 4 * LOOPSCOPE_MAX_SITES + 4096)

/* Constants, the writer's lines, the collector's line. A ring belongs to one thread at a time; its
 * packets say which. */
struct loopscope_ring {
    uint64_t magic; /* stored last (release) */
    uint32_t version;
    uint32_t data; /* offset of the first sub-buffer in the file */
    uint32_t pid;
    uint32_t stream;
    uint32_t generation;
    uint32_t kind;
    uint32_t subbuffer_size;
    uint32_t subbuffer_count;
    uint8_t padding1[24];

    uint64_t head; /* sub-buffers closed; the next one has this number */
    /* Low half of the open sub-buffer's number, then the bytes written to it. Not the open one's if
     * the number is not head's: closing is one store. */
    uint64_t committed;
    uint64_t limit;     /* of committed; 0: nothing may be added before a look at everything else */
    uint64_t emitted;   /* hits of enabled sites that found the ring idle */
    uint64_t discarded; /* of these, dropped as ring-full, too-large or frozen */
    uint64_t reentered; /* hits in signal handlers that interrupted a hit; not in emitted */
    uint32_t tid;       /* owner; 0: the ring waits for one */
    uint8_t padding2[12];

    uint64_t tail;    /* sub-buffers that the collector has copied */
    uint32_t revoked; /* not zero: the collector has done with the ring; then it zeroes limit */
    uint8_t padding3[52];

    /* Flight recorders, by sub-buffer: records in the ring before this sub-buffer's first. */
    uint64_t first[];
};

/* The sub-buffers begin at `data`, a multiple of 4096 (4096 itself in normal rings). The open one is
 * number n in place n modulo their count; in flight recorders number 0 stays in place 0 for good
 * (initialisation is never overwritten) and number n > 0 is in place 1 + (n - 1) mod (count - 1).
 *
 * A sub-buffer holds CTF packets back to back, whose sizes add up to its size once it is closed;
 * each has the records of one thread. A packet's begin is a multiple of 8. In the open sub-buffer
 * the packets up to the last one are whole; the last one ends where `committed` says, with
 * content_bits and end not yet told. */
#define LOOPSCOPE_RING_DATA 4096

/* CTF packet header and context; see schema/trace.md. */
struct loopscope_packet {
    uint32_t magic;
    uint8_t uuid[16];   /* the collector's */
    uint32_t stream_id; /* the collector's */
    uint64_t begin;
    uint64_t end;
    uint64_t content_bits;
    uint64_t packet_bits; /* of an open sub-buffer's last packet: to the sub-buffer's end */
    uint64_t sequence;    /* the collector's; here the number of the sub-buffer */
    uint64_t discarded;
    uint32_t pid;
    uint32_t tid;
} __attribute__((packed, aligned(8)));

#define LOOPSCOPE_PACKET_MAGIC 0xc1fc1fc1u
#define LOOPSCOPE_RECORD 14 /* class (u16), low half of the counter (u32), id (i64) */

#define LOOPSCOPE_MOST_CELLS (512u << 10)

/* A histogram's cells: values below the range, its buckets, values above it, the values' sum. The
 * log-linear kind has 32 buckets per power of two: value v < 32 is in bucket v, any other in bucket
 * 32 (e - 4) + (v >> (e - 5)) mod 32, where e is its highest set bit. */
#define LOOPSCOPE_LOG_BUCKETS (32u * 59)

/* State of counters and histograms: each thread adds to cells of its own, which outlive it; an
 * entity's state in a stream is the sum over all its cells files but number 0, which holds what the
 * state was when it was last reset. Wrapping arithmetic. */
struct loopscope_cells {
    uint64_t magic; /* stored last (release) */
    uint32_t version;
    uint32_t pid;
    uint32_t stream;
    uint32_t generation;
    uint64_t count; /* cells that are there (allocated) */
    uint8_t padding[4096 - 32];
    uint64_t cell[LOOPSCOPE_MOST_CELLS];
};

#endif
