/*
 * The reader of json.rs in C. Each input on stdin is a little-endian 32-bit length and so many
 * bytes; the answer is one line: "invalid", or what the root's member "k" is.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "json.h"

static void describe(const char *value)
{
    char text[4096];
    int64_t whole;
    double number;
    int truth;

    if (value == NULL) {
        printf("none\n");
    } else if (loopscope_json_string(value, text, sizeof text) == LOOPSCOPE_JSON_OK) {
        printf("string %d ", loopscope_json_equals(value, text));
        for (const char *byte = text; *byte != '\0'; byte++)
            printf("%02x", (unsigned)(unsigned char)*byte);
        printf("\n");
    } else if (loopscope_json_int(value, &whole) == LOOPSCOPE_JSON_OK) {
        printf("int %" PRId64 "\n", whole);
    } else if (loopscope_json_double(value, &number) == LOOPSCOPE_JSON_OK) {
        printf("double %.17g\n", number);
    } else if (loopscope_json_bool(value, &truth) == LOOPSCOPE_JSON_OK) {
        printf("bool %d\n", truth);
    } else {
        printf("other\n");
    }
}

int main(void)
{
    unsigned char size[4];

    while (fread(size, 1, sizeof size, stdin) == sizeof size) {
        size_t length = size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16;
        /* Exactly as large as promised to the reader, so that a sanitizer sees one byte too far. */
        char *text = malloc(length + 1);
        if (text == NULL || fread(text, 1, length, stdin) != length)
            return 1;
        text[length] = '\0';
        if (loopscope_json_valid(text, length))
            describe(loopscope_json_member(loopscope_json_root(text), "k"));
        else
            printf("invalid\n");
        free(text);
    }
    return 0;
}
