/* The process directory: made when the library starts, and anew in a forked child. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"

char loopscope_root[LOOPSCOPE_PATH - 128];
struct process *loopscope_process;
struct loopscope_control *loopscope_control;

/* The runtime directory is everybody's of this user, not one that a collector made for a recording:
 * who ends removes what it made there. */
static int is_shared_root;

int loopscope_path(char *path, size_t size, const char *format, ...)
{
    int length = snprintf(path, size, "%s/%u-%llx/", loopscope_root, loopscope_process->pid,
                          (unsigned long long)loopscope_process->stamp);
    if (length < 0 || (size_t)length >= size)
        return 0;
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(path + length, size - (size_t)length, format, arguments);
    va_end(arguments);
    return more >= 0 && (size_t)(length + more) < size;
}

/* Copies that a collector which changes filters may spoil one after another. */
#define MOST_COPIES 100

static void inherit_filters(struct loopscope_section *to, const struct loopscope_section *from)
{
    uint64_t changes;
    for (int copies = 0; copies < MOST_COPIES; copies++) {
        /* Pairs with the release in loopscope_filter_give_back. */
        changes = __atomic_load_n(&from->filter_changes, __ATOMIC_ACQUIRE);
        memcpy(to->filter, from->filter, sizeof to->filter);
        if (!LOAD(&from->filters_ready))
            return;
        memcpy(to->block_taken, from->block_taken, sizeof to->block_taken);
        memcpy(to->block, from->block, sizeof to->block);
        /* Pairs with the release fence in loopscope_filter_put, as in copy (filter.c). */
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (LOAD(&from->filter_changes) == changes)
            return;
    }
    /* Nobody knows what they say. */
    for (uint32_t i = 0; i < LOOPSCOPE_MAX_SITES; i++)
        if (to->filter[i] != 0)
            to->filter[i] = LOOPSCOPE_FILTER_REFUSED;
}

/* What a forked child takes over: the streams, and what is enabled in them. */
static int inherit(struct loopscope_control *control, const char *path,
                   const struct loopscope_control *parent, uint64_t parent_stamp)
{
    control->parent_pid = parent->pid;
    control->parent_stamp = parent_stamp;
    control->frequency = LOAD(&parent->frequency);
    control->cells = LOAD(&parent->cells);
    for (uint32_t k = 0; k < LOOPSCOPE_STREAMS; k++) {
        const struct loopscope_section *from = &parent->sections[k];
        uint32_t state = LOAD(&parent->streams[k].state);
        if (state != LOOPSCOPE_ACTIVE && state != LOOPSCOPE_BARE)
            continue;
        control->streams[k] = parent->streams[k];
        control->streams[k].trigger = control->streams[k].freeze = 0;
        control->streams[k].uncounted = 0;
        control->streams[k].refusal = control->streams[k].small = 0;
        if (state == LOOPSCOPE_ACTIVE
            && (!loopscope_allocate_tables(control, path, k)
                || (LOAD(&from->filters_ready) && !loopscope_allocate_filters(control, path, k))))
            return 0;
        if (state == LOOPSCOPE_ACTIVE)
            inherit_filters(&control->sections[k], from);
    }
    for (uint32_t i = 0; i < control->site_count; i++)
        control->flags[i] = LOAD(&parent->flags[i]);
    return 1;
}

/* Removes the directory of a process that has found no room in it. A child counts its hits in its
 * parent's; otherwise the collector whose runtime directory it is learns of it by a file without
 * content, which needs no room. */
static void give_up(const char *directory, const char *sites,
                    const struct loopscope_control *parent)
{
    char path[LOOPSCOPE_PATH];
    int error = errno, fd = -1;
    unlink(sites);
    if (!parent && !is_shared_root && loopscope_path(path, sizeof path, "failed-%d", error))
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        rmdir(directory);
    else
        close(fd);
}

