/* DLPack 1.x as far as the bindings need it: how a library tells another one in C where a tensor
 * is, https://dmlc.github.io/dlpack/latest/c_api.html */
#ifndef WAGMA_DLPACK_H
#define WAGMA_DLPACK_H
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

enum { DLPACK_MAJOR = 1, DLPACK_CPU = 1, DLPACK_CUDA = 2 };
enum { DLPACK_READ_ONLY = 1 }; /* a flag */

typedef struct {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} dlpack_tensor;

/* In a capsule, an attribute of the tensors' type (since 1.3). */
typedef struct dlpack_exchange {
    uint32_t major, minor;
    struct dlpack_exchange *previous; /* of an older version */
    void *allocator;
    void *managed_from_object;
    void *managed_to_object;
    /* Lends the tensor: -1 with an exception of Python if it cannot. May be NULL. */
    int (*tensor_from_object)(void *object, dlpack_tensor *out);
    /* Gives the library's current stream on a device: 0, or -1 with an exception. */
    int (*current_stream)(int device_type, int32_t device_id, void **out);
} dlpack_exchange;

/* ---- export ---------------------------------------------------------------------------------- */

typedef struct dlpack_managed {
    dlpack_tensor tensor;
    void *owner;
    void (*deleter)(struct dlpack_managed *);
} dlpack_managed;

typedef struct dlpack_versioned {
    uint32_t major, minor;
    void *owner;
    void (*deleter)(struct dlpack_versioned *);
    uint64_t flags;
    dlpack_tensor tensor;
} dlpack_versioned;

/* A consumer may free a tensor in any thread. */
static inline void dlpack_release(void *owner) {
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(state);
}

static inline void dlpack_free_managed(dlpack_managed *m) {
    dlpack_release(m->owner);
    free(m);
}

static inline void dlpack_free_versioned(dlpack_versioned *m) {
    dlpack_release(m->owner);
    free(m);
}

/* Returns a managed tensor that keeps `owner`, without the extents of its shape; NULL: there is no
 * memory. */
static inline void *dlpack_export(PyObject *owner, void *data, int device, int code, int bits,
                                  int ndim, int versioned, int read_only) {
    const size_t size = versioned ? sizeof(dlpack_versioned) : sizeof(dlpack_managed);
    char *made = calloc(1, size + ((size_t)ndim + 1) * sizeof(int64_t));
    if (!made)
        return NULL;
    const dlpack_tensor tensor = {
        .data = data,
        .device_type = DLPACK_CUDA,
        .device_id = device,
        .ndim = ndim,
        .code = (uint8_t)code,
        .bits = (uint8_t)bits,
        .lanes = 1,
        .shape = (int64_t *)(void *)(made + size),
    };
    Py_INCREF(owner);
    if (versioned)
        *(dlpack_versioned *)(void *)made = (dlpack_versioned){
            DLPACK_MAJOR, 0, owner, dlpack_free_versioned, read_only ? DLPACK_READ_ONLY : 0,
            tensor};
    else
        *(dlpack_managed *)(void *)made = (dlpack_managed){tensor, owner, dlpack_free_managed};
    return made;
}

static inline int64_t *dlpack_shape(void *exported, int versioned) {
    return versioned ? ((dlpack_versioned *)exported)->tensor.shape
                     : ((dlpack_managed *)exported)->tensor.shape;
}

/* Frees the tensor of a capsule that no consumer has taken; those who do rename it. */
static inline void dlpack_drop(PyObject *capsule) {
    void *exported;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        exported = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        dlpack_free_versioned(exported);
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        exported = PyCapsule_GetPointer(capsule, "dltensor");
        dlpack_free_managed(exported);
    }
}

/* Returns a capsule that owns the tensor, or NULL with an exception, after freeing it. */
static inline PyObject *dlpack_capsule(void *exported, int versioned) {
    PyObject *made =
        PyCapsule_New(exported, versioned ? "dltensor_versioned" : "dltensor", dlpack_drop);
    if (made)
        return made;
    if (versioned)
        dlpack_free_versioned(exported);
    else
        dlpack_free_managed(exported);
    return NULL;
}

#endif
