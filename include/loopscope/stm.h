/*
 * loopscope/stm.h: space-time memory, channels of items with a time, which the programs of a machine
 * share.
 *
 *     struct loopscope_stm_service *service;
 *     struct loopscope_stm_channel *frames;
 *     struct loopscope_stm_output *out;
 *     struct loopscope_stm_options options = {.item_bytes = 640 * 480, .capacity = 4};
 *     if (loopscope_stm_connect(NULL, &service) != 0 ||
 *         loopscope_stm_create(service, "frames", &options, &frames) != 0 ||
 *         loopscope_stm_output(frames, &out) != 0 ||
 *         loopscope_stm_put(out, 7, 0, picture, sizeof picture, LOOPSCOPE_STM_FOREVER) != 0)
 *         fprintf(stderr, "%s\n", loopscope_stm_error());
 *
 * Link with libloopscope_stm (pkg-config loopscope-stm). A service has to be there: `loopscope stm
 * serve`. schema/stm.md says what each operation does.
 *
 * Functions return 0, or one of the positive numbers below, which loopscope_stm_error() describes.
 * Where they fail they change nothing of what is pointed to. One thread at a time may use a service
 * and a connection; any threads may use a channel, items and loans. A timeout is in nanoseconds: 0
 * does not wait, LOOPSCOPE_STM_FOREVER waits for as long as it takes; signals do not end a wait. A
 * child made by fork has to connect and open channels itself.
 */
#ifndef LOOPSCOPE_STM_H
#define LOOPSCOPE_STM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOOPSCOPE_STM_FOREVER ((int64_t)-1)

/* Why something is not done. */
enum loopscope_stm_result {
    LOOPSCOPE_STM_OK = 0,
    LOOPSCOPE_STM_NOT_YET = 1,       /* there is no such item yet */
    LOOPSCOPE_STM_GONE = 2,          /* the time was consumed or collected */
    LOOPSCOPE_STM_NEVER = 3,         /* the producers promised no item of this time */
    LOOPSCOPE_STM_AMBIGUOUS = 4,     /* several items may be the nearest one */
    LOOPSCOPE_STM_LATE = 5,          /* nobody may have an item of this time any more */
    LOOPSCOPE_STM_EXISTS = 6,        /* the channel has an item of this time */
    LOOPSCOPE_STM_FULL = 7,          /* the channel is full */
    LOOPSCOPE_STM_NO_SLOT = 8,       /* all slots of the channel are in use */
    LOOPSCOPE_STM_TOO_MANY = 9,      /* there are as many connections, loans or items as may be */
    LOOPSCOPE_STM_NOT_CONNECTED = 10, /* the connection has ended */
    LOOPSCOPE_STM_INVALID = 11,      /* an argument cannot be */
    LOOPSCOPE_STM_FAILED = 12        /* anything else */
};

/* What the last error of this thread was about, in one line. Valid until its next call. */
const char *loopscope_stm_error(void);

/* The way to the machine's service of channels; opaque. */
struct loopscope_stm_service;

/*
 * Connects to the service whose socket is at path, @ and a name: one without a file; NULL: where it
 * is by default.
 */
int loopscope_stm_connect(const char *path, struct loopscope_stm_service **service);

/* Ends that. Channels stay open. NULL is allowed. */
void loopscope_stm_disconnect(struct loopscope_stm_service *service);

/* What becomes of items while there is no input connection. */
enum loopscope_stm_orphans { LOOPSCOPE_STM_KEEP = 0, LOOPSCOPE_STM_DISCARD = 1 };

/* What a put does where all inputs still want all items. */
enum loopscope_stm_full { LOOPSCOPE_STM_REFUSE = 0, LOOPSCOPE_STM_DROP = 1 };

/* What a channel has room for. A number that is 0 stands for the default. */
struct loopscope_stm_options {
    uint32_t item_bytes; /* bytes that an item may have; has to be given */
    uint32_t capacity;   /* items that it may have; 16 */
    uint32_t slots;      /* places for items and loans; capacity + outputs * loans */
    uint32_t inputs;     /* connections that get items, at most; 16 */
    uint32_t outputs;    /* connections that put items, at most; 4 */
    uint32_t loans;      /* items that an output may fill at one time; 1 */
    uint32_t processes;  /* programs that may use it at one time; 16 */
    uint32_t ahead;      /* times without an item that an input may have consumed one by one; 64 */
    uint32_t remembered; /* gone times, among others that are not, which it remembers; 64 */
    enum loopscope_stm_orphans orphans;
    enum loopscope_stm_full full;
};

/* A channel that this process uses; opaque. */
struct loopscope_stm_channel;

/* Makes a channel, or opens the one of this name if it was made with the same options. */
int loopscope_stm_create(struct loopscope_stm_service *service, const char *name,
                         const struct loopscope_stm_options *options,
                         struct loopscope_stm_channel **channel);

