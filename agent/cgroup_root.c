/* The runner's part of the control group tree:
 *
 *     OWN                        the group that the service manager started us in
 *     OWN/sandstorm-NAME         ours; NAME comes from the runner's socket
 *     OWN/sandstorm-NAME/runner  ourselves, where there are controllers: a group that hands them on
 *                                may have no process of its own, see cgroups(7)
 *     OWN/sandstorm-NAME/commands/ID
 *
 * agent/cgroup.c makes the groups of commands; those whose command is gone while a process still
 * lives in them come back here, and are removed when they are empty. */
#include "agent/cgroup-internal.h"
#include "common/log.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <utlist.h>

/* Bits of `enum tree_limit`, and the controllers that make them. */
static const char *const controllers[TREE_LIMIT_COUNT_] = {
    [TREE_MEMORY] = "memory",
    [TREE_CPU] = "cpu",
    [TREE_PIDS] = "pids",
};

struct linger {
    struct cgroup_root *root;
    char name[COMMAND_ID_LEN + 1];
    int events;
    struct loop_io *io;
    struct linger *prev, *next;
};

struct cgroup_root {
    struct loop *loop;
    char name[CGROUP_NAME_MAX];
    int own, part, commands;
    unsigned enforces;
    unsigned handed_on; /* controllers that OWN hands on because we said so */
    bool moved;         /* we are in OWN/NAME/runner */
    char why_not[CGROUP_WHY_MAX];
    struct linger *lingering;
    unsigned linger_count;
};

/* FNV-1a: one socket is one name, whatever characters it is made of. */
void cgroup_part_name(const char *socket, char ret[CGROUP_NAME_MAX])
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *at = socket; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    (void)snprintf(ret, CGROUP_NAME_MAX, "sandstorm-%016" PRIx64, hash);
}

/* Groups without a command. */

static void linger_free(struct linger *linger)
{
    DL_DELETE(linger->root->lingering, linger);
    linger->root->linger_count--;
    loop_io_free(linger->io);
    close_fd(&linger->events);
    free(linger);
}

static void on_linger_changed(void *userdata, uint32_t events)
{
    (void)events;
    struct linger *linger = userdata;
    char text[CGROUP_ATTRIBUTE_MAX];
    /* Reading is what makes the descriptor quiet again. */
    (void)!pread(linger->events, text, sizeof(text), 0);
    if (cgroup_remove(linger->root->commands, linger->name) == 0)
        linger_free(linger);
}

void cgroup_root_linger(struct cgroup_root *root, const char *name)
{
    char text[CGROUP_ATTRIBUTE_MAX];
    struct err ignored;
    /* The oldest is not watched any more; the next life of the runner removes it. */
    if (root->linger_count == CGROUP_LINGER_MAX)
        linger_free(root->lingering);
    struct linger *linger = calloc(1, sizeof(*linger));
    if (!linger)
        return;
    linger->root = root;
    (void)snprintf(linger->name, sizeof(linger->name), "%s", name);
    DL_APPEND(root->lingering, linger);
    root->linger_count++;
    (void)snprintf(text, sizeof(text), "%s/cgroup.events", name);
    linger->events = openat(root->commands, text, O_RDONLY | O_CLOEXEC);
    if (linger->events < 0 || read(linger->events, text, sizeof(text)) < 0 ||
        loop_io_new(root->loop, linger->events, EPOLLPRI, on_linger_changed, linger, &linger->io,
                    &ignored) < 0 ||
        /* It may have become empty before it was watched. */
        cgroup_remove(root->commands, name) == 0)
        linger_free(linger);
}

/* What an earlier life left. Its commands are lost, and nobody can reach them any more: they are
 * ended. What a command left behind on purpose is none of them. */
static void end_leftover(void *userdata, const struct command_id *id)
{
    struct cgroup_root *root = userdata;
    char kept[4];
    CLEANUP_FD int group = cgroup_open_dir(root->commands, id->text);
    if (group < 0 || cgroup_remove(root->commands, id->text) == 0)
        return;
    if (fgetxattr(group, CGROUP_KEPT, kept, sizeof(kept)) < 0) {
        log_warn("ending a command of an earlier life", LF_STR("command", id->text));
        (void)cgroup_kill(group, id);
    }
    cgroup_root_linger(root, id->text);
}

