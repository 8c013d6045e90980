/* A machine's clock that somebody sets: as many seconds ahead as the file $CLOCK_AHEAD says now.
   Preloaded into a host's agent, and so into all that it starts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long ahead(void) {
    const char *path = getenv("CLOCK_AHEAD");
    long seconds = 0;
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
