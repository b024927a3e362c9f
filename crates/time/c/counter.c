/* The choice of the counter that stamps events, and reading the one that is no instruction. */
#include "counter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

uint32_t loopscope_counter_kind;

uint32_t loopscope_counter_fault_of(int invariant, const char *source)
{
    /* These tell the counter's time; kvm-clock and Hyper-V's page scale it. */
    static const char *const trusted[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page"};
    if (!invariant)
        return LOOPSCOPE_COUNTER_NOT_INVARIANT;
    for (unsigned i = 0; i < sizeof trusted / sizeof *trusted; i++)
        if (strcmp(source, trusted[i]) == 0)
            return LOOPSCOPE_COUNTER_SOUND;
    return LOOPSCOPE_COUNTER_DISTRUSTED;
}

#if defined(__x86_64__)
#define SOURCE "/sys/devices/system/clocksource/clocksource0/current_clocksource"

/* What the kernel keeps time by; empty where it does not say. */
static void read_source(char *source, size_t size)
{
    int fd = open(SOURCE, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, source, size - 1);
    if (fd >= 0)
        close(fd);
    source[got > 0 ? got : 0] = 0;
    source[strcspn(source, "\n")] = 0;
}

uint32_t loopscope_counter_fault(void)
{
    char source[64];
    unsigned eax, ebx, ecx, edx = 0;
    /* Advanced power management: bit 8 is the invariant TSC (AMD APM vol. 3, E.4.6; Intel SDM vol. 3,
     * 18.17.1). By it the kernel says constant_tsc and nonstop_tsc. */
    int invariant = __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) && (edx & 1u << 8) != 0;
    read_source(source, sizeof source);
    return loopscope_counter_fault_of(invariant, source);
}
#else
uint32_t loopscope_counter_fault(void)
{
    /* The generic timer is invariant by architecture (Arm ARM D12.1), and what Linux keeps time by. */
    return LOOPSCOPE_COUNTER_SOUND;
}
#endif

uint32_t loopscope_counter_choice(const char *word, uint32_t fault)
{
    if (!word || !*word)
        return fault == LOOPSCOPE_COUNTER_SOUND ? LOOPSCOPE_COUNTER_CYCLES
                                                : LOOPSCOPE_COUNTER_MONOTONIC_RAW;
    if (strcmp(word, "cycles") == 0)
        return LOOPSCOPE_COUNTER_CYCLES;
    if (strcmp(word, "monotonic-raw") == 0)
        return LOOPSCOPE_COUNTER_MONOTONIC_RAW;
    return LOOPSCOPE_COUNTER_REFUSED;
}

uint32_t loopscope_counter_choose(void)
{
    uint32_t kind = __atomic_load_n(&loopscope_counter_kind, __ATOMIC_RELAXED);
    if (kind != LOOPSCOPE_COUNTER_UNREAD)
        return kind;
    int before = errno;
    const char *word = secure_getenv("LOOPSCOPE_COUNTER");
    kind = loopscope_counter_choice(word, word && *word ? 0 : loopscope_counter_fault());
    uint32_t unread = LOOPSCOPE_COUNTER_UNREAD;
    /* The first one stays: another thread may have asked while the kernel changed its mind. */
    if (!__atomic_compare_exchange_n(&loopscope_counter_kind, &unread, kind, 0, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        kind = unread;
    errno = before;
    return kind;
}

void loopscope_counter_set(uint32_t kind)
{
    __atomic_store_n(&loopscope_counter_kind, kind, __ATOMIC_RELAXED);
}

uint64_t loopscope_counter_read_as(uint64_t kind)
{
    struct timespec now;
    if (kind != LOOPSCOPE_COUNTER_MONOTONIC_RAW)
        return loopscope_cycles();
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t loopscope_counter_read(void)
{
    return loopscope_counter_read_as(loopscope_counter_choose());
}
