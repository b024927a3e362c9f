/* Finding a clock page and mapping it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../time/c/counter.h"
#include "page.h"

#define DEFAULT_PATH "/dev/shm/loopscope-clock"
#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define NO_PAGE "this is no clock page"

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The kernel's boot id; not zero on success. */
static int read_boot_id(uint8_t id[16])
{
    char text[64];
    int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text);
    unsigned digits = 0;
    if (fd >= 0)
        close(fd);
    memset(id, 0, 16);
    for (ssize_t i = 0; i < got && digits < 32; i++) {
        if (digit(text[i]) >= 0) {
            id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | digit(text[i]));
            digits++;
        }
    }
    return digits == 32;
}

/* What keeps a mapped file from being a page of this boot; NULL if nothing does. */
static const char *mistake(const struct clock_page *page)
{
    uint8_t boot_id[16];
    if (page->magic != CLOCK_MAGIC)
        return NO_PAGE;
    if (page->version != CLOCK_VERSION || page->size != CLOCK_SIZE)
        return "the page is of another version; use loopscope of one version for the service and "
               "the programs that read its clock";
    if (page->counter != LOOPSCOPE_COUNTER_CYCLES
        && page->counter != LOOPSCOPE_COUNTER_MONOTONIC_RAW)
        return "the page is about a counter of an unknown kind; start the clock service again";
    if (!read_boot_id(boot_id))
        return "cannot read " BOOT_ID;
    if (memcmp(boot_id, page->boot_id, sizeof boot_id) != 0)
        return "the page is of an earlier boot; start the clock service again";
    return NULL;
}

/* Maps an open file; NULL and why not, which stays NULL where errno says it. */
static const struct clock_page *map(int fd, int trust, const char **why)
{
    struct stat stat;
    void *page;
    if (fstat(fd, &stat) != 0)
        return NULL;
    if (!S_ISREG(stat.st_mode) || stat.st_size < CLOCK_SIZE) {
        *why = NO_PAGE;
        return NULL;
    }
    /* Anyone can make a file of the default name. */
    if (!trust && stat.st_uid != 0 && stat.st_uid != geteuid()) {
        *why = "the page is neither root's nor this user's; if its owner is trusted, name it in "
               "LOOPSCOPE_CLOCK";
        return NULL;
    }
    page = mmap(NULL, CLOCK_SIZE, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return NULL;
    *why = mistake(page);
    if (!*why)
        return page;
    loopscope_clock_page_close(page);
    return NULL;
}

const struct clock_page *loopscope_clock_page_open(const char *path, char *error, size_t size)
{
    const struct clock_page *page = NULL;
    const char *why = NULL;
    int fd, trust;
    if (!path)
        path = secure_getenv("LOOPSCOPE_CLOCK");
    trust = path != NULL;
    if (!trust)
        path = DEFAULT_PATH;
    /* O_NONBLOCK: a FIFO of that name is no reason to wait. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (trust ? 0 : O_NOFOLLOW));
    if (fd >= 0) {
        page = map(fd, trust, &why);
        close(fd);
    } else if (errno == ENOENT && !trust) {
        why = "no clock service runs on this machine, and LOOPSCOPE_CLOCK names no page elsewhere";
    }
    /* strerror() is not for signal handlers, which pass no room for it. */
    if (!page && size != 0)
        snprintf(error, size, "cannot read the clock page %s: %s", path,
                 why ? why : strerror(errno));
    return page;
}

void loopscope_clock_page_close(const struct clock_page *page)
{
    munmap((void *)(uintptr_t)page, CLOCK_SIZE);
}
