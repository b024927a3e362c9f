/* Predicates of filters and triggers, in reverse Polish notation: what filter.c compiles and
 * predicate.c evaluates. */
#ifndef LOOPSCOPE_PREDICATE_H
#define LOOPSCOPE_PREDICATE_H

#include <stdint.h>

/* A predicate needs no more operands at once. */
#define LOOPSCOPE_DEEPEST 16

enum op_code {
    PUSH_INTEGER, /* followed by an int64_t */
    PUSH_FLOAT,   /* followed by a double */
    PUSH_ID,
    PUSH_FIELD, /* followed by the type's code and the place in the payload, a byte each */
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

/* Whether a compiled predicate holds of a hit; not where one of its operations has no result, such
 * as a division by zero. */
int loopscope_predicate_holds(const uint8_t *code, const uint8_t *end, int64_t id,
                              const uint8_t *payload);

#endif
