#define _POSIX_C_SOURCE 200809L

#include "text.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

void loopscope_text_bytes(struct loopscope_text *text, const char *bytes, size_t length)
{
    if (text->full || length > LOOPSCOPE_LINE_LIMIT - text->used) {
        text->full = true;
        return;
    }
    memcpy(text->bytes + text->used, bytes, length);
    text->used += length;
    text->bytes[text->used] = '\0';
}

void loopscope_text_add(struct loopscope_text *text, const char *string)
{
    loopscope_text_bytes(text, string, strlen(string));
}

void loopscope_text_cut(struct loopscope_text *text, size_t used)
{
    text->used = used;
    text->bytes[used] = '\0';
    text->full = false;
}

bool loopscope_is_utf8(const char *string)
{
    size_t left = strlen(string);
    while (left > 0) {
        size_t length = loopscope_utf8_length(string, left);
        if (length == 0)
            return false;
        string += length;
        left -= length;
    }
    return true;
}

void loopscope_text_string(struct loopscope_text *text, const char *string, size_t limit)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    size_t left = strlen(string);

    loopscope_text_add(text, "\"");
    while (left > 0) {
        size_t length = loopscope_utf8_length(string, left);
        const char *letter = strchr(from, *string);
        size_t step = length == 0 ? 1 : length;
        char escape[8];

        if (step > limit)
            break;
        if (length == 0) {
            loopscope_text_add(text, "?");
        } else if (letter != NULL) {
            snprintf(escape, sizeof escape, "\\%c", to[letter - from]);
            loopscope_text_add(text, escape);
        } else if ((unsigned char)*string < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*string);
            loopscope_text_add(text, escape);
        } else {
            loopscope_text_bytes(text, string, length);
        }
        string += step;
        left -= step;
        limit -= step;
    }
    loopscope_text_add(text, "\"");
}

bool loopscope_text_double(struct loopscope_text *text, double number)
{
    char digits[40];
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    locale_t before;

    if (plain == (locale_t)0)
        return false;
    before = uselocale(plain);
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    uselocale(before);
    freelocale(plain);
    loopscope_text_add(text, digits);
    if (strpbrk(digits, ".e") == NULL)
        loopscope_text_add(text, ".0");
    return true;
}
