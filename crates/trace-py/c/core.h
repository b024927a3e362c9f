/* What the extension's files share. Built against the limited API of Python 3.8, and statically with
 * the C core of crates/trace and the reader of crates/clock. */
#ifndef LOOPSCOPE_PY_CORE_H
#define LOOPSCOPE_PY_CORE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03080000
#include <Python.h>

#include <loopscope/trace.h>

/* METH_FASTCALL. In the limited API from 3.10 on; 3.8 and 3.9 have it with the same number and
 * signature (both are at the end of their life, so this does not change any more). */
#define FASTCALL 0x0080
typedef PyObject *(*fastcall)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

#define MOST_FIELDS 8
#define likely(x) __builtin_expect(!!(x), 1)

/* Where an entity stands in the program. */
struct place {
    const char *group;
    const char *name;
    const char *file;
    unsigned int line;
};

/* site.c. Makes and registers a call site; null with MemoryError. It is never freed: the core keeps
 * sites as long as the process lives. `fields` has `size` bytes. */
struct loopscope_site *make_site(const struct place *place, enum loopscope_kind kind,
                                 const void *fields, size_t size, unsigned int payload);

/* number.c. Not zero on success, else an exception is set that names `what` of the site's entity. */
int to_id(const struct loopscope_site *site, const char *what, PyObject *value, int64_t *id);
int to_signed(const struct loopscope_site *site, const char *what, PyObject *value, int64_t *number);
int to_unsigned(const struct loopscope_site *site, const char *what, PyObject *value,
                uint64_t *number);
/* Puts the type of a value that is not what it should be into a TypeError. */
void wrong_type(const struct loopscope_site *site, const char *what, const char *wanted,
                PyObject *value);
/* An OverflowError in place of whatever exception there is. */
void too_large(const struct loopscope_site *site, const char *what, PyObject *value,
               const char *range);

/* field.c. Appends a value of the type with this code to a packed payload of the form that
 * loopscope_event_fields and loopscope_event_variable take; not zero on success. `*held` is set to
 * what has to live until the event is recorded, or to null. */
int put_field(const struct loopscope_site *site, const char *name, uint8_t code, PyObject *value,
              uint8_t **payload, PyObject **held);
/* Size of a type in a record, 0 for strings and bytes; -1 for codes that are none. */
int field_size(int code);

/* event.c, interval.c, totals.c: functions of the module, and the types that they make. */
PyObject *event_new(PyObject *module, PyObject *arguments);
PyObject *interval_new(PyObject *module, PyObject *arguments);
PyObject *counter_new(PyObject *module, PyObject *arguments);
PyObject *histogram_new(PyObject *module, PyObject *arguments);
int event_init(PyObject *module);
int interval_init(PyObject *module);
int totals_init(PyObject *module);

/* clock.c: functions of the module, and the types that they return. */
PyObject *clock_now(PyObject *module, PyObject *none);
PyObject *clock_map(PyObject *module, PyObject *counter);
PyObject *clock_monotonic(PyObject *module, PyObject *none);
PyObject *clock_elapsed(PyObject *module, PyObject *arguments);
PyObject *clock_utc(PyObject *module, PyObject *none);
PyObject *clock_open(PyObject *module, PyObject *arguments);
int clock_init(PyObject *module);

/* module.c. Makes a type and puts it into the module under a name; null on failure. The module keeps
 * it. */
PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec);
/* tp_new of types whose objects this module alone makes: an empty one would have no call site. */
PyObject *no_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords);
/* tp_dealloc of types whose objects own no other object, or are never freed. */
void release(PyObject *object);

#endif
