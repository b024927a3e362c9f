/* The extension module loopscope_trace._core. */
#include "core.h"

PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type)
        return NULL;
    Py_INCREF(type);
    if (PyModule_AddObject(module, name, type) != 0) {
        Py_DECREF(type);
        Py_DECREF(type);
        return NULL;
    }
    return (PyTypeObject *)type;
}

PyObject *no_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)type;
    (void)arguments;
    (void)keywords;
    PyErr_SetString(PyExc_TypeError,
                    "made by the functions of loopscope_trace: event, interval, counter, …");
    return NULL;
}

void release(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *describe(PyObject *module, PyObject *arguments)
{
    struct place place;
    const char *text;
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "ssyIy#", &place.group, &place.name, &place.file, &place.line,
                          &text, &size)
        || !make_site(&place, LOOPSCOPE_KIND_DESCRIBE, text, (size_t)size, 0))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *thread_init(PyObject *module, PyObject *arguments)
{
    (void)module;
    (void)arguments;
    if (loopscope_thread_init() == 0)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_OSError,
                    "no event ring could be made; is the runtime directory's file system full?");
    return NULL;
}

static PyMethodDef functions[] = {
    {"event", event_new, METH_VARARGS, NULL},
    {"interval", interval_new, METH_VARARGS, NULL},
    {"counter", counter_new, METH_VARARGS, NULL},
    {"histogram", histogram_new, METH_VARARGS, NULL},
    {"describe", describe, METH_VARARGS, NULL},
    {"thread_init", thread_init, METH_NOARGS,
     "thread_init()\n--\n\n"
     "Makes the calling thread's rings, which its first enabled hits would otherwise do.\n\n"
     "For real-time threads, before their loop. Raises OSError if there is a collector but no ring\n"
     "could be made; the thread's hits are then counted as dropped."},
    {"now", clock_now, METH_NOARGS,
     "now()\n--\n\n"
     "This instant on the global clock, as a Time. Neither waits nor raises: without a clock, or with\n"
     "one that has expired, its status is UNKNOWN."},
    {"map", clock_map, METH_O,
     "map(counter, /)\n--\n\n"
     "The instant of a reading of this machine's counter, by what is known now, as a Time.\n\n"
     "Hours from now it is UNKNOWN. Raises TypeError or OverflowError for what is no counter."},
    {"monotonic", clock_monotonic, METH_NOARGS,
     "monotonic()\n--\n\n"
     "As now(), and best is never less than any call in this process has returned before.\n\n"
     "Where an estimate is corrected back, best stands still until time has caught up, and latest\n"
     "reaches up to it. An UNKNOWN one repeats the best before it."},
    {"elapsed", clock_elapsed, METH_VARARGS,
     "elapsed(start, end, /)\n--\n\n"
     "The time between two Times of this machine as a Span, negative where end is the earlier.\n\n"
     "What is unknown of their offset to global time cancels. None where one of the two is UNKNOWN,\n"
     "or where they are of different epochs, or not of the present one."},
    {"utc", clock_utc, METH_NOARGS,
     "utc()\n--\n\n"
     "How far UTC is from global time, as a Utc; None where that is not known."},
    {"open", clock_open, METH_VARARGS,
     "open(path=None, /)\n--\n\n"
     "Opens the clock page at a path, or the one that now() would open by itself, and stays with it.\n\n"
     "Raises OSError with the reason if it cannot be read. Call it before other threads read the\n"
     "clock."},
    {NULL, NULL, 0, NULL},
};

/* One state for the process, as the core has: a module of one interpreter, which a subinterpreter
 * with a lock of its own refuses to import. */
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "loopscope_trace._core", NULL, -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module || event_init(module) == 0 || interval_init(module) == 0
        || totals_init(module) == 0 || clock_init(module) == 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
