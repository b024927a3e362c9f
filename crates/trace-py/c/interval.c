/* Intervals: start and end, and the context manager of a `with` block. */
#include "core.h"

/* Never freed: registered call sites live as long as the process. */
struct interval {
    PyObject_HEAD
    struct loopscope_site *start;
    struct loopscope_site *end;
    uint64_t over_ns;
    PyObject *decorate; /* called with the interval and a function */
};

/* One `with` block. */
struct span {
    PyObject_HEAD
    const struct interval *interval; /* null: was disabled when the block was reached */
    int64_t id;
    int keyed;
};

static PyTypeObject *interval_type, *span_type;
static PyObject *no_span;

static void start(const struct interval *interval, const int64_t *key)
{
    if (likely(!loopscope_enabled_(interval->start)))
        return;
    if (key)
        loopscope_interval_start_key(interval->start, *key);
    else
        loopscope_interval_start(interval->start);
}

static void end(const struct interval *interval, int64_t id, int keyed)
{
    if (likely(!loopscope_enabled_(interval->end)))
        return;
    if (keyed)
        loopscope_interval_end_key(interval->end, id, interval->over_ns);
    else
        loopscope_interval_end(interval->end, id, interval->over_ns);
}

static int is_named(PyObject *keyword, const char *name)
{
    return PyUnicode_CompareWithASCIIString(keyword, name) == 0;
}

/* One argument at most: an id, by place or name, where `id` allows it, or a key by name. */
struct argument {
    PyObject *value; /* null: none is given */
    int keyed;
};

static int one_argument(const struct interval *interval, PyObject *const *arguments,
                        Py_ssize_t given, PyObject *keywords, int id, struct argument *argument)
{
    Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
    if (given + named > 1 || (given == 1 && !id)) {
        PyErr_Format(PyExc_TypeError, "%s:%s: takes %s", interval->start->group,
                     interval->start->name, id ? "an id or a key=" : "at most a key=");
        return 0;
    }
    argument->value = given + named ? arguments[0] : NULL;
    argument->keyed = 0;
    if (named) {
        PyObject *keyword = PyTuple_GetItem(keywords, 0);
        argument->keyed = is_named(keyword, "key");
        if (!argument->keyed && !(id && is_named(keyword, "id"))) {
            PyErr_Format(PyExc_TypeError, "%s:%s: has no argument %U", interval->start->group,
                         interval->start->name, keyword);
            return 0;
        }
    }
    return 1;
}

static PyObject *interval_start(PyObject *self, PyObject *const *arguments, Py_ssize_t given,
                                PyObject *keywords)
{
    const struct interval *interval = (const struct interval *)self;
    struct argument argument;
    int64_t key;
    if (!one_argument(interval, arguments, given, keywords, 0, &argument))
        return NULL;
    if (likely(!loopscope_enabled_(interval->start)))
        Py_RETURN_NONE;
    if (argument.value && !to_id(interval->start, "key", argument.value, &key))
        return NULL;
    start(interval, argument.value ? &key : NULL);
    Py_RETURN_NONE;
}

static PyObject *interval_end(PyObject *self, PyObject *const *arguments, Py_ssize_t given,
                              PyObject *keywords)
{
    const struct interval *interval = (const struct interval *)self;
    struct argument argument;
    int64_t id = 0;
    if (!one_argument(interval, arguments, given, keywords, 1, &argument))
        return NULL;
    if (likely(!loopscope_enabled_(interval->end)))
        Py_RETURN_NONE;
    if (argument.value
        && !to_id(interval->end, argument.keyed ? "key" : "id", argument.value, &id))
        return NULL;
    end(interval, id, argument.keyed);
    Py_RETURN_NONE;
}

