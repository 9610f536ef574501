/* A set of ids with a fixed size, in the order of their coming: a ring of entries under a hash.
 * Filled and asked by agent/runner_orders.c. All memory, and all space in the file, is taken at
 * once, so that remembering can not fail and the runner does not grow with every command. The file
 * is the ring: each slot has its id, its number in the order of all, and a checksum. */
#include "agent/released.h"

#include "agent/state_dir.h"
#include "common/crc32c.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <uthash.h>

#define FILE_NAME "released"

struct entry {
    struct command_id id;
    UT_hash_handle hh;
};

struct slot {
    uint64_t number; /* from 1; 0 in a slot that was never used */
    char id[COMMAND_ID_LEN];
    uint32_t crc;
};

struct released {
    struct entry *hash;
    unsigned next;
    uint64_t number; /* of the last id */
    int fd;          /* -1: in memory alone */
    struct entry entries[RELEASED_MAX];
};

int released_new(struct released **ret, struct err *err)
{
    struct released *released = calloc(1, sizeof(*released));
    if (!released)
        return err_nomem(err);
    released->fd = -1;
    *ret = released;
    return 0;
}

void released_free(struct released *released)
{
    if (!released)
        return;
    HASH_CLEAR(hh, released->hash);
    close_fd(&released->fd);
    free(released);
}

static void remember(struct released *released, const struct command_id *id)
{
    struct entry *entry = &released->entries[released->next];
    released->next = (released->next + 1) % RELEASED_MAX;
    if (*entry->id.text)
        HASH_DEL(released->hash, entry);
    entry->id = *id;
    HASH_ADD_KEYPTR(hh, released->hash, entry->id.text, COMMAND_ID_LEN, entry);
}

static uint32_t sum(const struct slot *slot)
{
    return crc32c(0, slot, offsetof(struct slot, crc));
}

void released_add(struct released *released, const struct command_id *id)
{
    if (released_has(released, id))
        return;
    struct slot slot = { .number = ++released->number };
    (void)memcpy(slot.id, id->text, sizeof(slot.id));
    slot.crc = sum(&slot);
    off_t at = (off_t)released->next * (off_t)sizeof(slot);
    remember(released, id);
    if (released->fd >= 0 && pwrite(released->fd, &slot, sizeof(slot), at) != (ssize_t)sizeof(slot))
        log_error("cannot keep the id of a released command", LF_STR("command", id->text),
                  LF_INT("errno", errno));
}

bool released_has(const struct released *released, const struct command_id *id)
{
    const struct entry *found;
    HASH_FIND(hh, released->hash, id->text, COMMAND_ID_LEN, found);
    return found;
}

int released_fd(const struct released *released)
{
    return released->fd;
}

/* The file. */

static int by_number(const void *a, const void *b)
{
    const struct slot *left = a, *right = b;
    return left->number < right->number ? -1 : left->number > right->number;
}

/* A slot that is torn, or was never written, is an id that is not known. */
static unsigned keep_whole(struct slot *slots, unsigned count)
{
    unsigned kept = 0;
    struct command_id id;
    for (unsigned i = 0; i < count; i++) {
        char text[COMMAND_ID_LEN + 1] = { 0 };
        (void)memcpy(text, slots[i].id, sizeof(slots[i].id));
        if (slots[i].number > 0 && slots[i].crc == sum(&slots[i]) &&
            command_id_parse(text, &id, NULL) == 0)
            slots[kept++] = slots[i];
    }
    return kept;
}

int released_adopt(struct released *released, int fd, struct err *err)
{
    CLEANUP_FREE struct slot *slots = calloc(RELEASED_MAX, sizeof(*slots));
    if (!slots)
        return err_nomem(err);
    ssize_t n = pread(fd, slots, RELEASED_MAX * sizeof(*slots), 0);
    if (n < 0)
        return err_errno(err, errno, "cannot read the ids of released commands");
    unsigned count = keep_whole(slots, (unsigned)((size_t)n / sizeof(*slots)));
    qsort(slots, count, sizeof(*slots), by_number);
    for (unsigned i = 0; i < count; i++) {
        struct command_id id = { 0 };
        (void)memcpy(id.text, slots[i].id, sizeof(slots[i].id));
        if (released_has(released, &id))
            continue;
        /* The place of an id in the ring is that of its number. */
        released->next = (unsigned)((slots[i].number - 1) % RELEASED_MAX);
        remember(released, &id);
        released->number = slots[i].number;
    }
    released->fd = fd;
    return 0;
}

int released_open(struct released *released, const struct state_dir *state, struct err *err)
{
    CLEANUP_FD int fd = -1;
    int r = state_dir_open_file(state, FILE_NAME, &fd, err);
    if (r < 0 && err->code != ERR_NOT_FOUND)
        return -1;
    if (r < 0)
        fd = openat(state->fd, FILE_NAME, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot create %s in the state directory", FILE_NAME);
    int failed = posix_fallocate(fd, 0, (off_t)(RELEASED_MAX * sizeof(struct slot)));
    if (failed)
        return err_errno(err, failed, "cannot reserve space for %s in the state directory",
                         FILE_NAME);
    if (released_adopt(released, fd, err) < 0)
        return -1;
    (void)TAKE_FD(fd);
    return 0;
}
