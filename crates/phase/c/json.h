/*
 * A strict, bounded JSON reader (RFC 8259) without a tree: a text is checked once, then looked at
 * in place. A value is the address of its first byte inside a checked text.
 */
#ifndef LOOPSCOPE_JSON_H
#define LOOPSCOPE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Deepest nesting of arrays and objects. */
#define LOOPSCOPE_JSON_DEPTH 127

/* Longest UTF-8 sequence. */
#define LOOPSCOPE_UTF8_MAX 4

#pragma GCC visibility push(hidden)

/*
 * Whether the text (length bytes, and a NUL behind them) is one JSON value with valid UTF-8, paired
 * surrogates and numbers in the range of a double. Everything below wants a text for which this
 * holds.
 */
bool loopscope_json_valid(const char *text, size_t length);

/* The value of the checked text. */
const char *loopscope_json_root(const char *text);

/* The last member called key; NULL where the value is no object or has none. NULL is allowed. */
const char *loopscope_json_member(const char *value, const char *key);

/* The item of an array at index; NULL where the value is no array or has none. NULL is allowed. */
const char *loopscope_json_item(const char *value, size_t index);

/* Whether the value is a string equal to text. */
bool loopscope_json_equals(const char *value, const char *text);

/*
 * Calls check on every member's value of an object or item of an array until it returns false;
 * whether it never did.
 */
bool loopscope_json_each(const char *value, bool (*check)(const char *part));

enum loopscope_json_result { LOOPSCOPE_JSON_OK, LOOPSCOPE_JSON_TYPE, LOOPSCOPE_JSON_SIZE };

/* Copies a string with a final NUL. A string that contains a NUL is of the wrong type. */
enum loopscope_json_result loopscope_json_string(const char *value, char *to, size_t size);
enum loopscope_json_result loopscope_json_int(const char *value, int64_t *to);
enum loopscope_json_result loopscope_json_double(const char *value, double *to);
enum loopscope_json_result loopscope_json_bool(const char *value, int *to);

/* Length of the UTF-8 sequence at text (1 to LOOPSCOPE_UTF8_MAX); 0 where it is not valid. */
size_t loopscope_utf8_length(const char *text, size_t left);

#pragma GCC visibility pop

#endif
