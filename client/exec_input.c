/* What goes to the command: its input at its own pace, signals, the size of its terminal. What was
 * sent and may be lost with a connection is kept (client/feed.c); what comes while there is no
 * stream waits for the next one. next: client/source.c, client/exec_stream.c. */
#include "client/exec-internal.h"

#include <stdio.h>
#include <string.h>

/* Input. */

/* What the caller's filter may add to what is read. */
static size_t room(const struct sandstorm_exec *exec)
{
    size_t room = feed_room(&exec->feed), spare = exec->streams.typed ? SOURCE_SPARE : 0;
    return room > spare ? room - spare : 0;
}

static void send_input(struct sandstorm_exec *exec)
{
    struct feed_piece piece;
    while (exec->state == EXEC_ATTACHED && feed_next(&exec->feed, &piece)) {
        Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
        Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
        input.offset = piece.offset;
        input.data = (ProtobufCBinaryData){ piece.size, piece.data };
        input.eof = piece.eof;
        request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_STDIN;
        request.stdin = &input;
        exec_say(exec, &request);
    }
    if (exec->source)
        source_allow(exec->source, room(exec));
}

static void on_input(void *owner, void *data, size_t size)
{
    struct sandstorm_exec *exec = owner;
    struct err err;
    size_t left = size;
    if (size > 0 && exec->streams.typed)
        left = exec->streams.typed(exec->streams.userdata, data, size);
    if (exec->left)
        return;
    /* Nothing of what was typed is for the command; an empty piece would be the end. */
    bool none = size > 0 && left == 0;
    if (!none && feed_push(&exec->feed, data, left, &err) < 0) {
        exec_fail(exec, &err);
        return;
    }
    send_input(exec);
}

int exec_open_source(struct sandstorm_exec *exec, struct err *err)
{
    const struct source_config config = { exec->streams.stdin_fd, on_input, exec };
    if (exec->watch || config.fd < 0)
        return 0;
    return source_new(exec->client->loop, &config, &exec->source, err);
}

void exec_close_source(struct sandstorm_exec *exec)
{
    source_free(TAKE_PTR(exec->source));
}

int exec_on_stdin_credit(struct sandstorm_exec *exec, const Sandstorm__V1__StdinCredit *credit,
                         struct err *err)
{
    if (!exec->source && !exec->feed.heard)
        return 0; /* we have no input */
    if (credit->closed) {
        exec_close_source(exec);
        return 0;
    }
    if (feed_credit(&exec->feed, credit->limit, credit->received, credit->next, err) < 0)
        return -1;
    send_input(exec);
    return 0;
}

void exec_cut_input(struct sandstorm_exec *exec)
{
    feed_cut(&exec->feed);
    if (exec->source)
        source_allow(exec->source, 0);
}

/* Signals and sizes. */

static void send_signal(struct sandstorm_exec *exec, const char *name)
{
    Sandstorm__V1__Signal signal = SANDSTORM__V1__SIGNAL__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    signal.name = (char *)name;
    signal.target = SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_TREE;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_SIGNAL;
    request.signal = &signal;
    exec_say(exec, &request);
}

static void send_cancel(struct sandstorm_exec *exec)
{
    Sandstorm__V1__Cancel cancel = SANDSTORM__V1__CANCEL__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_CANCEL;
    request.cancel = &cancel;
    exec_say(exec, &request);
}

static void send_size(struct sandstorm_exec *exec)
{
    Sandstorm__V1__TerminalSize size = SANDSTORM__V1__TERMINAL_SIZE__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    size.rows = exec->due.rows;
    size.columns = exec->due.columns;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_RESIZE;
    request.resize = &size;
    exec_say(exec, &request);
}

void exec_send_due(struct sandstorm_exec *exec)
{
    if (exec->state != EXEC_ATTACHED)
        return;
    if (exec->due.resize)
        send_size(exec);
    if (*exec->due.signal)
        send_signal(exec, exec->due.signal);
    if (exec->due.cancel)
        send_cancel(exec);
    exec->due.resize = exec->due.cancel = false;
    *exec->due.signal = '\0';
}

static int check_control(const struct sandstorm_exec *exec, struct err *err)
{
    if (exec->watch)
        return err_set(err, ERR_INVALID, "who only watches a command cannot change it");
    if (exec->state == EXEC_DONE || exec->ended)
        return err_set(err, ERR_PRECONDITION, "the command has ended or the connection is lost");
    return 0;
}

int sandstorm_exec_signal(struct sandstorm_exec *exec, const char *name,
                          struct sandstorm_error *error)
{
    struct err err = { 0 };
    if (check_control(exec, &err) < 0)
        return client_error(&err, error);
    if (strlen(name) >= sizeof(exec->due.signal)) {
        (void)err_set(&err, ERR_INVALID, "there is no signal with such a long name");
        return client_error(&err, error);
    }
    (void)snprintf(exec->due.signal, sizeof(exec->due.signal), "%s", name);
    exec_send_due(exec);
    return 0;
}

int sandstorm_exec_cancel(struct sandstorm_exec *exec, struct sandstorm_error *error)
{
    struct err err = { 0 };
    if (check_control(exec, &err) < 0)
        return client_error(&err, error);
    exec->due.cancel = true;
    exec_send_due(exec);
    return 0;
}

int sandstorm_exec_resize(struct sandstorm_exec *exec, unsigned rows, unsigned columns,
                          struct sandstorm_error *error)
{
    struct err err = { 0 };
    if (check_control(exec, &err) < 0)
        return client_error(&err, error);
    exec->due.rows = rows;
    exec->due.columns = columns;
    exec->due.resize = true;
    exec_send_due(exec);
    return 0;
}
