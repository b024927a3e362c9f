/* Values of the phase protocol: those that a program is given, and those that it publishes. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "phases.h"

/* Reading values. */

static const char *config_value(const struct loopscope_phases *p, const char *key)
{
    const char *value = NULL;
    if (p->config != NULL)
        value = loopscope_json_member(
            loopscope_json_member(loopscope_json_root(p->config), "config"), key);
    return value != NULL ? value : loopscope_json_member(p->arguments.bytes, key);
}

/* 1, or -1 with an error about the value at key. */
static int converted(struct loopscope_phases *p, enum loopscope_json_result result,
                     const char *key, const char *value, const char *wanted)
{
    switch (result) {
    case LOOPSCOPE_JSON_OK:
        return 1;
    case LOOPSCOPE_JSON_TYPE:
        return fail(p, "`%s` must be %s; it is %.60s", key, wanted, value);
    default:
        return fail(p, "`%s` does not fit: %.60s", key, value);
    }
}

int loopscope_phase_config_str(struct loopscope_phases *p, const char *key, char *to, size_t size)
{
    const char *value = config_value(p, key);
    if (value == NULL)
        return 0;
    return converted(p, loopscope_json_string(value, to, size), key, value, "a string");
}

int loopscope_phase_config_int(struct loopscope_phases *p, const char *key, int64_t *to)
{
    const char *value = config_value(p, key);
    if (value == NULL)
        return 0;
    return converted(p, loopscope_json_int(value, to), key, value, "a whole number");
}

int loopscope_phase_config_double(struct loopscope_phases *p, const char *key, double *to)
{
    const char *value = config_value(p, key);
    if (value == NULL)
        return 0;
    return converted(p, loopscope_json_double(value, to), key, value, "a number");
}

int loopscope_phase_config_bool(struct loopscope_phases *p, const char *key, int *to)
{
    const char *value = config_value(p, key);
    if (value == NULL)
        return 0;
    return converted(p, loopscope_json_bool(value, to), key, value, "true or false");
}

static bool is_text(const char *value)
{
    return begins(value, '"');
}

bool is_peer(const char *value)
{
    const char *addresses = loopscope_json_member(value, "addresses");

    if (addresses != NULL &&
        (!begins(addresses, '[') || !loopscope_json_each(addresses, is_text)))
        return false;
    return begins(value, '{') && is_text(loopscope_json_member(value, "host")) &&
           is_text(loopscope_json_member(value, "address")) &&
           begins(loopscope_json_member(value, "values"), '{');
}

/* 1 and the peer; 0 where there is none; -1 outside a phase. */
static int find_peer(struct loopscope_phases *p, const char *component, const char **peer)
{
    if (p->current == p->count)
        return fail(p, "no phase has been started");
    if (p->fd < 0)
        return 0;
    *peer = loopscope_json_member(member(p, "peers"), component);
    return *peer != NULL;
}

static int find_peer_value(struct loopscope_phases *p, const char *component, const char *name,
                           const char **value)
{
    const char *peer = NULL;
    int found = find_peer(p, component, &peer);
    *value = NULL;
    if (found == 1) {
        *value = loopscope_json_member(loopscope_json_member(peer, "values"), name);
        found = *value != NULL;
    }
    return found;
}

int loopscope_phase_peer(struct loopscope_phases *p, const char *component, char *to, size_t size)
{
    const char *value = NULL;
    int found = find_peer(p, component, &value);
    if (found != 1)
        return found;
    value = loopscope_json_member(value, "address");
    return converted(p, loopscope_json_string(value, to, size), "address", value, "a string");
}

int loopscope_phase_peer_address(struct loopscope_phases *p, const char *component, size_t index,
                                 char *to, size_t size)
{
    const char *value = NULL;
    int found = find_peer(p, component, &value);
    if (found != 1)
        return found;
    value = loopscope_json_member(value, "addresses");
    if (value == NULL)
        return index == 0 ? loopscope_phase_peer(p, component, to, size) : 0;
    value = loopscope_json_item(value, index);
    if (value == NULL)
        return 0;
    return converted(p, loopscope_json_string(value, to, size), "addresses", value, "a string");
}

int loopscope_phase_peer_str(struct loopscope_phases *p, const char *component, const char *name,
                             char *to, size_t size)
{
    const char *value;
    int found = find_peer_value(p, component, name, &value);
    if (found != 1)
        return found;
    return converted(p, loopscope_json_string(value, to, size), name, value, "a string");
}

int loopscope_phase_peer_int(struct loopscope_phases *p, const char *component, const char *name,
                             int64_t *to)
{
    const char *value;
    int found = find_peer_value(p, component, name, &value);
    if (found != 1)
        return found;
    return converted(p, loopscope_json_int(value, to), name, value, "a whole number");
}

int loopscope_phase_peer_double(struct loopscope_phases *p, const char *component,
                                const char *name, double *to)
{
    const char *value;
    int found = find_peer_value(p, component, name, &value);
    if (found != 1)
        return found;
    return converted(p, loopscope_json_double(value, to), name, value, "a number");
}

/* Publishing values. */

/* Adds the name of a value to be published. */
static int begin_value(struct loopscope_phases *p, const char *name)
{
    size_t used = p->values.used;
    bool twice;

    if (p->current == p->count)
        return fail(p, "no phase has been started");
    if (!loopscope_is_utf8(name))
        return fail(p, "cannot publish `%s`: the name is not UTF-8", name);
    loopscope_text_add(&p->values, "}");
    twice = loopscope_json_member(p->values.bytes, name) != NULL;
    loopscope_text_cut(&p->values, used);
    if (twice)
        return fail(p, "cannot publish `%s` twice in a phase", name);
    if (used > 1)
        loopscope_text_add(&p->values, ",");
    loopscope_text_string(&p->values, name, SIZE_MAX);
    loopscope_text_add(&p->values, ":");
    return 0;
}

/* Keeps what was added since the values had the length used, or takes it back. */
static int end_value(struct loopscope_phases *p, size_t used)
{
    if (!p->values.full && p->values.used < LOOPSCOPE_LINE_LIMIT)
        return 0;
    loopscope_text_cut(&p->values, used);
    return fail(p, "the values of a phase may have %d bytes", LOOPSCOPE_LINE_LIMIT);
}

int loopscope_phase_publish_str(struct loopscope_phases *p, const char *name, const char *value)
{
    size_t used = p->values.used;
    if (!loopscope_is_utf8(value))
        return fail(p, "cannot publish `%s`: the value is not UTF-8", name);
    if (begin_value(p, name) != 0)
        return -1;
    loopscope_text_string(&p->values, value, SIZE_MAX);
    return end_value(p, used);
}

int loopscope_phase_publish_int(struct loopscope_phases *p, const char *name, int64_t value)
{
    size_t used = p->values.used;
    char digits[24];
    if (begin_value(p, name) != 0)
        return -1;
    snprintf(digits, sizeof digits, "%" PRId64, value);
    loopscope_text_add(&p->values, digits);
    return end_value(p, used);
}

int loopscope_phase_publish_double(struct loopscope_phases *p, const char *name, double value)
{
    size_t used = p->values.used;
    if (!isfinite(value))
        return fail(p, "cannot publish `%s`: it is no finite number", name);
    if (begin_value(p, name) != 0)
        return -1;
    if (!loopscope_text_double(&p->values, value)) {
        loopscope_text_cut(&p->values, used);
        return fail(p, "not enough memory");
    }
    return end_value(p, used);
}
