/* Registration of call sites and of the entities that they belong to.
 *
 * A site is known by its line in the sites file, without the index: copies of one call site
 * (inlined, instantiated, loaded again) share index, flag and record class, and nothing points into
 * a module after its registration. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

#define MOST_FIELDS 8
#define LONGEST_LINE 8192
#define CHUNK (64u << 10)
#define MOST_BUCKETS 60000
#define REFUSED LOOPSCOPE_MAX_SITES

static struct {
    uint32_t hash;
    uint32_t length;
    const char *line;
} known[LOOPSCOPE_MAX_SITES];
static uint32_t count;

/* What several sites share: an interval's number, a counter's cell, a histogram's number. */
enum family { NO_FAMILY, INTERVAL, COUNTER, HISTOGRAM };
static struct {
    enum family family;
    uint32_t number;
    const char *full_name;
} entities[LOOPSCOPE_MAX_SITES];
static uint32_t entity_count, interval_count, histogram_count;
struct buckets loopscope_histograms[LOOPSCOPE_MOST_HISTOGRAMS];

static char *chunk;
static size_t chunk_left;

static const char *const type_names[] = {NULL,       "uint8_t",   "uint16_t",  "uint32_t",
                                         "uint64_t", "int8_t",    "int16_t",   "int32_t",
                                         "int64_t",  "float32_t", "float64_t", "string",
                                         "bytes"};
#define LAST_FIXED_TYPE 10

static const struct {
    const char *name;
    enum family family;
} kinds[] = {
    [LOOPSCOPE_KIND_EVENT] = {"event", NO_FAMILY},
    [LOOPSCOPE_KIND_INTERVAL_START] = {"interval-start", INTERVAL},
    [LOOPSCOPE_KIND_INTERVAL_END] = {"interval-end", INTERVAL},
    [LOOPSCOPE_KIND_COUNTER_ADD] = {"counter-add", COUNTER},
    [LOOPSCOPE_KIND_COUNTER_LOG] = {"counter-log", COUNTER},
    [LOOPSCOPE_KIND_COUNTER_RESET] = {"counter-reset", COUNTER},
    [LOOPSCOPE_KIND_HISTOGRAM_ADD] = {"histogram-add", HISTOGRAM},
    [LOOPSCOPE_KIND_HISTOGRAM_LOG] = {"histogram-log", HISTOGRAM},
    [LOOPSCOPE_KIND_HISTOGRAM_RESET] = {"histogram-reset", HISTOGRAM},
    [LOOPSCOPE_KIND_FLOW_OUT] = {"flow-out", NO_FAMILY},
    [LOOPSCOPE_KIND_FLOW_IN] = {"flow-in", NO_FAMILY},
    [LOOPSCOPE_KIND_FLOW_LINK] = {"flow-link", NO_FAMILY},
    [LOOPSCOPE_KIND_HISTOGRAM_RANGE] = {"histogram-range", HISTOGRAM},
    [LOOPSCOPE_KIND_DESCRIBE] = {"describe", NO_FAMILY},
};

uint32_t loopscope_site_count(void)
{
    return count;
}

/* Names go into text formats with tabs and quotes, and are split at the colon. */
static int is_name(const char *name)
{
    if (!*name)
        return 0;
    for (const char *c = name; *c; c++)
        if (*c <= ' ' || *c > '~' || strchr(":\"\\,", *c))
            return 0;
    return 1;
}

struct line {
    char text[LONGEST_LINE];
    size_t length;
    int whole;
};

static void add(struct line *line, const char *text)
{
    size_t length = strlen(text);
    line->whole = line->whole && line->length + length < sizeof line->text;
    if (!line->whole)
        return;
    memcpy(line->text + line->length, text, length);
    line->length += length;
}

/* Text of any content, as one column. */
static void add_text(struct line *line, const char *text)
{
    size_t start = line->length;
    add(line, text);
    for (; start < line->length; start++)
        if ((unsigned char)line->text[start] < ' ')
            line->text[start] = '?';
}

