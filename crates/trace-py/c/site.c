/* Call sites made at run time. */
#include <stdlib.h>
#include <string.h>

#include "core.h"

struct loopscope_site *make_site(const struct place *place, enum loopscope_kind kind,
                                 const void *fields, size_t size, unsigned int payload)
{
    size_t group = strlen(place->group) + 1, name = strlen(place->name) + 1;
    size_t file = strlen(place->file) + 1;
    struct loopscope_site *site = calloc(1, sizeof *site + group + name + file + size + 1);
    if (!site) {
        PyErr_NoMemory();
        return NULL;
    }
    char *text = (char *)(site + 1);
    *site = (struct loopscope_site){
        .size = sizeof *site,
        .kind = kind,
        .enabled = &site->off,
        .group = memcpy(text, place->group, group),
        .name = memcpy(text + group, place->name, name),
        .file = memcpy(text + group + name, place->file, file),
        /* Ends with code 0. */
        .fields = memcpy(text + group + name + file, fields, size),
        .line = place->line,
        .index = UINT16_MAX,
        .payload = (uint16_t)payload,
    };
    loopscope_register(site, site + 1);
    return site;
}
