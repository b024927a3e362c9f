// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Histograms that are kept in the kernel, with no record of an event: for how long threads of measured
// namespaces waited for a processor, and for how long processors served soft interrupts.

#include "threads.bpf.h"

enum { SOFTIRQS = 10 };

// Four slots for each doubling of ns, the last one without an end: 4 to 5, 5 to 6, 6 to 7, 7 to 8, 8
// to 10, and so on. `src/programs/histograms.rs` has the same.
enum { SLOTS = 160 };
struct histogram {
    u64 count, sum, largest; // ns
    u32 slots[SLOTS];
};

static void add(struct histogram *histogram, u64 ns) {
    u32 slot = ns;
    if (ns >= 4) {
        u32 power = 0;
        u64 rest = ns;
        for (u32 step = 32; step; step /= 2) {
            if (rest >> step) {
                rest >>= step;
                power += step;
            }
        }
        slot = (power - 1) * 4 + ((ns >> (power - 2)) & 3);
    }
    if (slot >= SLOTS)
        slot = SLOTS - 1;
    histogram->count++;
    histogram->sum += ns;
    if (ns > histogram->largest)
        histogram->largest = ns;
    histogram->slots[slot]++;
}

// Since when a thread has been waiting for a processor.
struct waiting {
    u64 since; // CLOCK_MONOTONIC, ns; 0: it does not wait
    u32 preempted;
};
THREAD_MEMORY(struct waiting) waits SECTION(".maps");

// By thread, and whether it was woken or had lost its processor.
struct thread {
    u32 tid, preempted;
};
struct of_thread {
    char comm[COMM];
    u64 process;
    struct histogram waits;
};
MAP(MAP_HASH, struct thread, struct of_thread, 4096) run_queue SECTION(".maps");
// All zero; too large for a program's stack.
MAP(MAP_ARRAY, u32, struct of_thread, 1) empty SECTION(".maps");

static void begin_wait(struct task_struct *task, u32 preempted) {
    if (!measured_as(task))
        return;
    struct waiting *waiting = task_storage_get(&waits, task, 0, CREATE);
    if (!waiting) {
        count_dropped();
        return;
    }
    waiting->since = ktime_get_ns();
    waiting->preempted = preempted;
}

static void end_wait(struct task_struct *task, u64 now) {
    struct waiting *waiting = task_storage_get(&waits, task, 0, 0);
    if (!waiting || !waiting->since)
        return;
    u64 ns = now - waiting->since;
    waiting->since = 0;
    if (!measured_as(task))
        return;
    struct thread key = {task->pid, waiting->preempted};
    struct of_thread *found = map_lookup_elem(&run_queue, &key);
    if (!found) {
        u32 zero = 0;
        struct of_thread *none = map_lookup_elem(&empty, &zero);
        if (none)
            map_update_elem(&run_queue, &key, none, 0);
        found = map_lookup_elem(&run_queue, &key);
    }
    if (!found) {
        count_dropped();
        return;
    }
    found->process = task->tgid;
    // A program may rename its threads.
    probe_read_kernel(found->comm, COMM, task->comm);
    add(&found->waits, ns);
}

SECTION("tp_btf/sched_wakeup")
int thread_woken(u64 *arguments) {
    begin_wait((void *)arguments[0], 0);
    return 0;
}

SECTION("tp_btf/sched_wakeup_new")
int thread_made(u64 *arguments) {
    begin_wait((void *)arguments[0], 0);
    return 0;
}

SECTION("tp_btf/sched_switch")
int thread_switched(u64 *arguments) {
    struct task_struct *before = (void *)arguments[1];
    // It waits on if its state is that of a running one. Else it sleeps, whatever woke it before.
    if (arguments[3]) {
        struct waiting *waiting = task_storage_get(&waits, before, 0, 0);
        if (waiting)
            waiting->since = 0;
    } else {
        begin_wait(before, 1);
    }
    end_wait((void *)arguments[2], ktime_get_ns());
    return 0;
}

// When the soft interrupt began that a processor serves, and those that it has served.
MAP(MAP_PERCPU_ARRAY, u32, u64, 1) served_since SECTION(".maps");
MAP(MAP_PERCPU_ARRAY, u32, struct histogram, SOFTIRQS) softirqs SECTION(".maps");

SECTION("tp_btf/softirq_entry")
int softirq_begins(void) {
    u32 zero = 0;
    u64 *since = map_lookup_elem(&served_since, &zero);
    if (since)
        *since = ktime_get_ns();
    return 0;
}

SECTION("tp_btf/softirq_exit")
int softirq_ends(u64 *arguments) {
    u32 zero = 0, vector = arguments[0];
    u64 *since = map_lookup_elem(&served_since, &zero);
    struct histogram *served = map_lookup_elem(&softirqs, &vector);
    if (since && *since && served)
        add(served, ktime_get_ns() - *since);
    if (since)
        *since = 0;
    return 0;
}
