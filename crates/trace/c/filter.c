/* Run-time filters and triggers: predicates on a hit's id and fields, one in N, at most R a second.
 *
 * A predicate arrives in reverse Polish notation (config.c) and is kept in the stream's section with
 * field names resolved to places in the payload.
 *
 * A filter that is changed goes to other blocks, and those of the old one are given back while a
 * thread may still be looking at them. So a thread copies a filter before it asks it, and copies
 * again if `filter_changes` has counted meanwhile (`copy` below). */
#include <stdlib.h>
#include <string.h>

#include "predicate.h"
#include "runtime.h"

#define LONGEST_TOKEN 128

static const char *const operators[] = {"+",  "-",  "*",  "/", "%",  "&", "|",  "==",
                                        "!=", "<",  "<=", ">", ">=", "&&", "||", "!"};

/* A filter as it lies in the blocks. */
struct filter {
    uint16_t where;   /* bytes of the predicate that lets hits pass; 0: all pass */
    uint16_t trigger; /* bytes of the trigger, which follows */
    uint16_t limits;  /* bytes of what follows that: nothing, or `every` and `rate` */
    uint16_t reserved;
    uint8_t code[LOOPSCOPE_LONGEST_FILTER - 8];
};

_Static_assert(sizeof(struct filter) == LOOPSCOPE_LONGEST_FILTER, "a filter is its head and code");

struct limits {
    uint64_t every; /* 0 or 1: each */
    uint64_t rate;  /* 0: as many as there are */
};

static size_t size_of(const struct filter *filter)
{
    return offsetof(struct filter, code) + filter->where + filter->trigger + filter->limits;
}

uint32_t loopscope_payload_size(unsigned code)
{
    static const uint8_t sizes[] = {0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 8, 12};
    return code < sizeof sizes ? sizes[code] : 0;
}

/* A predicate in the making. */
struct program {
    uint8_t code[sizeof((struct filter *)0)->code];
    size_t size;
    int depth;
    int sound;
};

static void emit(struct program *program, enum op_code code, const void *operand, size_t size,
                 int pops)
{
    program->sound = program->sound && program->size + 1 + size <= sizeof program->code
                     && program->depth >= pops && program->depth - pops < LOOPSCOPE_DEEPEST;
    if (!program->sound)
        return;
    program->code[program->size] = (uint8_t)code;
    memcpy(program->code + program->size + 1, operand, size);
    program->size += 1 + size;
    program->depth += 1 - pops;
}

/* Place of a numeric field, its type first; not zero if the site has it. */
static int find_field(uint32_t kind, const char *fields, const char *name, uint8_t place[2])
{
    place[1] = 0;
    if (kind == LOOPSCOPE_KIND_INTERVAL_END) {
        place[0] = 4;
        place[1] = strcmp(name, "duration") == 0 ? 8 : 0;
        return place[1] != 0 || strcmp(name, "start") == 0;
    }
    if (kind == LOOPSCOPE_KIND_FLOW_LINK || kind == LOOPSCOPE_KIND_COUNTER_LOG) {
        place[0] = 8;
        return strcmp(name, kind == LOOPSCOPE_KIND_FLOW_LINK ? "out" : "value") == 0;
    }
    if (kind == LOOPSCOPE_KIND_HISTOGRAM_LOG)
        return 0;
    /* At most eight fields of at most twelve bytes. */
    for (const char *field = fields; *field; field += strlen(field) + 1) {
        unsigned code = (unsigned char)*field;
        if (strcmp(field + 1, name) == 0) {
            place[0] = (uint8_t)code;
            return code >= 1 && code <= 10;
        }
        place[1] = (uint8_t)(place[1] + loopscope_payload_size(code));
    }
    return 0;
}

/* Adds one token; -1 if it names a field that the site does not have. */
static int add_token(struct program *program, const char *token, uint32_t kind, const char *fields)
{
    if (strcmp(token, "id") == 0) {
        emit(program, PUSH_ID, "", 0, 0);
    } else if (strncmp(token, "i:", 2) == 0) {
        int64_t integer = strtoll(token + 2, NULL, 10);
        emit(program, PUSH_INTEGER, &integer, sizeof integer, 0);
    } else if (strncmp(token, "d:", 2) == 0) {
        /* Its bits: what a decimal point looks like depends on the program's locale. */
        uint64_t bits = strtoull(token + 2, NULL, 16);
        emit(program, PUSH_FLOAT, &bits, sizeof bits, 0);
    } else if (strncmp(token, "f:", 2) == 0) {
        uint8_t place[2];
        if (!find_field(kind, fields, token + 2, place))
            return -1;
        emit(program, PUSH_FIELD, place, sizeof place, 0);
    } else {
        for (unsigned i = 0; i < sizeof operators / sizeof *operators; i++)
            if (strcmp(token, operators[i]) == 0) {
                enum op_code code = (enum op_code)(ADD + i);
                emit(program, code, "", 0, code == NOT ? 1 : 2);
                return 0;
            }
        program->sound = 0;
    }
    return 0;
}

