/* Tracepoints with the names and fields of ROS 2's (tracetools), as far as a message's way needs them. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER ros2

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./ros2.h"

#if !defined(ROS2_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define ROS2_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(ros2, rmw_publish,
    LTTNG_UST_TP_ARGS(const void *, publisher, const void *, data, int64_t, time),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, rmw_publisher_handle, publisher)
        lttng_ust_field_integer_hex(const void *, message, data)
        lttng_ust_field_integer(int64_t, timestamp, time)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(ros2, rmw_take,
    LTTNG_UST_TP_ARGS(const void *, subscription, const void *, data, int64_t, time, int, is_taken),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, rmw_subscription_handle, subscription)
        lttng_ust_field_integer_hex(const void *, message, data)
        lttng_ust_field_integer(int64_t, source_timestamp, time)
        lttng_ust_field_integer(int, taken, is_taken)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(ros2, callback_start,
    LTTNG_UST_TP_ARGS(const void *, function, int, intra_process),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, callback, function)
        lttng_ust_field_integer(int, is_intra_process, intra_process)
    )
)

#endif

#include <lttng/tracepoint-event.h>
