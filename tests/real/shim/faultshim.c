/* Preloaded into a run: makes chosen system calls on files below one directory hang, wait, fail or move less.
 *
 * KVSPILL_SHIM_UNDER  the directory
 * KVSPILL_SHIM_AFTER  seconds after the start of the process before which nothing happens
 * KVSPILL_SHIM_WHEN   a file: nothing happens before it is there
 * KVSPILL_SHIM        verb:kind:share[:argument], several separated by commas; for example
 *                     read:fail:0.3:5 (EIO), write:delay:1:20 (milliseconds), read:hang:1, write:short:0.5;
 *                     path:hang:1 are the calls that look at a path or a descriptor: stat, statvfs, open, mkdir, the
 *                     list of a directory; thread:fail:1 lets no thread be started, wherever it works
 * KVSPILL_SHIM_NTH    the number of the one call that is affected, of those that a rule is for; without it all
 * KVSPILL_SHIM_COUNT  a file to which a byte is appended for each fault */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum verb { OPEN, READ, WRITE, SYNC, RENAME, UNLINK, ALLOCATE, PATH, CLOSE, THREAD, VERBS };
enum kind { NONE, HANG, DELAY, FAIL, SHORT };

static const char *const verb_names[VERBS] = {"open", "read", "write", "sync", "rename", "unlink", "allocate", "path", "close", "thread"};
static const char *const kind_names[] = {"none", "hang", "delay", "fail", "short"};
static struct { enum kind kind; double share; long argument; } rules[VERBS];
static const char *under, *when;
static size_t under_length;
static double after_seconds;
static struct timespec began;
static int count_fd = -1;
static uint64_t calls, nth, met;

static double elapsed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - began.tv_sec) + (double)(now.tv_nsec - began.tv_nsec) / 1e9;
}

static void parse(char *text)
{
    char *rest = NULL;
    for (char *rule = strtok_r(text, ",", &rest); rule; rule = strtok_r(NULL, ",", &rest)) {
        char verb[16] = "", kind[16] = "";
        double share = 1;
        long argument = 0;
        sscanf(rule, "%15[a-z]:%15[a-z]:%lf:%ld", verb, kind, &share, &argument);
        for (int v = 0; v < VERBS; v++)
            for (int k = HANG; k <= SHORT; k++)
                if (!strcmp(verb, verb_names[v]) && !strcmp(kind, kind_names[k])) {
                    rules[v].kind = k;
                    rules[v].share = share;
                    rules[v].argument = argument;
                }
    }
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("KVSPILL_SHIM"), *after = getenv("KVSPILL_SHIM_AFTER");
    const char *count = getenv("KVSPILL_SHIM_COUNT");
    if (getenv("KVSPILL_SHIM_TAKEN"))
        return; /* A child, such as the process that removes files: only the run itself is disturbed. */
    setenv("KVSPILL_SHIM_TAKEN", "1", 1);
    clock_gettime(CLOCK_MONOTONIC, &began);
    under = getenv("KVSPILL_SHIM_UNDER");
    when = getenv("KVSPILL_SHIM_WHEN");
    under_length = under ? strlen(under) : 0;
    after_seconds = after ? atof(after) : 0;
    nth = getenv("KVSPILL_SHIM_NTH") ? strtoull(getenv("KVSPILL_SHIM_NTH"), NULL, 10) : 0;
    if (count)
        count_fd = open(count, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (text) {
        char *copy = strdup(text);
        parse(copy);
        free(copy);
    }
}

/* A hash of the number of the call: as random as needed, without a lock. */
static double drawn(void)
{
    uint64_t x = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) * 0x9E3779B97F4A7C15ull;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 32;
    return (double)(x >> 11) / 9007199254740992.0;
}

/* The end of a directory is told from an error by errno alone: looking must not change it. */
static int is_armed(void)
{
    int before = errno, armed = !when || !euidaccess(when, F_OK);
    errno = before;
    return armed;
}

static int is_below(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    return length >= (ssize_t)under_length && under_length && !strncmp(path, under, under_length);
}

