/* Values of an event's fields, packed. */
#include <math.h>
#include <string.h>

#include "core.h"

enum { U8 = 1, U16, U32, U64, I8, I16, I32, I64, F32, F64, STRING, BYTES };

static const struct {
    const char *name;
    uint8_t size;
    int64_t low;
    int64_t high;
} types[] = {
    [U8] = {"u8", 1, 0, UINT8_MAX},
    [U16] = {"u16", 2, 0, UINT16_MAX},
    [U32] = {"u32", 4, 0, UINT32_MAX},
    [U64] = {"u64", 8, 0, 0},
    [I8] = {"i8", 1, INT8_MIN, INT8_MAX},
    [I16] = {"i16", 2, INT16_MIN, INT16_MAX},
    [I32] = {"i32", 4, INT32_MIN, INT32_MAX},
    [I64] = {"i64", 8, INT64_MIN, INT64_MAX},
    [F32] = {"f32", 4, 0, 0},
    [F64] = {"f64", 8, 0, 0},
    [STRING] = {"str", 0, 0, 0},
    [BYTES] = {"bytes", 0, 0, 0},
};

int field_size(int code)
{
    return code < U8 || code > BYTES ? -1 : types[code].size;
}

static void append(uint8_t **payload, const void *value, size_t size)
{
    memcpy(*payload, value, size);
    *payload += size;
}

static int put_integer(const struct loopscope_site *site, const char *name, uint8_t code,
                       PyObject *value, uint8_t **payload)
{
    int64_t number;
    if (!to_signed(site, name, value, &number))
        return 0;
    if (number < types[code].low || number > types[code].high) {
        too_large(site, name, value, types[code].name);
        return 0;
    }
    /* Little-endian: the low bytes come first. */
    append(payload, &number, types[code].size);
    return 1;
}

static int put_float(const struct loopscope_site *site, const char *name, uint8_t code,
                     PyObject *value, uint8_t **payload)
{
    double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            wrong_type(site, name, "a float", value);
        } else if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            too_large(site, name, value, types[code].name);
        }
        return 0;
    }
    if (code == F64) {
        append(payload, &number, sizeof number);
        return 1;
    }
    float single = (float)number;
    if (isinf(single) && !isinf(number)) {
        too_large(site, name, value, types[code].name);
        return 0;
    }
    append(payload, &single, sizeof single);
    return 1;
}

static int put_string(const struct loopscope_site *site, const char *name, PyObject *value,
                      uint8_t **payload, PyObject **held)
{
    if (!PyUnicode_Check(value)) {
        wrong_type(site, name, "a str", value);
        return 0;
    }
    char *text;
    /* The limited API has the string's own UTF-8 from 3.10 on only. */
    *held = PyUnicode_AsUTF8String(value);
    if (*held && PyBytes_AsStringAndSize(*held, &text, NULL) == 0) {
        append(payload, &text, sizeof text);
        return 1;
    }
    if (PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError,
                     "%s:%s: %s has a NUL or half a surrogate pair, which a trace's string cannot "
                     "hold; a field of type bytes can",
                     site->group, site->name, name);
    }
    return 0;
}

static int put_bytes(const struct loopscope_site *site, const char *name, PyObject *value,
                     uint8_t **payload, PyObject **held)
{
    struct loopscope_bytes bytes;
    char *start;
    Py_ssize_t size;
    if (PyBytes_Check(value)) {
        Py_INCREF(value);
        *held = value;
    } else {
        /* Anything else that has a buffer; the limited API reads buffers from 3.11 on only. */
        PyObject *view = PyMemoryView_FromObject(value);
        if (!view) {
            if (PyErr_ExceptionMatches(PyExc_TypeError)) {
                PyErr_Clear();
                wrong_type(site, name, "bytes", value);
            }
            return 0;
        }
        *held = PyObject_CallMethod(view, "tobytes", NULL);
        Py_DECREF(view);
    }
    if (!*held || PyBytes_AsStringAndSize(*held, &start, &size) != 0)
        return 0;
    if ((size_t)size > UINT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%s:%s: %s has %zd bytes, more than 4 GiB", site->group,
                     site->name, name, size);
        return 0;
    }
    bytes.start = start;
    bytes.size = (uint32_t)size;
    append(payload, &bytes, sizeof bytes);
    return 1;
}

int put_field(const struct loopscope_site *site, const char *name, uint8_t code, PyObject *value,
              uint8_t **payload, PyObject **held)
{
    uint64_t number;
    *held = NULL;
    switch (code) {
    case U64:
        if (!to_unsigned(site, name, value, &number))
            return 0;
        append(payload, &number, sizeof number);
        return 1;
    case F32:
    case F64:
        return put_float(site, name, code, value, payload);
    case STRING:
        return put_string(site, name, value, payload, held);
    case BYTES:
        return put_bytes(site, name, value, payload, held);
    default:
        return put_integer(site, name, code, value, payload);
    }
}
