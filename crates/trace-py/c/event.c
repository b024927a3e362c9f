/* Events and flows: one built-in function per call site, whose `self` is the site. A built-in is the
 * cheapest thing to call that the limited API offers. */
#include <string.h>

#include "core.h"

/* Never freed: registered call sites live as long as the process. */
struct event {
    PyObject_HEAD
    struct loopscope_site *site;
    PyMethodDef method;
    Py_ssize_t count; /* of fields */
    int variable;     /* has a string or bytes */
    uint8_t codes[MOST_FIELDS];
    const char *names[1 + MOST_FIELDS]; /* "id", then the fields' */
};

static PyTypeObject *event_type;

static PyObject *call_with_id(PyObject *self, PyObject *value)
{
    const struct loopscope_site *site = ((struct event *)self)->site;
    int64_t id;
    if (likely(!loopscope_enabled_(site)))
        Py_RETURN_NONE;
    if (!to_id(site, "id", value, &id))
        return NULL;
    loopscope_event(site, id);
    Py_RETURN_NONE;
}

static PyObject *wrong_number(const struct event *event, Py_ssize_t given)
{
    PyErr_Format(PyExc_TypeError, "%s:%s takes %zd arguments, an id and its fields; %zd were given",
                 event->site->group, event->site->name, 1 + event->count, given);
    return NULL;
}

/* Puts arguments given by name into their places; not zero on success. The caller has checked that
 * there are as many arguments as places. */
static int place_keywords(const struct event *event, PyObject *const *arguments, Py_ssize_t given,
                          PyObject *keywords, PyObject **values)
{
    for (Py_ssize_t k = 0; given + k < 1 + event->count; k++) {
        PyObject *keyword = PyTuple_GetItem(keywords, k);
        Py_ssize_t at = given;
        while (at <= event->count
               && PyUnicode_CompareWithASCIIString(keyword, event->names[at]) != 0)
            at++;
        if (at > event->count || values[at]) {
            PyErr_Format(PyExc_TypeError, "%s:%s: %U is no field of its own, or is given already",
                         event->site->group, event->site->name, keyword);
            return 0;
        }
        values[at] = arguments[given + k];
    }
    return 1;
}

static PyObject *record(const struct event *event, PyObject *const *values)
{
    const struct loopscope_site *site = event->site;
    /* Words, as the core copies them. */
    union {
        uint8_t bytes[MOST_FIELDS * sizeof(struct loopscope_bytes)];
        uint64_t words[MOST_FIELDS * sizeof(struct loopscope_bytes) / 8];
    } payload;
    uint8_t *end = payload.bytes;
    PyObject *held[MOST_FIELDS];
    Py_ssize_t done = 0;
    int64_t id;
    int whole = to_id(site, "id", values[0], &id);
    for (; whole && done < event->count; done++)
        whole = put_field(site, event->names[1 + done], event->codes[done], values[1 + done], &end,
                          &held[done]);
    if (whole && event->variable)
        loopscope_event_variable(site, id, &payload);
    else if (whole)
        loopscope_event_fields(site, id, &payload, (uint32_t)(end - payload.bytes));
    while (done-- > 0)
        Py_XDECREF(held[done]);
    if (!whole)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *call_with_fields(PyObject *self, PyObject *const *arguments, Py_ssize_t given,
                                  PyObject *keywords)
{
    const struct event *event = (const struct event *)self;
    PyObject *values[1 + MOST_FIELDS] = {NULL};
    Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
    if (given + named != 1 + event->count)
        return wrong_number(event, given + named);
    if (likely(!loopscope_enabled_(event->site)))
        Py_RETURN_NONE;
    if (named == 0)
        return record(event, arguments);
    memcpy(values, arguments, (size_t)given * sizeof *values);
    return place_keywords(event, arguments, given, keywords, values) ? record(event, values) : NULL;
}

/* `link(in_id, out_id)`. */
static PyObject *call_link(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    const struct loopscope_site *site = ((struct event *)self)->site;
    int64_t in, out;
    if (given != 2) {
        PyErr_Format(PyExc_TypeError, "%s:%s takes an in_id and an out_id; %zd were given",
                     site->group, site->name, given);
        return NULL;
    }
    if (likely(!loopscope_enabled_(site)))
        Py_RETURN_NONE;
    if (!to_id(site, "in_id", arguments[0], &in) || !to_id(site, "out_id", arguments[1], &out))
        return NULL;
    loopscope_event_fields(site, in, &out, sizeof out);
    Py_RETURN_NONE;
}

/* (name, code) of one field; not zero on success. */
static int add_field(struct event *event, PyObject *field, char **description, char *stop,
                     unsigned int *payload)
{
    const char *name;
    int code;
    if (!PyArg_ParseTuple(field, "si", &name, &code))
        return 0;
    size_t length = strlen(name) + 1;
    if (field_size(code) < 0 || event->count == MOST_FIELDS
        || (size_t)(stop - *description) < 1 + length) {
        PyErr_Format(PyExc_ValueError, "field %s: no such type, or too much", name);
        return 0;
    }
    *(*description)++ = (char)code;
    memcpy(*description, name, length);
    *description += length;
    *payload += (unsigned int)field_size(code);
    event->variable |= field_size(code) == 0;
    event->codes[event->count++] = (uint8_t)code;
    return 1;
}

PyObject *event_new(PyObject *module, PyObject *arguments)
{
    struct place place;
    const char *documentation;
    PyObject *fields;
    int kind;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "issyIO!s", &kind, &place.group, &place.name, &place.file,
                          &place.line, &PyTuple_Type, &fields, &documentation))
        return NULL;
    struct event *event = PyObject_New(struct event, event_type);
    if (!event)
        return NULL;
    event->count = 0;
    event->variable = 0;
    char description[4096], *end = description;
    unsigned int payload = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(fields); i++)
        if (!add_field(event, PyTuple_GetItem(fields, i), &end, description + sizeof description,
                       &payload)) {
            Py_DECREF(event);
            return NULL;
        }
    event->site = make_site(&place, kind, description, (size_t)(end - description), payload);
    char *kept = strdup(documentation);
    if (!event->site || !kept) {
        Py_DECREF(event);
        return PyErr_NoMemory();
    }
    const char *name = event->site->fields;
    event->names[0] = "id";
    for (Py_ssize_t i = 0; i < event->count; i++) {
        event->names[1 + i] = name + 1;
        name += strlen(name) + 1;
    }
    event->method.ml_name = event->site->name;
    event->method.ml_doc = kept;
    if (kind == LOOPSCOPE_KIND_FLOW_LINK) {
        event->method.ml_meth = (PyCFunction)(void (*)(void))call_link;
        event->method.ml_flags = FASTCALL;
    } else if (event->count == 0) {
        event->method.ml_meth = call_with_id;
        event->method.ml_flags = METH_O;
    } else {
        event->method.ml_meth = (PyCFunction)(void (*)(void))(fastcall)call_with_fields;
        event->method.ml_flags = FASTCALL | METH_KEYWORDS;
    }
    /* The reference of this function's own is kept for good. */
    return PyCFunction_New(&event->method, (PyObject *)event);
}

int event_init(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_new, no_new}, {Py_tp_dealloc, release}, {0, NULL}};
    PyType_Spec spec = {"loopscope_trace._core.Site", sizeof(struct event), 0, Py_TPFLAGS_DEFAULT,
                        slots};
    event_type = add_type(module, "Site", &spec);
    return event_type != NULL;
}
