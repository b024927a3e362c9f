/* Preloaded into agents: counts the calls by which they change the machine, before and after each,
 * and kills the agent at one of them.
 *
 * KILL_LOG is a file to which every point of all processes appends a line of LINE bytes, so that a
 * point's number is its place in the file. KILL_AT is the number of the point that kills. A child
 * between fork and exec kills its agent and goes on: only async-signal-safe calls are made here.
 * Over SSH the agent is a forked child of the process that was started. KILL_SELF has the process
 * that makes the point kill itself, which is the agent then, and not the one that was started.
 * sudo starts the agent as `limited` (crates/host/src/limited.rs).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE = 64 };

static pid_t agent;
static long kill_at;
static int guardian_is_killed, kills_itself;
static const char *kill_log;

__attribute__((constructor)) static void begin(void)
{
    char words[256] = {0};
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (file < 0 || read(file, words, sizeof words - 1) <= 0)
        return;
    close(file);
    const char *verb = words + strlen(words) + 1;
    if ((strcmp(verb, "agent") != 0 && strcmp(verb, "limited") != 0) || !getenv("KILL_LOG"))
        return;
    kill_log = getenv("KILL_LOG");
    kill_at = getenv("KILL_AT") ? atol(getenv("KILL_AT")) : -1;
    guardian_is_killed = getenv("KILL_GUARDIAN") != NULL;
    kills_itself = getenv("KILL_SELF") != NULL;
    agent = getpid();
}

static void point(const char *when, const char *what)
{
    int kept = errno;
    if (!agent)
        return;
    char line[LINE];
    memset(line, ' ', LINE);
    line[LINE - 1] = '\n';
    size_t at = 0;
    for (const char *text = when; *text && at < LINE - 1; text++)
        line[at++] = *text;
    for (const char *text = what; *text && at < LINE - 1; text++)
        line[at++] = *text;
    int file = open(kill_log, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0)
        return;
    /* The system's own: `write` below is counted. */
    extern ssize_t __write(int, const void *, size_t);
    long end = __write(file, line, LINE) == LINE ? (long)lseek(file, 0, SEEK_CUR) : 0;
    close(file);
    if (end / LINE - 1 == kill_at) {
        pid_t (*send)(pid_t, int) = (pid_t(*)(pid_t, int))dlsym(RTLD_NEXT, "kill");
        send(kills_itself ? getpid() : agent, SIGKILL);
        if (kills_itself || getpid() == agent)
            for (;;)
                pause();
    }
    errno = kept;
}

#define COUNTED(type, name, parameters, arguments)                                       \
    type name parameters                                                                 \
    {                                                                                    \
        static type(*real) parameters;                                                   \
        if (!real)                                                                       \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name);                          \
        point("before ", #name);                                                         \
        type result = real arguments;                                                    \
        point("after ", #name);                                                          \
        return result;                                                                   \
    }

COUNTED(int, mkdir, (const char *path, mode_t mode), (path, mode))
COUNTED(int, rmdir, (const char *path), (path))
COUNTED(int, unlink, (const char *path), (path))
COUNTED(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags))
COUNTED(int, rename, (const char *from, const char *to), (from, to))
COUNTED(int, renameat2,
        (int from_folder, const char *from, int to_folder, const char *to, unsigned flags),
        (from_folder, from, to_folder, to, flags))
COUNTED(int, mount,
        (const char *source, const char *target, const char *kind, unsigned long flags,
         const void *data),
        (source, target, kind, flags, data))
COUNTED(int, umount2, (const char *target, int flags), (target, flags))
COUNTED(int, unshare, (int flags), (flags))
COUNTED(int, setns, (int file, int kind), (file, kind))
COUNTED(int, bind, (int file, const struct sockaddr *address, socklen_t length),
        (file, address, length))
COUNTED(pid_t, fork, (void), ())
COUNTED(int, killpg, (pid_t group, int number), (group, number))

/* With KILL_GUARDIAN guardians end at once, as if they had been killed. */
int execvp(const char *program, char *const words[])
{
    int (*real)(const char *, char *const[]) =
        (int (*)(const char *, char *const[]))dlsym(RTLD_NEXT, "execvp");
    point("before ", "execvp");
    if (guardian_is_killed && words[0] && words[1] && strcmp(words[1], "guardian") == 0)
        program = "true";
    return real(program, words);
}

/* Messages to the kernel by netlink(7): links, addresses, queueing disciplines. */
static int is_netlink(int socket)
{
    int kept = errno, domain = 0;
    socklen_t length = sizeof domain;
    int known = agent && getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0;
    errno = kept;
    return known && domain == AF_NETLINK;
}

static ssize_t counted_send(int socket, const void *bytes, size_t length, int flags,
                            const struct sockaddr *to, socklen_t to_length)
{
    static ssize_t (*real)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    if (!real)
        real = (ssize_t(*)(int, const void *, size_t, int, const struct sockaddr *,
                           socklen_t))dlsym(RTLD_NEXT, "sendto");
    int counted = is_netlink(socket);
    if (counted)
        point("before ", "message to the kernel");
    ssize_t result = real(socket, bytes, length, flags, to, to_length);
    if (counted)
        point("after ", "message to the kernel");
    return result;
}

ssize_t send(int socket, const void *bytes, size_t length, int flags)
{
    return counted_send(socket, bytes, length, flags, NULL, 0);
}

ssize_t sendto(int socket, const void *bytes, size_t length, int flags, const struct sockaddr *to,
               socklen_t to_length)
{
    return counted_send(socket, bytes, length, flags, to, to_length);
}

/* Lines of ledgers, moves between cgroups, and settings of the machine. */
ssize_t write(int file, const void *bytes, size_t length)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    char path[512] = {0};
    int counted = 0;
    if (agent) {
        char name[64];
        int kept = errno;
        snprintf(name, sizeof name, "/proc/self/fd/%d", file);
        ssize_t size = readlink(name, path, sizeof path - 1);
        counted = size > 0 &&
                  (strstr(path, "/ledger/") || strstr(path, "/cgroup.") ||
                   strncmp(path, "/proc/sys/", 10) == 0 || strncmp(path, "/sys/", 5) == 0 ||
                   strncmp(path, "/proc/irq/", 10) == 0);
        errno = kept;
    }
    if (counted)
        point("before ", strstr(path, "/ledger/") ? "write of the ledger" : "write of the machine's");
    ssize_t result = real(file, bytes, length);
    if (counted)
        point("after ", strstr(path, "/ledger/") ? "write of the ledger" : "write of the machine's");
    return result;
}
