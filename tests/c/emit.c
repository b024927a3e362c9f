/* emit TALLY MODE [ARGUMENT…]: events under ordinary and unfriendly conditions. */
#define _GNU_SOURCE
#include "emit.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loopscope/trace.h"

static struct tally *tally;
static const char *tally_path;
static uint64_t argument[4];

static void burst(void)
{
    hits(take_slot(tally), argument[0]);
}

/* Two sites in turn, the second with fields. */
static void pair(void)
{
    struct slot *slot = take_slot(tally);
    for (uint64_t i = 0; i < argument[0]; i++) {
        hit(slot);
        LOOPSCOPE_EVENT("tally", "second", i, LOOPSCOPE_U8(low, (uint8_t)i),
                        LOOPSCOPE_U64(all, i));
    }
}

static void killed(void)
{
    burst();
    raise(SIGKILL);
}

static void *forever(void *slot)
{
    for (;;)
        hit(slot);
    return NULL;
}

/* Dies while all its threads are writing. */
static void killed_in_burst(void)
{
    struct slot *slots[64];
    pthread_t thread;
    for (uint64_t i = 0; i < argument[0]; i++) {
        slots[i] = take_slot(tally);
        pthread_create(&thread, NULL, forever, slots[i]);
    }
    for (uint64_t i = 0; i < argument[0]; i++)
        while (__atomic_load_n(&slots[i]->done, __ATOMIC_RELAXED) < argument[1])
            sched_yield();
    raise(SIGKILL);
}

static void *short_thread(void *unused)
{
    (void)unused;
    burst();
    return NULL;
}

/* Rounds of threads, four at a time. */
static void threads(void)
{
    pthread_t thread[4];
    for (uint64_t i = 0; i < argument[1]; i += 4) {
        for (int t = 0; t < 4; t++)
            pthread_create(&thread[t], NULL, short_thread, NULL);
        for (int t = 0; t < 4; t++)
            pthread_join(thread[t], NULL);
    }
}

static pthread_barrier_t all_there;

static void *one_of_a_crowd(void *unused)
{
    hits(take_slot(tally), argument[1]);
    pthread_barrier_wait(&all_there);
    return unused;
}

/* So many threads at once. */
static void crowd(void)
{
    pthread_t thread[256];
    pthread_barrier_init(&all_there, NULL, (unsigned)argument[0]);
    for (uint64_t t = 0; t < argument[0]; t++)
        pthread_create(&thread[t], NULL, one_of_a_crowd, NULL);
    for (uint64_t t = 0; t < argument[0]; t++)
        pthread_join(thread[t], NULL);
}

static struct slot *stepped;
static uint64_t steps, last_step;

/* An event in the handler of every single machine instruction of an event; or death there. */
static void on_step(int signal)
{
    (void)signal;
    steps++;
    if (steps == last_step)
        raise(SIGKILL);
    if (last_step == 0) {
        LOOPSCOPE_EVENT("tally", "handler", (int64_t)steps);
        stepped->handler++;
    }
}

static void step_one_event(void)
{
#if defined(__x86_64__)
    /* The trap flag raises SIGTRAP after each instruction. */
    __asm__ volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" ::: "memory", "cc");
    hit(stepped);
    __asm__ volatile("pushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq" ::: "memory", "cc");
#else
    hit(stepped);
#endif
}

/* `argument[0]` ordinary events, then stepped ones: `argument[1]` of them, or until dead at step
 * `argument[2]`. */
static void step(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_step;
    sigaction(SIGTRAP, &action, NULL);
    stepped = take_slot(tally);
    hits(stepped, argument[0]);
    last_step = argument[2];
    for (uint64_t i = 0; i < argument[1]; i++)
        step_one_event();
}

static void wait_for(pid_t child)
{
    int status;
    if (child <= 0 || waitpid(child, &status, 0) != child || status != 0)
        exit(101);
}

