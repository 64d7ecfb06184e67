/* Preloaded into a command: the wall clock says another time, as one that was set wrongly.
 *
 * KVSPILL_CLOCK        what it says, in seconds since 1970
 * KVSPILL_CLOCK_WHEN   a file: from when on it is there, it does */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static struct timespec began;

__attribute__((constructor)) static void begin(void)
{
    clock_gettime(CLOCK_MONOTONIC, &began);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    __typeof__(&clock_gettime) real = (__typeof__(&clock_gettime))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    const char *told = getenv("KVSPILL_CLOCK"), *when = getenv("KVSPILL_CLOCK_WHEN");
    if (answer || !told || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return answer;
    struct timespec passed;
    real(CLOCK_MONOTONIC, &passed);
    if (!when || access(when, F_OK) == 0)
        now->tv_sec = atoll(told) + passed.tv_sec - began.tv_sec;
    return answer;
}

time_t time(time_t *answer)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (answer)
        *answer = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *answer, void *zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    answer->tv_sec = now.tv_sec;
    answer->tv_usec = now.tv_nsec / 1000;
    return 0;
}
