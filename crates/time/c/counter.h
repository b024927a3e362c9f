/* The counter that stamps events on this machine. */
#ifndef LOOPSCOPE_COUNTER_H
#define LOOPSCOPE_COUNTER_H

#include <stdint.h>

/* Two kinds; their numbers are in the control files of processes and on clock pages. */
enum loopscope_counter_kind {
    LOOPSCOPE_COUNTER_UNREAD = 0,        /* nobody has asked yet */
    LOOPSCOPE_COUNTER_CYCLES = 1,        /* rdtsc on x86-64, cntvct_el0 on aarch64 */
    LOOPSCOPE_COUNTER_MONOTONIC_RAW = 2, /* CLOCK_MONOTONIC_RAW in ns; steps as the kernel's clock
                                            source does, a system call where that has no vDSO */
    LOOPSCOPE_COUNTER_REFUSED = 3,       /* LOOPSCOPE_COUNTER has another word; cycles are read */
};

/* What speaks against cycles as a clock. */
enum loopscope_counter_fault {
    LOOPSCOPE_COUNTER_SOUND = 0,
    LOOPSCOPE_COUNTER_NOT_INVARIANT = 1, /* the processor does not promise a constant rate */
    LOOPSCOPE_COUNTER_DISTRUSTED = 2,    /* the kernel keeps time by something else */
};

#pragma GCC visibility push(hidden)

/* This process's kind. Relaxed throughout: any thread that looks for it finds the same one. */
extern uint32_t loopscope_counter_kind;

/* The kind, found out at the first call: what LOOPSCOPE_COUNTER says, else cycles where nothing speaks
 * against them, else CLOCK_MONOTONIC_RAW. */
uint32_t loopscope_counter_choose(void);
/* Makes it one of the two kinds, before anything was stamped. */
void loopscope_counter_set(uint32_t kind);
/* The choice by `word`, the variable's value or NULL, where `fault` speaks against cycles. */
uint32_t loopscope_counter_choice(const char *word, uint32_t fault);
/* What speaks against cycles on this machine. */
uint32_t loopscope_counter_fault(void);
/* The same of a processor with or without an invariant counter, under a kernel that keeps time by
 * `source`. */
uint32_t loopscope_counter_fault_of(int invariant, const char *source);
/* A reading of this process's kind. */
uint64_t loopscope_counter_read(void);
/* A reading of one of the two kinds. */
uint64_t loopscope_counter_read_as(uint64_t kind);

#pragma GCC visibility pop

/* Not serialising: neighbouring instructions may be reordered around it by some tens of ticks. */
static inline uint64_t loopscope_cycles(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
}

/* Whether a reading is a look at the processor's cycles and nothing else. */
static inline int loopscope_counts_cycles(void)
{
    return __builtin_expect(__atomic_load_n(&loopscope_counter_kind, __ATOMIC_RELAXED)
                                == LOOPSCOPE_COUNTER_CYCLES,
                            1);
}

static inline uint64_t loopscope_counter(void)
{
    return loopscope_counts_cycles() ? loopscope_cycles() : loopscope_counter_read();
}

#endif
