/* Included ahead of every file of the shared library (Makefile), and of nothing else: makes it run
 * with glibc 2.28 and later, whichever later one it is built with.
 *
 * glibc gave some functions new symbol versions without a change of their meaning: the threads' when
 * they moved into libc.so.6 (2.32, 2.34), the number readers' for C23's binary literals (2.38, under
 * other names). The references below ask for the versions that were there all along; the threads'
 * are in libpthread.so.0 before 2.34, which the library therefore needs by name. A name that a file
 * does not use makes no reference. tests/adoption/test_library.py looks at what comes out. */
#ifndef LOOPSCOPE_VERSIONS_H
#define LOOPSCOPE_VERSIONS_H

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc's first version on the architecture. */
#if defined(__x86_64__)
#define LOOPSCOPE_OLDEST_ "GLIBC_2.2.5"
#else
#define LOOPSCOPE_OLDEST_ "GLIBC_2.17"
#endif
#define LOOPSCOPE_OLD_AS_(name, as) __asm__(".symver " #name "," #as "@" LOOPSCOPE_OLDEST_)
#define LOOPSCOPE_OLD_(name) LOOPSCOPE_OLD_AS_(name, name)

LOOPSCOPE_OLD_(pthread_once);
LOOPSCOPE_OLD_(pthread_key_create);
LOOPSCOPE_OLD_(pthread_key_delete);
LOOPSCOPE_OLD_(pthread_getspecific);
LOOPSCOPE_OLD_(pthread_setspecific);
LOOPSCOPE_OLD_(pthread_sigmask);
LOOPSCOPE_OLD_AS_(__isoc23_strtol, strtol);
LOOPSCOPE_OLD_AS_(__isoc23_strtoul, strtoul);
LOOPSCOPE_OLD_AS_(__isoc23_strtoll, strtoll);
LOOPSCOPE_OLD_AS_(__isoc23_strtoull, strtoull);

/* Before 2.33 these were no functions of the library at all. The kernel's struct stat is glibc's on
 * both architectures. */
#define stat(path, out) ((int)syscall(SYS_newfstatat, AT_FDCWD, path, out, 0))
#define lstat(path, out)                                                                          \
    ((int)syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW))
#define fstat(fd, out) ((int)syscall(SYS_fstat, fd, out))

#endif
