#define _POSIX_C_SOURCE 200809L

#include "json.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *at;
    const char *end;
    unsigned depth;
};

size_t loopscope_utf8_length(const char *text, size_t left)
{
    const unsigned char *byte = (const unsigned char *)text;
    size_t length;
    unsigned char low = 0x80, high = 0xBF;

    if (left == 0)
        return 0;
    if (byte[0] < 0x80)
        return 1;
    /* The second byte's range keeps out overlong forms, surrogates and what is above U+10FFFF
     * (RFC 3629, section 4). */
    if (byte[0] >= 0xC2 && byte[0] <= 0xDF) {
        length = 2;
    } else if (byte[0] >= 0xE0 && byte[0] <= 0xEF) {
        length = 3;
        if (byte[0] == 0xE0)
            low = 0xA0;
        if (byte[0] == 0xED)
            high = 0x9F;
    } else if (byte[0] >= 0xF0 && byte[0] <= 0xF4) {
        length = 4;
        if (byte[0] == 0xF0)
            low = 0x90;
        if (byte[0] == 0xF4)
            high = 0x8F;
    } else {
        return 0;
    }
    if (left < length || byte[1] < low || byte[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if (byte[i] < 0x80 || byte[i] > 0xBF)
            return 0;
    return length;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* -1 where the byte is no hexadecimal digit. */
static int hex_digit(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The four digits at text as a number; -1 where one is none. */
static long hex4(const char *text)
{
    long number = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0)
            return -1;
        number = number * 16 + digit;
    }
    return number;
}

/* strtod() reads the decimal point of the current locale; JSON has only one. */
static double to_double(const char *text)
{
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    locale_t before;
    double number;

    if (plain == (locale_t)0)
        return NAN;
    before = uselocale(plain);
    number = strtod(text, NULL);
    uselocale(before);
    freelocale(plain);
    return number;
}

static bool take(struct reader *r, char c)
{
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && is_space(*r->at))
        r->at++;
}

static bool check_escape(struct reader *r)
{
    long unit;

    if (r->at == r->end)
        return false;
    if (*r->at != 'u') {
        if (*r->at == '\0' || strchr("\"\\/bfnrt", *r->at) == NULL)
            return false;
        r->at++;
        return true;
    }
    if (r->end - r->at < 5 || (unit = hex4(r->at + 1)) < 0)
        return false;
    r->at += 5;
    if (unit >= 0xDC00 && unit <= 0xDFFF)
        return false;
    if (unit >= 0xD800 && unit <= 0xDBFF) {
        if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
            return false;
        unit = hex4(r->at + 2);
        if (unit < 0xDC00 || unit > 0xDFFF)
            return false;
        r->at += 6;
    }
    return true;
}

static bool check_string(struct reader *r)
{
    if (!take(r, '"'))
        return false;
    for (;;) {
        size_t length;
        if (take(r, '"'))
            return true;
        if (take(r, '\\')) {
            if (!check_escape(r))
                return false;
            continue;
        }
        length = loopscope_utf8_length(r->at, (size_t)(r->end - r->at));
        if (length == 0 || (unsigned char)*r->at < 0x20)
            return false;
        r->at += length;
    }
}

static bool check_digits(struct reader *r)
{
    if (r->at == r->end || !is_digit(*r->at))
        return false;
    while (r->at < r->end && is_digit(*r->at))
        r->at++;
    return true;
}

static bool check_number(struct reader *r)
{
    const char *start = r->at;

    take(r, '-');
    if (!take(r, '0') && !check_digits(r))
        return false;
    if (take(r, '.') && !check_digits(r))
        return false;
    if (take(r, 'e') || take(r, 'E')) {
        if (!take(r, '+'))
            take(r, '-');
        if (!check_digits(r))
            return false;
    }
    return isfinite(to_double(start));
}

static bool check_word(struct reader *r, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0)
        return false;
    r->at += length;
    return true;
}

/* Recursion ends at LOOPSCOPE_JSON_DEPTH. */
static bool check_value(struct reader *r)
{
    char open, close;

    skip_space(r);
    if (r->at == r->end)
        return false;
    open = *r->at;
    if (open == '"')
        return check_string(r);
    if (open == 't')
        return check_word(r, "true");
    if (open == 'f')
        return check_word(r, "false");
    if (open == 'n')
        return check_word(r, "null");
    if (open != '{' && open != '[')
        return check_number(r);

    close = open == '{' ? '}' : ']';
    if (r->depth == LOOPSCOPE_JSON_DEPTH)
        return false;
    r->depth++;
    r->at++;
    skip_space(r);
    if (!take(r, close)) {
        do {
            skip_space(r);
            if (open == '{') {
                if (!check_string(r))
                    return false;
                skip_space(r);
                if (!take(r, ':'))
                    return false;
            }
            if (!check_value(r))
                return false;
            skip_space(r);
        } while (take(r, ','));
        if (!take(r, close))
            return false;
    }
    r->depth--;
    return true;
}

bool loopscope_json_valid(const char *text, size_t length)
{
    struct reader r = {text, text + length, 0};
    if (!check_value(&r))
        return false;
    skip_space(&r);
    return r.at == r.end;
}

/* From here on the text is known to be valid: no check of what must come next. */

const char *loopscope_json_root(const char *text)
{
    while (is_space(*text))
        text++;
    return text;
}

