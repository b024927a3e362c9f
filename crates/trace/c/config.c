/* What to record: the text of the runtime directory's `streams` file.
 *
 *     frequency HZ
 *     stream K NAME normal|flight-recorder      what follows is about it
 *     subbuffer BYTES
 *     subbuffers N
 *     spares N
 *     post TICKS
 *     enable GLOB          matched against group:name; later lines win
 *     disable GLOB
 *     where GLOB RPN...    all that match must hold; fractions as their bits: d:3fe0000000000000
 *     every GLOB N         the last that matches
 *     rate GLOB N          the last that matches; N in each second of the counter
 *     trigger GLOB RPN...  any that matches and holds
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"

#define SMALLEST_SUBBUFFER 256
#define LARGEST_SUBBUFFER (1u << 30)
#define SUBBUFFER_SIZE (256u << 10)
#define SUBBUFFERS 16
#define MOST_SUBBUFFERS 65536
#define LONGEST_GLOB 1024

void loopscope_config_read(struct config *config)
{
    char path[LOOPSCOPE_PATH];
    struct stat status;
    config->text = NULL;
    if (snprintf(path, sizeof path, "%s/streams", loopscope_root) >= (int)sizeof path)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && status.st_size > 0) {
        /* One byte more: the text ends with a NUL. */
        config->size = (size_t)status.st_size + 1;
        config->text = loopscope_map_anonymous(config->size, MADV_NORMAL);
        size_t done = 0;
        while (config->text && done < config->size - 1) {
            ssize_t n = read(fd, config->text + done, config->size - 1 - done);
            if (n <= 0)
                break;
            done += (size_t)n;
        }
    }
    close(fd);
}

void loopscope_config_free(struct config *config)
{
    if (config->text)
        munmap(config->text, config->size);
    config->text = NULL;
}

/* Value of a line's key; null if it has another. */
static const char *value_of(const char *line, const char *key)
{
    size_t length = strlen(key);
    return strncmp(line, key, length) == 0 && line[length] == ' ' ? line + length + 1 : NULL;
}

size_t loopscope_next_value(const char **at, const char *key, const char **value)
{
    while (*at && **at && !value_of(*at, "stream")) {
        const char *line = *at;
        const char *end = strchrnul(line, '\n');
        *at = *end ? end + 1 : end;
        *value = value_of(line, key);
        if (*value && end > *value)
            return (size_t)(end - *value);
    }
    return 0;
}

/* Reads a bracket expression behind its `[`: whether it has the character. Null if it has no end. */
static const char *bracket(const char *glob, char c, int *has)
{
    int negated = *glob == '!' || *glob == '^', found = 0;
    glob += negated;
    for (const char *first = glob; *glob != ']' || glob == first; glob++) {
        if (*glob == '\\' && glob[1])
            glob++;
        unsigned char low = (unsigned char)*glob, high = low;
        if (low == 0)
            return NULL;
        if (glob[1] == '-' && glob[2] && glob[2] != ']') {
            glob += 2;
            if (*glob == '\\' && glob[1])
                glob++;
            high = (unsigned char)*glob;
        }
        found |= low <= (unsigned char)c && (unsigned char)c <= high;
    }
    *has = found != negated;
    return glob + 1;
}

/* As fnmatch(3) without flags, but for the program's locale: what is recorded must not depend on it. */
static int matches(const char *glob, const char *text)
{
    /* Behind the last star, and where in the text what it stands for may end next. */
    const char *after = NULL, *retry = NULL;
    for (;;) {
        const char *next = glob + 1;
        int fits = *text == *glob;
        if (*glob == '*') {
            after = ++glob;
            retry = text;
            continue;
        }
        if (*glob == '[') {
            const char *end = bracket(next, *text, &fits);
            if (end)
                next = end;
            fits = end ? fits && *text : *text == '[';
        } else if (*glob == '\\' && *next) {
            fits = *text == *next++;
        } else if (*glob == '?') {
            fits = *text != 0;
        }
        if (fits && *text == 0)
            return 1;
        if (fits) {
            glob = next;
            text++;
        } else if (after && *retry) {
            glob = after;
            text = ++retry;
        } else {
            return 0;
        }
    }
}