/* Whether a field's name is the id's or an earlier field's: readers would know only one of them. */
static int is_taken(const char *fields, const char *name)
{
    if (strcmp(name, "id") == 0)
        return 1;
    for (const char *field = fields; field + 1 < name; field += strlen(field) + 1)
        if (strcmp(field + 1, name) == 0)
            return 1;
    return 0;
}

/* The fields' column; not zero if they are sound. */
static int describe_fields(const struct loopscope_site *site, struct line *line)
{
    uint32_t fields = 0, payload = 0;
    for (const char *field = site->fields; *field; field += strlen(field) + 1) {
        unsigned code = (unsigned char)*field;
        if (code >= sizeof type_names / sizeof *type_names || ++fields > MOST_FIELDS
            || !is_name(field + 1) || is_taken(site->fields, field + 1))
            return 0;
        if (code <= LAST_FIXED_TYPE)
            payload += loopscope_payload_size(code);
        if (fields > 1)
            add(line, ",");
        add(line, type_names[code]);
        add(line, ":");
        add(line, field + 1);
    }
    return payload == site->payload;
}

static const char *keep(const char *text, size_t length)
{
    if (chunk_left < length) {
        char *fresh = loopscope_map_anonymous(CHUNK, MADV_NORMAL);
        if (!fresh)
            return NULL;
        chunk = fresh;
        chunk_left = CHUNK;
    }
    memcpy(chunk, text, length);
    chunk += length;
    chunk_left -= length;
    return chunk - length;
}

static int take_cells(uint32_t cells, uint32_t *first)
{
    if (loopscope_control->cells + cells > LOOPSCOPE_MOST_CELLS)
        return 0;
    *first = loopscope_control->cells;
    STORE(&loopscope_control->cells, *first + cells);
    return 1;
}

/* A histogram of this range; range zero is the log-linear kind. */
static int make_histogram(int64_t low, uint64_t range, uint64_t buckets, uint32_t *number)
{
    if (histogram_count == LOOPSCOPE_MOST_HISTOGRAMS)
        return 0;
    struct buckets *made = &loopscope_histograms[histogram_count];
    *made = (struct buckets){.count = (uint32_t)buckets, .low = low, .range = range};
    /* Exact for every value while range is at most 2^32: the error of the rounded factor times the
     * value stays below the distance to the next bucket. */
    if (range > buckets && range <= 1ull << 32)
        made->factor = (uint64_t)((((wide)buckets << 64) + range - 1) / range);
    if (!take_cells(made->count + 3, &made->cell))
        return 0;
    *number = histogram_count++;
    return 1;
}

/* Number of a site's entity, made if it is new; not zero if there is one. */
static int find_entity(const struct loopscope_site *site, const char *full_name, uint32_t *number)
{
    enum family family = kinds[site->kind].family;
    int64_t range[3] = {0, 0, LOOPSCOPE_LOG_BUCKETS};
    uint64_t width = 0;
    *number = 0;
    if (family == NO_FAMILY)
        return 1;
    if (site->kind == LOOPSCOPE_KIND_HISTOGRAM_RANGE) {
        memcpy(range, site->fields, sizeof range);
        width = (uint64_t)range[1] - (uint64_t)range[0];
        if (range[0] >= range[1] || range[2] < 1 || range[2] > MOST_BUCKETS
            || (uint64_t)range[2] > width || width > INT64_MAX)
            return 0;
    }
    for (uint32_t i = 0; i < entity_count; i++) {
        if (entities[i].family != family || strcmp(entities[i].full_name, full_name) != 0)
            continue;
        *number = entities[i].number;
        const struct buckets *is = &loopscope_histograms[*number];
        return site->kind != LOOPSCOPE_KIND_HISTOGRAM_RANGE
               || (is->low == range[0] && is->range == width && is->count == (uint32_t)range[2]);
    }
    if (entity_count == LOOPSCOPE_MAX_SITES)
        return 0;
    const char *kept = keep(full_name, strlen(full_name) + 1);
    if (!kept || (family == COUNTER && !take_cells(1, number))
        || (family == HISTOGRAM && !make_histogram(range[0], width, (uint64_t)range[2], number)))
        return 0;
    if (family == INTERVAL)
        *number = interval_count++;
    entities[entity_count].family = family;
    entities[entity_count].number = *number;
    entities[entity_count++].full_name = kept;
    return 1;
}

