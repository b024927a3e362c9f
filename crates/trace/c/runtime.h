/* What the library's files share. */
#ifndef LOOPSCOPE_RUNTIME_H
#define LOOPSCOPE_RUNTIME_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "../../time/c/counter.h"
#include "layout.h"
#include "loopscope/trace.h"

#define LOOPSCOPE_EXPORT __attribute__((visibility("default")))
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Between a thread and its own signal handlers only the compiler could reorder. The collector reads
 * a killed thread's lines after all its executed stores have drained. */
#define SIGNAL_FENCE() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#define LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)

__extension__ typedef unsigned __int128 wide;

/* A thread's part in one stream. */
struct lane {
    uint64_t idle; /* 1: there is a ring and no hit of this stream under way in this thread */
    struct loopscope_ring *ring;
    uint8_t *subbuffer; /* the open one */
    uint64_t last;      /* last stamp */
    uint64_t *cells;    /* of counters and histograms */
    uint32_t cell_count;
    uint32_t packet;  /* offset of the open packet in the sub-buffer */
    uint32_t refused; /* generation plus 1 in which no ring could be made; not tried again in it */
    uint32_t cells_generation;
    uint32_t area; /* number of the cells file */
    uint32_t reserved;
};

/* Starts of the thread's intervals that have not ended: the newest, in a circle. */
#define LOOPSCOPE_OPEN_INTERVALS 256

struct open_interval {
    uint64_t start;
    uint32_t entity; /* plus 1; 0: ended */
    uint32_t streams; /* that had the start enabled */
};

/* A thread's writer, in pages of its own that are zeroed in a forked child. */
struct writer {
    struct lane lane[LOOPSCOPE_STREAMS + 1]; /* the last is no stream's and stays empty */
    uint32_t tid;
    uint32_t depth; /* intervals started */
    struct open_interval open[LOOPSCOPE_OPEN_INTERVALS];
};

/* A ring without a thread, and where its writer was. */
struct spare {
    struct loopscope_ring *ring;
    uint8_t *subbuffer;
    uint64_t last;
    uint32_t packet;
};

#define LOOPSCOPE_MOST_SPARES 512
#define LOOPSCOPE_MOST_AREAS 4096

/* What a process has of one stream. */
struct share {
    uint32_t generation; /* plus 1; of what follows */
    uint32_t rings;      /* made */
    uint32_t spare_count;
    uint32_t area_count; /* released after the area */
    struct spare spares[LOOPSCOPE_MOST_SPARES];
    struct loopscope_cells *base; /* state at the last reset; null: never */
    struct loopscope_cells *areas[LOOPSCOPE_MOST_AREAS];
    uint8_t taken[LOOPSCOPE_MOST_AREAS]; /* by a thread */
};

/* State of one process in pages that the kernel zeroes in a forked child (MADV_WIPEONFORK), whatever
 * call made it: a child that bypassed libc's fork finds out here, and a lock that another thread
 * held at the fork is free. Children that share memory (vfork) see the parent's. */
struct process {
    uint32_t state;
    uint32_t pid;
    uint64_t stamp; /* of the process directory's name */
    pthread_mutex_t lock; /* all zero is unlocked */
    struct share share[LOOPSCOPE_STREAMS];
};

enum { PROCESS_FORKED = 0, PROCESS_READY, PROCESS_ORPHAN };

extern struct process *loopscope_process;
extern struct loopscope_control *loopscope_control; /* null: dormant for good */
extern struct writer loopscope_no_writer;           /* of threads without one; never written */
extern __thread struct writer *loopscope_writer
    __attribute__((tls_model("initial-exec")));

/* A stretch that signal handlers and cancellation do not interrupt, errno kept. */
struct guard {
    sigset_t signals;
    int cancel;
    int error;
};
void loopscope_guard(struct guard *guard);
void loopscope_unguard(const struct guard *guard);

/* control.c */
/* The runtime directory. Paths are short, because a hit in a signal handler may have to make a ring
 * on a small stack. */