/* Appends a predicate and joins it to those before it. A predicate about a field that the site does
 * not have is false. */
static void add_predicate(struct program *program, const char *text, const char *end, uint32_t kind,
                          const char *fields, enum op_code joined_by)
{
    size_t start = program->size;
    int depth = program->depth;
    while (text < end) {
        char token[LONGEST_TOKEN];
        size_t length = strcspn(text, " \n");
        if (length >= sizeof token) {
            program->sound = 0;
            return;
        }
        memcpy(token, text, length);
        token[length] = 0;
        text += length + 1;
        if (length != 0 && add_token(program, token, kind, fields) < 0) {
            int64_t no = 0;
            program->size = start;
            program->depth = depth;
            emit(program, PUSH_INTEGER, &no, sizeof no, 0);
            break;
        }
    }
    program->sound = program->sound && program->depth == depth + 1;
    if (depth > 0)
        emit(program, joined_by, "", 0, 2);
}

static void add_lines(struct program *program, const char *key, const char *full_name,
                      uint32_t kind, const char *fields, const char *block, enum op_code joined_by)
{
    const char *at = block, *value, *rest;
    size_t length;
    while ((length = loopscope_next_value(&at, key, &value)) != 0)
        if (loopscope_glob_matches(value, length, full_name, &rest))
            add_predicate(program, rest, value + length, kind, fields, joined_by);
}

static uint64_t last_number(const char *key, const char *full_name, const char *block)
{
    const char *at = block, *value, *rest;
    size_t length;
    uint64_t number = 0;
    while ((length = loopscope_next_value(&at, key, &value)) != 0)
        if (loopscope_glob_matches(value, length, full_name, &rest))
            number = strtoull(rest, NULL, 10);
    return number;
}

/* Makes what the text asks for; its size, 0 if that is no filter, or SIZE_MAX if it makes no sense or
 * is too long. */
static size_t compile(struct filter *filter, const char *full_name, uint32_t kind,
                      const char *fields, const char *block)
{
    struct program program = {.sound = 1};
    struct limits limits = {last_number("every", full_name, block),
                            last_number("rate", full_name, block)};
    *filter = (struct filter){0};
    size_t used = 0;
    add_lines(&program, "where", full_name, kind, fields, block, AND);
    memcpy(filter->code, program.code, program.size);
    filter->where = (uint16_t)program.size;
    used = program.size;
    program.size = 0;
    program.depth = 0;
    add_lines(&program, "trigger", full_name, kind, fields, block, OR);
    filter->trigger = (uint16_t)program.size;
    filter->limits = limits.every > 1 || limits.rate != 0 ? sizeof limits : 0;
    if (!program.sound || used + program.size + filter->limits > sizeof filter->code)
        return SIZE_MAX;
    memcpy(filter->code + used, program.code, program.size);
    memcpy(filter->code + used + program.size, &limits, filter->limits);
    used += program.size + filter->limits;
    return used == 0 ? 0 : size_of(filter);
}

/* Copies a filter out of the blocks. Not zero if nobody changed any filter since `changes` was read:
 * then it is whole. Another process that has the file mapped may write a place or size that makes
 * no sense: nothing outside of the blocks is read for it. */
static int copy(struct filter *filter, const struct loopscope_section *section, uint32_t place,
                uint64_t changes)
{
    if (place == 0 || place > LOOPSCOPE_FILTER_BLOCKS)
        return 0;
    size_t first = (size_t)(place - 1) * LOOPSCOPE_FILTER_BLOCK, size = 8;
    const uint64_t *from = (const uint64_t *)((const uint8_t *)section->block + first);
    for (size_t at = 0; at < size; at += 8, from++) {
        uint64_t word = LOAD(from);
        memcpy((uint8_t *)filter + at, &word, sizeof word);
        if (at == 0)
            size = size_of(filter);
        if (size > sizeof *filter || first + size > sizeof section->block)
            return 0;
    }
    /* Pairs with the release fence in loopscope_filter_put: who has read of a filter that was put
     * into blocks given back sees that they were. */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return LOAD(&section->filter_changes) == changes;
}

