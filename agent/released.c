/* A set of ids with a fixed size, in the order of their coming: a ring of entries under a hash.
 * Filled and asked by agent/runner_orders.c. All memory is taken at once, so that remembering can
 * not fail and the runner does not grow with every command. */
#include "agent/released.h"

#include <string.h>
#include <uthash.h>

struct entry {
    struct command_id id;
    UT_hash_handle hh;
};

struct released {
    struct entry *hash;
    unsigned next;
    struct entry entries[RELEASED_MAX];
};

int released_new(struct released **ret, struct err *err)
{
    struct released *released = calloc(1, sizeof(*released));
    if (!released)
        return err_nomem(err);
    *ret = released;
    return 0;
}

void released_free(struct released *released)
{
    if (!released)
        return;
    HASH_CLEAR(hh, released->hash);
    free(released);
}

void released_add(struct released *released, const struct command_id *id)
{
    if (released_has(released, id))
        return;
    struct entry *entry = &released->entries[released->next];
    released->next = (released->next + 1) % RELEASED_MAX;
    if (*entry->id.text)
        HASH_DEL(released->hash, entry);
    entry->id = *id;
    HASH_ADD_KEYPTR(hh, released->hash, entry->id.text, COMMAND_ID_LEN, entry);
}

bool released_has(const struct released *released, const struct command_id *id)
{
    const struct entry *found;
    HASH_FIND(hh, released->hash, id->text, COMMAND_ID_LEN, found);
    return found;
}
