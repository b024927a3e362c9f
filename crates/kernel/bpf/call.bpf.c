// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The system calls of measured threads, each when it is over.

#include "threads.bpf.h"

static struct task_struct *(*const get_current_task)(void) = (void *)158;

enum { SYSTEM_CALL = 18 };

struct entered {
    u64 at; // CLOCK_MONOTONIC, ns; 0: none goes on
    u64 number;
};
// The call that goes on.
THREAD_MEMORY(struct entered) going_on SECTION(".maps");

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

// Calls that took less, in ns, are left out; set when it is loaded.
const volatile u64 shortest_call;

SECTION("tp_btf/sys_enter")
int call_begins(u64 *arguments) {
    struct task_struct *task = get_current_task();
    u8 how = measured_as(task);
    if (!how || !is_chosen_thread(how))
        return 0;
    struct entered *entered = task_storage_get(&going_on, task, 0, CREATE);
    if (!entered) {
        count_dropped();
        return 0;
    }
    entered->at = ktime_get_ns();
    entered->number = arguments[1];
    return 0;
}

SECTION("tp_btf/sys_exit")
int system_call(u64 *arguments) {
    struct task_struct *task = get_current_task();
    struct entered *entered = task_storage_get(&going_on, task, 0, 0);
    if (!entered || !entered->at)
        return 0;
    struct entered of = *entered;
    entered->at = 0;
    // It may have begun before its namespace was measured no more.
    u8 how = measured_as(task);
    if (!how || (how != UNFILTERED && ktime_get_ns() - of.at < shortest_call))
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