/* Opens a channel that is there; puts: to put items, too. */
int loopscope_stm_open(struct loopscope_stm_service *service, const char *name, bool puts,
                       struct loopscope_stm_channel **channel);

/* Closes it. Its connections, items and loans stay. NULL is allowed. */
void loopscope_stm_close(struct loopscope_stm_channel *channel);

/* Bytes that an item may have: what was asked for, or up to 63 more. */
size_t loopscope_stm_item_bytes(const struct loopscope_stm_channel *channel);

/*
 * A connection that puts items; opaque. Where the channel's home is another host, it goes there: a put
 * waits for the home's answer, a loan is memory of this process, and after the home has gone away the
 * connection is of no use any more.
 */
struct loopscope_stm_output;

int loopscope_stm_output(const struct loopscope_stm_channel *channel,
                         struct loopscope_stm_output **output);

/* Ends it. NULL is allowed. */
void loopscope_stm_output_leave(struct loopscope_stm_output *output);

/*
 * Puts a copy of some bytes as the item of a time. half_width: by how much the time may be wrong at
 * most, in its units. Waits for room.
 */
int loopscope_stm_put(struct loopscope_stm_output *output, int64_t time, uint32_t half_width,
                      const void *bytes, size_t length, int64_t timeout);

/* Promises that the connection puts nothing below a time any more. */
int loopscope_stm_bound(struct loopscope_stm_output *output, int64_t time);

/*
 * Times of items that the connection has put since the first call, and that were collected since the
 * last one: their bytes are of no use to anybody any more. There are `count`, the lowest ones, and
 * not more than `room`, for which there is memory at `times`.
 */
int loopscope_stm_collected(struct loopscope_stm_output *output, int64_t *times, size_t room,
                            size_t *count);

/* A connection that gets items; opaque. */
struct loopscope_stm_input;

/*
 * Has that promise follow what the thread gets by an input: nothing below the lowest time of which
 * it has an item or may get one. With several inputs the lowest of theirs counts.
 */
int loopscope_stm_derives(struct loopscope_stm_output *output, struct loopscope_stm_input *input);

/* Memory for an item, to be filled; opaque. */
struct loopscope_stm_loan;

/* Memory for an item, of loopscope_stm_item_bytes(). Waits for a free slot. */
int loopscope_stm_loan(struct loopscope_stm_output *output, int64_t timeout,
                       struct loopscope_stm_loan **loan, void **memory);

/*
 * Makes its first bytes the item of a time. Waits for room. The loan ends, and the memory is not to
 * be written any more; where it fails, both are there still.
 */
int loopscope_stm_loan_put(struct loopscope_stm_loan *loan, int64_t time, uint32_t half_width,
                           size_t length, int64_t timeout);

/* Ends a loan without an item. NULL is allowed. */
void loopscope_stm_loan_give_back(struct loopscope_stm_loan *loan);

/* What a new input connection wants. */
enum loopscope_stm_start {
    LOOPSCOPE_STM_FROM_OLDEST = 0, /* everything that is there */
    LOOPSCOPE_STM_FROM_NEWEST = 1, /* the newest item and what is later */
    LOOPSCOPE_STM_FROM_NEXT = 2,   /* what is later than everything so far */
    LOOPSCOPE_STM_FROM_TIME = 3    /* everything from a time on */
};

/*
 * time: for LOOPSCOPE_STM_FROM_TIME. lossy: a full channel may drop items that this connection
 * wants. holds: items that it may have at one time.
 */
int loopscope_stm_input(const struct loopscope_stm_channel *channel, enum loopscope_stm_start start,
                        int64_t time, bool lossy, uint32_t holds,
                        struct loopscope_stm_input **input);

/* Ends it. Items that are in use stay. NULL is allowed. */
void loopscope_stm_input_leave(struct loopscope_stm_input *input);

/* An item that was got. Its bytes stay as they are until it is released. */
struct loopscope_stm_item {
    int64_t time;
    int64_t put_ns;       /* when it was put: ns of CLOCK_MONOTONIC */
    int64_t put_error_ns; /* by how much that may be wrong at most: 0 where it was put on this host */
    uint32_t half_width;  /* by how much the time may be wrong at most, in its units */
    size_t length;
    const void *bytes;
    void *held;           /* not for programs */
};

/* The item of a time. Waits until it is put. */
int loopscope_stm_get(struct loopscope_stm_input *input, int64_t time, int64_t timeout,
                      struct loopscope_stm_item *item);

/* The item of the greatest and of the lowest time. Wait until there is one. */
int loopscope_stm_newest(struct loopscope_stm_input *input, int64_t timeout,
                         struct loopscope_stm_item *item);
