/* Counters and histograms: adding costs no record. */
#include "core.h"

struct totals {
    PyObject_HEAD
    struct loopscope_site *add;
    struct loopscope_site *log;
    struct loopscope_site *reset;
};

static PyTypeObject *counter_type, *histogram_type;

#define SITE(self, which) (((struct totals *)(self))->which)

static PyObject *counter_add(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    const struct loopscope_site *site = SITE(self, add);
    int64_t amount = 1;
    if (given > 1) {
        PyErr_Format(PyExc_TypeError, "%s:%s: add takes one amount, not %zd arguments", site->group,
                     site->name, given);
        return NULL;
    }
    if (likely(!loopscope_enabled_(site)))
        Py_RETURN_NONE;
    if (given == 1 && !to_signed(site, "amount", arguments[0], &amount))
        return NULL;
    loopscope_counter_add(site, amount);
    Py_RETURN_NONE;
}

static PyObject *histogram_add(PyObject *self, PyObject *value)
{
    const struct loopscope_site *site = SITE(self, add);
    int64_t number;
    if (likely(!loopscope_enabled_(site)))
        Py_RETURN_NONE;
    if (!to_signed(site, "value", value, &number))
        return NULL;
    loopscope_histogram_add(site, number);
    Py_RETURN_NONE;
}

#define ACTION(entity, action)                                              \
    static PyObject *entity##_##action(PyObject *self, PyObject *arguments) \
    {                                                                       \
        const struct loopscope_site *site = SITE(self, action);             \
        (void)arguments;                                                    \
        if (!likely(!loopscope_enabled_(site)))                             \
            loopscope_##entity##_##action(site);                            \
        Py_RETURN_NONE;                                                     \
    }

ACTION(counter, log)
ACTION(counter, reset)
ACTION(histogram, log)
ACTION(histogram, reset)

/* The kinds of log and reset follow that of add. */
static PyObject *make(PyTypeObject *type, const struct place *place, int add)
{
    struct totals *totals = PyObject_New(struct totals, type);
    if (!totals)
        return NULL;
    totals->add = make_site(place, add, "", 0, 0);
    totals->log = totals->add ? make_site(place, add + 1, "", 0, 0) : NULL;
    totals->reset = totals->log ? make_site(place, add + 2, "", 0, 0) : NULL;
    if (!totals->reset) {
        Py_DECREF(totals);
        return NULL;
    }
    return (PyObject *)totals;
}

PyObject *counter_new(PyObject *module, PyObject *arguments)
{
    struct place place;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "ssyI", &place.group, &place.name, &place.file, &place.line))
        return NULL;
    return make(counter_type, &place, LOOPSCOPE_KIND_COUNTER_ADD);
}

PyObject *histogram_new(PyObject *module, PyObject *arguments)
{
    struct place place;
    PyObject *range;
    long long bounds[3];
    (void)module;
    if (!PyArg_ParseTuple(arguments, "ssyIO", &place.group, &place.name, &place.file, &place.line,
                          &range))
        return NULL;
    if (range != Py_None) {
        if (!PyArg_ParseTuple(range, "LLL", &bounds[0], &bounds[1], &bounds[2]))
            return NULL;
        /* Before its sites: they learn the range when they are registered. */
        if (!make_site(&place, LOOPSCOPE_KIND_HISTOGRAM_RANGE, bounds, sizeof bounds, 0))
            return NULL;
    }
    return make(histogram_type, &place, LOOPSCOPE_KIND_HISTOGRAM_ADD);
}

static PyMethodDef counter_methods[] = {
    {"add", (PyCFunction)(void (*)(void))counter_add, FASTCALL,
     "add(amount=1, /)\n--\n\nAdds to the counter in every stream that has it enabled."},
    {"log", counter_log, METH_NOARGS, "log()\n--\n\nRecords the counter's value."},
    {"reset", counter_reset, METH_NOARGS, "reset()\n--\n\nBegins again at zero."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef histogram_methods[] = {
    {"add", histogram_add, METH_O,
     "add(value, /)\n--\n\nAdds a value in every stream that has the histogram enabled."},
    {"log", histogram_log, METH_NOARGS, "log()\n--\n\nRecords the histogram's buckets."},
    {"reset", histogram_reset, METH_NOARGS, "reset()\n--\n\nBegins again empty."},
    {NULL, NULL, 0, NULL},
};

int totals_init(PyObject *module)
{
    PyType_Slot counter_slots[] = {{Py_tp_new, no_new},
                                   {Py_tp_dealloc, release},
                                   {Py_tp_methods, counter_methods},
                                   {Py_tp_doc, "A counter; made by loopscope_trace.counter."},
                                   {0, NULL}};
    PyType_Slot histogram_slots[] = {{Py_tp_new, no_new},
                                     {Py_tp_dealloc, release},
                                     {Py_tp_methods, histogram_methods},
                                     {Py_tp_doc, "A histogram; made by loopscope_trace.histogram."},
                                     {0, NULL}};
    PyType_Spec counter_spec = {"loopscope_trace.Counter", sizeof(struct totals), 0,
                                Py_TPFLAGS_DEFAULT, counter_slots};
    PyType_Spec histogram_spec = {"loopscope_trace.Histogram", sizeof(struct totals), 0,
                                  Py_TPFLAGS_DEFAULT, histogram_slots};
    counter_type = add_type(module, "Counter", &counter_spec);
    histogram_type = add_type(module, "Histogram", &histogram_spec);
    return counter_type && histogram_type;
}
