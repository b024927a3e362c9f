/* Python's integers as the core's. */
#include "core.h"

void wrong_type(const struct loopscope_site *site, const char *what, const char *wanted,
                PyObject *value)
{
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(value), "__name__");
    if (!type)
        return;
    PyErr_Format(PyExc_TypeError, "%s:%s: %s must be %s, not %U", site->group, site->name, what,
                 wanted, type);
    Py_DECREF(type);
}

void too_large(const struct loopscope_site *site, const char *what, PyObject *value,
               const char *range)
{
    PyErr_Clear();
    PyErr_Format(PyExc_OverflowError, "%s:%s: %s is %S, which is not in %s", site->group,
                 site->name, what, value, range);
}

/* A new reference to the value as an int: what has __index__ is one, a float is none. */
static PyObject *as_int(const struct loopscope_site *site, const char *what, PyObject *value)
{
    PyObject *number = PyNumber_Index(value);
    if (!number && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        wrong_type(site, what, "an int", value);
    }
    return number;
}

static int failed(int64_t number)
{
    return number == -1 && PyErr_Occurred();
}

/* Not zero if the value is an exact int that fits, which is then in `number`: the usual case,
 * without a conversion. */
static inline int quick(PyObject *value, int64_t *number)
{
    if (Py_TYPE(value) != &PyLong_Type)
        return 0;
    *number = PyLong_AsLongLong(value);
    if (likely(!failed(*number)))
        return 1;
    PyErr_Clear();
    return 0;
}

int to_id(const struct loopscope_site *site, const char *what, PyObject *value, int64_t *id)
{
    if (likely(quick(value, id)))
        return 1;
    PyObject *number = as_int(site, what, value);
    if (!number)
        return 0;
    *id = PyLong_AsLongLong(number);
    if (failed(*id)) {
        /* Ids are compared, not computed with: a 64-bit unsigned one keeps its bits. */
        PyErr_Clear();
        *id = (int64_t)PyLong_AsUnsignedLongLong(number);
        if (failed(*id))
            too_large(site, what, number, "64 bits");
    }
    Py_DECREF(number);
    return !PyErr_Occurred();
}

int to_signed(const struct loopscope_site *site, const char *what, PyObject *value, int64_t *number)
{
    if (likely(quick(value, number)))
        return 1;
    PyObject *object = as_int(site, what, value);
    if (!object)
        return 0;
    *number = PyLong_AsLongLong(object);
    if (failed(*number))
        too_large(site, what, object, "i64");
    Py_DECREF(object);
    return !PyErr_Occurred();
}

int to_unsigned(const struct loopscope_site *site, const char *what, PyObject *value,
                uint64_t *number)
{
    int64_t small;
    if (likely(quick(value, &small) && small >= 0)) {
        *number = (uint64_t)small;
        return 1;
    }
    PyObject *object = as_int(site, what, value);
    if (!object)
        return 0;
    *number = PyLong_AsUnsignedLongLong(object);
    if (failed((int64_t)*number))
        too_large(site, what, object, "u64");
    Py_DECREF(object);
    return !PyErr_Occurred();
}