static void add_cell(struct line *line, const struct loopscope_site *site, uint32_t number)
{
    char text[96] = "-";
    enum family family = kinds[site->kind].family;
    if (family == COUNTER)
        snprintf(text, sizeof text, "%u", number);
    if (family == HISTOGRAM) {
        const struct buckets *b = &loopscope_histograms[number];
        if (b->range == 0)
            snprintf(text, sizeof text, "%u:%u:log", b->cell, b->count);
        else
            snprintf(text, sizeof text, "%u:%u:%lld:%lld", b->cell, b->count, (long long)b->low,
                     (long long)((uint64_t)b->low + b->range));
    }
    add(line, text);
}

/* The site's line after the index, and its entity; not zero if the site is sound. */
static int describe(const struct loopscope_site *site, struct line *line, char *full_name,
                    size_t size, uint32_t *entity)
{
    line->length = 0;
    line->whole = 1;
    int is_group = site->kind == LOOPSCOPE_KIND_DESCRIBE && strcmp(site->name, "*") == 0;
    if (site->kind < 1 || site->kind >= sizeof kinds / sizeof *kinds || !is_name(site->group)
        || (!is_name(site->name) && !is_group)
        || snprintf(full_name, size, "%s:%s", site->group, site->name) >= (int)size
        || !find_entity(site, full_name, entity))
        return 0;
    add(line, "\t");
    add(line, kinds[site->kind].name);
    add(line, "\t");
    add(line, site->group);
    add(line, "\t");
    add(line, site->name);
    add(line, "\t");
    if (site->kind == LOOPSCOPE_KIND_HISTOGRAM_RANGE) {
        char text[96];
        int64_t range[3];
        memcpy(range, site->fields, sizeof range);
        snprintf(text, sizeof text, "%lld,%lld,%lld", (long long)range[0], (long long)range[1],
                 (long long)range[2]);
        add(line, text);
    } else if (site->kind == LOOPSCOPE_KIND_DESCRIBE) {
        add_text(line, site->fields);
        add(line, "\x1f");
        add_text(line, site->fields + strlen(site->fields) + 1);
    } else if (!describe_fields(site, line)) {
        return 0;
    }
    add(line, "\t");
    add_text(line, site->file);
    char number[16];
    snprintf(number, sizeof number, "\t%u\t", site->line);
    add(line, number);
    add_cell(line, site, *entity);
    add(line, "\n");
    return line->whole;
}

static uint32_t hash_of(const struct line *line)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < line->length; i++)
        hash = (hash ^ (unsigned char)line->text[i]) * 16777619u;
    return hash;
}

static int write_site(const char *path, uint32_t index)
{
    static char text[LONGEST_LINE + 16];
    int length = snprintf(text, sizeof text, "%u%.*s", index, (int)known[index].length,
                          known[index].line);
    return loopscope_append(path, text, (size_t)length);
}

int loopscope_write_sites(const char *path)
{
    if (!loopscope_append(path, "", 0))
        return 0;
    for (uint32_t i = 0; i < count; i++)
        if (!write_site(path, i))
            return 0;
    return 1;
}

