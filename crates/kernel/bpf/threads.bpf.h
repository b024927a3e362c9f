// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The kernel's threads, and which of them are measured.

#include "records.bpf.h"

struct nsproxy {
    struct net *net_ns;
} KERNEL;
enum { COMM = 16 };
struct task_struct {
    u32 flags;
    int pid, tgid;
    char comm[COMM];
    struct nsproxy *nsproxy;
    _Bool throttled;
} KERNEL;

static u64 (*const get_current_cgroup_id)(void) = (void *)80;
static u64 (*const get_current_ancestor_cgroup_id)(int level) = (void *)123;
static void *(*const task_storage_get)(void *map, struct task_struct *task, void *value,
                                       u64 flags) = (void *)156;

// Memory of each thread's own, which ends with it.
enum { MAP_TASK_STORAGE = 29, NO_PREALLOC = 1, CREATE = 1 };
#define THREAD_MEMORY(value_type)                                                                  \
    struct {                                                                                       \
        int(*type)[MAP_TASK_STORAGE];                                                              \
        int(*map_flags)[NO_PREALLOC];                                                              \
        int *key;                                                                                  \
        value_type *value;                                                                         \
    }

// How a thread's namespace is measured; 0: it is not.
static u8 measured_as(struct task_struct *task) {
    // One that is ending has given its namespaces away.
    struct nsproxy *namespaces = task->nsproxy;
    return namespaces ? measured(namespaces->net_ns->ns.inum) : 0;
}

// The cgroup of a run, if the threads below it alone are measured; set when it is loaded.
const volatile u64 run_cgroup;
enum { MOST_LEVELS = 16 };

// Whether this thread is one of the run's programs, in a namespace that is measured so. These are in
// groups below that of the run, in which its agent is.
static inline int is_chosen_thread(u8 how) {
    if (!run_cgroup || how != MEASURED)
        return 1;
    if (get_current_cgroup_id() == run_cgroup)
        return 0;
    for (int level = 1; level < MOST_LEVELS; level++) {
        u64 above = get_current_ancestor_cgroup_id(level);
        if (above == run_cgroup || !above)
            return above != 0;
    }
    return 0;
}
