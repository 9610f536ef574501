/* One command as its client sees it: started or attached to, waited for, let go. What happens in
 * between is in the files beside this one: client/exec_stream.c (connections),
 * client/exec_output.c, client/exec_input.c. */
#include "client/exec-internal.h"

#include "common/log.h"
#include "common/utf8.h"
#include "common/wire.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const state_names[EXEC_STATE_COUNT_] = {
    [EXEC_NEW] = "new",         [EXEC_OPENING] = "opening", [EXEC_ATTACHED] = "attached",
    [EXEC_WAITING] = "waiting", [EXEC_DONE] = "done",
};

static const bool transitions[EXEC_STATE_COUNT_][EXEC_STATE_COUNT_] = {
    [EXEC_NEW] = { [EXEC_OPENING] = true },
    [EXEC_OPENING] = { [EXEC_ATTACHED] = true, [EXEC_WAITING] = true, [EXEC_DONE] = true },
    [EXEC_ATTACHED] = { [EXEC_WAITING] = true, [EXEC_DONE] = true },
    [EXEC_WAITING] = { [EXEC_OPENING] = true, [EXEC_DONE] = true },
};

void exec_set_state(struct sandstorm_exec *exec, enum exec_state state)
{
    assert(transitions[exec->state][state]);
    log_debug("exec state", LF_STR("command", exec->id.text),
              LF_STR("from", state_names[exec->state]), LF_STR("to", state_names[state]));
    exec->state = state;
    loop_timer_stop(exec->again);
    if (state == EXEC_DONE)
        exec_close_source(exec);
}

void exec_notice(const struct sandstorm_exec *exec, const char *fmt, ...)
{
    char text[SANDSTORM_TEXT_MAX];
    va_list ap;
    if (!exec->streams.notice)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    utf8_clean(text);
    exec->streams.notice(exec->streams.userdata, text);
}

/* The time to try again. */
static void on_again(void *userdata)
{
    struct sandstorm_exec *exec = userdata;
    struct err err;
    (void)client_reconnect(exec->client, exec->generation);
    if (exec_open(exec, &err) == 0)
        return;
    exec_fail(exec, &err);
    if (!exec->call)
        exec_set_state(exec, EXEC_DONE);
}

/* Beginning. */

static int exec_new(struct sandstorm_client *client, const char *sandbox,
                    const struct sandstorm_streams *streams, struct sandstorm_exec **ret,
                    struct err *err)
{
    struct sandstorm_exec *exec = calloc(1, sizeof(*exec));
    if (!exec)
        return err_nomem(err);
    exec->client = client;
    exec->streams = *streams;
    exec->sandbox = strdup(sandbox);
    client_retry_init(client, streams->give_up_after_ms * 1000, &exec->retry);
    if (exec->sandbox && loop_timer_new(client->loop, on_again, exec, &exec->again, err) == 0) {
        *ret = exec;
        return 0;
    }
    if (!exec->sandbox)
        (void)err_nomem(err);
    sandstorm_exec_free(exec);
    return -1;
}

static void exec_cleanup(struct sandstorm_exec **exec)
{
    sandstorm_exec_free(*exec);
}

static int begin(struct sandstorm_exec *exec, struct err *err)
{
    return exec_open_sinks(exec, err) < 0 || exec_open_source(exec, err) < 0 ||
                   exec_open(exec, err) < 0
               ? -1
               : 0;
}

/* An id of our own, so that a start can be repeated when nobody knows whether it was heard. */
static int choose_id(struct sandstorm_exec *exec, const char *asked, struct err *err)
{
    return asked ? command_id_parse(asked, &exec->id, err) : command_id_new(&exec->id, err);
}

