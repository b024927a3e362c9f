/* Files and memory of the runtime: made whole or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "runtime.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

void *loopscope_map_anonymous(size_t size, int advice)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    if (madvise(map, size, advice) != 0) {
        munmap(map, size);
        return NULL;
    }
    return map;
}

/* A cold page costs microseconds at its first event. */
static void populate(void *map, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)map & ~(page - 1), end = (uintptr_t)map + size;
    if (madvise((void *)start, end - start, MADV_POPULATE_WRITE) == 0)
        return;
    /* Linux before 5.14. The pages are there, so touching them changes nothing. */
    for (uintptr_t at = start; at < end; at += page)
        __atomic_fetch_add((uint8_t *)at, 0, __ATOMIC_RELAXED);
}

void *loopscope_map_file(const char *path, size_t size, size_t present)
{
    /* A file beyond the limit would be SIGXFSZ in somebody's program. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < size) {
        errno = EFBIG;
        return NULL;
    }
    /* A reader finds the file under its name once it has its size: a process that is killed before
     * leaves none that could be taken for one that was cut. */
    char draft[LOOPSCOPE_PATH + 1];
    if ((size_t)snprintf(draft, sizeof draft, "%s~", path) >= sizeof draft) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    int fd = open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return NULL;
    /* A page that the file system cannot provide later would be SIGBUS. */
    void *map = MAP_FAILED;
    if (ftruncate(fd, (off_t)size) == 0 && (errno = posix_fallocate(fd, 0, (off_t)present)) == 0)
        map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = errno;
    close(fd);
    if (map != MAP_FAILED && rename(draft, path) != 0) {
        error = errno;
        munmap(map, size);
        map = MAP_FAILED;
    }
    if (map == MAP_FAILED) {
        unlink(draft);
        errno = error;
        return NULL;
    }
    populate(map, present);
    return map;
}

int loopscope_allocate(const char *path, void *map, size_t from, size_t size)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return 0;
    int error = posix_fallocate(fd, (off_t)from, (off_t)size);
    close(fd);
    errno = error;
    if (error == 0)
        populate(map, size);
    return error == 0;
}

uint64_t loopscope_room(void)
{
    struct statfs status;
    struct rlimit limit;
    uint64_t room = UINT64_MAX;
    /* A file system without blocks of its own has no limit. */
    if (statfs(loopscope_root, &status) == 0 && status.f_blocks != 0)
        room = (uint64_t)status.f_bavail * (uint64_t)status.f_bsize;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < room)
        room = limit.rlim_cur;
    return room;
}

int loopscope_append(const char *path, const char *text, size_t size)
{
    struct rlimit limit;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return 0;
    off_t start = lseek(fd, 0, SEEK_END);
    int fits = start >= 0 && getrlimit(RLIMIT_FSIZE, &limit) == 0
               && limit.rlim_cur >= (rlim_t)start + size;
    size_t done = 0;
    while (fits && done < size) {
        ssize_t n = write(fd, text + done, size - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            break;
    }
    int error = fits ? errno : EFBIG;
    /* Half a line would be read as the next site's beginning. */
    if (done < size && (start < 0 || ftruncate(fd, start) != 0))
        unlink(path);
    close(fd);
    errno = error;
    return done == size;
}
