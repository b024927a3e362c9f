/* Events with strings or bytes among their fields. */
#include <string.h>

#include "runtime.h"

#define MOST_FIELDS 8
#define STRING 11
#define BYTES 12

struct sizes {
    const char *fields;
    const size_t *lengths;      /* of strings, as handed over; null: they end with a NUL */
    uint32_t size[MOST_FIELDS]; /* of the strings and bytes, as measured once */
};

/* A string without its NUL, or bytes, as they lie in a payload. `length` is a string's, if known. */
static const void *content_of(unsigned code, const uint8_t *payload, const size_t *length,
                              size_t *size)
{
    if (code == STRING) {
        const char *string;
        memcpy(&string, payload, sizeof string);
        *size = !string ? 0 : length ? strnlen(string, *length) : strlen(string);
        return string;
    }
    struct loopscope_bytes bytes;
    memcpy(&bytes, payload, sizeof bytes);
    *size = bytes.size;
    return bytes.start;
}

static void write_fields(uint8_t *to, const struct source *source)
{
    const struct sizes *sizes = source->context;
    const uint8_t *payload = source->payload;
    uint32_t n = 0;
    for (const char *field = sizes->fields; *field; field += strlen(field) + 1, n++) {
        unsigned code = (unsigned char)*field;
        uint32_t size = loopscope_payload_size(code);
        if (code < STRING) {
            memcpy(to, payload, size);
            to += size;
        } else {
            /* The size may have changed since; what was measured is what there is room for. */
            size_t now;
            const void *content = content_of(code, payload,
                                             sizes->lengths ? &sizes->lengths[n] : NULL, &now);
            size_t copied = now < sizes->size[n] ? now : sizes->size[n];
            if (code == BYTES) {
                memcpy(to, &sizes->size[n], 4);
                to += 4;
            }
            if (copied != 0)
                memcpy(to, content, copied);
            /* A string that has shrunk is filled with spaces: a NUL would end it early. */
            memset(to + copied, ' ', sizes->size[n] - copied);
            to += sizes->size[n];
            if (code == STRING)
                *to++ = 0;
        }
        payload += size;
    }
}

LOOPSCOPE_EXPORT void loopscope_event_sized(const struct loopscope_site *site, int64_t id,
                                            const void *payload, const size_t *lengths)
{
    uint32_t streams = LOAD(site->enabled), n = 0;
    struct sizes sizes = {.fields = site->fields, .lengths = lengths};
    const uint8_t *at = payload;
    uint64_t total = site->payload;
    for (const char *field = site->fields; *field; field += strlen(field) + 1, n++) {
        unsigned code = (unsigned char)*field;
        if (code >= STRING) {
            size_t size;
            content_of(code, at, lengths ? &lengths[n] : NULL, &size);
            /* Far more than a record can have, and small enough to add up. */
            sizes.size[n] = size > UINT32_MAX / 16 ? UINT32_MAX / 16 : (uint32_t)size;
            total += sizes.size[n] + (code == BYTES ? 4u : 1u);
        }
        at += loopscope_payload_size(code);
    }
    struct source source = {payload, write_fields, &sizes, (uint32_t)total};
    if (streams != 0)
        loopscope_hit(site, streams, id, &source, 0);
}

LOOPSCOPE_EXPORT void loopscope_event_variable(const struct loopscope_site *site, int64_t id,
                                               const void *payload)
{
    loopscope_event_sized(site, id, payload, NULL);
}