int loopscope_stm_oldest(struct loopscope_stm_input *input, int64_t timeout,
                         struct loopscope_stm_item *item);

/*
 * The item of the greatest time, above all that this connection was given. Waits until there is one.
 * Consumes all lower times.
 */
int loopscope_stm_unseen(struct loopscope_stm_input *input, int64_t timeout,
                         struct loopscope_stm_item *item);

/*
 * The item whose time is nearest to one, and not farther from it than tolerance. half_width: by how
 * much that time may be wrong at most. Waits until there is one.
 */
int loopscope_stm_nearest(struct loopscope_stm_input *input, int64_t time, uint64_t tolerance,
                          uint32_t half_width, int64_t timeout, struct loopscope_stm_item *item);

/*
 * The items that there are from one time to another, both included, by their times. *count is how
 * many items has room for, and then how many there are. LOOPSCOPE_STM_TOO_MANY: there are more.
 */
int loopscope_stm_range(struct loopscope_stm_input *input, int64_t first, int64_t last,
                        struct loopscope_stm_item *items, size_t *count);

/*
 * Copies the newest item into memory of size bytes; it is not held then, and does not count as one
 * that was got. LOOPSCOPE_STM_NOT_YET: its time is not later than *after (NULL: any is), or this
 * connection wants none. item->bytes is that memory; item->length is the item's, of which size bytes at most
 * are copied. Does not wait, and takes no lock but for a look in many: a thread may call it as often
 * as it can.
 */
int loopscope_stm_look(struct loopscope_stm_input *input, const int64_t *after, void *memory,
                       size_t size, struct loopscope_stm_item *item);

/* Ends an item's being held. One that was released is allowed. */
void loopscope_stm_release(struct loopscope_stm_item *item);

/* Says that the connection wants nothing of this time. */
int loopscope_stm_consume(struct loopscope_stm_input *input, int64_t time);

/*
 * Says that of some times, one after the other. Where one cannot be consumed, those before it are.
 */
int loopscope_stm_consume_each(struct loopscope_stm_input *input, const int64_t *times,
                               size_t count);

/* Says that the connection wants nothing of this and all lower times. */
int loopscope_stm_consume_until(struct loopscope_stm_input *input, int64_t time);

/* What an input connection has counted. */
struct loopscope_stm_input_counts {
    int64_t floor;    /* all times below this are consumed */
    uint32_t held;    /* items that it holds */
    uint64_t lost;    /* items that it wanted and that were dropped */
    uint64_t skipped; /* items that it passed over by getting a newer one */
};

int loopscope_stm_input_count(const struct loopscope_stm_input *input,
                              struct loopscope_stm_input_counts *counts);

/* What a channel has counted. */
struct loopscope_stm_counts {
    uint64_t put;       /* items that were put */
    uint64_t collected; /* those of them whose slot is free again */
    uint64_t dropped;   /* those of these that were dropped to make room */
    uint32_t present;   /* items that it has */
    uint32_t free;      /* slots that nobody uses */
};

int loopscope_stm_count(const struct loopscope_stm_channel *channel,
                        struct loopscope_stm_counts *counts);

/*
 * How many times its home on another host has begun anew, without its items, since it was opened; 0
 * where its home is here. What was put there between the last item that came before and the first
 * that came after is lost, unless it is put again.
 */
uint64_t loopscope_stm_restarts(const struct loopscope_stm_channel *channel);

/*
 * The turns of a loop at a fixed period; opaque. Turn n is due n periods after the first one, by
 * CLOCK_MONOTONIC, so that no delay of one moves those after it.
 */
struct loopscope_stm_pace;

/* A turn of a loop. */
struct loopscope_stm_turn {
    uint64_t number;  /* from 0 */
    int64_t due_ns;   /* when it was due: ns of CLOCK_MONOTONIC */
    uint64_t late_ns; /* how much later it begins */
    uint64_t skipped; /* turns before it that were left out: even the next one was due */
    bool slipped;     /* it begins later than tolerated, or others were left out */
};

/*
 * Turns of a period. spin: the last part of each wait takes a processor, and turns begin more
 * punctually. on_slip (NULL is allowed) is called with each turn that has slipped, and data, in the
 * thread that waits for it.
 */
int loopscope_stm_pace(uint64_t period_ns, uint64_t tolerance_ns, bool spin,
                       void (*on_slip)(const struct loopscope_stm_turn *turn, void *data),
                       void *data, struct loopscope_stm_pace **pace);

/* Waits for the next turn; the first one is due at once. For one thread. */
int loopscope_stm_turn(struct loopscope_stm_pace *pace, struct loopscope_stm_turn *turn);

/* Ends it. NULL is allowed. */
void loopscope_stm_pace_end(struct loopscope_stm_pace *pace);

#ifdef __cplusplus
}
#endif

#endif
