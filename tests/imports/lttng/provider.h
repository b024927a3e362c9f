/* Events of every kind of field that LTTng's user-space tracer has. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER sample

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./provider.h"

#if !defined(PROVIDER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define PROVIDER_H

#include <lttng/tracepoint.h>
#include <stddef.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_ENUM(sample, state,
    LTTNG_UST_TP_ENUM_VALUES(
        lttng_ust_field_enum_value("off", 0)
        lttng_ust_field_enum_value("on", 1)
        lttng_ust_field_enum_range("busy", 2, 9)
        lttng_ust_field_enum_value("also nine", 9)
        lttng_ust_field_enum_auto("next")
    )
)

LTTNG_UST_TRACEPOINT_EVENT(sample, empty, LTTNG_UST_TP_ARGS(), LTTNG_UST_TP_FIELDS())

LTTNG_UST_TRACEPOINT_EVENT(sample, numbers,
    LTTNG_UST_TP_ARGS(int64_t, value, double, real),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(int8_t, tiny, value)
        lttng_ust_field_integer(uint16_t, small, value)
        lttng_ust_field_integer(int32_t, medium, value)
        lttng_ust_field_integer(int64_t, large, value)
        lttng_ust_field_integer(uint64_t, unsigned, value)
        lttng_ust_field_integer_hex(uint32_t, hex, value)
        lttng_ust_field_integer_hex(int32_t, signed_hex, value)
        lttng_ust_field_integer_network(uint32_t, network, value)
        lttng_ust_field_integer_network_hex(uint16_t, network_hex, value)
        lttng_ust_field_float(float, single, real)
        lttng_ust_field_float(double, real, real)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(sample, many,
    LTTNG_UST_TP_ARGS(const char *, text, size_t, length, const int32_t *, values, int, state),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_string(text, text)
        lttng_ust_field_array(int32_t, three, values, 3)
        lttng_ust_field_array_text(char, fixed_text, text, 4)
        lttng_ust_field_array_hex(uint8_t, raw, (const uint8_t *) values, 5)
        lttng_ust_field_sequence(int32_t, some, values, size_t, length - 1)
        lttng_ust_field_sequence_text(char, part, text, size_t, length)
        lttng_ust_field_sequence_network(uint32_t, sent, (const uint32_t *) values, uint8_t, length - 1)
        lttng_ust_field_enum(sample, state, int, state, state)
        lttng_ust_field_integer(uint8_t, last, length)
    )
)

#endif

#include <lttng/tracepoint-event.h>
