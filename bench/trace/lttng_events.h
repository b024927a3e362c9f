/* LTTng-UST's events, the peers of cost.c's: an id as a long, an id with two fields, and one that no
 * session enables. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng_events.h"

#if !defined(BENCH_LTTNG_EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define BENCH_LTTNG_EVENTS_H

#include <stdint.h>

#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(bench, event, LTTNG_UST_TP_ARGS(long, id),
                           LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(long, id, id)))

LTTNG_UST_TRACEPOINT_EVENT(bench, fields, LTTNG_UST_TP_ARGS(long, id, uint32_t, size, double, load),
                           LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(long, id, id)
                                                   lttng_ust_field_integer(uint32_t, size, size)
                                                       lttng_ust_field_float(double, load, load)))

LTTNG_UST_TRACEPOINT_EVENT(bench, dormant, LTTNG_UST_TP_ARGS(long, id),
                           LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(long, id, id)))

#endif

#include <lttng/tracepoint-event.h>
