/* The phase protocol, program's side. Describes itself in include/loopscope/phase.h. */
#define _POSIX_C_SOURCE 200809L

#include "loopscope/phase.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "phases.h"

/* Longest text of a failed message, in bytes: even escaped it fits into a line. */
#define ERROR_LIMIT (8 * 1024)
/* The longest line from the agent, with its newline: a phase message names every component. */
#define AGENT_LINE_LIMIT (16 * 1024 * 1024)
/* What there is room for at first. */
#define FIRST_ROOM (64 * 1024)

static bool socket_taken;

int fail(struct loopscope_phases *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->error, sizeof p->error, format, arguments);
    va_end(arguments);
    return -1;
}

const char *loopscope_phase_error(const struct loopscope_phases *p)
{
    return p == NULL ? "not enough memory" : p->error;
}

/* Command line. */

static bool is_scalar(const char *value)
{
    size_t length = strlen(value);
    return length > 0 && strchr("-0123456789tf", value[0]) != NULL &&
           strchr(" \t\n\r", value[length - 1]) == NULL && loopscope_json_valid(value, length);
}

static int read_arguments(struct loopscope_phases *p, int argc, char *const *argv)
{
    struct loopscope_text *text = &p->arguments;

    loopscope_text_add(text, "{");
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value;
        char *key;

        if (strncmp(word, "--", 2) != 0 || word[2] == '\0' || word[2] == '=')
            return fail(p, "`%s` on the command line is not --key value or --key=value", word);
        value = strchr(word, '=');
        key = value == NULL ? strdup(word + 2) : strndup(word + 2, (size_t)(value - word - 2));
        if (key == NULL)
            return fail(p, "not enough memory");
        if (value != NULL) {
            value++;
        } else if (++i < argc) {
            value = argv[i];
        } else {
            free(key);
            return fail(p, "`%s` on the command line is not --key value or --key=value", word);
        }
        if (!loopscope_is_utf8(key) || !loopscope_is_utf8(value)) {
            free(key);
            return fail(p, "`%s` on the command line is not UTF-8", word);
        }
        if (text->used > 1)
            loopscope_text_add(text, ",");
        loopscope_text_string(text, key, SIZE_MAX);
        loopscope_text_add(text, ":");
        if (is_scalar(value))
            loopscope_text_add(text, value);
        else
            loopscope_text_string(text, value, SIZE_MAX);
        free(key);
    }
    loopscope_text_add(text, "}");
    if (text->full)
        return fail(p, "the command line is longer than %d bytes", LOOPSCOPE_LINE_LIMIT);
    return 0;
}

/* The dialogue. */

static int protocol_error(struct loopscope_phases *p, const char *what)
{
    return fail(p, "the loopscope agent sent %s: %.120s", what, p->line);
}

/* Space in p->line for at least one more byte. */
static int make_room(struct loopscope_phases *p)
{
    char *more;

    if (p->filled < p->room)
        return 0;
    if (p->room == AGENT_LINE_LIMIT)
        return fail(p, "the loopscope agent sent a line of more than %d bytes", AGENT_LINE_LIMIT);
    more = realloc(p->line, 2 * p->room);
    if (more == NULL)
        return fail(p, "not enough memory");
    p->line = more;
    p->room *= 2;
    return 0;
}