/* What is to happen to this call; a delay has been waited out already, a hang never comes back. */
static enum kind fate_below(enum verb verb, int below)
{
    if (!below || !is_armed() || elapsed() < after_seconds || drawn() >= rules[verb].share)
        return NONE;
    if (nth && __atomic_add_fetch(&met, 1, __ATOMIC_RELAXED) != nth)
        return NONE;
    if (count_fd >= 0 && write(count_fd, ".", 1) < 0)
        abort();
    if (rules[verb].kind == HANG)
        for (;;)
            pause();
    if (rules[verb].kind == DELAY) {
        struct timespec wait = {rules[verb].argument / 1000, rules[verb].argument % 1000 * 1000000};
        nanosleep(&wait, NULL);
        return NONE;
    }
    if (rules[verb].kind == FAIL)
        errno = rules[verb].argument ? (int)rules[verb].argument : EIO;
    return rules[verb].kind;
}

static enum kind fate(enum verb verb, int fd)
{
    return rules[verb].kind == NONE ? NONE : fate_below(verb, is_below(fd));
}

static enum kind fate_of_path(int folder, const char *path)
{
    if (rules[PATH].kind == NONE || !path)
        return NONE;
    if (path[0] != '/' && folder != AT_FDCWD)
        return fate_below(PATH, is_below(folder));
    char whole[8192] = "";
    if (path[0] != '/' && getcwd(whole, 4096))
        strcat(whole, "/");
    strncat(whole, path, 4095);
    return fate_below(PATH, under_length && !strncmp(whole, under, under_length));
}

static size_t less(size_t nbytes)
{
    return nbytes / 2 / 4096 * 4096;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define MOVER(name, verb, buffer)                                    \
    ssize_t name(int fd, buffer memory, size_t nbytes, off_t offset) \
    {                                                                \
        REAL(name);                                                  \
        enum kind kind = fate(verb, fd);                             \
        if (kind == FAIL)                                            \
            return -1;                                               \
        return real(fd, memory, kind == SHORT ? less(nbytes) : nbytes, offset); \
    }

MOVER(pread, READ, void *)
MOVER(pread64, READ, void *)
MOVER(pwrite, WRITE, const void *)
MOVER(pwrite64, WRITE, const void *)

/* Logs and results are written from where the file stands. */
ssize_t write(int fd, const void *memory, size_t nbytes)
{
    REAL(write);
    enum kind kind = fate(WRITE, fd);
    if (kind == FAIL)
        return -1;
    return real(fd, memory, kind == SHORT ? less(nbytes) : nbytes);
}

#define VECTOR(name, verb)                                                       \
    ssize_t name(int fd, const struct iovec *vectors, int count, off_t offset)   \
    {                                                                            \
        REAL(name);                                                              \
        enum kind kind = fate(verb, fd);                                         \
        if (kind == FAIL)                                                        \
            return -1;                                                           \
        struct iovec first = vectors[0];                                         \
        first.iov_len = less(first.iov_len);                                     \
        return kind == SHORT ? real(fd, &first, 1, offset) : real(fd, vectors, count, offset); \
    }

VECTOR(preadv, READ)
VECTOR(preadv64, READ)
VECTOR(pwritev, WRITE)
VECTOR(pwritev64, WRITE)

#define SYNCER(name)                                  \
    int name(int fd)                                  \
    {                                                 \
        REAL(name);                                   \
        return fate(SYNC, fd) == FAIL ? -1 : real(fd); \
    }

SYNCER(fsync)
SYNCER(fdatasync)

/* As the kernel does: what fails is closed all the same. */
int close(int fd)
{
    REAL(close);
    enum kind kind = fate(CLOSE, fd);
    int error = errno, closed = real(fd);
    if (kind == FAIL)
        errno = error;
    return kind == FAIL ? -1 : closed;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *), void *argument)
{
    REAL(pthread_create);
    if (rules[THREAD].kind != NONE && fate_below(THREAD, 1) == FAIL)
        return EAGAIN;
    return real(thread, attributes, work, argument);
}

/* Names are opened, renamed and removed relative to the run's directory, which decides whose they are. */
static int fate_of_open(int folder, int flags)
{
    return (flags & O_ACCMODE) == O_RDONLY && (flags & O_DIRECTORY) ? NONE : (int)fate(OPEN, folder);
}

