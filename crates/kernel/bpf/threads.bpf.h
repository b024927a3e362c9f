// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The kernel's threads, and which of them are measured.

#include "records.bpf.h"

struct nsproxy {
    struct net *net_ns;
} KERNEL;
struct task_struct {
    u32 flags;
    struct nsproxy *nsproxy;
    _Bool throttled;
} KERNEL;

// How a thread's namespace is measured; 0: it is not.
static u8 measured_as(struct task_struct *task) {
    // One that is ending has given its namespaces away.
    struct nsproxy *namespaces = task->nsproxy;
    return namespaces ? measured(namespaces->net_ns->ns.inum) : 0;
}