/* Behind the string whose opening quote is at text. */
static const char *behind_string(const char *text)
{
    for (text++; *text != '"'; text++)
        if (*text == '\\')
            text++;
    return text + 1;
}

static const char *behind_value(const char *text)
{
    unsigned depth = 0;

    do {
        switch (*text) {
        case '"':
            text = behind_string(text);
            continue;
        case '{':
        case '[':
            depth++;
            text++;
            continue;
        case '}':
        case ']':
            depth--;
            text++;
            continue;
        case ' ':
        case '\t':
        case '\n':
        case '\r':
        case ',':
        case ':':
            /* Only inside an array or object: a value begins with none of these. */
            text++;
            continue;
        default:
            /* A number or a word. */
            while (*text != '\0' && strchr(" \t\n\r,:]}", *text) == NULL)
                text++;
        }
    } while (depth > 0);
    return text;
}

/* The next member's key or item, behind what opens an object or array or behind a value; NULL at its
 * end. */
static const char *next_part(const char *text)
{
    text = loopscope_json_root(text);
    if (*text == ',')
        text = loopscope_json_root(text + 1);
    return *text == '}' || *text == ']' ? NULL : text;
}

static const char *value_of(const char *key)
{
    const char *colon = loopscope_json_root(behind_string(key));
    return loopscope_json_root(colon + 1);
}

const char *loopscope_json_member(const char *value, const char *key)
{
    const char *found = NULL;

    if (value == NULL || *value != '{')
        return NULL;
    for (const char *at = next_part(value + 1); at != NULL;) {
        const char *member = value_of(at);
        if (loopscope_json_equals(at, key))
            found = member;
        at = next_part(behind_value(member));
    }
    return found;
}

bool loopscope_json_each(const char *value, bool (*check)(const char *part))
{
    bool is_array = *value == '[';

    for (const char *at = next_part(value + 1); at != NULL;) {
        const char *part = is_array ? at : value_of(at);
        if (!check(part))
            return false;
        at = next_part(behind_value(part));
    }
    return true;
}

const char *loopscope_json_item(const char *value, size_t index)
{
    const char *at;

    if (value == NULL || *value != '[')
        return NULL;
    for (at = next_part(value + 1); at != NULL && index > 0; index--)
        at = next_part(behind_value(at));
    return at;
}

/* Writes the character at *at as UTF-8, steps over it and returns its length; 0 at the quote. */
static size_t next_character(const char **at, char out[LOOPSCOPE_UTF8_MAX])
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char *text = *at;
    unsigned long code;

    if (*text == '"')
        return 0;
    if (*text != '\\') {
        out[0] = *text;
        *at = text + 1;
        return 1;
    }
    if (text[1] != 'u') {
        const char *letter = strchr(from, text[1]);
        out[0] = letter == NULL ? text[1] : to[letter - from];
        *at = text + 2;
        return 1;
    }
    code = (unsigned long)hex4(text + 2);
    text += 6;
    if (code >= 0xD800 && code <= 0xDBFF) {
        code = 0x10000 + ((code - 0xD800) << 10) + ((unsigned long)hex4(text + 2) - 0xDC00);
        text += 6;
    }
    *at = text;
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

bool loopscope_json_equals(const char *value, const char *text)
{
    char character[LOOPSCOPE_UTF8_MAX];
    size_t length;

    if (*value++ != '"')
        return false;
    while ((length = next_character(&value, character)) != 0) {
        /* strncmp() stops at text's end; a NUL in the value must not count as that. */
        if (character[0] == '\0' || strncmp(text, character, length) != 0)
            return false;
        text += length;
    }
    return *text == '\0';
}

enum loopscope_json_result loopscope_json_string(const char *value, char *to, size_t size)
{
    char character[LOOPSCOPE_UTF8_MAX];
    size_t length, used = 0;

    if (*value++ != '"')
        return LOOPSCOPE_JSON_TYPE;
    while ((length = next_character(&value, character)) != 0) {
        if (character[0] == '\0')
            return LOOPSCOPE_JSON_TYPE;
        if (size < used + length + 1)
            return LOOPSCOPE_JSON_SIZE;
        memcpy(to + used, character, length);
        used += length;
    }
    if (size < used + 1)
        return LOOPSCOPE_JSON_SIZE;
    to[used] = '\0';
    return LOOPSCOPE_JSON_OK;
}

static bool is_number(const char *value)
{
    return *value == '-' || is_digit(*value);
}

enum loopscope_json_result loopscope_json_int(const char *value, int64_t *to)
{
    char *end;
    long long number;

    if (!is_number(value))
        return LOOPSCOPE_JSON_TYPE;
    errno = 0;
    number = strtoll(value, &end, 10);
    if (*end == '.' || *end == 'e' || *end == 'E')
        return LOOPSCOPE_JSON_TYPE;
    if (errno == ERANGE)
        return LOOPSCOPE_JSON_SIZE;
    *to = number;
    return LOOPSCOPE_JSON_OK;
}

enum loopscope_json_result loopscope_json_double(const char *value, double *to)
{
    if (!is_number(value))
        return LOOPSCOPE_JSON_TYPE;
    *to = to_double(value);
    return LOOPSCOPE_JSON_OK;
}

enum loopscope_json_result loopscope_json_bool(const char *value, int *to)
{
    if (*value != 't' && *value != 'f')
        return LOOPSCOPE_JSON_TYPE;
    *to = *value == 't';
    return LOOPSCOPE_JSON_OK;
}