int sandstorm_exec_start(struct sandstorm_client *client,
                         const struct sandstorm_exec_options *options, struct sandstorm_exec **ret,
                         struct sandstorm_error *error)
{
    const struct sandstorm_spec *spec = &options->spec;
    CLEANUP(exec_cleanup) struct sandstorm_exec *exec = NULL;
    struct err err = { 0 };
    if (exec_new(client, spec->sandbox, &options->streams, &exec, &err) < 0)
        return client_error(&err, error);
    window_receiver_init(&exec->output, 0, EXEC_WINDOW);
    feed_init(&exec->feed, true);
    exec->due.rows = spec->terminal ? spec->rows : 0;
    exec->due.columns = spec->columns;
    if (choose_id(exec, spec->command_id, &err) < 0 ||
        client_spec(spec, options->streams.stdin_fd >= 0, &exec->spec, &err) < 0 ||
        begin(exec, &err) < 0)
        return client_error(&err, error);
    *ret = TAKE_PTR(exec);
    return 0;
}

int sandstorm_exec_attach(struct sandstorm_client *client,
                          const struct sandstorm_attach_options *options,
                          struct sandstorm_exec **ret, struct sandstorm_error *error)
{
    CLEANUP(exec_cleanup) struct sandstorm_exec *exec = NULL;
    struct err err = { 0 };
    if (exec_new(client, "", &options->streams, &exec, &err) < 0)
        return client_error(&err, error);
    exec->watch = options->watch;
    exec->snapshot = options->snapshot;
    exec->from_end = options->from_end;
    exec->last_bytes = options->last_bytes;
    window_receiver_init(&exec->output, options->from_offset, EXEC_WINDOW);
    feed_init(&exec->feed, false);
    if (command_id_parse(options->command_id, &exec->id, &err) < 0 || begin(exec, &err) < 0)
        return client_error(&err, error);
    *ret = TAKE_PTR(exec);
    return 0;
}

/* Looking. */

const char *sandstorm_exec_id(const struct sandstorm_exec *exec)
{
    return exec->id.text;
}

uint64_t sandstorm_exec_offset(const struct sandstorm_exec *exec)
{
    return exec->output.taken;
}

bool sandstorm_exec_may_run(const struct sandstorm_exec *exec)
{
    return exec->accepted || exec->doubt;
}

/* Ending. */

void sandstorm_exec_detach(struct sandstorm_exec *exec)
{
    struct err err;
    if (exec->state == EXEC_DONE || exec->ended)
        return;
    exec->left = true;
    (void)err_set(&err, ERR_CANCELLED, "detached; the command goes on");
    exec_fail(exec, &err);
}

static bool settled(const struct sandstorm_exec *exec)
{
    /* With the end record here, bytes that wait for a slow reader are still to be taken. */
    return exec->state == EXEC_DONE && (!exec->ended || exec->output.taken == exec->end_offset);
}

/* Why there is no result, and what that means. */
static int no_result(struct sandstorm_exec *exec, struct sandstorm_error *error)
{
    struct err err = exec->err;
    if (exec->left)
        return client_error(&err, error);
    client_explain(exec->client, &err);
    if (exec->accepted)
        (void)err_wrap(&err, "the result of command %s is unknown", exec->id.text);
    else if (exec->doubt)
        (void)err_wrap(&err, "it is not known whether command %s was started", exec->id.text);
    return client_error(&err, error);
}

int sandstorm_exec_wait(struct sandstorm_exec *exec, struct sandstorm_outcome *ret,
                        struct sandstorm_error *error)
{
    struct err err = { 0 };
    while (!settled(exec))
        if (loop_turn(exec->client->loop, UINT64_MAX, &err) < 0)
            return client_error(&err, error);
    if (exec->output_err.code != ERR_NONE)
        return client_error(&exec->output_err, error);
    if (!exec->ended && exec->err.code != ERR_NONE)
        return no_result(exec, error);
    *ret = exec->outcome;
    return 0;
}

void sandstorm_exec_free(struct sandstorm_exec *exec)
{
    if (!exec)
        return;
    struct err ignored;
    sandstorm_exec_detach(exec);
    if (exec->call)
        rpc_call_cancel(exec->call);
    while (exec->call && loop_turn(exec->client->loop, UINT64_MAX, &ignored) == 0)
        ;
    rpc_call_release(exec->call);
    loop_timer_free(exec->again);
    exec_close_source(exec);
    for (int i = 0; i < 2; i++)
        sink_free(exec->sinks[i]);
    feed_done(&exec->feed);
    wire_free(exec->spec);
    free(exec->sandbox);
    free(exec);
}
