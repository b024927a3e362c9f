// Lets two processes of low priority wake each other in turn on one processor, until a signal ends
// them: each turn is two switches and two wake-ups.
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(atoi(argv[1]), &only);
    int there[2], back[2];
    char byte = 0;
    if (sched_setaffinity(0, sizeof only, &only) || nice(19) == -1) return 1;
    if (pipe(there) || pipe(back)) return 1;
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1) continue;
        _exit(0);
    }
    while (write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1) continue;
    return 1;
}
