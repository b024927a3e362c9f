/* Evaluation of predicates on a hit's id and fields. */
#include <string.h>

#include "predicate.h"
#include "runtime.h"

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

static struct number field_value(unsigned type, const uint8_t *field)
{
    uint64_t bits = 0;
    float f;
    double d;
    memcpy(&bits, field, loopscope_payload_size(type));
    switch (type) {
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

int loopscope_predicate_holds(const uint8_t *code, const uint8_t *end, int64_t id,
                              const uint8_t *payload)
{
    struct number stack[LOOPSCOPE_DEEPEST];
    int depth = 0, defined = 1;
    while (code < end) {
        enum op_code op = (enum op_code)*code++;
        int64_t i;
        double d;
        switch (op) {
        case PUSH_INTEGER:
            memcpy(&i, code, sizeof i);
            code += sizeof i;
            stack[depth++] = integer(i);
            break;
        case PUSH_FLOAT:
            memcpy(&d, code, sizeof d);
            code += sizeof d;
            stack[depth++] = real(d);
            break;
        case PUSH_ID:
            stack[depth++] = integer(id);
            break;
        case PUSH_FIELD:
            stack[depth++] = field_value(code[0], payload + code[1]);
            code += 2;
            break;
        case NOT:
            stack[depth - 1] = integer(!truth(stack[depth - 1]));
            break;
        default:
            depth--;
            stack[depth - 1] = calculate(op, stack[depth - 1], stack[depth], &defined);
        }
    }
    return defined && truth(stack[0]);
}
