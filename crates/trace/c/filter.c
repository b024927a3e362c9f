/* Run-time filters and triggers: predicates on a hit's id and fields, one in N, at most R a second.
 *
 * A predicate arrives in reverse Polish notation (config.c) and is kept in the stream's section with
 * field names resolved to places in the payload. */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#define MOST_OPS 128
#define DEEPEST 16
#define LONGEST_TOKEN 128

enum op_code {
    PUSH_INTEGER,
    PUSH_FLOAT,
    PUSH_ID,
    PUSH_FIELD,
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    REMAINDER,
    AND_BITS,
    OR_BITS,
    EQUAL,
    NOT_EQUAL,
    LESS,
    LESS_EQUAL,
    GREATER,
    GREATER_EQUAL,
    AND,
    OR,
    NOT
};

static const char *const operators[] = {"+",  "-",  "*",  "/", "%",  "&", "|",  "==",
                                        "!=", "<",  "<=", ">", ">=", "&&", "||", "!"};

struct op {
    uint16_t code;
    uint16_t type;   /* of a field */
    uint32_t offset; /* of a field in the payload */
    union {
        int64_t integer;
        double real;
    } value;
};

struct filter {
    uint32_t where;   /* operations of the predicate that lets hits pass; 0: all pass */
    uint32_t trigger; /* operations of the trigger, after those of `where` */
    uint64_t every;
    uint64_t rate;
    uint64_t counted; /* hits that `every` has seen */
    uint64_t window;  /* second of the counter, and hits let through in it */
    struct op op[];
};

uint32_t loopscope_payload_size(unsigned code)
{
    static const uint8_t sizes[] = {0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 8, 12};
    return code < sizeof sizes ? sizes[code] : 0;
}

/* A program in the making. */
struct program {
    struct op op[MOST_OPS];
    uint32_t ops;
    int depth;
    int sound;
};

static void emit(struct program *program, struct op op, int pops)
{
    program->sound = program->sound && program->ops < MOST_OPS && program->depth >= pops
                     && program->depth - pops < DEEPEST;
    if (!program->sound)
        return;
    program->op[program->ops++] = op;
    program->depth += 1 - pops;
}

static void emit_operator(struct program *program, enum op_code code)
{
    emit(program, (struct op){.code = (uint16_t)code}, code == NOT ? 1 : 2);
}

/* Finds a numeric field; not zero if the site has it. */
static int find_field(uint32_t kind, const char *fields, const char *name, struct op *op)
{
    op->code = PUSH_FIELD;
    op->offset = 0;
    if (kind == LOOPSCOPE_KIND_INTERVAL_END) {
        op->type = 4;
        op->offset = strcmp(name, "duration") == 0 ? 8 : 0;
        return op->offset != 0 || strcmp(name, "start") == 0;
    }
    if (kind == LOOPSCOPE_KIND_FLOW_LINK || kind == LOOPSCOPE_KIND_COUNTER_LOG) {
        op->type = 8;
        return strcmp(name, kind == LOOPSCOPE_KIND_FLOW_LINK ? "out" : "value") == 0;
    }
    if (kind == LOOPSCOPE_KIND_HISTOGRAM_LOG)
        return 0;
    for (const char *field = fields; *field; field += strlen(field) + 1) {
        unsigned code = (unsigned char)*field;
        if (strcmp(field + 1, name) == 0) {
            op->type = (uint16_t)code;
            return code >= 1 && code <= 10;
        }
        op->offset += loopscope_payload_size(code);
    }
    return 0;
}

