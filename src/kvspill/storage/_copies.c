/* Threads that copy pieces of entries between an arena and memory of their own and never hold the GIL: with one
 * for each processor, waiting for it would take longer than copying a page. What has ended is told by a file
 * descriptor that becomes readable. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "_span.h"

/* Of these functions' arguments: what was built for others is not used. copies.py has the same. */
#define VERSION 3
#define HUGE_PAGE (2 << 20)
/* An entry under way. Of what Python owns, everything is held until it was collected. */
typedef struct job {
    struct job *next;
    span_t span;
    PyObject *owner;
    Py_buffer pages, log;
    const char *from; /* what is written, or NULL to read */
    Py_ssize_t samples, lanes, active;
    Py_ssize_t wrong;
    int verify;
    int64_t started, finished;
} job_t;

typedef struct {
    job_t *first, *last;
} list_t;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t work, ended;
    list_t waiting, done; /* waiting: pieces may be left to take, the oldest entry first */
    int fd, idle, alive, quit, started;
    char *landings; /* what is read lands here: each thread has its own piece of it */
    Py_ssize_t piece_bytes, page_bytes; /* a piece is one or more pages */
    Py_buffer arena, base;
} pool_t;

static void append(list_t *list, job_t *job)
{
    job->next = NULL;
    if (list->last)
        list->last->next = job;
    else
        list->first = job;
    list->last = job;
}

static void unlink_job(list_t *list, const job_t *job)
{
    job_t *before = NULL;
    for (job_t *at = list->first; at; before = at, at = at->next) {
        if (at != job)
            continue;
        if (before)
            before->next = at->next;
        else
            list->first = at->next;
        if (list->last == at)
            list->last = before;
        return;
    }
}

/* The oldest entry that one more thread may help with. One that was stopped before it began is also taken, so
 * that it ends. */
static job_t *takeable(const pool_t *pool)
{
    job_t *job = pool->waiting.first;
    while (job && job->active >= job->lanes)
        job = job->next;
    return job;
}

/* Where an entry's byte at offset lies, and how many of the next nbytes lie behind it. */
static char *place(const pool_t *pool, const job_t *job, Py_ssize_t offset, Py_ssize_t nbytes, Py_ssize_t *there)
{
    const int64_t *page = (const int64_t *)job->pages.buf + offset / pool->page_bytes;
    Py_ssize_t pages = 1;
    while (pages * pool->page_bytes < nbytes && page[pages] == page[0] + pages)
        pages++;
    *there = pages * pool->page_bytes < nbytes ? pages * pool->page_bytes : nbytes;
    return (char *)pool->arena.buf + page[0] * pool->page_bytes;
}

/* Blocks of an entry, made of a sample. Past the caches where that is possible: no line is fetched only to be
 * overwritten, and what others have in the caches stays there. */
static void write_blocks(const span_t *s, char *here, const char *sample, Py_ssize_t offset, Py_ssize_t nbytes)
{
#ifdef __SSE2__
    Py_ssize_t block = offset / BLOCK;
    for (Py_ssize_t at = 0; at < nbytes; at += BLOCK, block++) {
        __m128i *to = (__m128i *)(here + at);
        const __m128i *from = (const __m128i *)(sample + at);
        _mm_stream_si128(to, _mm_set_epi64x((int64_t)second_word(s, block), (int64_t)s->key_hash));
        for (size_t i = 1; i < BLOCK / sizeof *to; i++)
            _mm_stream_si128(to + i, _mm_load_si128(from + i));
    }
    _mm_sfence();
#else
    memcpy(here, sample, nbytes);
    stamp(s, here, offset, nbytes);
#endif
}

static void carry(const pool_t *pool, job_t *job, char *landing)
{
    const span_t *s = &job->span;
    Py_ssize_t piece;
    while ((piece = take_piece(s)) >= 0) {
        Py_ssize_t nbytes = piece_length(s, piece), offset = piece * s->piece_bytes, length;
        const char *sample = job->from ? job->from + piece % job->samples * s->piece_bytes : NULL;
        int64_t start = begin_piece(s, piece);
        for (Py_ssize_t at = 0; at < nbytes; at += length) {
            char *here = place(pool, job, offset + at, nbytes - at, &length);
            if (sample)
                write_blocks(s, here, sample + at, offset + at, length);
            else
                memcpy(landing + at, here, length);
        }
        int64_t end = now_ns();
        int wrong = 0;
        if (!sample && job->verify != VERIFY_OFF)
            wrong = !matches(s, landing, offset, nbytes, job->verify, &pool->base);
        /* A length below zero: copied, but not what was written. */
        note_piece(s, piece, start, end, wrong ? -nbytes : nbytes);
        if (wrong)
            __atomic_fetch_add(&job->wrong, 1, __ATOMIC_RELAXED);
    }
}

