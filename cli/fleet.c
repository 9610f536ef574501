/* The sandboxes of a watch: a sorted array of copies. Called by cli/cmd_watch.c and cli/cmd_top.c;
 * read by cli/top_view.c. */
#include "cli/fleet.h"

#include <string.h>

struct item {
    struct sandstorm_sandbox sandbox;
    bool told;
    char *id, *labels, *agent_version, *last_error;
};

struct fleet {
    struct item **items;
    size_t count, room;
};

int fleet_new(struct fleet **ret, struct err *err)
{
    *ret = calloc(1, sizeof(**ret));
    return *ret ? 0 : err_nomem(err);
}

static void item_free(struct item *item)
{
    if (!item)
        return;
    free(item->id);
    free(item->labels);
    free(item->agent_version);
    free(item->last_error);
    free(item);
}

void fleet_free(struct fleet *fleet)
{
    if (!fleet)
        return;
    for (size_t i = 0; i < fleet->count; i++)
        item_free(fleet->items[i]);
    free(fleet->items);
    free(fleet);
}

size_t fleet_count(const struct fleet *fleet)
{
    return fleet->count;
}

const struct sandstorm_sandbox *fleet_at(const struct fleet *fleet, size_t index)
{
    return &fleet->items[index]->sandbox;
}

/* Where it is, or where it belongs. */
static size_t place_of(const struct fleet *fleet, const char *id, bool *ret_there)
{
    size_t low = 0, high = fleet->count;
    *ret_there = false;
    while (low < high && !*ret_there) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(id, fleet->items[middle]->id);
        *ret_there = order == 0;
        if (order > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return *ret_there ? high : low;
}

const struct sandstorm_sandbox *fleet_find(const struct fleet *fleet, const char *id)
{
    bool there;
    size_t place = place_of(fleet, id, &there);
    return there ? fleet_at(fleet, place) : NULL;
}

static struct item *item_new(const struct sandstorm_sandbox *sandbox)
{
    struct item *item = calloc(1, sizeof(*item));
    if (!item)
        return NULL;
    item->told = true;
    item->id = strdup(sandbox->id);
    item->labels = strdup(sandbox->labels);
    item->agent_version = strdup(sandbox->agent_version);
    item->last_error = strdup(sandbox->last_error);
    if (!item->id || !item->labels || !item->agent_version || !item->last_error) {
        item_free(item);
        return NULL;
    }
    struct sandstorm_sandbox *kept = &item->sandbox;
    *kept = *sandbox;
    kept->id = item->id;
    kept->labels = item->labels;
    kept->agent_version = item->agent_version;
    kept->last_error = item->last_error;
    kept->vm_id = kept->hostname = kept->kernel = kept->os = kept->arch = kept->boot_id = "";
    kept->runner_version = kept->reported_labels = "";
    kept->events = NULL;
    kept->samples = NULL;
    kept->event_count = kept->sample_count = 0;
    return item;
}

static int make_room(struct fleet *fleet, struct err *err)
{
    if (fleet->count < fleet->room)
        return 0;
    if (fleet->count >= FLEET_MAX)
        return err_set(err, ERR_EXHAUSTED,
                       "there are more than %u sandboxes; watch fewer of them with --selector",
                       FLEET_MAX);
    size_t room = MAX(fleet->room * 2, (size_t)64);
    struct item **items = reallocarray(fleet->items, room, sizeof(struct item *));
    if (!items)
        return err_nomem(err);
    fleet->items = items;
    fleet->room = room;
    return 0;
}

int fleet_put(struct fleet *fleet, const struct sandstorm_sandbox *sandbox, struct err *err)
{
    bool there;
    size_t place = place_of(fleet, sandbox->id, &there);
    if (!there && make_room(fleet, err) < 0)
        return -1;
    struct item *item = item_new(sandbox);
    if (!item)
        return err_nomem(err);
    if (there)
        item_free(fleet->items[place]);
    else
        (void)memmove(fleet->items + place + 1, fleet->items + place,
                      (fleet->count++ - place) * sizeof(struct item *));
    fleet->items[place] = item;
    return 0;
}

void fleet_drop(struct fleet *fleet, const char *id)
{
    bool there;
    size_t place = place_of(fleet, id, &there);
    if (!there)
        return;
    item_free(fleet->items[place]);
    (void)memmove(fleet->items + place, fleet->items + place + 1,
                  (--fleet->count - place) * sizeof(struct item *));
}

void fleet_begin(struct fleet *fleet)
{
    for (size_t i = 0; i < fleet->count; i++)
        fleet->items[i]->told = false;
}

const struct sandstorm_sandbox *fleet_untold(const struct fleet *fleet)
{
    for (size_t i = 0; i < fleet->count; i++)
        if (!fleet->items[i]->told)
            return fleet_at(fleet, i);
    return NULL;
}
