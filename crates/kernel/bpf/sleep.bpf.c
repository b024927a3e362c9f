// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What threads sleep on: the system call and the kernel's functions in which one leaves its
// processor because it waits for something. And which leave it because their cgroup has used up its
// time.

#include "threads.bpf.h"

// The helper returns the number of bytes, or an error below 0.
static long (*const get_stack)(void *context, void *to, u32 size, u64 flags) = (void *)67;
static struct pt_regs *(*const task_pt_regs)(void *task) = (void *)175;
static long (*const probe_read_user)(void *to, u32 size, const void *from) = (void *)112;

// The flag of the kernel's own threads.
enum { IS_KERNEL_THREAD = 0x00200000 };
// Bits of the state of a thread that sleeps until it is woken: interruptible, uninterruptible,
// stopped, traced (include/linux/sched.h).
enum { SLEEPS = 0x0f, UNINTERRUPTIBLE = 2 };
// Functions that are in every stack here: the program, and what calls it.
enum { SKIPPED = 3, FRAMES = 12 };
enum { INTERRUPTIBLE_SLEEP = 8, UNINTERRUPTIBLE_SLEEP, THROTTLED = 17 };

// As x86-64 has them.
struct pt_regs {
    unsigned long dx, si, di;
    long orig_ax;
} KERNEL;

// The system call with the number 202, its operations without their flags, and the bits of the word
// of a lock with priority inheritance that have the thread which holds it (include/uapi/linux/futex.h).
enum { FUTEX = 202, OPERATION = 0x7f, WAIT = 0, LOCK_PI = 6, WAIT_BITSET = 9, LOCK_PI2 = 13 };
enum { HOLDER = 0x3fffffff };
// A mutex of the GNU C library: its lock, which has this value while threads wait for it, how often
// it was taken, and the thread that holds it (struct __pthread_mutex_s).
struct mutex {
    u32 lock, count, owner;
};
enum { CONTENDED = 2 };

struct sleep {
    u64 at; // CLOCK_MONOTONIC, ns
    u32 state;
    int syscall; // its number; -1: it was in none
    u32 tid;
    u16 cpu;
    u8 kind;
    u8 frames;
    union {
        u64 stack[FRAMES]; // of an uninterruptible sleep; the innermost function is first
        u32 holder;        // of an interruptible one: the thread that has what it waits for; 0: not known
    };
};
_Static_assert(sizeof(struct sleep) == RECORD_SIZE, "src/programs/record.rs has this layout");

// The system call that a thread is in; -1: it is in none, or this processor is another one.
static int system_call(struct task_struct *task) {
    struct pt_regs *registers = task_pt_regs(task);
    if (!__builtin_preserve_field_info(registers->orig_ax, FIELD_EXISTS))
        return -1;
    return registers->orig_ax;
}

// The thread that holds the lock for which one waits in a futex; 0: its words do not say. That what
// looks like a mutex is one is not sure; the analysis looks whether the program has such a thread.
static u32 holder(struct task_struct *task) {
    struct pt_regs *registers = task_pt_regs(task);
    if (system_call(task) != FUTEX)
        return 0;
    const void *at = (void *)registers->di;
    u32 operation = registers->si & OPERATION;
    if (operation == LOCK_PI || operation == LOCK_PI2) {
        u32 word;
        return probe_read_user(&word, sizeof(word), at) ? 0 : word & HOLDER;
    }
    struct mutex mutex;
    if ((operation != WAIT && operation != WAIT_BITSET) || (u32)registers->dx != CONTENDED ||
        probe_read_user(&mutex, sizeof(mutex), at) || mutex.lock != CONTENDED)
        return 0;
    return mutex.owner;
}

// Not 0: `throttled` records each thread that leaves a processor (AS_THROTTLED).
MAP(MAP_ARRAY, u32, u32, 1) any_thread SECTION(".maps");

// A record of the thread that leaves its processor, if it is one of a measured namespace and sleeps;
// else 0.
static struct sleep *of_switch(u8 kind, u64 *arguments) {
    struct task_struct *task = (void *)arguments[1];
    u32 state = arguments[3];
    if (arguments[0] || !(state & SLEEPS) || (task->flags & IS_KERNEL_THREAD))
        return 0;
    u8 how = measured_as(task);
    u8 rare = how == AS_RARE || (how && (state & UNINTERRUPTIBLE));
    if (!how || how == AS_THROTTLED || rare != (kind == UNINTERRUPTIBLE_SLEEP) ||
        !is_chosen_thread(how))
        return 0;
    struct sleep *record = begin(kind);
    if (record) {
        record->state = state;
        record->syscall = system_call(task);
    }
    return record;
}

// Records a sleep in which the program waits, for a message or for time. These are many, so the
// stack, which costs most, is left out.
SECTION("tp_btf/sched_switch")
int interruptible_sleep(u64 *arguments) {
    struct sleep *record = of_switch(INTERRUPTIBLE_SLEEP, arguments);
    if (record) {
        record->holder = holder((void *)arguments[1]);
        ringbuf_submit(record, NO_WAKEUP);
    }
    return 0;
}

// Records a sleep in which the kernel waits on the program's behalf, for a disk or for one of its own
// locks. The stack says for what. It takes ten times as long as the rest of the record.
SECTION("tp_btf/sched_switch")
int uninterruptible_sleep(u64 *arguments) {
    struct sleep *record = of_switch(UNINTERRUPTIBLE_SLEEP, arguments);
    if (record) {
        long bytes = get_stack(arguments, record->stack, sizeof(record->stack), SKIPPED);
        record->frames = bytes > 0 ? (u32)bytes / 8 : 0;
        ringbuf_submit(record, NO_WAKEUP);
    }
    return 0;
}

// Records that a thread leaves its processor because its cgroup has used up its time there. Kernels
// before 6.18 have no `throttled`: they do not let this program in.
SECTION("tp_btf/sched_switch")
int throttled(u64 *arguments) {
    struct task_struct *task = (void *)arguments[1];
    u32 zero = 0;
    u32 *any = map_lookup_elem(&any_thread, &zero);
    // Nearly all switches end here, so this comes first.
    if (!task->throttled && (!any || !*any))
        return 0;
    u8 how = measured_as(task);
    if (!how || !is_chosen_thread(how))
        return 0;
    struct sleep *record = begin(THROTTLED);
    if (record) {
        record->syscall = -1;
        ringbuf_submit(record, NO_WAKEUP);
    }
    return 0;
}
