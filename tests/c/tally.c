#include "emit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loopscope/trace.h"

struct tally *open_tally(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct tally)) != 0) {
        perror(path);
        exit(100);
    }
    void *map = mmap(NULL, sizeof(struct tally), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return map;
}

struct slot *take_slot(struct tally *tally)
{
    struct slot *slot = &tally->slot[__atomic_fetch_add(&tally->slots, 1, __ATOMIC_RELAXED)];
    slot->pid = (uint64_t)getpid();
    return slot;
}

void hit(struct slot *slot)
{
    uint64_t id = slot->begun;
    __atomic_store_n(&slot->begun, id + 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    LOOPSCOPE_EVENT("tally", "hit", id);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&slot->done, id + 1, __ATOMIC_RELAXED);
}

void hits(struct slot *slot, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        hit(slot);
}
