/* The global clock: loopscope_trace.clock. */
#include <loopscope/clock.h>

#include "core.h"

static PyTypeObject *time_type, *span_type, *utc_type;

/* Places in a Time. */
enum { COUNTER = 3, EPOCH = 5, STATUS = 6 };

/* A struct sequence of these values, whose references it takes; null, with an exception, where one of
 * them is. */
static PyObject *sequence(PyTypeObject *type, PyObject *const *values, Py_ssize_t count)
{
    PyObject *made = PyStructSequence_New(type);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (made && values[i]) {
            PyStructSequence_SetItem(made, i, values[i]);
        } else {
            Py_XDECREF(values[i]);
            Py_CLEAR(made);
        }
    }
    return made;
}

static PyObject *to_time(const struct loopscope_clock_time *time)
{
    PyObject *values[] = {
        PyLong_FromLongLong(time->earliest),
        PyLong_FromLongLong(time->best),
        PyLong_FromLongLong(time->latest),
        PyLong_FromUnsignedLongLong(time->counter),
        PyLong_FromUnsignedLong(time->calibrated),
        PyLong_FromUnsignedLong(time->epoch),
        PyLong_FromLong(time->status),
    };
    return sequence(time_type, values, sizeof values / sizeof *values);
}

PyObject *clock_now(PyObject *module, PyObject *none)
{
    struct loopscope_clock_time time = loopscope_clock_now();
    (void)module;
    (void)none;
    return to_time(&time);
}

PyObject *clock_monotonic(PyObject *module, PyObject *none)
{
    struct loopscope_clock_time time = loopscope_clock_monotonic();
    (void)module;
    (void)none;
    return to_time(&time);
}

PyObject *clock_map(PyObject *module, PyObject *counter)
{
    unsigned long long ticks = PyLong_AsUnsignedLongLong(counter);
    (void)module;
    if (PyErr_Occurred())
        return NULL;
    struct loopscope_clock_time time = loopscope_clock_map(ticks);
    return to_time(&time);
}

/* What elapsed() needs of a Time; not zero on success. */
static int from_time(PyObject *object, struct loopscope_clock_time *time)
{
    time->counter = PyLong_AsUnsignedLongLong(PyStructSequence_GetItem(object, COUNTER));
    time->epoch = (uint32_t)PyLong_AsUnsignedLong(PyStructSequence_GetItem(object, EPOCH));
    time->status =
        (enum loopscope_clock_status)PyLong_AsLong(PyStructSequence_GetItem(object, STATUS));
    return PyErr_Occurred() == NULL;
}

PyObject *clock_elapsed(PyObject *module, PyObject *arguments)
{
    struct loopscope_clock_time from = {0}, to = {0};
    PyObject *start, *end;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!:elapsed", time_type, &start, time_type, &end)
        || !from_time(start, &from) || !from_time(end, &to))
        return NULL;
    struct loopscope_clock_span span = loopscope_clock_elapsed(&from, &to);
    if (span.status == LOOPSCOPE_CLOCK_UNKNOWN)
        Py_RETURN_NONE;
    PyObject *values[] = {
        PyLong_FromLongLong(span.shortest),
        PyLong_FromLongLong(span.best),
        PyLong_FromLongLong(span.longest),
        PyLong_FromLong(span.status),
    };
    return sequence(span_type, values, sizeof values / sizeof *values);
}

PyObject *clock_utc(PyObject *module, PyObject *none)
{
    struct loopscope_clock_utc utc = loopscope_clock_utc();
    (void)module;
    (void)none;
    if (utc.error == UINT64_MAX)
        Py_RETURN_NONE;
    PyObject *values[] = {PyLong_FromLongLong(utc.offset), PyLong_FromUnsignedLongLong(utc.error)};
    return sequence(utc_type, values, sizeof values / sizeof *values);
}

PyObject *clock_open(PyObject *module, PyObject *arguments)
{
    PyObject *path = Py_None, *encoded = NULL;
    char error[512];
    (void)module;
    if (!PyArg_ParseTuple(arguments, "|O:open", &path)
        || (path != Py_None && !PyUnicode_FSConverter(path, &encoded)))
        return NULL;
    int failed = loopscope_clock_open(encoded ? PyBytes_AsString(encoded) : NULL, error, sizeof error);
    Py_XDECREF(encoded);
    if (failed == 0)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_OSError, error);
    return NULL;
}

/* Puts a type of this form into the module under a name; null on failure. */
static PyTypeObject *add_sequence(PyObject *module, const char *name, PyStructSequence_Desc *form)
{
    PyTypeObject *type = PyStructSequence_NewType(form);
    if (!type)
        return NULL;
    Py_INCREF(type);
    if (PyModule_AddObject(module, name, (PyObject *)type) != 0) {
        Py_DECREF(type);
        Py_DECREF(type);
        return NULL;
    }
    return type;
}

int clock_init(PyObject *module)
{
    static PyStructSequence_Field time_fields[] = {
        {"earliest", "The truth is not before it, ns of the global clock."},
        {"best", "The guess, ns."},
        {"latest", "The truth is not after it, ns."},
        {"counter", "This machine's counter there, ticks."},
        {"calibrated", "Error bound around best that all but a small share lie within, ns."},
        {"epoch", "Rises when a counter or the reference was disturbed."},
        {"status", "UNKNOWN, SYNCHRONISED or HOLDOVER."},
        {NULL, NULL},
    };
    static PyStructSequence_Field span_fields[] = {
        {"shortest", "It was not less, ns."},
        {"best", "The guess, ns."},
        {"longest", "It was not more, ns."},
        {"status", "SYNCHRONISED or HOLDOVER."},
        {NULL, NULL},
    };
    static PyStructSequence_Field utc_fields[] = {
        {"offset", "UTC less global time, ns."},
        {"error", "Maximum error of it, ns."},
        {NULL, NULL},
    };
    static PyStructSequence_Desc time = {"loopscope_trace.clock.Time", "An instant.", time_fields, 7};
    static PyStructSequence_Desc span = {"loopscope_trace.clock.Span",
                                         "The time between two instants of this machine.",
                                         span_fields, 4};
    static PyStructSequence_Desc utc = {"loopscope_trace.clock.Utc", "Where UTC is.", utc_fields, 2};
    time_type = add_sequence(module, "ClockTime", &time);
    span_type = add_sequence(module, "ClockSpan", &span);
    utc_type = add_sequence(module, "ClockUtc", &utc);
    return time_type && span_type && utc_type;
}