/* Makes this process's directory; `parent` is the control file of the process that forked it. */
static struct loopscope_control *make_directory(const struct loopscope_control *parent)
{
    char directory[LOOPSCOPE_PATH], path[LOOPSCOPE_PATH], sites[LOOPSCOPE_PATH];
    loopscope_process->pid = (uint32_t)getpid();
    loopscope_process->stamp = loopscope_counter();
    if (!loopscope_path(directory, sizeof directory, "%s", "")
        || !loopscope_path(path, sizeof path, "control")
        || !loopscope_path(sites, sizeof sites, "sites") || mkdir(directory, 0700) != 0)
        return NULL;
    static uint64_t stamp; /* of this process's directory: a child finds its parent's here */
    struct loopscope_control *control = NULL;
    if (loopscope_write_sites(sites))
        control = loopscope_map_file(path, sizeof *control, LOOPSCOPE_CONTROL_HEAD);
    if (!control) {
        give_up(directory, sites, parent);
        return NULL;
    }
    control->version = LOOPSCOPE_LAYOUT_VERSION;
    control->size = sizeof *control;
    control->pid = loopscope_process->pid;
    control->max_sites = LOOPSCOPE_MAX_SITES;
    control->causes = LOOPSCOPE_CAUSES;
    control->site_count = loopscope_site_count();
    control->counter = loopscope_counter_choose();
    struct stat namespace;
    if (stat("/proc/self/ns/pid", &namespace) == 0)
        control->pid_namespace = namespace.st_ino;
    snprintf(control->process, sizeof control->process, "%s", program_invocation_short_name);
    if (!parent) {
        struct config config;
        loopscope_config_read(&config);
        loopscope_config_streams(control, path, &config);
        loopscope_config_free(&config);
    } else if (!inherit(control, path, parent, stamp)) {
        munmap(control, sizeof *control);
        unlink(path);
        give_up(directory, sites, parent);
        return NULL;
    }
    stamp = loopscope_process->stamp;
    /* Pairs with the collector's acquire load of the magic. */
    __atomic_store_n(&control->magic, LOOPSCOPE_CONTROL_MAGIC, __ATOMIC_RELEASE);
    return control;
}

int loopscope_ready(void)
{
    if (loopscope_process->state == PROCESS_FORKED) {
        struct loopscope_control *control = make_directory(loopscope_control);
        /* At the parent's address, so that every site's flag pointer holds. */
        if (control
            && mremap(control, sizeof *control, sizeof *control, MREMAP_MAYMOVE | MREMAP_FIXED,
                      loopscope_control) == loopscope_control) {
            /* Pairs with the acquire load in loopscope_make_writer: the directory is there. */
            __atomic_store_n(&loopscope_process->state, PROCESS_READY, __ATOMIC_RELEASE);
        } else {
            /* Keeps the parent's control file, where its events are counted as dropped. */
            __atomic_fetch_add(&loopscope_control->orphans, 1, __ATOMIC_RELAXED);
            /* As above. */
            __atomic_store_n(&loopscope_process->state, PROCESS_ORPHAN, __ATOMIC_RELEASE);
        }
    }
    return loopscope_process->state == PROCESS_READY;
}

/* Whether a process has a file of this directory mapped. */
static int maps(const char *pid, const char *suffix)
{
    char path[64], text[8192];
    size_t kept = 0, length = strlen(suffix);
    if (snprintf(path, sizeof path, "/proc/%s/maps", pid) >= (int)sizeof path)
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC), found = 0;
    if (fd < 0)
        return 0;
    for (ssize_t n; !found && (n = read(fd, text + kept, sizeof text - kept)) > 0;) {
        size_t size = kept + (size_t)n;
        found = memmem(text, size, suffix, length) != NULL;
        /* The rest may be the beginning of it. */
        kept = size < length ? size : length - 1;
        memmove(text, text + size - kept, kept);
    }
    close(fd);
    return found;
}

/* A process that has such a file mapped, other than this one; 0: none. */
static uint32_t find_heir(const char *suffix)
{
    uint32_t heir = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; heir == 0 && processes && (entry = readdir(processes)) != NULL;) {
        long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0 && pid != getpid() && maps(entry->d_name, suffix))
            heir = (uint32_t)pid;
    }
    if (processes)
        closedir(processes);
    return heir;
}

uint32_t loopscope_heir(struct loopscope_control *control, const char *name)
{
    char suffix[256];
    uint32_t heir = LOAD(&control->heir);
    if (!LOAD(&control->forked))
        return 0;
    if (heir != 0 && (kill((pid_t)heir, 0) == 0 || errno == EPERM))
        return heir;
    if (snprintf(suffix, sizeof suffix, "/%s/control", name) >= (int)sizeof suffix)
        return 0;
    /* A second look finds the child of one that ended during the first, whatever its number. */
    heir = find_heir(suffix);
    if (heir == 0)
        heir = find_heir(suffix);
    STORE(&control->heir, heir);
    return heir;
}