int loopscope_glob_matches(const char *value, size_t length, const char *full_name,
                           const char **rest)
{
    char glob[LONGEST_GLOB];
    const char *space = memchr(value, ' ', length);
    size_t size = space ? (size_t)(space - value) : length;
    if (size >= sizeof glob)
        return 0;
    memcpy(glob, value, size);
    glob[size] = 0;
    *rest = value + size + (space ? 1 : 0);
    return matches(glob, full_name);
}

/* The line after the next `stream` line; null if there is none. *header is that line's value. */
static const char *next_block(const char *text, const char **header)
{
    while (text && *text) {
        const char *end = strchrnul(text, '\n');
        const char *next = *end ? end + 1 : end;
        *header = value_of(text, "stream");
        if (*header)
            return next;
        text = next;
    }
    return NULL;
}

static uint64_t number(const char *block, const char *key, uint64_t otherwise, uint64_t least,
                       uint64_t most)
{
    const char *value;
    if (loopscope_next_value(&block, key, &value) == 0)
        return otherwise;
    uint64_t n = strtoull(value, NULL, 10);
    return n < least ? least : n > most ? most : n;
}

void loopscope_config_streams(struct loopscope_control *control, const char *path,
                              const struct config *config)
{
    const char *header, *block = config->text;
    if (!block)
        return;
    control->frequency = number(block, "frequency", 0, 0, UINT64_MAX);
    while ((block = next_block(block, &header)) != NULL) {
        uint64_t k = strtoull(header, NULL, 10);
        if (k >= LOOPSCOPE_STREAMS)
            continue;
        struct loopscope_stream *stream = &control->streams[k];
        const char *kind = strstr(header, " flight-recorder\n");
        stream->kind = kind && kind < block ? LOOPSCOPE_FLIGHT_RECORDER : LOOPSCOPE_NORMAL;
        stream->subbuffer_size = ~7u & (uint32_t)number(block, "subbuffer", SUBBUFFER_SIZE,
                                                        SMALLEST_SUBBUFFER, LARGEST_SUBBUFFER);
        stream->subbuffer_count =
            (uint32_t)number(block, "subbuffers", SUBBUFFERS,
                             stream->kind == LOOPSCOPE_NORMAL ? 2 : 3, MOST_SUBBUFFERS);
        stream->spares = (uint32_t)number(block, "spares", 0, 0, LOOPSCOPE_MOST_SPARES);
        stream->post = number(block, "post", 0, 0, INT64_MAX);
        int there = loopscope_allocate_tables(control, path, (uint32_t)k);
        /* Pairs with the acquire load in loopscope_make_ring. */
        __atomic_store_n(&stream->state, there ? LOOPSCOPE_ACTIVE : LOOPSCOPE_BARE,
                         __ATOMIC_RELEASE);
    }
}

int loopscope_allocate_tables(struct loopscope_control *control, const char *path, uint32_t stream)
{
    struct loopscope_section *section = &control->sections[stream];
    size_t from = (size_t)((char *)section - (char *)control);
    if (loopscope_allocate(path, section, from, offsetof(struct loopscope_section, counted)))
        return 1;
    control->streams[stream].refusal = (uint32_t)errno;
    return 0;
}

int loopscope_allocate_filters(struct loopscope_control *control, const char *path, uint32_t stream)
{
    struct loopscope_section *section = &control->sections[stream];
    size_t from = (size_t)((char *)section->counted - (char *)control);
    size_t size = sizeof *section - offsetof(struct loopscope_section, counted);
    if (!loopscope_allocate(path, section->counted, from, size))
        return 0;
    /* Pairs with the acquire load in loopscope_filter_put: the blocks are there. */
    __atomic_store_n(&section->filters_ready, 1, __ATOMIC_RELEASE);
    return 1;
}