/* Index of the site, new or known; REFUSED if it has to be. */
static uint32_t index_of(const struct loopscope_site *site, const struct config *config,
                         uint32_t *entity)
{
    static struct line line;
    static char full_name[1024];
    char path[LOOPSCOPE_PATH];
    struct loopscope_control *control = loopscope_control;
    if (!describe(site, &line, full_name, sizeof full_name, entity))
        return REFUSED;
    uint32_t hash = hash_of(&line);
    for (uint32_t i = 0; i < count; i++)
        if (known[i].hash == hash && known[i].length == line.length
            && memcmp(known[i].line, line.text, line.length) == 0)
            return i;
    if (count == LOOPSCOPE_MAX_SITES)
        return REFUSED;
    known[count].hash = hash;
    known[count].length = (uint32_t)line.length;
    known[count].line = keep(line.text, line.length);
    if (!known[count].line || !loopscope_path(path, sizeof path, "sites")
        || !write_site(path, count)) {
        STORE(&control->sites_error, (uint32_t)errno);
        return REFUSED;
    }
    for (uint32_t k = 0; config->text && k < LOOPSCOPE_STREAMS; k++)
        if (LOAD(&control->streams[k].state) == LOOPSCOPE_ACTIVE
            || LOAD(&control->streams[k].state) == LOOPSCOPE_BARE)
            loopscope_apply(control, k, count, site->kind, full_name, site->fields, config->text);
    count++;
    /* Pairs with the collector's acquire load: the site's line is in the file. */
    __atomic_store_n(&control->site_count, count, __ATOMIC_RELEASE);
    return count - 1;
}

/* Ranges go first: the other sites of their histograms take them from there. */
static void add_sites(struct loopscope_site *start, struct loopscope_site *stop, int ranges,
                      const struct config *config)
{
    int ready = loopscope_ready();
    char *at = (char *)start;
    while (at < (char *)stop) {
        struct loopscope_site *site = (struct loopscope_site *)at;
        if (site->size < sizeof *site)
            break;
        at += site->size;
        if (site->index != UINT16_MAX || (site->kind == LOOPSCOPE_KIND_HISTOGRAM_RANGE) != ranges)
            continue;
        uint32_t entity, index = ready ? index_of(site, config, &entity) : REFUSED;
        if (index == REFUSED) {
            __atomic_fetch_add(&loopscope_control->sites_refused, 1, __ATOMIC_RELAXED);
            continue;
        }
        site->index = (uint16_t)index;
        site->entity = entity;
        /* Pairs with the acquire load at the call site: index and entity are there. */
        __atomic_store_n(&site->enabled, &loopscope_control->flags[index], __ATOMIC_RELEASE);
    }
}

static void prepare_filters(const struct config *config)
{
    char path[LOOPSCOPE_PATH];
    if (!loopscope_ready() || !config->text || !loopscope_path(path, sizeof path, "control"))
        return;
    for (uint32_t k = 0; k < LOOPSCOPE_STREAMS; k++)
        if (LOAD(&loopscope_control->streams[k].state) == LOOPSCOPE_ACTIVE)
            loopscope_prepare_filters(loopscope_control, path, k, config->text);
}

/* For a module whose constructor registers nothing (later.rs). */
void loopscope_register_here(void)
{
    loopscope_register(__start_loopscope_sites, __stop_loopscope_sites);
}

LOOPSCOPE_EXPORT void loopscope_register(struct loopscope_site *start, struct loopscope_site *stop)
{
    if (start == stop)
        return;
    loopscope_init();
    if (!loopscope_control)
        return;
    struct guard guard;
    struct config config;
    loopscope_guard(&guard);
    pthread_mutex_lock(&loopscope_process->lock);
    loopscope_config_read(&config);
    prepare_filters(&config);
    add_sites(start, stop, 1, &config);
    add_sites(start, stop, 0, &config);
    loopscope_config_free(&config);
    pthread_mutex_unlock(&loopscope_process->lock);
    loopscope_unguard(&guard);
}