#define OPENER(name)                                                        \
    int name(int folder, const char *path, int flags, ...)                  \
    {                                                                       \
        REAL(name);                                                         \
        va_list arguments;                                                  \
        va_start(arguments, flags);                                         \
        mode_t mode = (flags & O_CREAT) ? va_arg(arguments, mode_t) : 0;    \
        va_end(arguments);                                                  \
        return fate_of_open(folder, flags) == FAIL || fate_of_path(folder, path) == FAIL \
            ? -1 : real(folder, path, flags, mode); \
    }

OPENER(openat)
OPENER(openat64)

int renameat(int from, const char *old, int to, const char *new)
{
    REAL(renameat);
    return fate(RENAME, from) == FAIL ? -1 : real(from, old, to, new);
}

int unlinkat(int folder, const char *path, int flags)
{
    REAL(unlinkat);
    return fate(UNLINK, folder) == FAIL ? -1 : real(folder, path, flags);
}

#define ALLOCATOR(name)                                           \
    int name(int fd, int mode, off_t offset, off_t length)        \
    {                                                             \
        REAL(name);                                               \
        return fate(ALLOCATE, fd) == FAIL ? -1 : real(fd, mode, offset, length); \
    }

ALLOCATOR(fallocate)
ALLOCATOR(fallocate64)

#define PLAIN_OPENER(name)                                                  \
    int name(const char *path, int flags, ...)                              \
    {                                                                       \
        REAL(name);                                                         \
        va_list arguments;                                                  \
        va_start(arguments, flags);                                         \
        mode_t mode = (flags & O_CREAT) ? va_arg(arguments, mode_t) : 0;    \
        va_end(arguments);                                                  \
        return fate_of_path(AT_FDCWD, path) == FAIL ? -1 : real(path, flags, mode); \
    }

PLAIN_OPENER(open)
PLAIN_OPENER(open64)

#define LOOKER(name, type)                                              \
    int name(const char *path, type *found)                             \
    {                                                                   \
        REAL(name);                                                     \
        return fate_of_path(AT_FDCWD, path) == FAIL ? -1 : real(path, found); \
    }

LOOKER(stat, struct stat)
LOOKER(stat64, struct stat64)
LOOKER(lstat, struct stat)
LOOKER(lstat64, struct stat64)
LOOKER(statvfs, struct statvfs)
LOOKER(statvfs64, struct statvfs64)

#define LOOKER_HELD(name, type)                                          \
    int name(int fd, type *found)                                       \
    {                                                                   \
        REAL(name);                                                     \
        return fate(PATH, fd) == FAIL ? -1 : real(fd, found);           \
    }

LOOKER_HELD(fstat, struct stat)
LOOKER_HELD(fstat64, struct stat64)
LOOKER_HELD(fstatvfs, struct statvfs)
LOOKER_HELD(fstatvfs64, struct statvfs64)

#define LOOKER_AT(name, type)                                                   \
    int name(int folder, const char *path, type *found, int flags)              \
    {                                                                           \
        REAL(name);                                                             \
        return fate_of_path(folder, path) == FAIL ? -1 : real(folder, path, found, flags); \
    }

LOOKER_AT(fstatat, struct stat)
LOOKER_AT(fstatat64, struct stat64)

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    return fate_of_path(AT_FDCWD, path) == FAIL ? -1 : real(path, mode);
}

int access(const char *path, int mode)
{
    REAL(access);
    return fate_of_path(AT_FDCWD, path) == FAIL ? -1 : real(path, mode);
}

DIR *opendir(const char *path)
{
    REAL(opendir);
    return fate_of_path(AT_FDCWD, path) == FAIL ? NULL : real(path);
}

DIR *fdopendir(int fd)
{
    REAL(fdopendir);
    return fate(PATH, fd) == FAIL ? NULL : real(fd);
}

#define LISTER(name, type)                                  \
    type *name(DIR *list)                                   \
    {                                                       \
        REAL(name);                                         \
        return fate(PATH, dirfd(list)) == FAIL ? NULL : real(list); \
    }

LISTER(readdir, struct dirent)
LISTER(readdir64, struct dirent64)
