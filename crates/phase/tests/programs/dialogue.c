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

static int listen_phase(struct loopscope_phases *p, void *data)
{
    (void)data;
    phases = p;
    check(loopscope_phase_publish_int(phases, "port", 40123));
    check(loopscope_phase_publish_str(phases, "gr\xC3\xBC\xC3\x9F",
                                      "\"\\/\b\f\n\r\t\x01\x1f\x7f\xF0\x9F\x99\x82"));
    check(loopscope_phase_publish_double(phases, "rate", 0.25));
    check(loopscope_phase_publish_double(phases, "whole", -3.0));
    check(loopscope_phase_publish_int(phases, "least", INT64_MIN));
    if (loopscope_phase_publish_int(phases, "port", 1) != -1)
        exit(9);
    return 0;
}

static int connect_phase(struct loopscope_phases *p, void *data)
{
    char to[64] = "nobody", address[64] = "nowhere", label[64] = "none";
    int64_t port = -1;

    (void)data;
    phases = p;
    check(loopscope_phase_config_str(phases, "to", to, sizeof to));
    check(loopscope_phase_peer(phases, to, address, sizeof address));
    check(loopscope_phase_peer_int(phases, to, "port", &port));
    check(loopscope_phase_peer_str(phases, to, "label", label, sizeof label));
    printf("to %s at %s:%" PRId64 " (%s)\n", to, address, port, label);
    for (size_t i = 0; check(loopscope_phase_peer_address(phases, to, i, address, sizeof address));
         i++)
        printf("address %s\n", address);
    return 0;
}

static int run_phase(struct loopscope_phases *p, void *data)
{
    char period[16] = "never", fail[32768];
    int64_t count = -1;
    double share = -1;
    int fast = 0;

    (void)data;
    phases = p;
    check(loopscope_phase_config_int(phases, "count", &count));
    check(loopscope_phase_config_str(phases, "period", period, sizeof period));
    check(loopscope_phase_config_double(phases, "share", &share));
    check(loopscope_phase_config_bool(phases, "fast", &fast));
    printf("count %" PRId64 " period %s share %.3f fast %d measured %d\n", count, period, share,
           fast, loopscope_phase_measured(phases));
    if (check(loopscope_phase_config_str(phases, "fail", fail, sizeof fail)) == 1) {
        check(loopscope_phase_failed(phases, fail));
        return -1;
    }
    return check(loopscope_phase_config_str(phases, "return", fail, sizeof fail)) == 1 ? 7 : 0;
}

static int configure(struct loopscope_phases *p, void *data)
{
    const char *component = loopscope_phase_component(p);
    char refuse[64];

    phases = p;
    printf("component %s\n", component == NULL ? "none" : component);
    if (check(loopscope_phase_config_str(p, "refuse", refuse, sizeof refuse)) == 1)
        return loopscope_phase_failed(p, refuse);
    return *(int *)data == 42 ? 0 : -1;
}

static int with_prefix(const char *phase, int (*function)(struct loopscope_phases *, void *),
                       struct loopscope_phases *p)
{
    printf("phase %s\n", phase);
    return function(p, NULL);
}

static int table_listen(struct loopscope_phases *p, void *data)
{
    (void)data;
    return with_prefix("listen", listen_phase, p);
}

static int table_connect(struct loopscope_phases *p, void *data)
{
    (void)data;
    return with_prefix("connect", connect_phase, p);
}

static int table_run(struct loopscope_phases *p, void *data)
{
    (void)data;
    return with_prefix("run", run_phase, p);
}

static int main_of_functions(int argc, char **argv)
{
    static const struct loopscope_phase_function table[] = {{"configure", configure},
                                                            {"listen", table_listen},
                                                            {"connect", table_connect},
                                                            {"run", table_run},
                                                            {NULL, NULL}};
    int data = 42;
    return loopscope_phase_run(table, &data, argc, argv);
}

int main(int argc, char **argv)
{
    int result = 0;
    static const char *const names[] = {"listen", "connect", "run", NULL};
    const char *phase;
    const char *component;

    if (getenv("DIALOGUE_FUNCTIONS") != NULL)
        return main_of_functions(argc, argv);
    check(loopscope_phase_connect(&phases, names, argc, argv));
    component = loopscope_phase_component(phases);
    printf("component %s\n", component == NULL ? "none" : component);
    while (check(loopscope_phase_next(phases, &phase)) == 1) {
        printf("phase %s\n", phase);
        if (strcmp(phase, "listen") == 0)
            result = listen_phase(phases, NULL);
        else if (strcmp(phase, "connect") == 0)
            result = connect_phase(phases, NULL);
        else
            result = run_phase(phases, NULL);
        if (result != 0) {
            fprintf(stderr, "%s\n", loopscope_phase_error(phases));
            return 1;
        }
        check(loopscope_phase_done(phases));
    }
    loopscope_phase_close(phases);
    return 0;
}
