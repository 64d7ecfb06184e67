/* Replays a load against one cache: perfect foresight, or the policies fifo, lfu and s3-fifo of
 * kvspill.cache.policies, block by block.
 *
 * It decides exactly as kvspill.curve.replay does with the policies written in Python, some thirty times as fast.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_foresight.h"

#define NONE (-1)
#define USES_MAX 3
#define GHOSTS_MIN 16

/* A queue of blocks, linked through arrays that all queues share: a block is in one of them at a time. */
typedef struct {
    int64_t first, last, length;
} Queue;

typedef struct {
    int64_t *previous, *next;
} Links;

static const Queue EMPTY = {NONE, NONE, 0};

static void append(Queue *queue, Links links, int64_t block)
{
    links.previous[block] = queue->last;
    links.next[block] = NONE;
    if (queue->last == NONE)
        queue->first = block;
    else
        links.next[queue->last] = block;
    queue->last = block;
    queue->length++;
}

static void take(Queue *queue, Links links, int64_t block)
{
    int64_t before = links.previous[block], after = links.next[block];

    if (before == NONE)
        queue->first = after;
    else
        links.next[before] = after;
    if (after == NONE)
        queue->last = before;
    else
        links.previous[after] = before;
    queue->length--;
}

enum { FIFO, LFU, S3_FIFO, OPTIMUM };
/* Where a block is; only s3-fifo remembers those that are gone. */
enum { AWAY = 0, SMALL, MAIN, GHOST };

typedef struct {
    int policy;
    const int64_t *sizes;
    int64_t capacity, used, resident;
    Links links;
    uint8_t *place;
    int64_t *uses;
    Queue small, main, ghost; /* fifo has the small one alone */
    int64_t small_bytes, small_limit;
    Queue *by_uses; /* lfu: the blocks of each number of uses, the coldest first */
    int64_t uses_limit, fewest;
} Cache;

static void touch(Cache *cache, int64_t block)
{
    if (cache->policy == S3_FIFO) {
        if (cache->uses[block] < USES_MAX)
            cache->uses[block]++;
    } else if (cache->policy == LFU) {
        take(&cache->by_uses[cache->uses[block]], cache->links, block);
        cache->uses[block]++;
        append(&cache->by_uses[cache->uses[block]], cache->links, block);
    }
}

static void insert(Cache *cache, int64_t block)
{
    int64_t size = cache->sizes[block];

    if (cache->policy == LFU) {
        cache->uses[block] = cache->fewest = 1;
        append(&cache->by_uses[1], cache->links, block);
        cache->place[block] = MAIN;
    } else if (cache->place[block] == GHOST) {
        take(&cache->ghost, cache->links, block);
        append(&cache->main, cache->links, block);
        cache->uses[block] = 0;
        cache->place[block] = MAIN;
    } else {
        append(&cache->small, cache->links, block);
        cache->uses[block] = 0;
        cache->place[block] = SMALL;
        cache->small_bytes += size;
    }
    cache->resident++;
    cache->used += size;
}

/* Used blocks of the small queue go over to main while it is searched. */
static int64_t small_victim(Cache *cache)
{
    int64_t block;

    while ((block = cache->small.first) != NONE && cache->uses[block]) {
        take(&cache->small, cache->links, block);
        cache->small_bytes -= cache->sizes[block];
        append(&cache->main, cache->links, block);
        cache->place[block] = MAIN;
        cache->uses[block] = 0;
    }
    return block;
}

/* A used block goes back to the end with one use less. */
static int64_t main_victim(Cache *cache)
{
    int64_t block;

    while ((block = cache->main.first) != NONE && cache->uses[block]) {
        cache->uses[block]--;
        take(&cache->main, cache->links, block);
        append(&cache->main, cache->links, block);
    }
    return block;
}

static int64_t victim(Cache *cache)
{
    int64_t block = NONE;

    if (cache->policy == FIFO)
        return cache->small.first;
    if (cache->policy == LFU) {
        while (cache->fewest < cache->uses_limit && cache->by_uses[cache->fewest].first == NONE)
            cache->fewest++;
        return cache->by_uses[cache->fewest].first;
    }
    if (cache->small_bytes <= cache->small_limit && cache->main.first != NONE)
        block = main_victim(cache);
    if (block == NONE)
        block = small_victim(cache);
    return block == NONE ? main_victim(cache) : block;
}

static void evict(Cache *cache, int64_t block)
{
    int64_t ghosts;

    cache->resident--;
    cache->used -= cache->sizes[block];
    if (cache->policy == LFU) {
        take(&cache->by_uses[cache->uses[block]], cache->links, block);
        cache->place[block] = AWAY;
        return;
    }
    if (cache->place[block] == MAIN) {
        take(&cache->main, cache->links, block);
        cache->place[block] = AWAY;
        return;
    }
    take(&cache->small, cache->links, block);
    cache->small_bytes -= cache->sizes[block];
    cache->place[block] = AWAY;
    if (cache->policy == FIFO)
        return;
    append(&cache->ghost, cache->links, block);
    cache->place[block] = GHOST;
    /* The ghost remembers about as many blocks as the cache holds. */
    ghosts = cache->resident > GHOSTS_MIN ? cache->resident : GHOSTS_MIN;
    while (cache->ghost.length > ghosts) {
        int64_t oldest = cache->ghost.first;
        take(&cache->ghost, cache->links, oldest);
        cache->place[oldest] = AWAY;
    }
}

