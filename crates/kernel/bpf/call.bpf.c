// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The system calls of measured threads, each when it is over.

#include "threads.bpf.h"

static struct task_struct *(*const get_current_task)(void) = (void *)158;
static long (*const map_delete_elem)(void *map, const void *key) = (void *)3;

enum { SYSTEM_CALL = 18 };

struct entered {
    u64 at; // CLOCK_MONOTONIC, ns
    u64 number;
};
// The calls that go on, by thread. One that ends its thread is never over.
MAP(MAP_LRU_HASH, u32, struct entered, 16384) going_on SECTION(".maps");

struct call {
    u64 at; // when it was over, CLOCK_MONOTONIC, ns
    u32 of_kind;
    int syscall;
    u32 tid;
    u16 cpu;
    u8 kind;
    u64 duration; // ns
    long result;
    u64 unused[10];
};
_Static_assert(sizeof(struct call) == RECORD_SIZE, "src/programs/record.rs has this layout");

SECTION("tp_btf/sys_enter")
int call_begins(u64 *arguments) {
    if (!measured_as(get_current_task()))
        return 0;
    u32 tid = get_current_pid_tgid();
    struct entered entered = {ktime_get_ns(), arguments[1]};
    map_update_elem(&going_on, &tid, &entered, 0);
    return 0;
}

SECTION("tp_btf/sys_exit")
int system_call(u64 *arguments) {
    u32 tid = get_current_pid_tgid();
    struct entered *entered = map_lookup_elem(&going_on, &tid);
    if (!entered)
        return 0;
    struct entered of = *entered;
    map_delete_elem(&going_on, &tid);
    // It may have begun before its namespace was measured no more.
    if (!measured_as(get_current_task()))
        return 0;
    struct call *record = begin(SYSTEM_CALL);
    if (record) {
        record->duration = record->at - of.at;
        record->syscall = of.number;
        record->result = arguments[1];
        ringbuf_submit(record, NO_WAKEUP);
    }
    return 0;
}
