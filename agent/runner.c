/* The runner's root object: the listening socket, the table of commands, the end. Gets its link
 * from accept(2); hands packets to agent/runner_orders.c and hears from agent/command.c when a
 * command has something to say. */
#include "agent/runner-internal.h"

#include "common/clock.h"

#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define STRANGERS_LOGGED    5u
#define STRANGERS_PERIOD_US 10000000u
#define ACCEPT_AGAIN_US     1000000u

struct runner_entry *runner_find(struct runner *runner, const struct command_id *id)
{
    struct runner_entry *entry;
    HASH_FIND(hh, runner->commands, id->text, COMMAND_ID_LEN, entry);
    return entry;
}

unsigned runner_count_running(const struct runner *runner)
{
    unsigned running = 0;
    for (const struct runner_entry *entry = runner->commands; entry; entry = entry->hh.next)
        running += command_state(entry->command) != COMMAND_ENDED;
    return running;
}

void runner_forget(struct runner *runner, struct runner_entry *entry)
{
    if (entry->ready)
        DL_DELETE(runner->ready, entry);
    if (runner->link)
        runner_link_skip(runner->link, entry);
    HASH_DEL(runner->commands, entry);
    int held;
    while (command_state(entry->command) == COMMAND_ENDED &&
           (held = command_take_pipe(entry->command)) >= 0)
        drainer_adopt(runner->drainer, held);
    command_free(entry->command);
    free(entry);
}

void runner_release(struct runner *runner, struct runner_entry *entry)
{
    /* In this order: a crash in between leaves a file whose id is known as released. */
    released_add(runner->released, &entry->id);
    command_forget_file(entry->command);
    runner_forget(runner, entry);
}

/* Every command has ended, and the link has heard what there was to say. */
void runner_maybe_quit(struct runner *runner)
{
    bool unheard = runner->link && runner_link_listens(runner->link) && runner->ready;
    if (runner->stopping && !unheard && runner_count_running(runner) == 0)
        loop_quit(runner->loop);
}

void runner_note_ready(struct runner *runner, struct runner_entry *entry)
{
    if (entry->ready || !command_has_event(entry->command))
        return;
    entry->ready = true;
    DL_APPEND(runner->ready, entry);
    if (runner->link)
        runner_link_wake(runner->link);
}

static void on_command_changed(void *userdata, struct command *command)
{
    struct runner *runner = userdata;
    struct runner_entry *entry = runner_find(runner, command_id(command));
    if (!entry)
        return; /* still being made */
    if (command_state(command) == COMMAND_ENDED) {
        if (runner->link)
            runner_link_status_changed(runner->link);
    }
    runner_note_ready(runner, entry);
    runner_maybe_quit(runner);
}

/* The link. */

void runner_link_gone(struct runner *runner)
{
    log_info("link disconnected");
    runner_link_free(runner->link);
    runner->link = NULL;
    for (struct runner_entry *entry = runner->commands; entry; entry = entry->hh.next)
        command_mute(entry->command);
    runner_maybe_quit(runner);
}

static void refuse_peer(struct runner *runner, const struct ucred *peer, const char *why)
{
    uint64_t suppressed;
    if (log_limit_pass(&runner->strangers, monotonic_us(), &suppressed))
        log_warn("connection refused", LF_INT("pid", peer->pid), LF_UINT("uid", peer->uid),
                 LF_STR("reason", why), LF_UINT("suppressed", suppressed));
}

static void on_connection(void *userdata, uint32_t events)
{
    (void)events;
    struct runner *runner = userdata;
    CLEANUP_FD int fd = accept4(runner->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        /* Out of descriptors the connection stays in the queue, and epoll would say so for ever. */
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            loop_io_want(runner->listen_io, 0);
            loop_timer_start(runner->accept_again, ACCEPT_AGAIN_US);
        }
        return;
    }
    struct ucred peer = { 0 };
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return;
    if (peer.uid != runner->link_uid && peer.uid != 0) {
        refuse_peer(runner, &peer, "not the link's user");
        return;
    }
    /* A dead link's socket is at its end, but its successor may be heard of first. */
    if (runner->link && runner_link_dead(runner->link))
        runner_link_gone(runner);
    if (runner->link) {
        refuse_peer(runner, &peer, "a link is connected already");
        return;
    }
    const int buffer = RUNNER_SOCKET_BUFFER;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    struct err err;
    if (runner_link_new(runner, fd, &runner->link, &err) < 0) {
        log_error("cannot serve the link", LF_ERR(&err));
        return;
    }
    (void)TAKE_FD(fd);
    log_info("link connected", LF_INT("pid", peer.pid), LF_UINT("uid", peer.uid));
}

