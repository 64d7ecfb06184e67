/* Moves pieces of an entry between memory and a file without holding the GIL, and takes the time of each
 * system call right beside it: after the call a Python thread would first wait for the GIL. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

#include "_span.h"

/* Of these functions' arguments: what was built for others is not used. fastio.py has the same. */
#define VERSION 2
#define MAX_BUFFERS 1024
#define BUSY_MAX 100
#define BUSY_NAP_NS 1000000

enum { EXHAUSTED = 0, MORE = 1, FAILED = 2, SHORT = 3, MISMATCH = 4 };

static int span_ok(span_t *s, const Py_buffer *log, const Py_buffer *memory)
{
    s->log = log->buf;
    s->pieces = s->piece_bytes > 0 ? (s->total_bytes + s->piece_bytes - 1) / s->piece_bytes : -1;
    if (s->pieces < 0 || s->piece_bytes % BLOCK || log->len < (s->pieces + 1) * 24 ||
        memory->len < (s->total_bytes < s->piece_bytes ? s->total_bytes : s->piece_bytes)) {
        PyErr_SetString(PyExc_ValueError, "log, memory and piece size do not fit together");
        return 0;
    }
    return 1;
}

static void count_resumed(const span_t *s) { __atomic_fetch_add(&s->log[2], 1, __ATOMIC_RELAXED); }

/* Moves a piece: a short answer is resumed for as long as bytes move, and a busy kernel is asked again for
 * a while. Returns bytes moved or a negative errno. */
static Py_ssize_t call(const span_t *s, int fd, int write, char *memory, Py_ssize_t nbytes, off_t offset)
{
    Py_ssize_t moved = 0;
    int busy = 0;
    while (moved < nbytes) {
        ssize_t n = write ? pwrite(fd, memory + moved, nbytes - moved, offset + moved)
                          : pread(fd, memory + moved, nbytes - moved, offset + moved);
        if (n == 0)
            break;
        if (n < 0) {
            if (errno == EINTR)
                continue;
            /* Direct I/O stopped between two blocks, as at the end of a file: it can't be resumed there. */
            if (errno == EINVAL && moved > 0)
                break;
            if (errno != EAGAIN || ++busy >= BUSY_MAX)
                return -errno;
            struct timespec nap = {0, BUSY_NAP_NS};
            nanosleep(&nap, NULL);
            n = 0;
        }
        moved += n;
        if (moved < nbytes)
            count_resumed(s);
    }
    return moved;
}

static PyObject *transfer(PyObject *self, PyObject *args)
{
    (void)self;
    int fd, write, verify, status = MORE;
    Py_buffer memory, log, places, base;
    Py_ssize_t max_pieces, piece = -1, result = 0;
    span_t s;
    if (!PyArg_ParseTuple(args, "ipw*w*y*nnnKKiy*n", &fd, &write, &memory, &log, &places, &s.piece_bytes,
                          &s.total_bytes, &s.checked_blocks, &s.key_hash, &s.generation, &verify, &base,
                          &max_pieces))
        return NULL;
    int ok = span_ok(&s, &log, &memory);
    /* Where each piece lies in the file; without them one lies behind the other from its beginning. */
    const int64_t *place = places.len ? places.buf : NULL;
    if (ok && place && places.len < s.pieces * 8)
        ok = 0, PyErr_SetString(PyExc_ValueError, "fewer places than pieces");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t done = 0; status == MORE && (max_pieces <= 0 || done < max_pieces); done++) {
            if ((piece = take_piece(&s)) < 0) {
                status = EXHAUSTED;
                break;
            }
            Py_ssize_t nbytes = piece_length(&s, piece), offset = piece * s.piece_bytes;
            if (write)
                stamp(&s, memory.buf, offset, nbytes);
            int64_t start = begin_piece(&s, piece);
            result = call(&s, fd, write, memory.buf, nbytes, place ? place[piece] : offset);
            int64_t end = now_ns();
            if (result < 0)
                status = FAILED;
            else if (result < nbytes)
                status = SHORT;
            else {
                note_piece(&s, piece, start, end, nbytes);
                if (!write && verify != VERIFY_OFF && !matches(&s, memory.buf, offset, nbytes, verify, &base))
                    status = MISMATCH;
            }
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&memory);
    PyBuffer_Release(&log);
    PyBuffer_Release(&places);
    PyBuffer_Release(&base);
    return ok ? Py_BuildValue("inn", status, piece, result < 0 ? -result : result) : NULL;
}

