/* The life of one command: started from a Start order (agent/runner.c), running, draining once its
 * leader is reaped (and, when it was killed, the rest of its tree is gone), ended when its pipes
 * are empty too. Ends exactly once, with an outcome that says what happened and nothing else. next:
 * agent/command_prepare.c decides, agent/spawn.c makes the process, agent/command_io.c moves its
 * bytes, agent/command_kill.c ends it, agent/command_events.c tells the orchestrator. */
#include "agent/command-internal.h"
#include "common/clock.h"
#include "common/log.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *const state_names[COMMAND_STATE_COUNT_] = {
    [COMMAND_RUNNING] = "running",
    [COMMAND_CLEARING] = "clearing",
    [COMMAND_DRAINING] = "draining",
    [COMMAND_ENDED] = "ended",
};

static const bool transitions[COMMAND_STATE_COUNT_][COMMAND_STATE_COUNT_] = {
    [COMMAND_RUNNING] = { [COMMAND_CLEARING] = true,
                          [COMMAND_DRAINING] = true,
                          [COMMAND_ENDED] = true },
    [COMMAND_CLEARING] = { [COMMAND_DRAINING] = true },
    [COMMAND_DRAINING] = { [COMMAND_ENDED] = true },
};

const char *command_state_name(enum command_state state)
{
    return (unsigned)state < COMMAND_STATE_COUNT_ ? state_names[state] : "unknown";
}

void command_set_state(struct command *command, enum command_state state)
{
    assert(transitions[command->state][state]);
    log_debug("command state", LF_STR("command", command->id.text),
              LF_STR("from", command_state_name(command->state)),
              LF_STR("to", command_state_name(state)));
    command->state = state;
}

void command_changed(struct command *command)
{
    command->host.changed(command->host.userdata, command);
}

/* Ending. */

/* "exited", "start_failed": the name of the result's field on the wire. */
static const char *result_name(Sandstorm__V1__Outcome__ResultCase kind)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(
        &sandstorm__v1__outcome__descriptor, (unsigned)kind);
    return field ? field->name : "unknown";
}

/* What is left of the tree, and what it cost. Nobody is killed here: after an end by itself the
 * rest may go on, after a kill it could not be ended. */
static void let_tree_go(struct command *command)
{
    struct command_outcome *outcome = &command->outcome;
    struct tree_usage usage;
    if (!command->tree)
        return;
    tree_usage(command->tree, &usage);
    outcome->peak_memory_bytes = usage.peak_memory_bytes;
    if (outcome->kind == SANDSTORM__V1__OUTCOME__RESULT_SIGNALED && outcome->signal == SIGKILL &&
        usage.oom_killed)
        outcome->kind = SANDSTORM__V1__OUTCOME__RESULT_OOM_KILLED;
    outcome->survivors = command->pid > 0 ? tree_count(command->tree) : 0;
    tree_free(TAKE_PTR(command->tree), command->cause == CAUSE_NONE);
}

static void end(struct command *command)
{
    command_set_state(command, COMMAND_ENDED);
    loop_timer_stop(command->timeout);
    loop_timer_stop(command->drain);
    loop_timer_stop(command->alone);
    command_kill_done(command);
    let_tree_go(command);
    for (size_t i = 0; i < ELEMENTS(command->pipes); i++)
        if (command->pipes[i].fd >= 0)
            command->outcome.held_open = true;
    command->ended_due = command->settled_due = true;
    command_keep_end(command);
    /* Pipes that are still open are read and discarded from here on; their credit does not count.
     */
    for (size_t i = 0; i < ELEMENTS(command->pipes); i++)
        if (command->pipes[i].io)
            loop_io_want(command->pipes[i].io, EPOLLIN);
    log_info("command ended", LF_STR("command", command->id.text), LF_INT("pid", command->pid),
             LF_STR("result", result_name(command->outcome.kind)),
             LF_UINT("exit_code", command->outcome.code),
             LF_UINT("signal", command->outcome.signal),
             LF_UINT("survivors", command->outcome.survivors),
             LF_UINT("duration_us", command->outcome.duration_us),
             LF_UINT("stdout_bytes", command->pipes[0].bytes),
             LF_UINT("stderr_bytes", command->pipes[1].bytes));
    command_changed(command);
}

