/* inside: looks into the core. Prints a line for each thing that is not as it should be. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "loopscope/trace.h"
#include "runtime.h"
#include "interval.c" /* its table of starts by key */

/* Patterns are read as fnmatch(3) reads them in the C locale. */
static void check_patterns(void)
{
    uint64_t random = 88172645463325252u;
    for (int n = 0; n < 200000; n++) {
        char glob[8], text[8];
        for (size_t i = 0; i < 7; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            glob[i] = "ab:*?"[(random >> 33) % 6];
            text[i] = "ab:"[(random >> 43) % 4];
        }
        glob[7] = text[7] = 0;
        const char *rest;
        int expected = fnmatch(glob, text, 0) == 0;
        if (loopscope_glob_matches(glob, strlen(glob), text, &rest) != expected)
            printf("%s %s %s\n", glob, text, expected ? "matches" : "does not match");
    }
    static const struct {
        const char *glob, *text;
        int matches;
    } brackets[] = {
        {"[a-c]x", "bx", 1},   {"[a-c]x", "dx", 0},  {"[!a-c]x", "dx", 1}, {"[^a-c]x", "dx", 1},
        {"[!a-c]x", "ax", 0},  {"[]a]", "]", 1},     {"[!]a]", "]", 0},    {"[a-]", "-", 1},
        {"*[0-9]", "ab12", 1}, {"*[0-9]", "ab", 0},  {"[a", "[a", 1},      {"[a", "a", 0},
        {"\\*", "*", 1},       {"\\*", "a", 0},      {"[\\]]", "]", 1},    {"[a-z]", "B", 0},
        {"[!a]", "", 0},       {"a[bc]*:?", "abd:e", 1},
    };
    for (size_t i = 0; i < sizeof brackets / sizeof *brackets; i++) {
        const char *rest, *glob = brackets[i].glob;
        if (loopscope_glob_matches(glob, strlen(glob), brackets[i].text, &rest)
            != brackets[i].matches)
            printf("%s %s\n", glob, brackets[i].text);
    }
}

/* An interval whose end reads a smaller counter than its start did took no time: it is no case of
 * OVER, and its duration is none of 2^64. */
static void check_intervals(void)
{
    for (int over = 0; over < 2; over++) {
        LOOPSCOPE_INTERVAL_START("inside", "span");
        loopscope_writer->open[loopscope_writer->depth - 1].start += 1ull << 40;
        LOOPSCOPE_INTERVAL_END_OVER("inside", "span", over, over ? 1000 : 0);
    }
    const struct lane *lane = &loopscope_writer->lane[0];
    uint64_t record[2];
    uint32_t used = (uint32_t)lane->ring->committed;
    size_t expected = sizeof(struct loopscope_packet) + LOOPSCOPE_RECORD + sizeof record;
    memcpy(record, lane->subbuffer + used - sizeof record, sizeof record);
    if (used != expected || record[1] != 0)
        printf("%u bytes, a duration of %llu\n", used, (unsigned long long)record[1]);
    /* The same by a key. */
    for (int over = 3; over < 5; over++) {
        LOOPSCOPE_INTERVAL_START_KEY("inside", "keyed", 77);
        for (uint32_t place = 0; place < PLACES; place++)
            if (keyed[place].state == FULL && keyed[place].key == 77)
                keyed[place].start += 1ull << 40;
        LOOPSCOPE_INTERVAL_END_KEY_OVER("inside", "keyed", 77, over == 3 ? 0 : 1000);
    }
    expected += LOOPSCOPE_RECORD + sizeof record;
    used = (uint32_t)lane->ring->committed;
    memcpy(record, lane->subbuffer + used - sizeof record, sizeof record);
    if (used != expected || record[1] != 0)
        printf("by a key: %u bytes of %zu, a duration of %llu\n", used, expected,
               (unsigned long long)record[1]);
    /* So long that it is beyond the counter. */
    LOOPSCOPE_INTERVAL_START("inside", "span");
    LOOPSCOPE_INTERVAL_END_OVER("inside", "span", 2, UINT64_MAX);
    if ((uint32_t)lane->ring->committed != used)
        puts("over 584 years");
}

int main(void)
{
    check_patterns();
    check_intervals();
    return 0;
}
