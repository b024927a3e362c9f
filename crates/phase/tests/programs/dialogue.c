/* The program of dialogue.rs in C. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loopscope/phase.h"

static struct loopscope_phases *phases;

static int check(int result)
{
    if (result < 0) {
        fprintf(stderr, "%s\n", loopscope_phase_error(phases));
        exit(1);
    }
    return result;
}

static void listen_phase(void)
{
    check(loopscope_phase_publish_int(phases, "port", 40123));
    check(loopscope_phase_publish_str(phases, "gr\xC3\xBC\xC3\x9F",
                                      "\"\\/\b\f\n\r\t\x01\x1f\x7f\xF0\x9F\x99\x82"));
    check(loopscope_phase_publish_double(phases, "rate", 0.25));
    check(loopscope_phase_publish_double(phases, "whole", -3.0));
    check(loopscope_phase_publish_int(phases, "least", INT64_MIN));
    if (loopscope_phase_publish_int(phases, "port", 1) != -1)
        exit(9);
}

static void connect_phase(void)
{
    char to[64] = "nobody", address[64] = "nowhere", label[64] = "none";
    int64_t port = -1;

    check(loopscope_phase_config_str(phases, "to", to, sizeof to));
    check(loopscope_phase_peer(phases, to, address, sizeof address));
    check(loopscope_phase_peer_int(phases, to, "port", &port));
    check(loopscope_phase_peer_str(phases, to, "label", label, sizeof label));
    printf("to %s at %s:%" PRId64 " (%s)\n", to, address, port, label);
}

static void run_phase(void)
{
    char period[16] = "never", fail[32768];
    int64_t count = -1;
    double share = -1;
    int fast = 0;

    check(loopscope_phase_config_int(phases, "count", &count));
    check(loopscope_phase_config_str(phases, "period", period, sizeof period));
    check(loopscope_phase_config_double(phases, "share", &share));
    check(loopscope_phase_config_bool(phases, "fast", &fast));
    printf("count %" PRId64 " period %s share %.3f fast %d measured %d\n", count, period, share,
           fast, loopscope_phase_measured(phases));
    if (check(loopscope_phase_config_str(phases, "fail", fail, sizeof fail)) == 1) {
        check(loopscope_phase_failed(phases, fail));
        fprintf(stderr, "%s\n", fail);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"listen", "connect", "run", NULL};
    const char *phase;
    const char *component;

    check(loopscope_phase_connect(&phases, names, argc, argv));
    component = loopscope_phase_component(phases);
    printf("component %s\n", component == NULL ? "none" : component);
    while (check(loopscope_phase_next(phases, &phase)) == 1) {
        printf("phase %s\n", phase);
        if (strcmp(phase, "listen") == 0)
            listen_phase();
        else if (strcmp(phase, "connect") == 0)
            connect_phase();
        else
            run_phase();
        check(loopscope_phase_done(phases));
    }
    loopscope_phase_close(phases);
    return 0;
}