/* Adds one token; -1 if it names a field that the site does not have. */
static int add_token(struct program *program, const char *token, uint32_t kind, const char *fields)
{
    struct op op = {0};
    if (strcmp(token, "id") == 0) {
        op.code = PUSH_ID;
        emit(program, op, 0);
    } else if (strncmp(token, "i:", 2) == 0) {
        op.code = PUSH_INTEGER;
        op.value.integer = strtoll(token + 2, NULL, 10);
        emit(program, op, 0);
    } else if (strncmp(token, "d:", 2) == 0) {
        op.code = PUSH_FLOAT;
        op.value.real = strtod(token + 2, NULL);
        emit(program, op, 0);
    } else if (strncmp(token, "f:", 2) == 0) {
        if (!find_field(kind, fields, token + 2, &op))
            return -1;
        emit(program, op, 0);
    } else {
        for (unsigned i = 0; i < sizeof operators / sizeof *operators; i++)
            if (strcmp(token, operators[i]) == 0) {
                emit_operator(program, (enum op_code)(ADD + i));
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
    uint32_t start = program->ops;
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
            program->ops = start;
            program->depth = depth;
            emit(program, (struct op){.code = PUSH_INTEGER}, 0);
            break;
        }
    }
    program->sound = program->sound && program->depth == depth + 1;
    if (depth > 0)
        emit_operator(program, joined_by);
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

static struct filter *at_offset(struct loopscope_section *section, uint32_t filter)
{
    return (struct filter *)((uint8_t *)section->code + filter - 1);
}

/* Whether a filter asks the same; what it has counted aside. */
static int is_same(const struct filter *a, const struct filter *b, const struct op *where,
                   const struct op *trigger)
{
    return a->where == b->where && a->trigger == b->trigger && a->every == b->every
           && a->rate == b->rate && memcmp(a->op, where, a->where * sizeof *where) == 0
           && memcmp(a->op + a->where, trigger, a->trigger * sizeof *trigger) == 0;
}

uint32_t loopscope_filter_make(struct loopscope_section *section, uint32_t current,
                               const char *full_name, uint32_t kind, const char *fields,
                               const char *block)
{
    struct program where = {.sound = 1}, trigger = {.sound = 1};
    struct filter filter = {.every = last_number("every", full_name, block),
                            .rate = last_number("rate", full_name, block)};
    add_lines(&where, "where", full_name, kind, fields, block, AND);
    add_lines(&trigger, "trigger", full_name, kind, fields, block, OR);
    filter.where = where.ops;
    filter.trigger = trigger.ops;
    if (where.ops == 0 && trigger.ops == 0 && where.sound && trigger.sound && filter.every <= 1
        && filter.rate == 0)
        return 0;
    if (current != 0 && where.sound && trigger.sound
        && is_same(at_offset(section, current), &filter, where.op, trigger.op))
        return current;
    size_t of_where = where.ops * sizeof(struct op), of_trigger = trigger.ops * sizeof(struct op);
    size_t size = sizeof filter + of_where + of_trigger;
    uint32_t offset = __atomic_fetch_add(&section->code_used, (uint32_t)size, __ATOMIC_RELAXED);
    if (!where.sound || !trigger.sound || offset + size > sizeof section->code) {
        __atomic_fetch_add(&section->code_refused, 1, __ATOMIC_RELAXED);
        return UINT32_MAX;
    }
    struct filter *place = at_offset(section, offset + 1);
    memcpy(place, &filter, sizeof filter);
    memcpy(place->op, where.op, of_where);
    memcpy(place->op + where.ops, trigger.op, of_trigger);
    return offset + 1;
}

struct number {
    int real;
    int64_t i;
    double d;
};

static struct number integer(int64_t i)
{
    return (struct number){0, i, 0};
}

static struct number real(double d)
{
    return (struct number){1, 0, d};
}

static double as_real(struct number n)
{
    return n.real ? n.d : (double)n.i;
}

static int truth(struct number n)
{
    return n.real ? n.d != 0 : n.i != 0;
}

static struct number field_value(const struct op *op, const uint8_t *payload)
{
    uint64_t bits = 0;
    float f;
    double d;
    memcpy(&bits, payload + op->offset, loopscope_payload_size(op->type));
    switch (op->type) {
    case 4:
        return bits > INT64_MAX ? real((double)bits) : integer((int64_t)bits);
    case 5:
        return integer((int8_t)bits);
    case 6:
        return integer((int16_t)bits);
    case 7:
        return integer((int32_t)bits);
    case 9:
        memcpy(&f, &bits, sizeof f);
        return real((double)f);
    case 10:
        memcpy(&d, &bits, sizeof d);
        return real(d);
    default:
        return integer((int64_t)bits);
    }
}

/* Integers wrap; what has no value clears *defined. */
static struct number calculate(enum op_code code, struct number a, struct number b, int *defined)
{
    uint64_t x = (uint64_t)a.i, y = (uint64_t)b.i;
    if (code >= EQUAL && code <= GREATER_EQUAL) {
        int less, equal;
        if (a.real || b.real) {
            less = as_real(a) < as_real(b);
            equal = as_real(a) == as_real(b);
            /* Comparisons with a NaN are false, but for !=. */
            if (!less && !equal && !(as_real(a) > as_real(b)))
                return integer(code == NOT_EQUAL);
        } else {
            less = a.i < b.i;
            equal = a.i == b.i;
        }
        switch (code) {
        case EQUAL:
            return integer(equal);
        case NOT_EQUAL:
            return integer(!equal);
        case LESS:
            return integer(less);
        case LESS_EQUAL:
            return integer(less || equal);
        case GREATER:
            return integer(!less && !equal);
        default:
            return integer(!less);
        }
    }
    if (code == AND || code == OR)
        return integer(code == AND ? truth(a) && truth(b) : truth(a) || truth(b));
    if (a.real || b.real) {
        switch (code) {
        case ADD:
            return real(as_real(a) + as_real(b));
        case SUBTRACT:
            return real(as_real(a) - as_real(b));
        case MULTIPLY:
            return real(as_real(a) * as_real(b));
        case DIVIDE:
            *defined = *defined && as_real(b) != 0;
            return real(as_real(b) != 0 ? as_real(a) / as_real(b) : 0);
        default:
            *defined = 0;
            return integer(0);
        }
    }
    switch (code) {
    case ADD:
        return integer((int64_t)(x + y));
    case SUBTRACT:
        return integer((int64_t)(x - y));
    case MULTIPLY:
        return integer((int64_t)(x * y));
    case AND_BITS:
        return integer((int64_t)(x & y));
    case OR_BITS:
        return integer((int64_t)(x | y));
    default:
        if (b.i == 0) {
            *defined = 0;
            return integer(0);
        }
        if (b.i == -1) /* INT64_MIN / -1 has no value in C */
            return integer(code == DIVIDE ? (int64_t)(0 - x) : 0);
        return integer(code == DIVIDE ? a.i / b.i : a.i % b.i);
    }
}

static int holds(const struct op *op, uint32_t ops, int64_t id, const uint8_t *payload)
{
    struct number stack[DEEPEST];
    int depth = 0, defined = 1;
    for (uint32_t i = 0; i < ops; i++, op++) {
        switch (op->code) {
        case PUSH_INTEGER:
            stack[depth++] = integer(op->value.integer);
            break;
        case PUSH_FLOAT:
            stack[depth++] = real(op->value.real);
            break;
        case PUSH_ID:
            stack[depth++] = integer(id);
            break;
        case PUSH_FIELD:
            stack[depth++] = field_value(op, payload);
            break;
        case NOT:
            stack[depth - 1] = integer(!truth(stack[depth - 1]));
            break;
        default:
            depth--;
            stack[depth - 1] = calculate((enum op_code)op->code, stack[depth - 1], stack[depth],
                                         &defined);
        }
    }
    return defined && truth(stack[0]);
}

static int within_rate(struct filter *filter, uint64_t frequency, uint64_t now)
{
    uint32_t second = (uint32_t)(frequency != 0 ? now / frequency : 0);
    uint64_t window = LOAD(&filter->window), next;
    do {
        uint64_t passed = (uint32_t)(window >> 32) == second ? (uint32_t)window : 0;
        if (passed >= filter->rate)
            return 0;
        next = (uint64_t)second << 32 | (passed + 1);
    } while (!__atomic_compare_exchange_n(&filter->window, &window, next, 1, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return 1;
}

unsigned loopscope_filter_ask(struct loopscope_section *section, uint32_t offset, int64_t id,
                              const uint8_t *payload, uint64_t frequency, uint64_t now)
{
    struct filter *filter = at_offset(section, offset);
    unsigned says = 0;
    if (filter->trigger != 0 && holds(filter->op + filter->where, filter->trigger, id, payload))
        says |= FILTER_TRIGGER;
    if (filter->where != 0 && !holds(filter->op, filter->where, id, payload))
        return says;
    if (filter->every > 1
        && __atomic_fetch_add(&filter->counted, 1, __ATOMIC_RELAXED) % filter->every != 0)
        return says;
    if (filter->rate != 0 && !within_rate(filter, frequency, now))
        return says;
    return says | FILTER_KEEP;
}
