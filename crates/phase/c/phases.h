/* The state of a program's side of the phase protocol, for phase.c, functions.c and values.c. */
#ifndef LOOPSCOPE_PHASES_H
#define LOOPSCOPE_PHASES_H

#include <stdbool.h>
#include <stddef.h>

#include "json.h"
#include "loopscope/phase.h"
#include "text.h"

struct loopscope_phases {
    int fd; /* -1: no agent */
    char **names;
    size_t count;
    size_t current; /* count: none */
    size_t next;    /* without an agent */
    bool ended;
    bool configuring; /* the program's function for its configuration runs */
    int measured;

    char *component, *host;
    char *config;          /* the configure line; NULL without an agent */
    struct loopscope_text arguments; /* the command line's configuration, an object */
    struct loopscope_text values;    /* published in this phase, an object without its last brace */
    struct loopscope_text out;

    /* line[0..taken] is the last message, a string; line[taken..filled] what came behind it. */
    char *line;
    size_t taken, filled, room;

    char error[512];
};

/* The names that these have in a program, where others may have the short ones. */
#define fail loopscope_phase_fail
#define member loopscope_phase_member
#define begins loopscope_phase_begins
#define is_peer loopscope_phase_is_peer
#define open_session loopscope_phase_open_session
#define say_hello loopscope_phase_say_hello

/* Stores the error's text; returns -1. */
__attribute__((format(printf, 2, 3))) int fail(struct loopscope_phases *p, const char *format, ...);

/* The value of a member of the agent's last message; NULL if there is none. */
const char *member(const struct loopscope_phases *p, const char *key);

/* Whether there is a value, and it begins with this character. */
bool begins(const char *value, char first);

/* Whether the value is a peer of a phase message. */
bool is_peer(const char *value);

/* loopscope_phase_connect() up to the configuration. */
int open_session(struct loopscope_phases **phases, const char *const *names, int argc,
                 char *const *argv);

/* Names the program's phases, where there is an agent. */
int say_hello(struct loopscope_phases *p);

#endif
