/* A message's two ends. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER topic

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./provider.h"

#if !defined(PROVIDER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define PROVIDER_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT_CLASS(topic, message,
    LTTNG_UST_TP_ARGS(uint32_t, id, const char *, name),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, id, id)
        lttng_ust_field_string(name, name)
    )
)

LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(topic, message, topic, publish,
    LTTNG_UST_TP_ARGS(uint32_t, id, const char *, name))
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(topic, message, topic, callback,
    LTTNG_UST_TP_ARGS(uint32_t, id, const char *, name))

#endif

#include <lttng/tracepoint-event.h>
