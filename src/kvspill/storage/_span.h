/* What the compiled helpers know of an entry's pieces: which is next, how blocks are stamped and checked, and
 * the log that every piece's time is noted in. */
#ifndef KVSPILL_SPAN_H
#define KVSPILL_SPAN_H
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define BLOCK 4096
#define STAMP_BYTES 24

enum { VERIFY_OFF = 0, VERIFY_STAMP = 1, VERIFY_FULL = 2 };

/* The log's first row is shared by all lanes: next piece, stop flag, resumed calls. The rest is one row a
 * piece. */
typedef struct {
    int64_t *log;
    Py_ssize_t pieces, piece_bytes, total_bytes, checked_blocks;
    uint64_t key_hash, generation;
} span_t;

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline uint64_t second_word(const span_t *s, Py_ssize_t block)
{
    return (s->generation << 32) | (uint64_t)block;
}

static inline void stamp(const span_t *s, char *memory, Py_ssize_t offset, Py_ssize_t nbytes)
{
    Py_ssize_t block = offset / BLOCK;
    for (Py_ssize_t at = 0; at < nbytes; at += BLOCK, block++) {
        uint64_t words[2] = {s->key_hash, second_word(s, block)};
        memcpy(memory + at, words, sizeof words);
    }
}

/* Blocks beyond the logical end are padding and may hold anything. */
static inline int matches(const span_t *s, const char *memory, Py_ssize_t offset, Py_ssize_t nbytes, int verify,
                   const Py_buffer *base)
{
    Py_ssize_t block = offset / BLOCK;
    for (Py_ssize_t at = 0; at < nbytes && block < s->checked_blocks; at += BLOCK, block++) {
        uint64_t words[3];
        memcpy(words, memory + at, sizeof words);
        if (words[0] != s->key_hash || words[1] != second_word(s, block))
            return 0;
        if (verify == VERIFY_FULL) {
            Py_ssize_t length = nbytes - at < BLOCK ? nbytes - at : BLOCK;
            if (words[2] >= (uint64_t)(base->len / BLOCK))
                return 0;
            const char *pristine = (const char *)base->buf + words[2] * BLOCK;
            if (memcmp(memory + at + STAMP_BYTES, pristine + STAMP_BYTES, length - STAMP_BYTES) != 0)
                return 0;
        }
    }
    return 1;
}

static inline Py_ssize_t take_piece(const span_t *s)
{
    if (__atomic_load_n(&s->log[1], __ATOMIC_RELAXED))
        return -1;
    Py_ssize_t piece = (Py_ssize_t)__atomic_fetch_add(&s->log[0], 1, __ATOMIC_RELAXED);
    return piece < s->pieces ? piece : -1;
}

/* A piece that has begun and not ended is in flight: a look for hung calls finds it here. */
static inline int64_t begin_piece(const span_t *s, Py_ssize_t piece)
{
    int64_t start = now_ns();
    __atomic_store_n(&s->log[3 * (piece + 1)], start, __ATOMIC_RELAXED);
    return start;
}

static inline void note_piece(const span_t *s, Py_ssize_t piece, int64_t start, int64_t end, Py_ssize_t nbytes)
{
    int64_t *row = s->log + 3 * (piece + 1);
    row[0] = start;
    row[1] = end;
    row[2] = nbytes;
}

static inline Py_ssize_t piece_length(const span_t *s, Py_ssize_t piece)
{
    Py_ssize_t left = s->total_bytes - piece * s->piece_bytes;
    return left < s->piece_bytes ? left : s->piece_bytes;
}

#endif