/* `interval(id)` and `interval(key=…)` are blocks, `interval(function)` decorates. */
static PyObject *interval_call(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"id", "key", NULL};
    const struct interval *interval = (const struct interval *)self;
    PyObject *id = NULL, *key = NULL;
    if (!keywords && PyTuple_Size(arguments) <= 1) {
        if (PyTuple_Size(arguments) == 1)
            id = PyTuple_GetItem(arguments, 0);
    } else if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O$O:interval", names, &id,
                                            &key)) {
        return NULL;
    }
    if (id && key) {
        PyErr_Format(PyExc_TypeError, "%s:%s: takes an id or a key=, whose record has it as id",
                     interval->start->group, interval->start->name);
        return NULL;
    }
    if (id && !PyLong_Check(id) && PyCallable_Check(id))
        return PyObject_CallFunctionObjArgs(interval->decorate, self, id, NULL);
    if (likely(!loopscope_enabled_(interval->start))) {
        Py_INCREF(no_span);
        return no_span;
    }
    int64_t number = 0;
    PyObject *value = key ? key : id;
    if (value && !to_id(interval->start, key ? "key" : "id", value, &number))
        return NULL;
    struct span *span = PyObject_New(struct span, span_type);
    if (!span)
        return NULL;
    span->interval = interval;
    span->id = number;
    span->keyed = key != NULL;
    return (PyObject *)span;
}

static PyObject *span_enter(PyObject *self, PyObject *arguments)
{
    const struct span *span = (const struct span *)self;
    (void)arguments;
    if (span->interval)
        start(span->interval, span->keyed ? &span->id : NULL);
    Py_RETURN_NONE;
}

static PyObject *span_exit(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    const struct span *span = (const struct span *)self;
    (void)arguments;
    (void)given;
    if (span->interval)
        end(span->interval, span->id, span->keyed);
    Py_RETURN_FALSE;
}

PyObject *interval_new(PyObject *module, PyObject *arguments)
{
    struct place place;
    unsigned long long over;
    PyObject *over_ns, *decorate;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "ssyIO!O", &place.group, &place.name, &place.file,
                          &place.line, &PyLong_Type, &over_ns, &decorate))
        return NULL;
    over = PyLong_AsUnsignedLongLong(over_ns);
    if (over == (unsigned long long)-1 && PyErr_Occurred())
        return NULL;
    struct interval *interval = PyObject_New(struct interval, interval_type);
    if (!interval)
        return NULL;
    interval->start = make_site(&place, LOOPSCOPE_KIND_INTERVAL_START, "", 0, 0);
    interval->end = make_site(&place, LOOPSCOPE_KIND_INTERVAL_END, "", 0, 0);
    interval->over_ns = over;
    Py_INCREF(decorate);
    interval->decorate = decorate;
    if (!interval->start || !interval->end) {
        Py_DECREF(interval);
        return NULL;
    }
    /* For good: blocks point to it. */
    Py_INCREF(interval);
    return (PyObject *)interval;
}

static PyMethodDef interval_methods[] = {
    {"start", (PyCFunction)(void (*)(void))(fastcall)interval_start, FASTCALL | METH_KEYWORDS,
     "start(*, key=None)\n--\n\nThe interval begins, on this thread or with this key."},
    {"end", (PyCFunction)(void (*)(void))(fastcall)interval_end, FASTCALL | METH_KEYWORDS,
     "end(id=0, *, key=None)\n--\n\nThe interval ends: this thread's newest, or the key's. The key "
     "is the record's id."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef span_methods[] = {
    {"__enter__", span_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))span_exit, FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int interval_init(PyObject *module)
{
    PyType_Slot interval_slots[] = {{Py_tp_new, no_new},
                                    {Py_tp_dealloc, release},
                                    {Py_tp_call, interval_call},
                                    {Py_tp_methods, interval_methods},
                                    {Py_tp_doc, "An interval; made by loopscope_trace.interval."},
                                    {0, NULL}};
    PyType_Slot span_slots[] = {{Py_tp_new, no_new},
                                {Py_tp_dealloc, release},
                                {Py_tp_methods, span_methods},
                                {0, NULL}};
    PyType_Spec interval_spec = {"loopscope_trace.Interval", sizeof(struct interval), 0,
                                 Py_TPFLAGS_DEFAULT, interval_slots};
    PyType_Spec span_spec = {"loopscope_trace._core.Span", sizeof(struct span), 0,
                             Py_TPFLAGS_DEFAULT, span_slots};
    interval_type = add_type(module, "Interval", &interval_spec);
    span_type = add_type(module, "Span", &span_spec);
    if (!interval_type || !span_type)
        return 0;
    struct span *none = PyObject_New(struct span, span_type);
    if (!none)
        return 0;
    none->interval = NULL;
    no_span = (PyObject *)none;
    return 1;
}