void loopscope_prepare_filters(struct loopscope_control *control, const char *path, uint32_t stream,
                               const char *text)
{
    static const char *const keys[] = {"where", "every", "rate", "trigger"};
    const char *header, *block = text;
    if (LOAD(&control->streams[stream].state) == LOOPSCOPE_BARE
        || LOAD(&control->sections[stream].filters_ready))
        return;
    while ((block = next_block(block, &header)) != NULL) {
        if (strtoull(header, NULL, 10) != stream)
            continue;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            const char *at = block, *value;
            if (loopscope_next_value(&at, keys[i], &value) != 0) {
                loopscope_allocate_filters(control, path, stream);
                return;
            }
        }
    }
}

static int writes_records(uint32_t kind)
{
    switch (kind) {
    case LOOPSCOPE_KIND_EVENT:
    case LOOPSCOPE_KIND_INTERVAL_END:
    case LOOPSCOPE_KIND_COUNTER_LOG:
    case LOOPSCOPE_KIND_HISTOGRAM_LOG:
    case LOOPSCOPE_KIND_FLOW_OUT:
    case LOOPSCOPE_KIND_FLOW_IN:
    case LOOPSCOPE_KIND_FLOW_LINK:
        return 1;
    default:
        return 0;
    }
}

static int enables(const char *block, const char *full_name)
{
    int enabled = 0;
    while (*block && !value_of(block, "stream")) {
        const char *end = strchrnul(block, '\n'), *rest;
        const char *on = value_of(block, "enable"), *off = value_of(block, "disable");
        const char *glob = on ? on : off;
        if (glob && loopscope_glob_matches(glob, (size_t)(end - glob), full_name, &rest))
            enabled = on != NULL;
        block = *end ? end + 1 : end;
    }
    return enabled;
}

/* The flag word with a stream's bit set or cleared. */
static uint32_t changed(struct loopscope_control *control, uint32_t index, uint32_t flags,
                        uint32_t stream, int enable)
{
    uint32_t streams = flags & ~LOOPSCOPE_SLOW;
    streams = enable ? streams | 1u << stream : streams & ~(1u << stream);
    int slow = (streams & (streams - 1)) != 0;
    for (uint32_t rest = streams; rest != 0 && !slow; rest &= rest - 1) {
        int k = __builtin_ctz(rest);
        slow = LOAD(&control->streams[k].state) == LOOPSCOPE_BARE
               || LOAD(&control->sections[k].filter[index]) != 0;
    }
    return slow ? streams | LOOPSCOPE_SLOW : streams;
}

static void change(struct loopscope_control *control, uint32_t index, uint32_t stream, int enable)
{
    uint32_t *word = &control->flags[index];
    uint32_t flags = LOAD(word), next;
    /* Program and collectors change the words of one process at the same time. Release pairs with
     * the acquire loads in filter_of. */
    do {
        next = changed(control, index, flags, stream, enable);
    } while (!__atomic_compare_exchange_n(word, &flags, next, 1, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
}

void loopscope_apply(struct loopscope_control *control, uint32_t stream, uint32_t index,
                     uint32_t kind, const char *full_name, const char *fields, const char *text)
{
    struct loopscope_section *section = &control->sections[stream];
    uint32_t *place = &section->filter[index], *word = &control->flags[index];
    const char *header, *block = text;
    int enable = 0, bare = LOAD(&control->streams[stream].state) == LOOPSCOPE_BARE;
    uint32_t filter = 0, before = bare ? 0 : LOAD(place);
    while ((block = next_block(block, &header)) != NULL) {
        if (strtoull(header, NULL, 10) != stream)
            continue;
        enable = enables(block, full_name);
        if (enable && writes_records(kind) && !bare)
            filter = loopscope_filter_put(section, index, before, full_name, kind, fields, block);
        break;
    }
    /* A filter goes before the bit when it comes and after it when it leaves. */
    /* Pairs with the acquire load in filter_of: the filter is whole. */
    if (filter != 0)
        __atomic_store_n(place, filter, __ATOMIC_RELEASE);
    else if (before != 0 && !(LOAD(word) & 1u << stream))
        STORE(place, 0);
    change(control, index, stream, enable);
    if (filter == 0 && before != 0) {
        /* Pairs with the acquire load in filter_of: the bit has gone, if it goes, before. */
        __atomic_store_n(place, 0, __ATOMIC_RELEASE);
        change(control, index, stream, enable);
    }
    if (before != filter)
        loopscope_filter_give_back(section, before);
}