/* Takes so many blocks in a row; the first one's number plus 1, 0 if there are none. */
static uint32_t take_blocks(struct loopscope_section *section, uint32_t count)
{
    for (uint32_t start = 0; start + count <= LOOPSCOPE_FILTER_BLOCKS;) {
        uint32_t got = 0;
        /* Acquire pairs with the release in give_back: the change is counted before these blocks are
         * written to. */
        while (got < count && !LOAD(&section->block_taken[start + got])
               && !__atomic_exchange_n(&section->block_taken[start + got], 1, __ATOMIC_ACQUIRE))
            got++;
        if (got == count)
            return start + 1;
        for (uint32_t i = 0; i < got; i++)
            __atomic_store_n(&section->block_taken[start + i], 0, __ATOMIC_RELEASE);
        start += got + 1;
    }
    return 0;
}

void loopscope_filter_give_back(struct loopscope_section *section, uint32_t place)
{
    struct filter filter;
    if (place == 0 || place > LOOPSCOPE_FILTER_BLOCKS)
        return;
    uint64_t head = LOAD(&section->block[place - 1][0]);
    memcpy(&filter, &head, sizeof head);
    size_t blocks = (size_of(&filter) + LOOPSCOPE_FILTER_BLOCK - 1) / LOOPSCOPE_FILTER_BLOCK;
    /* Before the blocks can be anybody else's. Release: who sees the count finds another filter. */
    __atomic_fetch_add(&section->filter_changes, 1, __ATOMIC_ACQ_REL);
    for (uint32_t i = place - 1; blocks > 0 && i < LOOPSCOPE_FILTER_BLOCKS; i++, blocks--)
        __atomic_store_n(&section->block_taken[i], 0, __ATOMIC_RELEASE);
}

uint32_t loopscope_filter_put(struct loopscope_section *section, uint32_t index, uint32_t current,
                              const char *full_name, uint32_t kind, const char *fields,
                              const char *block)
{
    struct filter filter, known;
    size_t size = compile(&filter, full_name, kind, fields, block);
    if (size == 0)
        return 0;
    /* Pairs with the release store of who allocated them. */
    if (size > sizeof filter || !__atomic_load_n(&section->filters_ready, __ATOMIC_ACQUIRE))
        return LOOPSCOPE_FILTER_REFUSED;
    /* What it has counted so far stays. */
    if (copy(&known, section, current, LOAD(&section->filter_changes))
        && memcmp(&known, &filter, size) == 0)
        return current;
    uint32_t blocks = (uint32_t)((size + LOOPSCOPE_FILTER_BLOCK - 1) / LOOPSCOPE_FILTER_BLOCK);
    uint32_t place = take_blocks(section, blocks);
    if (place == 0)
        return LOOPSCOPE_FILTER_REFUSED;
    uint64_t *to = section->block[place - 1];
    /* Pairs with the acquire fence in copy. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (size_t at = 0; at < size; at += 8, to++) {
        uint64_t word;
        memcpy(&word, (const uint8_t *)&filter + at, sizeof word);
        STORE(to, word);
    }
    STORE(&section->counted[index], 0);
    STORE(&section->window[index], 0);
    return place;
}

static int within_rate(uint64_t *window_word, uint64_t rate, uint64_t frequency, uint64_t now)
{
    uint32_t second = (uint32_t)(frequency != 0 ? now / frequency : 0);
    uint64_t window = LOAD(window_word), next;
    do {
        uint64_t passed = (uint32_t)(window >> 32) == second ? (uint32_t)window : 0;
        if (passed >= rate)
            return 0;
        next = (uint64_t)second << 32 | (passed + 1);
    } while (!__atomic_compare_exchange_n(window_word, &window, next, 1, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return 1;
}

int loopscope_filter_ask(struct loopscope_section *section, uint32_t place, uint64_t changes,
                         const struct hit *hit, unsigned *says)
{
    struct filter filter;
    struct limits limits = {0, 0};
    if (!copy(&filter, section, place, changes))
        return 0;
    const uint8_t *where = filter.code, *trigger = where + filter.where;
    const uint8_t *end = trigger + filter.trigger;
    *says = 0;
    if (trigger < end && loopscope_predicate_holds(trigger, end, hit->id, hit->payload))
        *says = FILTER_TRIGGER;
    if (where < trigger && !loopscope_predicate_holds(where, trigger, hit->id, hit->payload))
        return 1;
    memcpy(&limits, end, filter.limits);
    if (limits.every > 1
        && __atomic_fetch_add(&section->counted[hit->index], 1, __ATOMIC_RELAXED) % limits.every != 0)
        return 1;
    if (limits.rate != 0
        && !within_rate(&section->window[hit->index], limits.rate, hit->frequency, hit->now))
        return 1;
    *says |= FILTER_KEEP;
    return 1;
}
