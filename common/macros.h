/* The few macros the whole tree shares: must-use results, ownership that moves on the line where
 * it is written, and element counts. Nothing here hides a return or a goto. Any thread. */
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* A result the caller may not ignore. */
#define must_use __attribute__((warn_unused_result))

#define CLEANUP(fn) __attribute__((cleanup(fn)))

#define ELEMENTS(array) (sizeof(array) / sizeof((array)[0]))

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Moves ownership out of an lvalue and leaves NULL (or -1) behind for its cleanup attribute. */
#define TAKE_PTR(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int taken_ = (fd);                                                                         \
        (fd) = -1;                                                                                 \
        taken_;                                                                                    \
    })

static inline void cleanup_free(void *p)
{
    free(*(void **)p);
}
#define CLEANUP_FREE CLEANUP(cleanup_free)

static inline void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}
#define CLEANUP_FD CLEANUP(close_fd)