void command_check_finished(struct command *command)
{
    if (command->state != COMMAND_DRAINING)
        return;
    for (size_t i = 0; i < ELEMENTS(command->pipes); i++) {
        const struct command_pipe *pipe = &command->pipes[i];
        if (pipe->fd >= 0 && (pipe->must_read > 0 || !command->drain_over))
            return;
    }
    end(command);
}

static void on_drain_over(void *userdata)
{
    struct command *command = userdata;
    command->drain_over = true;
    command_check_finished(command);
}

static void judge_result(struct command *command, const siginfo_t *info)
{
    struct command_outcome *outcome = &command->outcome;
    if (info && info->si_pid == 0) {
        outcome->kind = SANDSTORM__V1__OUTCOME__RESULT_LOST;
        (void)snprintf(outcome->detail, sizeof(outcome->detail),
                       "the process was reaped by somebody else");
    } else if (command->cause == CAUSE_TIMED_OUT) {
        outcome->kind = SANDSTORM__V1__OUTCOME__RESULT_TIMED_OUT;
    } else if (command->cause == CAUSE_CANCELLED) {
        outcome->kind = SANDSTORM__V1__OUTCOME__RESULT_CANCELLED;
        (void)snprintf(outcome->detail, sizeof(outcome->detail), "%s%s", command->cancel_reason,
                       info ? "" : "; it does not end, not even by SIGKILL");
    } else if (info && info->si_code == CLD_EXITED) {
        outcome->kind = SANDSTORM__V1__OUTCOME__RESULT_EXITED;
        outcome->code = (unsigned)info->si_status;
    } else if (info) {
        outcome->kind = SANDSTORM__V1__OUTCOME__RESULT_SIGNALED;
        outcome->signal = (unsigned)info->si_status;
        outcome->core_dumped = info->si_code == CLD_DUMPED;
    }
}

void command_judge(struct command *command, const siginfo_t *info, const struct rusage *usage)
{
    assert(info || command->cause != CAUSE_NONE);
    loop_timer_stop(command->timeout);
    command->outcome.ended_us = wall_us();
    command->outcome.duration_us = monotonic_us() - command->started_monotonic_us;
    if (usage)
        command->outcome.usage = *usage;
    judge_result(command, info);
}

void command_drain(struct command *command)
{
    command_kill_done(command);
    command_note_unread(command);
    command_set_state(command, COMMAND_DRAINING);
    loop_timer_start(command->drain, COMMAND_DRAIN_US);
    command_check_finished(command);
}

static void on_reaped(void *userdata, const siginfo_t *info, const struct rusage *usage)
{
    struct command *command = userdata;
    reaper_unwatch(TAKE_PTR(command->child));
    close_fd(&command->pidfd);
    tree_leader_reaped(command->tree);
    command_judge(command, info, usage);
    if (command->cause != CAUSE_NONE || command->swept)
        command_clear(command);
    else
        command_drain(command);
}

static void on_timeout(void *userdata)
{
    struct command *command = userdata;
    if (command->cause != CAUSE_NONE)
        return; /* it is being killed already */
    command->cause = CAUSE_TIMED_OUT;
    command_kill_softly(command, command->kill_grace_us);
}

static void on_retry(void *userdata)
{
    struct command *command = userdata;
    if (command->state == COMMAND_ENDED)
        command_keep_end(command);
    else
        command_resume_reading(command);
}

static void on_alone(void *userdata)
{
    command_cancel(userdata, 0, "client gone");
}

void command_cancel(struct command *command, uint64_t grace_us, const char *reason)
{
    if (command->state != COMMAND_RUNNING && command->state != COMMAND_CLEARING)
        return;
    if (command->cause == CAUSE_NONE) {
        command->cause = CAUSE_CANCELLED;
        command->cancel_reason = reason;
    }
    command_kill_softly(command, grace_us ? grace_us : command->kill_grace_us);
}

/* Starting. */

int command_watch_leader(struct command *command, struct err *err)
{
    return reaper_watch(forest_reaper(command->host.forest), command->pid, command->pidfd,
                        on_reaped, command, &command->child, err);
}

