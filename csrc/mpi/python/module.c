/* The extension module wagma.collectives._mpi_mpich or ._mpi_openmpi, named after the family of the
 * MPI that it is compiled with: builds for both lie in one folder. See collectives/transport.py. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <unistd.h>

#include "include/wagma_mpi.h"
#include "mpi/transport.h"

/* Name of a capsule that owns its transport. A caller that passes the transport to
 * wagma_create_over() renames the capsule before. */
#define OWNED "wagma_transport"

/* A forked child has a copy of the capsule, but no MPI. */
static void close_unused(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, OWNED) &&
        (intptr_t)PyCapsule_GetContext(capsule) == (intptr_t)getpid()) {
        wagma_transport *t = PyCapsule_GetPointer(capsule, OWNED);
        t->calls->close(t, 0);
    }
}

static PyObject *create(PyObject *self, PyObject *argument) {
    (void)self;
    wagma_transport *transport = NULL;
    int status;
    long handle = PyLong_AsLong(argument);
    if (handle == -1 && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = wagma_mpi_transport(MPI_Comm_f2c((MPI_Fint)handle), &transport);
    Py_END_ALLOW_THREADS;
    if (status != WAGMA_OK) {
        PyErr_SetString(status == WAGMA_ENOMEM ? PyExc_MemoryError : PyExc_RuntimeError,
                        wagma_mpi_last_error());
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(transport, OWNED, close_unused);
    if (!capsule)
        transport->calls->close(transport, 0);
    else
        PyCapsule_SetContext(capsule, (void *)(intptr_t)getpid());
    return capsule;
}

static PyObject *library_version(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    return PyUnicode_DecodeUTF8(version, length, "replace");
}

static PyObject *sizeof_comm(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyLong_FromSize_t(sizeof(MPI_Comm));
}

static PyObject *is_initialized(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    int initialized = 0;
    MPI_Initialized(&initialized);
    return PyBool_FromLong(initialized);
}

static PyMethodDef functions[] = {
    {"create", create, METH_O,
     "create(handle)\n--\n\nA capsule with a transport over the communicator of this Fortran "
     "handle. "
     "Collective."},
    {"library_version", library_version, METH_NOARGS,
     "library_version()\n--\n\nWhat the MPI library that this module is bound to says of itself."},
    {"sizeof_comm", sizeof_comm, METH_NOARGS,
     "sizeof_comm()\n--\n\nBytes of an MPI_Comm, as this module was compiled."},
    {"is_initialized", is_initialized, METH_NOARGS,
     "is_initialized()\n--\n\nWhether the MPI library that this module is bound to is running."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_mpi",
    .m_doc = "The transport over MPI (csrc/messages/transport.h), compiled with one MPI.",
    .m_size = -1,
    .m_methods = functions,
};

#ifdef OPEN_MPI
#define INIT PyInit__mpi_openmpi
#else
#define INIT PyInit__mpi_mpich
#endif

PyMODINIT_FUNC INIT(void); /* as the compiler wants a declaration */

PyMODINIT_FUNC INIT(void) {
    PyObject *module = PyModule_Create(&definition);
    PyObject *abi = module ? PyLong_FromUnsignedLongLong(TRANSPORT_ABI) : NULL;
    if (abi && PyModule_AddObjectRef(module, "TRANSPORT_ABI", abi) == 0) {
        Py_DECREF(abi);
        return module;
    }
    Py_XDECREF(abi);
    Py_XDECREF(module);
    return NULL;
}