#define LOOPSCOPE_PATH 512
extern char loopscope_root[LOOPSCOPE_PATH - 128];
/* Reads the environment, once. */
void loopscope_init(void);
/* With the process lock held: not zero if this process has a directory of its own. A forked
 * child's is made here. */
int loopscope_ready(void);
/* Path of a file in the process directory; not zero if it fits. */
int loopscope_path(char *path, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A process that has the control file of the directory `name` mapped, other than this one; 0: none.
 * Called by the collector too. */
uint32_t loopscope_heir(struct loopscope_control *control, const char *name);

/* file.c */
void *loopscope_map_anonymous(size_t size, int advice);
/* Creates a file of `size` bytes and maps it; its first `present` bytes are allocated, and in memory
 * already. Null on any failure, with errno, and no file then. */
void *loopscope_map_file(const char *path, size_t size, size_t present);
/* Allocates bytes of a file that is there, and brings `map`, where they are mapped, into memory; not
 * zero on success, else errno says why. */
int loopscope_allocate(const char *path, void *map, size_t from, size_t size);
/* Bytes that a file in the runtime directory may still take. */
uint64_t loopscope_room(void);
/* Creates or extends a file; not zero on success, else errno says why. */
int loopscope_append(const char *path, const char *text, size_t size);

/* sites.c. Writes the lines of all sites so far; not zero on success. */
int loopscope_write_sites(const char *path);
uint32_t loopscope_site_count(void);
/* Registers the sites of the module that this is part of. */
void loopscope_register_here(void);
/* A histogram's range; site->entity counts them. */
struct buckets {
    uint32_t cell; /* the first of count + 3 */
    uint32_t count;
    int64_t low;
    uint64_t range;  /* 0: log-linear */
    uint64_t factor; /* 2^64 count / range, rounded up; 0: bucket by division */
};

#define LOOPSCOPE_MOST_HISTOGRAMS 1024
extern struct buckets loopscope_histograms[LOOPSCOPE_MOST_HISTOGRAMS];

/* config.c. The text of the `streams` file. */
struct config {
    char *text; /* null: there is none */
    size_t size;
};
void loopscope_config_read(struct config *config);
void loopscope_config_free(struct config *config);
/* Fills the slots of the streams that the text defines; their sections must not be in use. */
void loopscope_config_streams(struct loopscope_control *control, const char *path,
                              const struct config *config);
/* Applies the text's lines about one stream to one site: its bit in the flag word, its filter.
 * `fields` as in struct loopscope_site. Called by the collector too, on a running process. */
void loopscope_apply(struct loopscope_control *control, uint32_t stream, uint32_t index,
                     uint32_t kind, const char *full_name, const char *fields, const char *text);
/* Allocates a stream's tables; not zero on success, else the stream's `refusal` says why not. */
int loopscope_allocate_tables(struct loopscope_control *control, const char *path, uint32_t stream);
/* Allocates what filters need; not zero on success. */
int loopscope_allocate_filters(struct loopscope_control *control, const char *path,
                               uint32_t stream);
/* Does so if it is not done yet and the text has filters for the stream. Where there is no room they
 * are refused. */
void loopscope_prepare_filters(struct loopscope_control *control, const char *path, uint32_t stream,
                               const char *text);

/* filter.c */
/* A filter's head and code; a longer one is refused. */
#define LOOPSCOPE_LONGEST_FILTER 1024
/* Puts the filter that the text asks for into free blocks, unless the current one is that. Its
 * first block plus 1, 0 if none is needed, LOOPSCOPE_FILTER_REFUSED if it found no room or makes no
 * sense. */
uint32_t loopscope_filter_put(struct loopscope_section *section, uint32_t index, uint32_t current,
                              const char *full_name, uint32_t kind, const char *fields,
                              const char *block);
/* Gives the blocks of a filter back that no site has any more. */
void loopscope_filter_give_back(struct loopscope_section *section, uint32_t place);
/* A hit, its fields packed. */
struct hit {
    uint32_t index; /* of its site */
    int64_t id;
    const uint8_t *payload;
    uint64_t frequency;
    uint64_t now;
};
enum { FILTER_KEEP = 1, FILTER_TRIGGER = 2, FILTER_UNKNOWN = 4 };
/* Asks a filter about a hit; zero if it may have been another one meanwhile. `changes` is the
 * section's filter_changes, read before the filter's place. */
int loopscope_filter_ask(struct loopscope_section *section, uint32_t place, uint64_t changes,
                         const struct hit *hit, unsigned *says);
/* Sizes in a payload (not in a record) by type code; 0: no such type. */
uint32_t loopscope_payload_size(unsigned code);

/* config.c: value of the next line `key value` of a stream's block at or after *at, up to the block's
 * end; its length, or 0 where there is none. */
size_t loopscope_next_value(const char **at, const char *key, const char **value);
/* Whether `GLOB rest` of that length matches; sets *rest past the glob. */
int loopscope_glob_matches(const char *value, size_t length, const char *full_name,
                           const char **rest);

/* ring.c. Makes the calling thread's ring of a stream; not zero on success. */
int loopscope_make_ring(uint32_t stream);
/* The calling thread's writer, made if need be; null if there is no memory. */
struct writer *loopscope_make_writer(void);
/* A revoked ring: the thread has none any more. */
void loopscope_abandon_ring(struct lane *lane);
int loopscope_ring_init(void);
/* Makes the spare rings of a stream; with the process lock held. */
void loopscope_make_spares(uint32_t stream);
/* With the process lock held: forgets what the process has of an earlier use of the slot. */
struct share *loopscope_share(uint32_t stream);

/* cells.c. Gives the calling thread cells for all entities there are; not zero on success. */
int loopscope_make_cells(uint32_t stream, uint32_t count);

/* record.c. How the bytes of a record's fields come about. */
struct source;
struct source {
    const uint8_t *payload; /* packed fields, as filters read them */
    /* Writes `size` bytes; null: the payload's bytes as they are, readable up to a multiple of 8. */
    void (*write)(uint8_t *to, const struct source *source);
    const void *context;
    uint32_t size;
};
/* An event whose stamp the caller has read from the counter; not for strings. */
void loopscope_event_fields_at(const struct loopscope_site *site, int64_t id, const void *payload,
                               uint32_t size, uint64_t counter);

/* Records a hit in one stream that has it enabled; `now` 0 reads the counter. */
void loopscope_record(const struct loopscope_site *site, uint32_t stream, int64_t id,
                      const struct source *source, uint64_t now);
/* Records a hit in each of the streams that its filter there lets it into; `now` 0 reads the
 * counter. */
void loopscope_hit(const struct loopscope_site *site, uint32_t streams, int64_t id,
                   const struct source *source, uint64_t now);

static inline void loopscope_drop(const struct loopscope_site *site, uint32_t stream,
                                  enum loopscope_cause cause)
{
    struct loopscope_stream *slot = &loopscope_control->streams[stream];
    uint64_t *drop = &loopscope_control->sections[stream].drops[site->index][cause];
    if (LOAD(&slot->state) == LOOPSCOPE_BARE)
        drop = &slot->uncounted;
    __atomic_fetch_add(drop, 1, __ATOMIC_RELAXED);
}

/* A hit that finds neither ring nor cells. Where its recording is over it is nobody's: it began too
 * late, or the ring that was revoked under it has counted it already, as torn. */
static inline void loopscope_no_ring(const struct loopscope_site *site, uint32_t stream)
{
    /* Pairs with the release store of the collector that disables the stream (recorded.rs). */
    uint32_t state = __atomic_load_n(&loopscope_control->streams[stream].state, __ATOMIC_ACQUIRE);
    if (state == LOOPSCOPE_ACTIVE || state == LOOPSCOPE_BARE)
        loopscope_drop(site, stream, LOOPSCOPE_NO_RING);
}

#endif
