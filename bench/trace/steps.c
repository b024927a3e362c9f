/* Prints the instructions that one hit takes: runs each entity once instruction by instruction (ptrace) and
 * prints, per line, what it is and the addresses of the instructions as module+offset. */
#define _GNU_SOURCE
#include <loopscope/trace.h>
#include <dlfcn.h>
#include <elf.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clocks.h"

LOOPSCOPE_HISTOGRAM_RANGE("bench", "linear", 0, 1000, 50);

static volatile uint64_t sink;

/* Stands before and after each hit. */
__attribute__((noinline)) static void mark(void)
{
    __asm__ volatile("");
}

static void empty(void) {}
static void dormant(void) { LOOPSCOPE_EVENT("dormant", "event", 1); }
static void event(void) { LOOPSCOPE_EVENT("bench", "event", 1); }
static void fields(void)
{
    LOOPSCOPE_EVENT("bench", "fields", 1, LOOPSCOPE_U32(size, 2), LOOPSCOPE_F64(load, 0.5));
}
static void counter_add(void) { LOOPSCOPE_COUNTER_ADD("bench", "counter", 1); }
static void histogram_linear(void) { LOOPSCOPE_HISTOGRAM_ADD("bench", "linear", 100); }
static void histogram_log(void) { LOOPSCOPE_HISTOGRAM_ADD("bench", "log", 100); }
static void interval(void)
{
    LOOPSCOPE_INTERVAL_START("bench", "interval");
    LOOPSCOPE_INTERVAL_END("bench", "interval", 1);
}
static void counter_read(void) { sink = read_counter(); }

static const struct {
    const char *what;
    void (*hit)(void);
} kinds[] = {
    {"empty", empty},
    {"counter-read", counter_read},
    {"dormant", dormant},
    {"event", event},
    {"fields", fields},
    {"counter-add", counter_add},
    {"histogram-linear", histogram_linear},
    {"histogram-log", histogram_log},
    {"interval", interval},
};

#define KINDS (sizeof kinds / sizeof kinds[0])

static uint64_t instruction_pointer(pid_t child)
{
    struct user_regs_struct registers;
    struct iovec where = {&registers, sizeof registers};

    if (ptrace(PTRACE_GETREGSET, child, (void *)NT_PRSTATUS, &where) != 0)
        return 0;
#if defined(__x86_64__)
    return registers.rip;
#else
    return registers.pc;
#endif
}

/* Runs until `mark` is entered; prints the instructions between if `what` is given. */
static int step_to_mark(pid_t child, const char *what, int printing)
{
    int status;
    uint64_t at;

    do {
        if (ptrace(PTRACE_SINGLESTEP, child, 0, 0) != 0 || waitpid(child, &status, 0) < 0
            || !WIFSTOPPED(status))
            return 0;
        at = instruction_pointer(child);
        Dl_info info;
        if (printing && dladdr((void *)at, &info))
            printf("%s %s %llx\n", what, info.dli_fname,
                   (unsigned long long)(at - (uint64_t)info.dli_fbase));
    } while (at != (uint64_t)mark);
    return 1;
}

int main(void)
{
    /* The second time finds everything warm: rings, cells and lazily bound functions. */
    for (int i = 0; i < 3; i++)
        for (size_t k = 0; k < KINDS; k++)
            kinds[k].hit();
    int ready[2];
    if (pipe(ready) != 0)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        for (size_t k = 0; k < KINDS; k++)
            kinds[k].hit();
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        for (size_t k = 0; k < KINDS; k++) {
            mark();
            kinds[k].hit();
            mark();
        }
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status))
        return 1;
    for (size_t k = 0; k < KINDS; k++)
        if (!step_to_mark(child, NULL, 0) || !step_to_mark(child, kinds[k].what, 1))
            return 1;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return 0;
}
