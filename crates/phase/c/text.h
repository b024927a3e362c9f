/* JSON under construction, in the room of one line of the phase protocol. */
#ifndef LOOPSCOPE_TEXT_H
#define LOOPSCOPE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* The longest line either side may send, in bytes with its newline. */
#define LOOPSCOPE_LINE_LIMIT (64 * 1024)

/* Always ended by NUL. What does not fit sets full. */
struct loopscope_text {
    char bytes[LOOPSCOPE_LINE_LIMIT + 1];
    size_t used;
    bool full;
};

#pragma GCC visibility push(hidden)

void loopscope_text_bytes(struct loopscope_text *text, const char *bytes, size_t length);
void loopscope_text_add(struct loopscope_text *text, const char *string);

/* Back to the first used bytes. */
void loopscope_text_cut(struct loopscope_text *text, size_t used);

/* A JSON string of at most limit bytes of string; each byte that is not UTF-8 becomes a question
 * mark. */
void loopscope_text_string(struct loopscope_text *text, const char *string, size_t limit);

/* The fewest digits that read back as number, which is finite. False: no memory. */
bool loopscope_text_double(struct loopscope_text *text, double number);

bool loopscope_is_utf8(const char *string);

#pragma GCC visibility pop

#endif
