// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the programs have in common: types, helpers, the ring of records and their counts.
//
// Nobody is woken for the ring. The fields of the kernel's structures are looked up in its BTF when
// the programs are loaded (CO-RE), so one build is for all kernels. `src/programs/record.rs` has the
// same layout of records.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define KERNEL __attribute__((preserve_access_index))
// What __builtin_preserve_field_info is asked for.
enum { FIELD_EXISTS = 2 };

// Numbers of helpers and constants: include/uapi/linux/bpf.h, which is not needed to build.
static long (*const map_update_elem)(void *map, const void *key, const void *value, u64 flags) =
    (void *)2;
static u64 (*const ktime_get_ns)(void) = (void *)5;
static void *(*const map_lookup_elem)(void *map, const void *key) = (void *)1;
static u32 (*const get_smp_processor_id)(void) = (void *)8;
static u64 (*const get_current_pid_tgid)(void) = (void *)14;
static long (*const probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static void *(*const ringbuf_reserve)(void *map, u64 size, u64 flags) = (void *)131;
static void (*const ringbuf_submit)(void *record, u64 flags) = (void *)132;

enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_PERCPU_ARRAY = 6, MAP_LRU_HASH = 9, MAP_RINGBUF = 27 };
enum { NO_WAKEUP = 1 };

struct ns_common {
    u32 inum;
} KERNEL;
struct net {
    struct ns_common ns;
} KERNEL;
// What happened to the records of a processor.
struct counts {
    u64 recorded, dropped;
};

#define MAP(kind, key_type, value_type, count)                                                     \
    struct {                                                                                       \
        int(*type)[kind];                                                                          \
        key_type *key;                                                                             \
        value_type *value;                                                                         \
        int(*max_entries)[count];                                                                  \
    }

// The namespaces that are measured. The others are there to tell what events cost. AS_RARE,
// AS_THROTTLED: all events are recorded as the rare ones or as those of throttled threads are.
// UNFILTERED: whatever is chosen (`packet.bpf.h`, `call.bpf.c`).
enum { MEASURED = 1, AS_RARE, AS_THROTTLED, UNFILTERED };
MAP(MAP_HASH, u32, u8, 4096) namespaces SECTION(".maps");
MAP(MAP_PERCPU_ARRAY, u32, struct counts, 1) counts SECTION(".maps");
// The size is set when it is loaded.
struct {
    int(*type)[MAP_RINGBUF];
    int(*max_entries)[4096];
} ring SECTION(".maps");

// How a namespace is measured, see `namespaces`; 0: it is not.
static u8 measured(u32 netns) {
    u8 *how = map_lookup_elem(&namespaces, &netns);
    return how ? *how : 0;
}

// How every record begins.
struct head {
    u64 at; // CLOCK_MONOTONIC, ns
    u64 of_kind;
    u32 tid;
    u16 cpu;
    u8 kind;
};
enum { RECORD_SIZE = 120 };

// Counts a record that could not be made.
static void count_dropped(void) {
    u32 zero = 0;
    struct counts *of_cpu = map_lookup_elem(&counts, &zero);
    if (of_cpu)
        __sync_fetch_and_add(&of_cpu->dropped, 1);
}

// A record, with its head; 0 where there is no room.
static inline void *begin(u8 kind) {
    u32 zero = 0;
    struct head *record = ringbuf_reserve(&ring, RECORD_SIZE, 0);
    if (!record) {
        count_dropped();
        return 0;
    }
    struct counts *of_cpu = map_lookup_elem(&counts, &zero);
    if (of_cpu)
        __sync_fetch_and_add(&of_cpu->recorded, 1);
    __builtin_memset(record, 0, RECORD_SIZE);
    record->at = ktime_get_ns();
    record->tid = (u32)get_current_pid_tgid();
    record->cpu = get_smp_processor_id();
    record->kind = kind;
    return record;
}

char LICENSE[] SECTION("license") = "Dual MIT/GPL";