int command_new_bare(const struct command_host *host, const struct command_id *id,
                     struct command **ret, struct err *err)
{
    struct command *command = calloc(1, sizeof(*command));
    if (!command)
        return err_nomem(err);
    command->host = *host;
    command->id = *id;
    command->pidfd = -1;
    command->input.fd = -1;
    command->slave = -1;
    for (size_t i = 0; i < ELEMENTS(command->pipes); i++) {
        command->pipes[i].command = command;
        command->pipes[i].fd = -1;
        command->pipes[i].stream = i == 0 ? SPOOL_STDOUT : SPOOL_STDERR;
    }
    buf_init(&command->input.bytes, COMMAND_STDIN_WINDOW);
    window_receiver_init(&command->input.window, 0, COMMAND_STDIN_WINDOW);
    spool_init(&command->spool, SPOOL_BYTES_MAX);
    if (loop_timer_new(host->loop, on_timeout, command, &command->timeout, err) < 0 ||
        command_kill_init(command, err) < 0 ||
        loop_timer_new(host->loop, on_drain_over, command, &command->drain, err) < 0 ||
        loop_timer_new(host->loop, on_alone, command, &command->alone, err) < 0 ||
        loop_timer_new(host->loop, on_retry, command, &command->retry, err) < 0) {
        command_free(command);
        return -1;
    }
    *ret = command;
    return 0;
}

static void fail_start(struct command *command, Sandstorm__V1__StartStep step, int error,
                       const char *detail)
{
    command->outcome.kind = SANDSTORM__V1__OUTCOME__RESULT_START_FAILED;
    command->outcome.step = step;
    command->outcome.error = error;
    (void)snprintf(command->outcome.detail, sizeof(command->outcome.detail), "%s", detail);
    command->outcome.ended_us = wall_us();
    command->stdin_due = false;
    command_close_pipes(command);
    end(command);
}

static void apply_policies(struct command *command, const Sandstorm__V1__CommandSpec *spec)
{
    command->output_policy = spec->output_policy;
    command->takes_input = spec->stdin_mode == SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    command->kill_grace_us =
        spec->kill_grace_ms ? spec->kill_grace_ms * 1000 : COMMAND_KILL_GRACE_US;
    command->timeout_us = spec->timeout_ms * 1000;
    command->kill_when_alone =
        spec->client_gone == SANDSTORM__V1__CLIENT_GONE_POLICY__CLIENT_GONE_POLICY_KILL_AFTER;
    command->alone_us = spec->client_gone_after_ms * 1000;
}

/* From pipes to a process. *ret_step says how far it came. */
static int launch(struct command *command, const Sandstorm__V1__CommandSpec *spec,
                  struct command_exec *exec, enum spawn_step *ret_step, struct err *err)
{
    CLEANUP_FD int child_in = -1;
    CLEANUP_FD int child_out = -1;
    CLEANUP_FD int child_err = -1;
    int fds[3] = { -1, -1, -1 };
    *ret_step = SPAWN_STEP_PIPES;
    uid_t owner = exec->user.changes ? exec->user.uid : geteuid();
    int r = command_open_pipes(command, spec, owner, fds, err);
    child_in = fds[0];
    child_out = fds[1];
    child_err = fds[2];
    if (r < 0 || command_watch_pipes(command, err) < 0)
        return -1;
    if (command_plant(command, spec, exec, ret_step, err) < 0)
        return -1;
    struct spawn_request request;
    command_request(command, exec, &request);
    request.stdio[0] = child_in;
    request.stdio[1] = child_out;
    request.stdio[2] = child_err;
    request.terminal = command->terminal;
    struct spawn_result process;
    if (spawn_process(&request, &process, ret_step, err) < 0)
        return -1;
    command->pid = process.pid;
    command->pidfd = process.pidfd;
    tree_started(command->tree, process.pid);
    command_keep_started(command);
    return 0;
}

/* A process without a watcher would never be told of. */
static int watch(struct command *command, enum spawn_step *ret_step, struct err *err)
{
    if (command_watch_leader(command, err) == 0)
        return 0;
    *ret_step = SPAWN_STEP_FORK;
    tree_kill(command->tree);
    close_fd(&command->pidfd);
    return -1;
}