/* Our own log goes to the link, when there is nothing else to say. */

static void on_log_line(void *userdata)
{
    const struct runner *runner = userdata;
    if (runner->link)
        runner_link_wake(runner->link);
}

static int forward_logs(struct runner *runner, struct err *err)
{
    if (log_ring_new("runner", on_log_line, runner, &runner->logs, err) < 0)
        return -1;
    log_set_tap(log_ring_tap, runner->logs, LOG_LEVEL_INFO);
    return 0;
}

static void forward_no_logs(struct runner *runner)
{
    if (!runner->logs)
        return;
    log_set_tap(NULL, NULL, LOG_LEVEL_INFO);
    log_ring_free(TAKE_PTR(runner->logs));
}

/* /run is empty after a boot. Only the last directory is made. */
static int make_parent(const char *path, struct err *err)
{
    CLEANUP_FREE char *copy = strdup(path);
    if (!copy)
        return err_nomem(err);
    const char *dir = dirname(copy);
    if (mkdir(dir, 0755) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot create the directory %s for the socket", dir);
    return 0;
}

static int open_socket(const char *path, uid_t link_uid, int *ret, struct err *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof(address.sun_path))
        return err_set(err, ERR_INVALID, "the socket path \"%s\" is longer than %zu characters",
                       path, sizeof(address.sun_path) - 1);
    (void)memcpy(address.sun_path, path, strlen(path));
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, errno, "cannot create a socket");
    if (make_parent(path, err) < 0)
        return -1;
    /* A socket that answers belongs to a runner that lives; one that does not is a dead one's. */
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EAGAIN)
        return err_set(err, ERR_EXISTS, "another runner is listening on %s; stop it first", path);
    if (errno == ECONNREFUSED && unlink(path) < 0)
        return err_errno(err, errno, "cannot remove the old socket %s", path);
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return err_errno(err, errno, "cannot create the socket %s", path);
    if (chmod(path, 0600) < 0 || chown(path, link_uid, (gid_t)-1) < 0)
        return err_errno(err, errno, "cannot give the socket %s to the link", path);
    if (listen(fd, 4) < 0)
        return err_errno(err, errno, "cannot listen on %s", path);
    *ret = TAKE_FD(fd);
    return 0;
}

/* Life. */

static int open_state(struct runner *runner, const struct runner_config *config, struct err *err)
{
    if (!config->state_dir)
        return 0;
    uint64_t quota = config->spool_quota ? config->spool_quota : STATE_QUOTA_DEFAULT;
    if (state_dir_open(config->state_dir, quota, &runner->state, err) < 0)
        return -1;
    return released_open(runner->released, runner->state, err);
}

int runner_plant(struct runner *runner, const struct runner_config *config, bool goes_on,
                 struct err *err)
{
    const struct forest_config trees = {
        .subreaper = config->subreaper,
        .cgroups = config->cgroups ? runner->socket_path : NULL,
        .goes_on = goes_on,
    };
    return forest_new(runner->loop, &trees, &runner->forest, err);
}

void runner_host(struct runner *runner)
{
    runner->host = (struct command_host){
        .loop = runner->loop,
        .forest = runner->forest,
        .policy = runner->policy,
        .oom_score_adj = *runner->oom_score_adj ? runner->oom_score_adj : NULL,
        .state = runner->state,
        .files = runner->files.rlim_max ? &runner->files : NULL,
        .changed = on_command_changed,
        .userdata = runner,
    };
}

/* With what an earlier one may have left on disk. */
static int begin(struct runner *runner, const struct runner_config *config, struct err *err)
{
    struct command_id instance;
    runner->files = config->files;
    if (config->oom_score_adj)
        (void)snprintf(runner->oom_score_adj, sizeof(runner->oom_score_adj), "%s",
                       config->oom_score_adj);
    if (command_id_new(&instance, err) < 0 || open_state(runner, config, err) < 0 ||
        open_socket(config->socket, config->link_uid, &runner->listen_fd, err) < 0)
        return -1;
    (void)memcpy(runner->instance, instance.text, sizeof(runner->instance));
    /* From here on the socket is ours to remove. */
    runner->socket_path = strdup(config->socket);
    if (!runner->socket_path)
        return err_nomem(err);
    /* What an earlier life left is ended, so only who has the socket may do it. */
    if (runner_plant(runner, config, false, err) < 0)
        return -1;
    runner_host(runner);
    return runner->state ? runner_recover(runner, err) : 0;
}

static void on_upgrade(void *userdata, int number)
{
    (void)number;
    runner_upgrade(userdata);
}