static PyObject *holds(PyObject *self, PyObject *args)
{
    (void)self;
    int verify, held = 0;
    Py_buffer memory, base;
    Py_ssize_t offset, nbytes;
    span_t s = {0};
    if (!PyArg_ParseTuple(args, "y*nnnKKiy*", &memory, &offset, &nbytes, &s.checked_blocks, &s.key_hash,
                          &s.generation, &verify, &base))
        return NULL;
    int ok = offset >= 0 && offset % BLOCK == 0 && nbytes >= 0 && nbytes <= memory.len &&
             (nbytes % BLOCK == 0 || nbytes % BLOCK >= STAMP_BYTES);
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        held = matches(&s, memory.buf, offset, nbytes, verify, &base);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "memory, offset and length do not fit together");
    }
    PyBuffer_Release(&memory);
    PyBuffer_Release(&base);
    return ok ? PyBool_FromLong(held) : NULL;
}

static PyObject *pwritev_timed(PyObject *self, PyObject *args)
{
    (void)self;
    int fd;
    long long offset;
    PyObject *sequence;
    if (!PyArg_ParseTuple(args, "iOL", &fd, &sequence, &offset))
        return NULL;
    PyObject *fast = PySequence_Fast(sequence, "buffers must be a sequence");
    if (!fast)
        return NULL;
    Py_buffer views[MAX_BUFFERS];
    struct iovec vectors[MAX_BUFFERS];
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fast), held = 0;
    int ok = count <= MAX_BUFFERS;
    if (!ok)
        PyErr_Format(PyExc_ValueError, "at most %d buffers, not %zd", MAX_BUFFERS, count);
    for (; ok && held < count; held++) {
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(fast, held), &views[held], PyBUF_SIMPLE) < 0)
            break;
        vectors[held].iov_base = views[held].buf;
        vectors[held].iov_len = views[held].len;
    }
    int64_t start = 0, end = 0;
    ssize_t n = 0;
    ok = ok && held == count;
    if (ok) {
        int error = 0;
        Py_BEGIN_ALLOW_THREADS
        start = now_ns();
        do
            n = pwritev(fd, vectors, (int)count, offset);
        while (n < 0 && errno == EINTR);
        error = errno;
        end = now_ns();
        Py_END_ALLOW_THREADS
        if (n < 0)
            n = -error;
    }
    while (held > 0)
        PyBuffer_Release(&views[--held]);
    Py_DECREF(fast);
    return ok ? Py_BuildValue("nLL", (Py_ssize_t)n, (long long)start, (long long)end) : NULL;
}

static PyMethodDef methods[] = {
    {"transfer", transfer, METH_VARARGS, "Move an entry's next pieces between memory and a file."},
    {"holds", holds, METH_VARARGS, "Whether memory holds an entry's bytes at an offset."},
    {"pwritev_timed", pwritev_timed, METH_VARARGS, "pwritev; returns (bytes or -errno, start_ns, end_ns)."},
    {NULL, NULL, 0, NULL},
};

static int add_version(PyObject *self) { return PyModule_AddIntConstant(self, "VERSION", VERSION); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_version}, {0, NULL}};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "kvspill.storage._fastio",
                                    .m_methods = methods,
                                    .m_slots = slots};

PyMODINIT_FUNC PyInit__fastio(void) { return PyModuleDef_Init(&module); }