static void *work(void *given)
{
    pool_t *pool = given;
    pthread_mutex_lock(&pool->lock);
    char *landing = pool->landings + pool->started++ * pool->piece_bytes;
    pthread_mutex_unlock(&pool->lock);
    /* Touched here: it lies near this thread then, and no copy waits for it. */
    memset(landing, 0, pool->piece_bytes);
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        job_t *job = takeable(pool);
        if (!job && pool->quit)
            break;
        if (!job) {
            pool->idle++;
            pthread_cond_wait(&pool->work, &pool->lock);
            pool->idle--;
            continue;
        }
        if (job->active++ == 0 && !job->started)
            job->started = now_ns();
        /* Each thread wakes the next one, so that who submits pays for one only. */
        if (pool->idle && takeable(pool))
            pthread_cond_signal(&pool->work);
        pthread_mutex_unlock(&pool->lock);
        carry(pool, job, landing);
        pthread_mutex_lock(&pool->lock);
        unlink_job(&pool->waiting, job);
        if (--job->active)
            continue;
        job->finished = now_ns();
        int first = pool->done.first == NULL;
        append(&pool->done, job);
        if (!first)
            continue;
        pthread_mutex_unlock(&pool->lock);
        uint64_t one = 1;
        ssize_t told = write(pool->fd, &one, sizeof one);
        (void)told; /* it can't be full: one is told at a time */
        pthread_mutex_lock(&pool->lock);
    }
    pool->alive--;
    pthread_cond_broadcast(&pool->ended);
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void forget(job_t *job)
{
    PyBuffer_Release(&job->pages);
    PyBuffer_Release(&job->log);
    Py_XDECREF(job->owner);
    PyMem_RawFree(job);
}

static void forget_all(job_t *first)
{
    for (job_t *job = first, *next; job; job = next)
        next = job->next, forget(job);
}

typedef struct {
    PyObject_HEAD pool_t *pool;
} Pool;

static int start_threads(pool_t *pool, int threads)
{
    const size_t nbytes = (size_t)threads * pool->piece_bytes;
    if (threads < 1 || posix_memalign((void **)&pool->landings, HUGE_PAGE, nbytes) != 0)
        return 0;
    madvise(pool->landings, nbytes, MADV_HUGEPAGE);
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int failed = 0;
    for (int i = 0; i < threads && !failed; i++) {
        pthread_t thread;
        pool->alive++;
        failed = pthread_create(&thread, &detached, work, pool);
        pool->alive -= failed != 0;
    }
    pthread_attr_destroy(&detached);
    return pool->alive > 0;
}

static int Pool_init(Pool *self, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    int threads;
    pool_t *pool = PyMem_RawCalloc(1, sizeof *pool);
    if (!pool)
        return PyErr_NoMemory(), -1;
    if (!PyArg_ParseTuple(args, "innw*y*", &threads, &pool->piece_bytes, &pool->page_bytes, &pool->arena,
                          &pool->base)) {
        PyMem_RawFree(pool);
        return -1;
    }
    self->pool = pool;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->ended, NULL);
    pool->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_lock(&pool->lock);
    int ok = pool->fd >= 0 && pool->page_bytes > 0 && pool->page_bytes % BLOCK == 0;
    ok = ok && pool->piece_bytes > 0 && pool->piece_bytes % pool->page_bytes == 0;
    ok = ok && (uintptr_t)pool->arena.buf % BLOCK == 0 && (uintptr_t)pool->base.buf % BLOCK == 0;
    ok = ok && start_threads(pool, threads);
    pthread_mutex_unlock(&pool->lock);
    if (!ok)
        PyErr_SetString(PyExc_OSError, "no threads could be started that copy memory");
    return ok ? 0 : -1;
}

static PyObject *Pool_fileno(Pool *self, PyObject *none)
{
    (void)none;
    return PyLong_FromLong(self->pool->fd);
}

/* An entry as Python describes it; NULL with the reason set where its parts do not fit together. */
static job_t *new_job(const pool_t *pool, PyObject *row)
{
    Py_ssize_t offset;
    int write;
    job_t *job = PyMem_RawCalloc(1, sizeof *job);
    if (!job)
        return (job_t *)PyErr_NoMemory();
    span_t *s = &job->span;
    if (!PyArg_ParseTuple(row, "Opnny*w*nnnKKi", &job->owner, &write, &offset, &job->samples, &job->pages,
                          &job->log, &job->lanes, &s->total_bytes, &s->checked_blocks, &s->key_hash,
                          &s->generation, &job->verify)) {
        PyMem_RawFree(job);
        return NULL;
    }
    Py_INCREF(job->owner);
    s->log = job->log.buf, s->piece_bytes = pool->piece_bytes;
    s->pieces = (s->total_bytes + s->piece_bytes - 1) / s->piece_bytes;
    job->from = write ? (const char *)pool->base.buf + offset : NULL;
    const Py_ssize_t pages = s->total_bytes / pool->page_bytes + (s->total_bytes % pool->page_bytes != 0);
    int ok = s->total_bytes >= 0 && s->total_bytes % BLOCK == 0 && offset % BLOCK == 0;
    ok = ok && job->log.len >= (s->pieces + 1) * 24 && job->pages.len >= pages * 8;
    if (ok && write)
        ok = job->samples > 0 && offset >= 0 && offset + job->samples * s->piece_bytes <= pool->base.len;
    for (Py_ssize_t i = 0; ok && i < pages; i++) {
        int64_t page = ((const int64_t *)job->pages.buf)[i];
        ok = page >= 0 && page < pool->arena.len / pool->page_bytes;
    }
    if (ok && job->lanes > 0 && !pool->quit)
        return job;
    forget(job);
    PyErr_SetString(PyExc_ValueError, "pages, log and samples do not fit together");
    return NULL;
}

