/* A state directory in a directory of the case's own, and how its files are looked at behind the
 * back of who wrote them. */
#pragma once

#include "agent/state_dir.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char state_root[] = "/tmp/test-state-XXXXXX";
static char state_path[64];

static int state_remove(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static inline void state_setup(void)
{
    cr_assert_not_null(mkdtemp(state_root));
    (void)snprintf(state_path, sizeof(state_path), "%s/state", state_root);
}

static inline void state_teardown(void)
{
    (void)nftw(state_root, state_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static inline struct state_dir *state_open(uint64_t quota)
{
    struct err err = { 0 };
    struct state_dir *state = NULL;
    cr_assert_eq(state_dir_open(state_path, quota, &state, &err), 0, "%s", err.text);
    return state;
}

static inline struct command_id state_id(unsigned number)
{
    struct command_id id;
    (void)snprintf(id.text, sizeof(id.text), "%08x-7f0e-4a53-9c55-3d7a1f2e9b10", number);
    return id;
}

/* A path below the state directory; the result is static. */
static inline const char *state_file(const char *name)
{
    static char path[160];
    (void)snprintf(path, sizeof(path), "%s/%s", state_path, name);
    return path;
}

/* What a crash at this moment would leave: the first `size` bytes of a command's file, or all of
 * them, under another id. */
static inline void state_copy(const struct command_id *from, const struct command_id *to,
                              uint64_t size)
{
    static uint8_t bytes[65536];
    struct stat st;
    CLEANUP_FD int in = open(state_file(from->text), O_RDONLY | O_CLOEXEC);
    CLEANUP_FD int out = open(state_file(to->text), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert(in >= 0 && out >= 0 && fstat(in, &st) == 0);
    size = MIN(size, (uint64_t)st.st_size);
    for (uint64_t at = 0; at < size;) {
        ssize_t n = pread(in, bytes, (size_t)MIN(sizeof(bytes), size - at), (off_t)at);
        cr_assert_gt(n, 0);
        cr_assert_eq(pwrite(out, bytes, (size_t)n, (off_t)at), n);
        at += (uint64_t)n;
    }
}
