/*
 * loopscope/phase.h: take part in the phases of an experiment.
 *
 * A program names its phases and asks for one after the other. The loopscope agent that started it
 * says when each begins; started by hand, the program runs them in the order named, with the
 * configuration from its command line.
 *
 *     static const char *const names[] = {"listen", "run", NULL};
 *     struct loopscope_phases *phases;
 *     const char *phase;
 *     int more = loopscope_phase_connect(&phases, names, argc, argv);
 *     if (more == 0) {
 *         while ((more = loopscope_phase_next(phases, &phase)) == 1) {
 *             if (strcmp(phase, "listen") == 0)
 *                 loopscope_phase_publish_int(phases, "port", listen_somewhere());
 *             else
 *                 work();
 *             if (loopscope_phase_done(phases) != 0)
 *                 break;
 *         }
 *     }
 *     if (more != 0)
 *         fprintf(stderr, "%s\n", loopscope_phase_error(phases));
 *     loopscope_phase_close(phases);
 *     return more != 0;
 *
 * A program that is a table of functions, one for each phase, does without the loop:
 *
 *     static const struct loopscope_phase_function table[] = {
 *         {"configure", read_configuration}, {"listen", listen_phase}, {"run", work}, {NULL, NULL}};
 *     return loopscope_phase_run(table, &state, argc, argv);
 *
 * C99 and POSIX 2008, libc only. Calls block. One thread at a time may use a session.
 *
 * Functions return -1 on an error that loopscope_phase_error() describes. Text is UTF-8.
 */
#ifndef LOOPSCOPE_PHASE_H
#define LOOPSCOPE_PHASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exported whatever the library around it is compiled with. */
#pragma GCC visibility push(default)

/* A program's part in the phases; opaque. */
struct loopscope_phases;

/*
 * Connects to the agent through LOOPSCOPE_PHASE_FD, waits for its configuration and names this
 * program's phases (ended by NULL). Without the variable the program runs by itself.
 *
 * The command line may hold `--key value` and `--key=value`; argv[0] is skipped. A value that is a
 * JSON number, true or false becomes that, any other a string. With an agent its configuration
 * wins, key by key. Pass 0 and NULL where the program reads its command line itself.
 *
 * Returns 0 or -1. Either way *phases is to be closed; it is NULL only if memory was lacking.
 */
int loopscope_phase_connect(struct loopscope_phases **phases, const char *const *names, int argc,
                            char *const *argv);

/* Closes the session. NULL is allowed. */
void loopscope_phase_close(struct loopscope_phases *phases);

/* What the last -1 was about, in one line. Valid until the next call. NULL is allowed. */
const char *loopscope_phase_error(const struct loopscope_phases *phases);

/* This component's name in the experiment, and its host's; NULL without an agent. */
const char *loopscope_phase_component(const struct loopscope_phases *phases);
const char *loopscope_phase_host(const struct loopscope_phases *phases);

/*
 * The configuration's value at key. Returns 1; 0 where there is no such key (*value is untouched);
 * -1 where the value has another type or does not fit.
 *
 * A string is copied to value, at most size bytes with its final NUL. A number with a fraction or
 * an exponent is no int.
 */
int loopscope_phase_config_str(struct loopscope_phases *phases, const char *key, char *value,
                               size_t size);
int loopscope_phase_config_int(struct loopscope_phases *phases, const char *key, int64_t *value);
int loopscope_phase_config_double(struct loopscope_phases *phases, const char *key, double *value);
int loopscope_phase_config_bool(struct loopscope_phases *phases, const char *key, int *value);

/*
 * Waits for the next phase. Returns 1 and its name in *phase (one of the names given to connect;
 * valid until close); 0 when the run has ended and the program should exit with 0; -1 on an error.
 */
int loopscope_phase_next(struct loopscope_phases *phases, const char **phase);

/* Whether the experiment is measured in the current phase: 1 or 0. */
int loopscope_phase_measured(const struct loopscope_phases *phases);

/*
 * The data address of a component of the experiment. Returns 1; 0 where the experiment has no such
 * component (there is none without an agent); -1 on an error. Only inside a phase.
 */
int loopscope_phase_peer(struct loopscope_phases *phases, const char *component, char *address,
                         size_t size);

/*
 * One of all data addresses of a component's host, IPv4 and IPv6, from index 0, which is that of
 * loopscope_phase_peer(). Returns as that does; 0 also where there are no more.
 */
int loopscope_phase_peer_address(struct loopscope_phases *phases, const char *component,
                                 size_t index, char *address, size_t size);

/*
 * A value that a component has published before this phase. Returns as the config functions do; 0
 * also where there is no such component.
 */
int loopscope_phase_peer_str(struct loopscope_phases *phases, const char *component,
                             const char *name, char *value, size_t size);
int loopscope_phase_peer_int(struct loopscope_phases *phases, const char *component,
                             const char *name, int64_t *value);
int loopscope_phase_peer_double(struct loopscope_phases *phases, const char *component,
                                const char *name, double *value);

/*
 * Keeps a value that the end of this phase publishes to every program that starts a phase later.
 * Each name once in a phase. Returns 0 or -1.
 */
int loopscope_phase_publish_str(struct loopscope_phases *phases, const char *name,
                                const char *value);
int loopscope_phase_publish_int(struct loopscope_phases *phases, const char *name, int64_t value);
int loopscope_phase_publish_double(struct loopscope_phases *phases, const char *name, double value);

/* Ends the phase. Returns 0 or -1. */
int loopscope_phase_done(struct loopscope_phases *phases);

/*
 * Ends the phase and the run, for the reason given (cut after 8 KiB). The program should then exit
 * with a status that is not 0. Returns 0 or -1.
 */
int loopscope_phase_failed(struct loopscope_phases *phases, const char *error);

/* A row of a table of functions. A row whose phase is NULL ends the table. */
struct loopscope_phase_function {
    /* A phase; or "configure": once, before the program says which phases it takes part in. */
    const char *phase;
    /*
     * Returns 0 where the phase is done. It fails the phase and the run by
     * loopscope_phase_failed(), or by another value. data is what was given to
     * loopscope_phase_run().
     */
    int (*function)(struct loopscope_phases *phases, void *data);
};

/*
 * Takes part with a table of functions: connects, calls each phase's function when the phase
 * begins, and ends. argc and argv are as for loopscope_phase_connect().
 *
 * Returns the exit status for main: EXIT_SUCCESS, or EXIT_FAILURE after a line on stderr.
 */
int loopscope_phase_run(const struct loopscope_phase_function *table, void *data, int argc,
                        char *const *argv);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