/* A batch is one turn with the lock, and wakes one thread at most: each thread wakes the next. */
static PyObject *Pool_submit(Pool *self, PyObject *rows)
{
    pool_t *pool = self->pool;
    if (!PyList_Check(rows))
        return PyErr_Format(PyExc_TypeError, "a list of entries is needed, not %s", Py_TYPE(rows)->tp_name);
    list_t batch = {NULL, NULL};
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(rows); i++) {
        job_t *job = new_job(pool, PyList_GET_ITEM(rows, i));
        if (!job) {
            forget_all(batch.first);
            return NULL;
        }
        append(&batch, job);
    }
    if (!batch.first)
        Py_RETURN_NONE;
    pthread_mutex_lock(&pool->lock);
    if (pool->waiting.last)
        pool->waiting.last->next = batch.first;
    else
        pool->waiting.first = batch.first;
    pool->waiting.last = batch.last;
    int wakes = pool->idle;
    pthread_mutex_unlock(&pool->lock);
    if (wakes)
        pthread_cond_signal(&pool->work);
    Py_RETURN_NONE;
}

static PyObject *Pool_collect(Pool *self, PyObject *none)
{
    (void)none;
    pool_t *pool = self->pool;
    uint64_t told;
    PyObject *found = PyList_New(0);
    if (!found)
        return NULL;
    /* First the descriptor: what ends from here on makes it readable again. */
    int nothing = read(pool->fd, &told, sizeof told) < 0;
    (void)nothing;
    pthread_mutex_lock(&pool->lock);
    job_t *job = pool->done.first;
    pool->done = (list_t){NULL, NULL};
    pthread_mutex_unlock(&pool->lock);
    int failed = 0;
    while (job) {
        job_t *next = job->next;
        PyObject *row = Py_BuildValue("OLLn", job->owner, (long long)job->started, (long long)job->finished,
                                      job->wrong);
        failed |= !row || PyList_Append(found, row) < 0;
        Py_XDECREF(row);
        forget(job);
        job = next;
    }
    if (failed)
        Py_CLEAR(found);
    return found;
}

static PyObject *Pool_close(Pool *self, PyObject *args)
{
    double seconds;
    pool_t *pool = self->pool;
    if (!PyArg_ParseTuple(args, "d", &seconds))
        return NULL;
    int left;
    Py_BEGIN_ALLOW_THREADS
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t at = until.tv_sec * 1000000000LL + until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec = at / 1000000000, until.tv_nsec = at % 1000000000;
    pthread_mutex_lock(&pool->lock);
    pool->quit = 1;
    pthread_cond_broadcast(&pool->work);
    while (pool->alive && pthread_cond_timedwait(&pool->ended, &pool->lock, &until) == 0)
        ;
    left = pool->alive;
    pthread_mutex_unlock(&pool->lock);
    Py_END_ALLOW_THREADS
    if (!left) {
        PyBuffer_Release(&pool->arena);
        PyBuffer_Release(&pool->base);
    }
    return PyLong_FromLong(left);
}

static void Pool_dealloc(Pool *self)
{
    PyTypeObject *type = Py_TYPE(self);
    pool_t *pool = self->pool;
    /* A thread that did not end still uses all of it. */
    if (pool && !pool->alive) {
        PyBuffer_Release(&pool->arena);
        PyBuffer_Release(&pool->base);
        forget_all(pool->done.first);
        free(pool->landings);
        close(pool->fd);
        PyMem_RawFree(pool);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"fileno", (PyCFunction)Pool_fileno, METH_NOARGS, "A descriptor that is readable when something has ended."},
    {"submit", (PyCFunction)Pool_submit, METH_O, "Copy the pieces of a list of entries between arena and memory."},
    {"collect", (PyCFunction)Pool_collect, METH_NOARGS, "What has ended: (owner, started_ns, finished_ns, wrong)."},
    {"close", (PyCFunction)Pool_close, METH_VARARGS, "End the threads; returns how many did not in time."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_init, Pool_init}, {Py_tp_dealloc, Pool_dealloc}, {Py_tp_methods, methods}, {0, NULL}};

static PyType_Spec spec = {
    .name = "kvspill.storage._copies.Pool",
    .basicsize = sizeof(Pool),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = type_slots,
};

static int add_names(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    if (!type || PyModule_AddObjectRef(module, "Pool", type) < 0) {
        Py_XDECREF(type);
        return -1;
    }
    Py_DECREF(type);
    return PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_names}, {0, NULL}};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "kvspill.storage._copies", .m_slots = slots};

PyMODINIT_FUNC PyInit__copies(void) { return PyModuleDef_Init(&module); }