/* The next message, as a checked object in p->line. */
static int read_line(struct loopscope_phases *p)
{
    char *end;

    memmove(p->line, p->line + p->taken, p->filled - p->taken);
    p->filled -= p->taken;
    p->taken = 0;
    while ((end = memchr(p->line, '\n', p->filled)) == NULL) {
        ssize_t got;
        if (make_room(p) != 0)
            return -1;
        got = recv(p->fd, p->line + p->filled, p->room - p->filled, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail(p, "cannot talk to the loopscope agent: %s", strerror(errno));
        if (got == 0 && p->filled > 0)
            return fail(p, "the loopscope agent sent a line without its end, and closed the "
                           "connection");
        if (got == 0)
            return fail(p, "the loopscope agent closed the connection without ending the run");
        p->filled += (size_t)got;
    }
    *end = '\0';
    p->taken = (size_t)(end - p->line) + 1;
    if (!loopscope_json_valid(p->line, p->taken - 1) || *loopscope_json_root(p->line) != '{')
        return protocol_error(p, "a line that is not a JSON object");
    return 0;
}

const char *member(const struct loopscope_phases *p, const char *key)
{
    return loopscope_json_member(loopscope_json_root(p->line), key);
}

bool begins(const char *value, char first)
{
    return value != NULL && *value == first;
}

static int send_out(struct loopscope_phases *p)
{
    size_t sent = 0;

    loopscope_text_add(&p->out, "\n");
    if (p->out.full)
        return fail(p, "a message to the agent may have %d bytes, this one has more",
                    LOOPSCOPE_LINE_LIMIT);
    while (p->fd >= 0 && sent < p->out.used) {
        ssize_t put = send(p->fd, p->out.bytes + sent, p->out.used - sent, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return fail(p, "cannot talk to the loopscope agent: %s", strerror(errno));
        sent += (size_t)put;
    }
    return 0;
}

/* The string value on the heap. */
static char *copy_string(const char *value)
{
    size_t size = strlen(value);
    char *copy = malloc(size);
    if (copy != NULL && loopscope_json_string(value, copy, size) != LOOPSCOPE_JSON_OK)
        copy[0] = '\0';
    return copy;
}

static int take_socket(struct loopscope_phases *p, const char *variable)
{
    static const char tail[] = "unset it to run the phases without an agent";
    char *end;
    int kind = 0;
    socklen_t size = sizeof kind;
    long number;

    errno = 0;
    number = strtol(variable, &end, 10);
    if (*variable == '\0' || *end != '\0' || errno != 0 || number < 0 || number > INT32_MAX)
        return fail(p, "LOOPSCOPE_PHASE_FD is `%s`, which is not a number; %s", variable, tail);
    if (getsockopt((int)number, SOL_SOCKET, SO_TYPE, &kind, &size) != 0 || kind != SOCK_STREAM)
        return fail(p, "LOOPSCOPE_PHASE_FD is `%s`, which is not an open stream socket; %s",
                    variable, tail);
    if (socket_taken)
        return fail(p, "LOOPSCOPE_PHASE_FD is `%s`, whose socket this program has already taken; "
                       "%s", variable, tail);
    if (fcntl((int)number, F_SETFD, FD_CLOEXEC) != 0)
        return fail(p, "cannot talk to the loopscope agent: %s", strerror(errno));
    socket_taken = true;
    p->fd = (int)number;
    return 0;
}

static int read_configuration(struct loopscope_phases *p)
{
    int64_t version;
    const char *type, *value;

    if (read_line(p) != 0)
        return -1;
    type = member(p, "type");
    if (!begins(type, '"') || !loopscope_json_equals(type, "configure"))
        return protocol_error(p, "something else before `configure`");
    value = member(p, "version");
    if (value == NULL || loopscope_json_int(value, &version) != LOOPSCOPE_JSON_OK || version != 1)
        return protocol_error(
            p, "a `configure` that is not of version 1, the one this program speaks");
    if (!begins(member(p, "component"), '"') || !begins(member(p, "host"), '"') ||
        !begins(member(p, "config"), '{'))
        return protocol_error(p, "a `configure` without `component`, `host` or `config`");
    p->component = copy_string(member(p, "component"));
    p->host = copy_string(member(p, "host"));
    p->config = strdup(p->line);
    if (p->component == NULL || p->host == NULL || p->config == NULL)
        return fail(p, "not enough memory");
    return 0;
}

int say_hello(struct loopscope_phases *p)
{
    if (p->fd < 0)
        return 0;
    loopscope_text_add(&p->out, "{\"type\":\"hello\",\"version\":1,\"phases\":[");
    for (size_t i = 0; i < p->count; i++) {
        if (i > 0)
            loopscope_text_add(&p->out, ",");
        loopscope_text_string(&p->out, p->names[i], SIZE_MAX);
    }
    loopscope_text_add(&p->out, "]}");
    return send_out(p);
}

static int copy_names(struct loopscope_phases *p, const char *const *names)
{
    size_t count = 0;

    while (names[count] != NULL)
        count++;
    p->names = calloc(count + 1, sizeof *p->names);
    if (p->names == NULL)
        return fail(p, "not enough memory");
    for (; p->count < count; p->count++) {
        const char *name = names[p->count];
        for (size_t i = 0; i < p->count; i++)
            if (strcmp(p->names[i], name) == 0)
                return fail(p, "phase `%s` is named twice", name);
        if (*name == '\0' || !loopscope_is_utf8(name))
            return fail(p, "phase `%s` is empty or not UTF-8", name);
        p->names[p->count] = strdup(name);
        if (p->names[p->count] == NULL)
            return fail(p, "not enough memory");
    }
    p->current = p->count;
    return 0;
}

int open_session(struct loopscope_phases **phases, const char *const *names, int argc,
                 char *const *argv)
{
    struct loopscope_phases *p = calloc(1, sizeof *p);
    const char *variable = getenv("LOOPSCOPE_PHASE_FD");

    *phases = p;
    if (p == NULL)
        return -1;
    p->fd = -1;
    p->room = FIRST_ROOM;
    p->line = calloc(1, p->room);
    if (p->line == NULL)
        return fail(p, "not enough memory");
    if (copy_names(p, names) != 0 || read_arguments(p, argc, argv) != 0)
        return -1;
    if (variable == NULL)
        return 0;
    return take_socket(p, variable) != 0 ? -1 : read_configuration(p);
}

int loopscope_phase_connect(struct loopscope_phases **phases, const char *const *names, int argc,
                            char *const *argv)
{
    return open_session(phases, names, argc, argv) != 0 ? -1 : say_hello(*phases);
}

void loopscope_phase_close(struct loopscope_phases *p)
{
    if (p == NULL)
        return;
    if (p->fd >= 0)
        close(p->fd);
    for (size_t i = 0; i < p->count; i++)
        free(p->names[i]);
    free(p->names);
    free(p->component);
    free(p->host);
    free(p->config);
    free(p->line);
    free(p);
}

const char *loopscope_phase_component(const struct loopscope_phases *p)
{
    return p->component;
}

const char *loopscope_phase_host(const struct loopscope_phases *p)
{
    return p->host;
}

/* Sleeps until CLOCK_MONOTONIC has this value; its value afterwards. The kernel may add the thread's
 * timer slack to a sleep, 50 us by default: here it adds none. */
static int64_t wait_until(int64_t start_ns)
{
    struct timespec at = {(time_t)(start_ns / 1000000000), (long)(start_ns % 1000000000)};
    int slack = prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);

    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
    clock_gettime(CLOCK_MONOTONIC, &at);
    if (slack > 0)
        prctl(PR_SET_TIMERSLACK, (unsigned long)slack, 0UL, 0UL, 0UL);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* Waits for the start of the current phase that the last message names, if any, and says when that
 * was. */
static int begin_together(struct loopscope_phases *p)
{
    const char *start = member(p, "start_ns");
    char number[32];
    int64_t start_ns;

    if (start == NULL)
        return 0;
    if (loopscope_json_int(start, &start_ns) != LOOPSCOPE_JSON_OK)
        return protocol_error(p, "no whole number as `start_ns`");
    snprintf(number, sizeof number, "%" PRId64, wait_until(start_ns));
    loopscope_text_cut(&p->out, 0);
    loopscope_text_add(&p->out, "{\"type\":\"begun\",\"phase\":");
    loopscope_text_string(&p->out, p->names[p->current], SIZE_MAX);
    loopscope_text_add(&p->out, ",\"at_ns\":");
    loopscope_text_add(&p->out, number);
    loopscope_text_add(&p->out, "}");
    return send_out(p);
}

static int next_alone(struct loopscope_phases *p)
{
    if (p->next == p->count)
        return 0;
    p->current = p->next++;
    p->measured = 0;
    return 1;
}

static int next_from_agent(struct loopscope_phases *p)
{
    const char *type, *name, *measured, *peers;
    size_t i = 0;

    if (read_line(p) != 0)
        return -1;
    type = member(p, "type");
    if (!begins(type, '"'))
        return protocol_error(p, "no string as `type`");
    if (loopscope_json_equals(type, "end"))
        return 0;
    if (loopscope_json_equals(type, "configure"))
        return protocol_error(p, "a second `configure`");
    if (!loopscope_json_equals(type, "phase"))
        return protocol_error(p, "a message of an unknown type");
    name = member(p, "phase");
    measured = member(p, "measured");
    peers = member(p, "peers");
    if (!begins(name, '"') || measured == NULL ||
        loopscope_json_bool(measured, &p->measured) != LOOPSCOPE_JSON_OK || !begins(peers, '{') ||
        !loopscope_json_each(peers, is_peer))
        return protocol_error(p, "a `phase` without valid `phase`, `measured` or `peers`");
    while (i < p->count && !loopscope_json_equals(name, p->names[i]))
        i++;
    if (i == p->count)
        return protocol_error(p, "a phase that this program does not take part in");
    p->current = i;
    return begin_together(p) != 0 ? -1 : 1;
}

int loopscope_phase_next(struct loopscope_phases *p, const char **phase)
{
    int more;

    if (p->current < p->count)
        return fail(p, "phase `%s` has to be done or failed before the next one",
                    p->names[p->current]);
    if (p->ended)
        return 0;
    more = p->fd < 0 ? next_alone(p) : next_from_agent(p);
    p->ended = more == 0;
    if (more == 1) {
        *phase = p->names[p->current];
        loopscope_text_cut(&p->values, 0);
        loopscope_text_add(&p->values, "{");
    }
    return more;
}

int loopscope_phase_measured(const struct loopscope_phases *p)
{
    return p->current < p->count && p->measured;
}

/* Ending a phase. */

/* Begins a message about the current phase. */
static int begin_message(struct loopscope_phases *p, const char *type)
{
    if (p->current == p->count && !p->configuring)
        return fail(p, "no phase has been started");
    loopscope_text_cut(&p->out, 0);
    loopscope_text_add(&p->out, "{\"type\":\"");
    loopscope_text_add(&p->out, type);
    loopscope_text_add(&p->out, "\",\"phase\":");
    loopscope_text_string(&p->out, p->configuring ? "configure" : p->names[p->current], SIZE_MAX);
    return 0;
}

int loopscope_phase_done(struct loopscope_phases *p)
{
    if (p->configuring)
        return fail(p, "no phase has been started");
    if (begin_message(p, "done") != 0)
        return -1;
    if (p->values.used > 1) {
        loopscope_text_add(&p->out, ",\"values\":");
        loopscope_text_add(&p->out, p->values.bytes);
        loopscope_text_add(&p->out, "}");
    }
    loopscope_text_add(&p->out, "}");
    if (send_out(p) != 0)
        return -1;
    p->current = p->count;
    return 0;
}

/* Removes what is left of a character at the end of a UTF-8 text that was cut. */
static void cut_between_characters(char *text)
{
    size_t end = strlen(text);

    while (end > 0 && !loopscope_is_utf8(text))
        text[--end] = '\0';
}

int loopscope_phase_failed(struct loopscope_phases *p, const char *error)
{
    if (begin_message(p, "failed") != 0)
        return -1;
    loopscope_text_add(&p->out, ",\"error\":");
    loopscope_text_string(&p->out, error, ERROR_LIMIT);
    loopscope_text_add(&p->out, "}");
    p->current = p->count;
    p->ended = true;
    fail(p, "%s", error);
    cut_between_characters(p->error);
    return send_out(p);
}