static void on_accept_again(void *userdata)
{
    struct runner *runner = userdata;
    loop_io_want(runner->listen_io, EPOLLIN);
}

/* A command that cannot be killed, or whose output nobody takes, does not keep us. */
static void on_patience_over(void *userdata)
{
    struct runner *runner = userdata;
    log_warn("leaving with commands that have not ended",
             LF_UINT("commands", runner_count_running(runner)));
    loop_quit(runner->loop);
}

static void on_stop(void *userdata, bool hurry)
{
    struct runner *runner = userdata;
    if (hurry) {
        loop_quit(runner->loop);
        return;
    }
    runner->stopping = true;
    loop_timer_start(runner->patience, RUNNER_STOP_US);
    struct runner_entry *entry, *next;
    HASH_ITER (hh, runner->commands, entry, next)
        command_cancel(entry->command, RUNNER_STOP_GRACE_US, "the runner is stopping");
    runner_maybe_quit(runner);
}

int runner_new(const struct runner_config *config, struct runner **ret, struct err *err)
{
    struct runner *runner = calloc(1, sizeof(*runner));
    if (!runner)
        return err_nomem(err);
    runner->listen_fd = -1;
    runner->link_uid = config->link_uid;
    runner->strangers = LOG_LIMIT(STRANGERS_PERIOD_US, STRANGERS_LOGGED);
    runner->program = config->program;
    runner->settings_file = config->settings_file;
    if (loop_new(&runner->loop, err) < 0 ||
        (config->forward_logs && forward_logs(runner, err) < 0) ||
        daemon_new(runner->loop, on_stop, runner, &runner->daemon, err) < 0 ||
        released_new(&runner->released, err) < 0 ||
        drainer_new(runner->loop, &runner->drainer, err) < 0 ||
        loop_timer_new(runner->loop, on_accept_again, runner, &runner->accept_again, err) < 0 ||
        loop_timer_new(runner->loop, on_patience_over, runner, &runner->patience, err) < 0 ||
        (config->policy && policy_new(config->policy, &runner->policy, err) < 0) ||
        (config->program &&
         loop_signal_new(runner->loop, SIGUSR2, on_upgrade, runner, &runner->upgrade, err) < 0))
        goto fail;
    int r = config->handover_fd > 0 ? runner_take_over(runner, config, err)
                                    : begin(runner, config, err);
    if (r < 0 || loop_io_new(runner->loop, runner->listen_fd, EPOLLIN, on_connection, runner,
                             &runner->listen_io, err) < 0)
        goto fail;
    *ret = runner;
    return 0;
fail:
    runner_free(runner);
    return -1;
}

static void say_what_is_enforced(const struct runner *runner)
{
    char enforces[RUNNER_ENFORCES_MAX];
    runner_enforces(runner, enforces);
    log_info("processes of commands",
             LF_STR("held_by", forest_means_name(forest_means(runner->forest))),
             LF_STR("enforces", *enforces ? enforces : "no limits"),
             LF_STR("why_not", forest_why_not(runner->forest)));
}

void runner_enforces(const struct runner *runner, char ret[RUNNER_ENFORCES_MAX])
{
    unsigned mask = forest_enforces(runner->forest);
    size_t used = 0;
    ret[0] = '\0';
    for (unsigned i = 0; i < TREE_LIMIT_COUNT_; i++)
        if (mask & 1u << i)
            used += (size_t)snprintf(ret + used, RUNNER_ENFORCES_MAX - used, "%s%s",
                                     used ? "," : "", tree_limit_name((enum tree_limit)i));
}

int runner_run(struct runner *runner, struct err *err)
{
    say_what_is_enforced(runner);
    log_info("runner ready", LF_STR("socket", runner->socket_path));
    daemon_ready("listening on %s", runner->socket_path);
    return loop_run(runner->loop, err);
}

void runner_free(struct runner *runner)
{
    if (!runner)
        return;
    forward_no_logs(runner);
    runner_link_free(TAKE_PTR(runner->link));
    struct runner_entry *entry, *next;
    HASH_ITER (hh, runner->commands, entry, next)
        runner_forget(runner, entry);
    released_free(runner->released);
    state_dir_free(runner->state);
    drainer_free(runner->drainer);
    forest_free(runner->forest);
    policy_free(runner->policy);
    loop_signal_free(runner->upgrade);
    loop_timer_free(runner->accept_again);
    loop_timer_free(runner->patience);
    loop_io_free(runner->listen_io);
    close_fd(&runner->listen_fd);
    if (runner->socket_path)
        (void)unlink(runner->socket_path);
    free(runner->socket_path);
    daemon_free(runner->daemon);
    loop_free(runner->loop);
    free(runner);
}