static void each_command(struct cgroup_root *root,
                         void (*fn)(void *userdata, const struct command_id *id), void *userdata)
{
    CLEANUP_FD int fd = cgroup_open_dir(root->commands, ".");
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir)
        return;
    (void)TAKE_FD(fd);
    const struct dirent *item;
    struct command_id id;
    while ((item = readdir(dir)))
        if (item->d_type == DT_DIR && command_id_parse(item->d_name, &id, NULL) == 0)
            fn(userdata, &id);
    (void)closedir(dir);
}

struct going_on {
    struct cgroup_root *root;
    bool (*in_use)(const void *userdata, const struct command_id *id);
    const void *userdata;
};

static void go_on_with(void *userdata, const struct command_id *id)
{
    const struct going_on *going_on = userdata;
    if (!going_on->in_use(going_on->userdata, id) &&
        cgroup_remove(going_on->root->commands, id->text) < 0)
        cgroup_root_linger(going_on->root, id->text);
}

void cgroup_root_go_on(struct cgroup_root *root, unsigned handed_on,
                       bool (*in_use)(const void *userdata, const struct command_id *id),
                       const void *userdata)
{
    struct going_on going_on = { root, in_use, userdata };
    root->handed_on |= handed_on;
    each_command(root, go_on_with, &going_on);
}

unsigned cgroup_root_handed_on(const struct cgroup_root *root)
{
    return root->handed_on;
}

/* Controllers. */

static int hand_on(int group, const char *controller, char sign)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%c%s", sign, controller);
    return cgroup_write(group, "cgroup.subtree_control", text);
}

static int make_dir(int above, const char *name, int *ret, struct err *err)
{
    if (mkdirat(above, name, 0755) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make a control group below our own");
    *ret = cgroup_open_dir(above, name);
    return *ret < 0 ? err_errno(err, errno, "cannot open a control group of ours") : 0;
}

/* We must not be in OWN when it hands controllers on, unless it is the root of all. */
static int step_aside(struct cgroup_root *root, struct err *err)
{
    CLEANUP_FD int leaf = -1;
    if (make_dir(root->part, "runner", &leaf, err) < 0)
        return -1;
    if (cgroup_write(leaf, "cgroup.procs", "0") < 0)
        return err_errno(err, errno, "cannot move into a control group of our own");
    root->moved = true;
    return 0;
}

static int enable(struct cgroup_root *root, enum tree_limit limit, struct err *err)
{
    const char *name = controllers[limit];
    if (!cgroup_has_word(root->own, "cgroup.controllers", name))
        return err_errno(err, ENOTSUP, "the kernel gives us no \"%s\" controller", name);
    if (!root->moved && step_aside(root, err) < 0)
        return -1;
    if (!cgroup_has_word(root->own, "cgroup.subtree_control", name)) {
        if (hand_on(root->own, name, '+') < 0)
            return err_errno(err, errno, "cannot hand on the \"%s\" controller%s", name,
                             errno == EBUSY ? ": there are other processes in our control group"
                                            : "");
        root->handed_on |= 1u << limit;
    }
    if (hand_on(root->part, name, '+') < 0 || hand_on(root->commands, name, '+') < 0)
        return err_errno(err, errno, "cannot hand on the \"%s\" controller", name);
    return 0;
}

static void enable_all(struct cgroup_root *root)
{
    size_t used = 0;
    for (unsigned i = 0; i < TREE_LIMIT_COUNT_; i++) {
        struct err why = { 0 };
        if (enable(root, (enum tree_limit)i, &why) == 0) {
            root->enforces |= 1u << i;
            continue;
        }
        int n = snprintf(root->why_not + used, sizeof(root->why_not) - used, "%s%s",
                         used ? "; " : "", why.text);
        used = MIN(used + (size_t)MAX(n, 0), sizeof(root->why_not) - 1);
    }
}

/* Making and leaving it. */

/* systemd manages what it has not delegated, and would undo what we do there; see its
 * CGROUP_DELEGATION document. */
static int check_delegated(const struct cgroup_paths *paths, int own, struct err *err)
{
    char value[4];
    if (access(paths->systemd, F_OK) < 0)
        return 0;
    if (fgetxattr(own, "user.delegate", value, sizeof(value)) > 0 ||
        fgetxattr(own, "trusted.delegate", value, sizeof(value)) > 0)
        return 0;
    return err_set(err, ERR_DENIED,
                   "systemd has not delegated our control group to us: set Delegate=yes in the "
                   "runner's unit");
}

/* After a re-exec we are where the same runner has moved itself before. */
static void strip_ours(char *path, const char *name)
{
    char tail[CGROUP_NAME_MAX + 16];
    int length = snprintf(tail, sizeof(tail), "/%s/runner", name);
    size_t size = strlen(path);
    if (size > (size_t)length && strcmp(path + size - (size_t)length, tail) == 0)
        path[size - (size_t)length] = '\0';
}

static int open_parts(struct cgroup_root *root, const struct cgroup_paths *paths, struct err *err)
{
    char path[CGROUP_PATH_MAX];
    if (cgroup_find_own(paths, path, err) < 0)
        return -1;
    strip_ours(path, root->name);
    root->own = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root->own < 0)
        return err_errno(err, errno, "cannot open our control group %s", path);
    if (check_delegated(paths, root->own, err) < 0)
        return -1;
    if (faccessat(root->own, "cgroup.procs", W_OK, AT_EACCESS) < 0)
        return err_errno(err, errno, "may not move processes within our control group %s", path);
    if (make_dir(root->own, root->name, &root->part, err) < 0 ||
        make_dir(root->part, "commands", &root->commands, err) < 0)
        return -1;
    char type[32];
    if (cgroup_read(root->commands, "cgroup.type", type, sizeof(type)) < 0 ||
        strcmp(type, "domain\n") != 0)
        return err_set(err, ERR_UNAVAILABLE, "our control group %s is a threaded one", path);
    return 0;
}