/* Removes a process directory, which has no directories in it. */
static void remove_directory(int root, const char *name)
{
    int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (entry->d_name[0] != '.')
            unlinkat(fd, entry->d_name, 0);
    closedir(directory);
    unlinkat(root, name, AT_REMOVEDIR);
}

static int has_streams(const struct loopscope_control *control)
{
    for (uint32_t k = 0; k < LOOPSCOPE_STREAMS; k++)
        if (LOAD(&control->streams[k].state) != LOOPSCOPE_FREE)
            return 1;
    return 0;
}

/* Whether the directory is that of a process that was killed, with no collector to care for it. */
static int is_left_behind(int root, const char *name)
{
    char path[256];
    struct stat own;
    long pid = strtol(name, NULL, 10);
    if (pid <= 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH
        || snprintf(path, sizeof path, "%s/control", name) >= (int)sizeof path
        || stat("/proc/self/ns/pid", &own) != 0)
        return 0;
    int fd = openat(root, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return 0;
    struct loopscope_control *control = mmap(NULL, LOOPSCOPE_CONTROL_HEAD, PROT_READ | PROT_WRITE,
                                             MAP_SHARED, fd, 0);
    struct stat status;
    int left = control != MAP_FAILED && fstat(fd, &status) == 0
               && status.st_size >= LOOPSCOPE_CONTROL_HEAD
               && control->magic == LOOPSCOPE_CONTROL_MAGIC
               && control->pid_namespace == own.st_ino && !has_streams(control)
               && loopscope_heir(control, name) == 0;
    if (control != MAP_FAILED)
        munmap(control, LOOPSCOPE_CONTROL_HEAD);
    close(fd);
    return left;
}

static void sweep(void)
{
    int root = open(loopscope_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = root < 0 ? NULL : fdopendir(root);
    if (!directory) {
        if (root >= 0)
            close(root);
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (is_left_behind(root, entry->d_name))
            remove_directory(root, entry->d_name);
    closedir(directory);
}

/* Forked children share the control file until their first hit, also when this process has ended: a
 * daemon can be attached to by way of its parent's directory. */
static void before_fork(void)
{
    if (loopscope_control)
        STORE(&loopscope_control->forked, 1);
}

/* A program that was started with nothing but the library waits here to be attached to. */
static int use_shared_root(void)
{
    struct stat status;
    snprintf(loopscope_root, sizeof loopscope_root, "/dev/shm/loopscope-%u", (unsigned)geteuid());
    if (mkdir(loopscope_root, 0700) != 0 && errno != EEXIST)
        return 0;
    if (lstat(loopscope_root, &status) != 0 || !S_ISDIR(status.st_mode)
        || status.st_uid != geteuid() || (status.st_mode & 077) != 0)
        return 0;
    is_shared_root = 1;
    return 1;
}

static void init(void)
{
    const char *root = secure_getenv("LOOPSCOPE_RUNTIME_DIR");
    if (root) {
        if (root[0] != '/' || strlen(root) >= sizeof loopscope_root)
            return;
        strcpy(loopscope_root, root);
    } else if (getuid() != geteuid() || getgid() != getegid() || !use_shared_root()) {
        return;
    }
    loopscope_process = loopscope_map_anonymous(sizeof *loopscope_process, MADV_WIPEONFORK);
    if (!loopscope_process || !loopscope_ring_init() || pthread_atfork(before_fork, NULL, NULL) != 0)
        return;
    if (is_shared_root)
        sweep();
    loopscope_control = make_directory(NULL);
    loopscope_process->state = PROCESS_READY;
    for (uint32_t k = 0; loopscope_control && k < LOOPSCOPE_STREAMS; k++)
        if (loopscope_control->streams[k].state == LOOPSCOPE_ACTIVE)
            loopscope_make_spares(k);
}

void loopscope_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct guard guard;
    loopscope_guard(&guard);
    pthread_once(&once, init);
    loopscope_unguard(&guard);
}

__attribute__((destructor)) static void leave(void)
{
    if (!is_shared_root || !loopscope_control || loopscope_process->state != PROCESS_READY
        || loopscope_process->pid != (uint32_t)getpid() || has_streams(loopscope_control)
        || LOAD(&loopscope_control->forked))
        return;
    char name[64];
    snprintf(name, sizeof name, "%u-%llx", loopscope_process->pid,
             (unsigned long long)loopscope_process->stamp);
    int root = open(loopscope_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return;
    remove_directory(root, name);
    close(root);
}