static int start(struct command *command, const Sandstorm__V1__CommandSpec *spec,
                 enum spawn_step *ret_step, struct err *err)
{
    struct command_exec exec = { 0 };
    int r = command_prepare(command, spec, &exec, ret_step, err);
    if (r == 0)
        apply_policies(command, spec);
    command->outcome.started_us = r == 0 ? wall_us() : 0;
    command->started_monotonic_us = monotonic_us();
    bool inline_input = spec->stdin_mode == SANDSTORM__V1__STDIN_MODE__STDIN_MODE_INLINE;
    if (r == 0 && inline_input)
        r = command_input_keep(command, &spec->stdin_data, err);
    if (r == 0)
        r = launch(command, spec, &exec, ret_step, err);
    command_exec_free(&exec);
    if (r < 0 || watch(command, ret_step, err) < 0)
        return -1;
    command->started_due = true;
    if (command->timeout_us)
        loop_timer_start(command->timeout, command->timeout_us);
    if (command->input.eof)
        command_input_feed(command);
    return 0;
}

static void keep_digest(struct command *command, const Sandstorm__V1__Start *order)
{
    (void)memcpy(command->digest, order->spec_digest.data,
                 MIN(order->spec_digest.len, sizeof(command->digest)));
}

int command_new(const struct command_host *host, const struct command_id *id,
                const Sandstorm__V1__Start *order, struct command **ret, struct err *err)
{
    struct command *command;
    if (command_new_bare(host, id, &command, err) < 0)
        return -1;
    keep_digest(command, order);
    *ret = command;
    enum spawn_step step = SPAWN_STEP_ADMIT;
    struct err why = { 0 };
    if (command_keep_reserve(command, order->spec, &why) < 0 ||
        start(command, order->spec, &step, &why) < 0) {
        log_info("command could not start", LF_STR("command", id->text), LF_ERR(&why));
        fail_start(command, (Sandstorm__V1__StartStep)step, why.sys_errno, why.text);
        return 0;
    }
    log_info("command started", LF_STR("command", id->text), LF_INT("pid", command->pid));
    return 0;
}

int command_new_refused(const struct command_host *host, const struct command_id *id,
                        const Sandstorm__V1__Start *order, Sandstorm__V1__StartStep step, int error,
                        const char *detail, struct command **ret, struct err *err)
{
    struct err kept;
    if (command_new_bare(host, id, ret, err) < 0)
        return -1;
    keep_digest(*ret, order);
    /* It did not run: if that cannot be noted, the worst is that it runs later. */
    (void)!command_keep_reserve(*ret, order->spec, &kept);
    fail_start(*ret, step, error, detail);
    return 0;
}

void command_free(struct command *command)
{
    if (!command)
        return;
    if (command->tree && (command->child || command->cause != CAUSE_NONE))
        tree_kill(command->tree);
    tree_free(command->tree, false);
    reaper_unwatch(command->child);
    close_fd(&command->pidfd);
    command_close_pipes(command);
    spool_done(&command->spool);
    wire_free(command->kept);
    loop_timer_free(command->timeout);
    loop_timer_free(command->kill);
    loop_timer_free(command->patience);
    loop_timer_free(command->drain);
    loop_timer_free(command->alone);
    loop_timer_free(command->retry);
    free(command);
}

/* What others may know. */

const struct command_id *command_id(const struct command *command)
{
    return &command->id;
}

enum command_state command_state(const struct command *command)
{
    return command->state;
}

bool command_followed(const struct command *command)
{
    return command->speaking;
}

bool command_same_spec(const struct command *command, const ProtobufCBinaryData *digest)
{
    return digest->len == sizeof(command->digest) &&
           memcmp(digest->data, command->digest, sizeof(command->digest)) == 0;
}

size_t command_spooled(const struct command *command)
{
    return (size_t)(spool_end(&command->spool) - spool_first(&command->spool));
}

void command_position(const struct command *command, Sandstorm__V1__CommandPosition *ret)
{
    ret->command_id = (char *)command->id.text;
    ret->first_offset = spool_first(&command->spool);
    ret->end_offset = spool_end(&command->spool);
    ret->ended = command->state == COMMAND_ENDED;
    ret->stdin_received = command->input.window.received;
    ret->acked = command->acked;
    ret->spec_digest = (ProtobufCBinaryData){ sizeof(command->digest), (uint8_t *)command->digest };
}