static int is_resident(const Cache *cache, int64_t block)
{
    return cache->place[block] == SMALL || cache->place[block] == MAIN;
}

static void replay(Cache *cache, const int32_t *numbers, const int64_t *ends, Py_ssize_t requests, char *found)
{
    int64_t at = 0;

    for (Py_ssize_t request = 0; request < requests; request++) {
        for (; at < ends[request] && is_resident(cache, numbers[at]); at++) {
            touch(cache, numbers[at]);
            found[at] = 1;
        }
        for (; at < ends[request]; at++) {
            int64_t block = numbers[at], size = cache->sizes[block], gone;

            if (is_resident(cache, block) || size > cache->capacity)
                continue;
            while (cache->used + size > cache->capacity && (gone = victim(cache)) != NONE)
                evict(cache, gone);
            if (cache->used + size <= cache->capacity)
                insert(cache, block);
        }
    }
}

/* Whether the memory was there; `most` is the largest number of times that a block is asked for. */
static int allocate(Cache *cache, Py_ssize_t blocks, int64_t most)
{
    cache->links.previous = malloc(blocks * sizeof(int64_t));
    cache->links.next = malloc(blocks * sizeof(int64_t));
    cache->uses = calloc(blocks, sizeof(int64_t));
    cache->place = calloc(blocks, 1);
    cache->uses_limit = most + 1;
    cache->fewest = 1;
    cache->by_uses = malloc((most + 2) * sizeof(Queue));
    if (!cache->links.previous || !cache->links.next || !cache->uses || !cache->place || !cache->by_uses)
        return 0;
    for (int64_t uses = 0; uses < most + 2; uses++)
        cache->by_uses[uses] = EMPTY;
    cache->small = cache->main = cache->ghost = EMPTY;
    return 1;
}

static void release(Cache *cache)
{
    free(cache->links.previous);
    free(cache->links.next);
    free(cache->uses);
    free(cache->place);
    free(cache->by_uses);
}

/* The largest number of times that a block stands among the numbers; -1 where a number is none of a block. */
static int64_t most_uses(const int32_t *numbers, Py_ssize_t accesses, Py_ssize_t blocks)
{
    int64_t most = 0, *seen = calloc(blocks ? blocks : 1, sizeof(int64_t));

    for (Py_ssize_t at = 0; seen && at < accesses; at++) {
        if (numbers[at] < 0 || numbers[at] >= blocks) {
            most = -1;
            break;
        }
        if (++seen[numbers[at]] > most)
            most = seen[numbers[at]];
    }
    free(seen);
    return most;
}

static int policy_of(const char *name)
{
    if (!strcmp(name, "fifo"))
        return FIFO;
    if (!strcmp(name, "lfu"))
        return LFU;
    if (!strcmp(name, "optimum"))
        return OPTIMUM;
    return strcmp(name, "s3-fifo") ? NONE : S3_FIFO;
}

static PyObject *py_replay(PyObject *self, PyObject *args)
{
    const char *name;
    Py_buffer numbers, sizes, ends;
    long long capacity, small_limit;
    PyObject *found = NULL;

    (void)self;
    if (!PyArg_ParseTuple(args, "sy*y*y*LL", &name, &numbers, &sizes, &ends, &capacity, &small_limit))
        return NULL;
    Py_ssize_t accesses = numbers.len / 4, blocks = sizes.len / 8, requests = ends.len / 8;
    const int64_t *last = (const int64_t *)ends.buf + requests - 1;
    Cache cache = {.policy = policy_of(name), .sizes = sizes.buf, .capacity = capacity, .small_limit = small_limit};
    int64_t most = most_uses(numbers.buf, accesses, blocks);

    int made = 1;

    if (cache.policy == NONE || most < 0 || accesses > INT32_MAX || (requests && *last != accesses)) {
        PyErr_SetString(PyExc_ValueError, "no such policy, or a load whose parts do not fit each other");
    } else if (cache.policy != OPTIMUM && !allocate(&cache, blocks ? blocks : 1, most)) {
        PyErr_NoMemory();
    } else if ((found = PyBytes_FromStringAndSize(NULL, accesses)) != NULL) {
        char *marks = PyBytes_AS_STRING(found);
        Py_BEGIN_ALLOW_THREADS
        memset(marks, 0, accesses);
        if (cache.policy == OPTIMUM)
            made = foresee(numbers.buf, accesses, sizes.buf, blocks, capacity, marks);
        else
            replay(&cache, numbers.buf, ends.buf, requests, marks);
        Py_END_ALLOW_THREADS
        if (!made) {
            Py_CLEAR(found);
            PyErr_NoMemory();
        }
    }
    release(&cache);
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&ends);
    return found;
}

static PyMethodDef methods[] = {
    {"replay", py_replay, METH_VARARGS,
     "replay(policy, numbers, sizes, ends, capacity_bytes, small_limit_bytes): a byte for each access, 1 where found"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_replay", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__replay(void)
{
    PyObject *made = PyModule_Create(&module);

    if (made && PyModule_AddIntConstant(made, "VERSION", 2) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
