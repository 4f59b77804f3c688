/* What numpy's arrays and dtypes have at the same place in every version since 1.7: the part of its
 * ABI that extensions are compiled against (PyArrayObject_fields and PyArray_Descr of numpy's
 * ndarraytypes.h). With numpy's own headers every build would need numpy; that the fields are there
 * is checked when the bindings are imported. */
#ifndef WAGMA_NDARRAY_H
#define WAGMA_NDARRAY_H
#include <Python.h>

enum { NDARRAY_C_CONTIGUOUS = 0x0001, NDARRAY_WRITEABLE = 0x0400 };

typedef struct {
    PyObject object;
    PyObject *type;
    char kind;
    char character;
    char byteorder; /* '=': the machine's own */
    char reserved;
    int number;
} ndarray_dtype;

typedef struct {
    PyObject object;
    void *data;
    int ndim;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    PyObject *base;
    ndarray_dtype *dtype;
    int flags;
} ndarray;

#endif
