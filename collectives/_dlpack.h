/* DLPack 1.x as far as the bindings need it: how a library tells another one in C where a tensor
 * is, https://dmlc.github.io/dlpack/latest/c_api.html */
#ifndef WAGMA_DLPACK_H
#define WAGMA_DLPACK_H
#include <stdint.h>

enum { DLPACK_MAJOR = 1, DLPACK_CPU = 1 };

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
} dlpack_exchange;

#endif
