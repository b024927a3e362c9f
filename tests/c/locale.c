/* locale NAME: a hundred hits of a call site that is registered once the program has that locale, as
 * those of plugins are. The field of hit n is n/100. Prints the decimal point that the program has. */
#include <locale.h>
#include <stdio.h>

#include "loopscope/trace.h"

static struct loopscope_site site = {
    .size = sizeof site,
    .kind = LOOPSCOPE_KIND_EVENT,
    .enabled = &site.off,
    .group = "locale",
    .name = "hit",
    .fields = "\012share\0",
    .file = "locale.c",
    .line = 1,
    .index = 0xffff,
    .payload = 8,
};

int main(int argc, char **argv)
{
    if (argc < 2 || !setlocale(LC_ALL, argv[1]))
        return 77;
    loopscope_register(&site, &site + 1);
    for (int i = 0; i < 100; i++) {
        double share = i / 100.0;
        if (loopscope_enabled_(&site))
            loopscope_event_fields(&site, i, &share, sizeof share);
    }
    puts(localeconv()->decimal_point);
    return 0;
}
