// Takes part in the phases p0 to p999 and records an event when one begins.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <loopscope/phase.h>
#include <loopscope/trace.h>

int main(int argc, char **argv)
{
    static char texts[1000][8];
    static const char *names[1001];
    struct loopscope_phases *phases;
    const char *phase;
    int more;

    for (int i = 0; i < 1000; i++) {
        snprintf(texts[i], sizeof texts[i], "p%d", i);
        names[i] = texts[i];
    }
    more = loopscope_phase_connect(&phases, names, argc, argv);
    while (more == 0 && (more = loopscope_phase_next(phases, &phase)) == 1) {
        LOOPSCOPE_EVENT("start", "begun", atoi(phase + 1));
        /* The work of a phase: the first to be done would else disturb the others' beginning. */
        usleep(3000);
        more = loopscope_phase_done(phases);
    }
    if (more != 0)
        fprintf(stderr, "%s\n", loopscope_phase_error(phases));
    loopscope_phase_close(phases);
    return more != 0;
}
