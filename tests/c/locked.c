/* locked: a program that may lock little memory and locks all that it gets: rings cannot be made.
 * Prints the hits that it counted as dropped; 77 where the limit does not bind. */
#include <linux/capability.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loopscope/trace.h"
#include "runtime.h"

int main(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    struct rlimit little = {256 << 10, 256 << 10};
    syscall(SYS_capset, &header, none); /* CAP_IPC_LOCK is above the limit */
    if (setrlimit(RLIMIT_MEMLOCK, &little) != 0 || mlockall(MCL_FUTURE) != 0)
        return 77;
    if (mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        return 77;
    for (int i = 0; i < 1000; i++)
        LOOPSCOPE_EVENT("locked", "hit", i);
    int no_ring = loopscope_thread_init();
    printf("%d %llu\n", no_ring,
           (unsigned long long)loopscope_control->sections[0].drops[0][LOOPSCOPE_NO_RING]);
    return 0;
}
