/* Chooses how trees of processes are held together, once, and keeps what they share: the reaper,
 * the control groups, the last look at /proc. agent/runner.c makes it; agent/command.c asks for
 * trees. */
#include "agent/tree-internal.h"
#include "common/clock.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#define CHILDREN_MAX 65536u /* bytes of /proc's list of our children that are looked at */

static const struct {
    const char *name;
    const struct tree_backend *backend;
} means_table[FOREST_MEANS_COUNT_] = {
    [FOREST_CGROUP] = { "control groups", &tree_backend_cgroup },
    [FOREST_DESCENDANTS] = { "descendants", &tree_backend_walk },
    [FOREST_GROUP] = { "process groups", &tree_backend_group },
};

const char *forest_means_name(enum forest_means means)
{
    return (unsigned)means < FOREST_MEANS_COUNT_ ? means_table[means].name : "unknown";
}

static void add_reason(struct forest *forest, const char *reason)
{
    size_t used = strlen(forest->why_not);
    (void)snprintf(forest->why_not + used, sizeof(forest->why_not) - used, "%s%s", used ? "; " : "",
                   reason);
}

/* Without /proc there is nothing to look for descendants in. */
static bool become_subreaper(void)
{
    return access("/proc/self/stat", R_OK) == 0 && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
}

static void choose(struct forest *forest, const struct forest_config *config)
{
    struct err why = { 0 };
    bool subreaper = config->subreaper && become_subreaper();
    forest->means = subreaper ? FOREST_DESCENDANTS : FOREST_GROUP;
    forest->without_cgroups = means_table[forest->means].backend;
    if (!config->cgroups)
        add_reason(forest, "control groups are off (the runner's setting \"cgroups\")");
    else if (cgroup_root_new(forest->loop, config->paths, config->cgroups, config->goes_on,
                             &forest->cgroups, &why) < 0)
        add_reason(forest, why.text);
    else
        forest->means = FOREST_CGROUP;
    if (forest->cgroups)
        add_reason(forest, cgroup_root_why_not(forest->cgroups));
    forest->backend = means_table[forest->means].backend;
}

int forest_new(struct loop *loop, const struct forest_config *config, struct forest **ret,
               struct err *err)
{
    struct forest *forest = calloc(1, sizeof(*forest));
    if (!forest)
        return err_nomem(err);
    forest->loop = loop;
    if (reaper_new(loop, &forest->reaper, err) < 0) {
        forest_free(forest);
        return -1;
    }
    choose(forest, config);
    *ret = forest;
    return 0;
}

void forest_go_on(struct forest *forest, unsigned handed_on,
                  bool (*has_tree)(const void *userdata, const struct command_id *id),
                  const void *userdata)
{
    if (forest->cgroups)
        cgroup_root_go_on(forest->cgroups, handed_on, has_tree, userdata);
}

unsigned forest_handed_on(const struct forest *forest)
{
    return forest->cgroups ? cgroup_root_handed_on(forest->cgroups) : 0;
}

void forest_free(struct forest *forest)
{
    if (!forest)
        return;
    cgroup_root_free(forest->cgroups);
    reaper_free(forest->reaper);
    proctable_done(&forest->table);
    free(forest);
}

enum forest_means forest_means(const struct forest *forest)
{
    return forest->means;
}

struct reaper *forest_reaper(const struct forest *forest)
{
    return forest->reaper;
}

unsigned forest_enforces(const struct forest *forest)
{
    return forest->cgroups ? cgroup_root_enforces(forest->cgroups) : 0;
}

const char *forest_why_not(const struct forest *forest)
{
    return forest->why_not;
}

struct proctable *forest_processes(struct forest *forest, bool fresh)
{
    struct err err;
    uint64_t now = monotonic_us();
    if (!fresh && forest->table.entries && now - forest->table_us < FOREST_TABLE_US)
        return &forest->table;
    proctable_done(&forest->table);
    if (proctable_read(&forest->table, &err) < 0) {
        log_warn("cannot look for a command's processes", LF_ERR(&err));
        return NULL;
    }
    forest->table_us = now;
    return &forest->table;
}

bool forest_has_orphans(const struct forest *forest)
{
    if (!reaper_has_children())
        return false;
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    CLEANUP_FREE char *text = malloc(CHILDREN_MAX);
    if (fd < 0 || !text)
        return true; /* a kernel without CONFIG_PROC_CHILDREN does not say */
    size_t used = 0;
    ssize_t n;
    while ((n = read(fd, text + used, CHILDREN_MAX - 1 - used)) > 0)
        used += (size_t)n;
    text[used] = '\0';
    if (n < 0 || used == CHILDREN_MAX - 1)
        return true;
    for (char *at = text, *end; *at; at = end) {
        pid_t pid = (pid_t)strtol(at, &end, 10);
        if (end == at)
            break;
        if (!reaper_watches(forest->reaper, pid))
            return true;
    }
    return false;
}