int cgroup_root_new(struct loop *loop, const struct cgroup_paths *paths, const char *socket,
                    bool goes_on, struct cgroup_root **ret, struct err *err)
{
    struct cgroup_root *root = calloc(1, sizeof(*root));
    if (!root)
        return err_nomem(err);
    *root = (struct cgroup_root){ .loop = loop, .own = -1, .part = -1, .commands = -1 };
    cgroup_part_name(socket, root->name);
    if (open_parts(root, paths ? paths : &cgroup_machine, err) < 0) {
        cgroup_root_free(root);
        return -1;
    }
    if (!goes_on)
        each_command(root, end_leftover, root);
    enable_all(root);
    *ret = root;
    return 0;
}

/* The way back, so that a stopped runner leaves nothing: controllers off, ourselves into OWN, and
 * the empty groups away. Where something still lives in a group, all of it stays. */
static void leave(struct cgroup_root *root)
{
    if (root->part < 0 || (root->commands >= 0 && cgroup_remove(root->part, "commands") < 0))
        return;
    for (unsigned i = 0; i < TREE_LIMIT_COUNT_; i++) {
        if (root->enforces & 1u << i)
            (void)hand_on(root->part, controllers[i], '-');
        if (root->handed_on & 1u << i)
            (void)hand_on(root->own, controllers[i], '-');
    }
    if (root->moved && cgroup_write(root->own, "cgroup.procs", "0") < 0)
        return;
    (void)cgroup_remove(root->own, root->name);
}

void cgroup_root_free(struct cgroup_root *root)
{
    if (!root)
        return;
    while (root->lingering)
        linger_free(root->lingering);
    leave(root);
    close_fd(&root->commands);
    close_fd(&root->part);
    close_fd(&root->own);
    free(root);
}

unsigned cgroup_root_enforces(const struct cgroup_root *root)
{
    return root->enforces;
}

const char *cgroup_root_why_not(const struct cgroup_root *root)
{
    return root->why_not;
}

int cgroup_root_commands(const struct cgroup_root *root)
{
    return root->commands;
}
