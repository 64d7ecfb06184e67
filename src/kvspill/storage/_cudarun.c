/* Runs a list of GPU driver calls without holding the GIL: between two calls from Python another thread may
 * take it, and the time between two events would then include the wait to get it back. The driver's functions
 * are given by address, so that neither its headers nor its library are needed to build this. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

/* Of the commands below: what was built for others is not used. program.py has the same, in this order. */
#define VERSION 2
#define COLUMNS 11
#define ARGUMENTS 5
#define BLOCK 4096

enum {
    BIND,
    RECORD,
    WAIT,
    COPY_IN,
    COPY_OUT,
    STAMPS_IN,
    STAMPS_OUT,
    LAUNCH,
    ELAPSED,
    NOW,
    MAKE_STAMPS,
    CHECK_STAMPS,
    COMMANDS
};
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2 };

/* The driver's CUDA_MEMCPY2D. */
typedef struct {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    uint64_t src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    int dst_type;
    void *dst_host;
    uint64_t dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width, height;
} copy_2d_t;

typedef int (*one_t)(void *);
typedef int (*two_t)(void *, void *);
typedef int (*copy_t)(uint64_t, uint64_t, size_t, void *);
typedef int (*copy_2d_fn)(const copy_2d_t *, void *);
typedef int (*elapsed_t)(float *, void *, void *);
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                        void **, void **);

static void *pointer(uint64_t address) { return (void *)(uintptr_t)address; }

static int stamps_in(copy_2d_fn copy, const uint64_t *c)
{
    copy_2d_t two = {.src_type = MEMORY_HOST, .dst_type = MEMORY_DEVICE};
    two.dst_device = c[1], two.dst_pitch = BLOCK;
    two.src_host = pointer(c[2]), two.src_pitch = two.width = c[3];
    two.height = c[4];
    return copy(&two, pointer(c[5]));
}

static int stamps_out(copy_2d_fn copy, const uint64_t *c)
{
    copy_2d_t two = {.src_type = MEMORY_DEVICE, .dst_type = MEMORY_HOST};
    two.dst_host = pointer(c[1]), two.dst_pitch = two.width = c[3];
    two.src_device = c[2], two.src_pitch = BLOCK;
    two.height = c[4];
    return copy(&two, pointer(c[5]));
}

/* A kernel takes as many of the arguments as it has. */
static int launch(launch_t start, uint64_t *c)
{
    void *arguments[ARGUMENTS];
    for (int i = 0; i < ARGUMENTS; i++)
        arguments[i] = c + COLUMNS - ARGUMENTS + i;
    return start(pointer(c[1]), (unsigned)c[2], (unsigned)c[3], 1, (unsigned)c[4], 1, 1, 0, pointer(c[5]),
                 arguments, NULL);
}

static void make_stamps(uint64_t *words, size_t stride, size_t rows, uint64_t key_hash, uint64_t second)
{
    for (size_t i = 0; i < rows; i++, words += stride)
        words[0] = key_hash, words[1] = second + i;
}

static uint64_t wrong_stamps(const uint64_t *words, size_t stride, size_t rows, uint64_t key_hash,
                             uint64_t second)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < rows; i++, words += stride)
        wrong += words[0] != key_hash || words[1] != second + i;
    return wrong;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* One command; its answer, where it has one, replaces the second column. */
static int execute(const uint64_t *f, uint64_t *c)
{
    float elapsed_ms = 0;
    int status = 0;
    switch (c[0]) {
    case BIND:
        return ((one_t)pointer(f[BIND]))(pointer(c[1]));
    case RECORD:
        return ((two_t)pointer(f[RECORD]))(pointer(c[1]), pointer(c[2]));
    case WAIT:
        return ((one_t)pointer(f[WAIT]))(pointer(c[1]));
    case COPY_IN:
    case COPY_OUT:
        return ((copy_t)pointer(f[c[0]]))(c[1], c[2], c[3], pointer(c[4]));
    case STAMPS_IN:
        return stamps_in((copy_2d_fn)pointer(f[STAMPS_IN]), c);
    case STAMPS_OUT:
        return stamps_out((copy_2d_fn)pointer(f[STAMPS_OUT]), c);
    case LAUNCH:
        return launch((launch_t)pointer(f[LAUNCH]), c);
    case ELAPSED:
        status = ((elapsed_t)pointer(f[ELAPSED]))(&elapsed_ms, pointer(c[1]), pointer(c[2]));
        c[1] = (uint64_t)(elapsed_ms * 1e6);
        return status;
    case NOW:
        c[1] = now_ns();
        return 0;
    case MAKE_STAMPS:
        make_stamps(pointer(c[1]), c[2] / 8, c[3], c[4], c[5]);
        return 0;
    default: /* CHECK_STAMPS */
        c[1] = wrong_stamps(pointer(c[1]), c[2] / 8, c[3], c[4], c[5]);
        return 0;
    }
}

static PyObject *run(PyObject *self, PyObject *args)
{
    (void)self;
    Py_buffer functions, program;
    if (!PyArg_ParseTuple(args, "y*w*", &functions, &program))
        return NULL;
    uint64_t *rows = program.buf;
    const Py_ssize_t count = program.len / (COLUMNS * 8);
    int ok = functions.len >= COMMANDS * 8 && program.len % (COLUMNS * 8) == 0, status = 0;
    for (Py_ssize_t i = 0; ok && i < count; i++)
        ok = rows[i * COLUMNS] < COMMANDS;
    Py_ssize_t at = 0;
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        for (; at < count && status == 0; at++)
            status = execute(functions.buf, rows + at * COLUMNS);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "not a program of GPU commands");
    }
    PyBuffer_Release(&functions);
    PyBuffer_Release(&program);
    return ok ? Py_BuildValue("in", status, at - 1) : NULL;
}

static PyMethodDef methods[] = {
    {"run", run, METH_VARARGS, "Run a program of GPU commands; returns (status, its row)."},
    {NULL, NULL, 0, NULL},
};

static int add_version(PyObject *self) { return PyModule_AddIntConstant(self, "VERSION", VERSION); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_version}, {0, NULL}};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "kvspill.storage._cudarun",
                                    .m_methods = methods,
                                    .m_slots = slots};

PyMODINIT_FUNC PyInit__cudarun(void) { return PyModuleDef_Init(&module); }
