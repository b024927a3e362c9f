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