/* One child by fork, one by the bare system call, one by vfork and exec. */
static void family(void)
{
    pthread_t thread;
    struct slot *other = take_slot(tally);
    pthread_create(&thread, NULL, forever, other);
    burst();
    pid_t child = fork();
    if (child == 0) {
        argument[0] += 1;
        burst();
        pthread_create(&thread, NULL, short_thread, NULL);
        pthread_join(thread, NULL);
        _exit(0);
    }
    wait_for(child);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        argument[0] += 2;
        burst();
        _exit(0);
    }
    wait_for(child);
    char count[32];
    snprintf(count, sizeof count, "%llu", (unsigned long long)argument[0] + 3);
    child = vfork();
    if (child == 0) {
        execl("/proc/self/exe", "executed", tally_path, "burst", count, (char *)NULL);
        _exit(102);
    }
    wait_for(child);
    burst();
}

static void execute(void)
{
    burst();
    execl("/proc/self/exe", "executed", tally_path, "burst", "11", (char *)NULL);
    exit(102);
}

/* A child that outlives this process and writes until a file appears, or the tally's is gone. */
static void orphan(void)
{
    struct slot *slot = take_slot(tally);
    if (fork() == 0) {
        char stop[4096];
        snprintf(stop, sizeof stop, "%s-stop", tally_path);
        slot->pid = (uint64_t)getpid();
        while (access(stop, F_OK) != 0 && access(tally_path, F_OK) == 0)
            hits(slot, 100);
        _exit(0);
    }
    while (__atomic_load_n(&slot->done, __ATOMIC_RELAXED) < argument[0])
        sched_yield();
}

static int exists(const char *suffix)
{
    char path[4096];
    snprintf(path, sizeof path, "%s-%s", tally_path, suffix);
    return access(path, F_OK) == 0 || access(tally_path, F_OK) != 0;
}

static void *steady_thread(void *slot_)
{
    struct slot *slot = slot_;
    while (!exists("stop"))
        for (int i = 0; i < 10; i++) {
            hit(slot);
            LOOPSCOPE_EVENT("tally", "second", (int64_t)slot->done);
        }
    return NULL;
}

/* Hits from so many threads until told to stop; a child joins in when told so. */
static void steady(void)
{
    pthread_t thread[64];
    for (uint64_t t = 0; t < argument[0]; t++)
        pthread_create(&thread[t], NULL, steady_thread, take_slot(tally));
    while (!exists("stop") && !exists("fork"))
        sched_yield();
    if (!exists("stop") && fork() == 0) {
        steady_thread(take_slot(tally));
        _exit(0);
    }
    for (uint64_t t = 0; t < argument[0]; t++)
        pthread_join(thread[t], NULL);
}

/* Rounds of hits, each with an alarm behind it, which waits for a file of its number. */
static void alarms(void)
{
    struct slot *slot = take_slot(tally);
    for (uint64_t round = 0; round < argument[0]; round++) {
        char go[4096];
        snprintf(go, sizeof go, "%s-go-%llu", tally_path, (unsigned long long)round);
        hits(slot, argument[1]);
        LOOPSCOPE_EVENT("tally", "alarm", (int64_t)round);
        while (access(go, F_OK) != 0 && access(tally_path, F_OK) == 0)
            sched_yield();
    }
    hits(slot, argument[2]);
}

static void gap(void)
{
    struct slot *slot = take_slot(tally);
    hit(slot);
    sleep(2);
    hits(slot, 2);
}

/* Says how far it is, and goes on until a signal ends it. */
static void until_signalled(void)
{
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    burst();
    puts("ready");
    fflush(stdout);
    sigwait(&set, &signal);
    burst();
    exit(7);
}

static void thread_init(void)
{
    printf("%d\n", loopscope_thread_init());
    burst();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {
        {"burst", burst},     {"pair", pair},       {"killed", killed},
        {"threads", threads}, {"step", step},       {"killed-in-burst", killed_in_burst},
        {"family", family},   {"execute", execute}, {"orphan", orphan},
        {"gap", gap},         {"signal", until_signalled}, {"thread-init", thread_init},
        {"alarms", alarms},   {"steady", steady},   {"crowd", crowd},
    };
    if (argc < 3)
        return 2;
    tally_path = argv[1];
    tally = open_tally(tally_path);
    for (int i = 3; i < argc && i < 7; i++)
        argument[i - 3] = strtoull(argv[i], NULL, 10);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[2], modes[i].name) == 0) {
            modes[i].run();
            return 0;
        }
    }
    return 2;
}
