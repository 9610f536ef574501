/* One Exec stream, read to its end. Tests with a spec of their own use it. */
#include "tests/harness/starter.h"

#include <stdio.h>
#include <string.h>

void starter_open(struct starter *starter, const Sandstorm__V1__CommandSpec *spec, const char *id)
{
    *starter = (struct starter){ 0 };
    starter->peer = peer_open(fixture()->admin, "/sandstorm.v1.CommandService/Exec");
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    open.sandbox_id = (char *)BOX;
    open.command_id = (char *)(id ? id : "");
    open.spec = (Sandstorm__V1__CommandSpec *)spec;
    open.server_credit = true;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    peer_send(starter->peer, &request.base);
}

void starter_done(struct starter *starter)
{
    wire_free(starter->last);
    peer_free(starter->peer);
    *starter = (struct starter){ 0 };
}

static void note_started(struct starter *starter, const Sandstorm__V1__Started *started)
{
    size_t used = 0;
    starter->pid = (pid_t)started->pid;
    starter->started++;
    for (size_t i = 0; i < started->n_not_enforced; i++)
        used += (size_t)snprintf(starter->not_enforced + used, sizeof(starter->not_enforced) - used,
                                 "%s%s", used ? " " : "", started->not_enforced[i]);
}

static void note_output(struct starter *starter, const Sandstorm__V1__Output *output)
{
    bool is_out = output->stream == SANDSTORM__V1__STREAM__STREAM_STDOUT;
    char *to = is_out ? starter->out : starter->err;
    size_t *used = is_out ? &starter->out_size : &starter->err_size;
    cr_assert_lt(*used + output->data.len, STARTER_OUTPUT_MAX);
    (void)memcpy(to + *used, output->data.data, output->data.len);
    *used += output->data.len;
    to[*used] = '\0';
}

static Sandstorm__V1__ExecResponse *note(struct starter *starter, ProtobufCMessage *message)
{
    Sandstorm__V1__ExecResponse *response = (Sandstorm__V1__ExecResponse *)message;
    if (response->kind_case == SANDSTORM__V1__EXEC_RESPONSE__KIND_STARTED)
        note_started(starter, response->started);
    else if (response->kind_case == SANDSTORM__V1__EXEC_RESPONSE__KIND_OUTPUT)
        note_output(starter, response->output);
    else if (response->kind_case == SANDSTORM__V1__EXEC_RESPONSE__KIND_ENDED)
        starter->outcome = response->ended->outcome;
    wire_free(starter->last);
    starter->last = message;
    return response;
}

/* The next record; ends the case when the stream ends instead. */
static Sandstorm__V1__ExecResponse *hear(struct starter *starter)
{
    ProtobufCMessage *message =
        peer_receive(starter->peer, &sandstorm__v1__exec_response__descriptor);
    struct err none = { 0 };
    cr_assert_not_null(message, "%s", (message ? none : peer_wait_closed(starter->peer)).text);
    return note(starter, message);
}

void starter_listen(struct starter *starter, uint64_t timeout_us)
{
    ProtobufCMessage *message =
        peer_receive_within(starter->peer, &sandstorm__v1__exec_response__descriptor, timeout_us);
    if (message)
        (void)note(starter, message);
}

void starter_await_more(struct starter *starter)
{
    (void)hear(starter);
    cr_assert_null(starter->outcome, "the command has ended: \"%s\" \"%s\"", starter->out,
                   starter->err);
}

void starter_await_line(struct starter *starter)
{
    while (!strchr(starter->out, '\n'))
        starter_await_more(starter);
}

static void send_signal(struct starter *starter, Sandstorm__V1__Signal *signal)
{
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_SIGNAL;
    request.signal = signal;
    peer_send(starter->peer, &request.base);
}

void starter_signal(struct starter *starter, const char *name, Sandstorm__V1__SignalTarget target)
{
    Sandstorm__V1__Signal signal = SANDSTORM__V1__SIGNAL__INIT;
    signal.name = (char *)name;
    signal.target = target;
    send_signal(starter, &signal);
}

void starter_signal_number(struct starter *starter, unsigned number)
{
    Sandstorm__V1__Signal signal = SANDSTORM__V1__SIGNAL__INIT;
    signal.number = number;
    send_signal(starter, &signal);
}

void starter_await_refusal(struct starter *starter, char *out, size_t size)
{
    for (;;) {
        const Sandstorm__V1__ExecResponse *response = hear(starter);
        cr_assert_null(starter->outcome, "the command ended and nothing was refused");
        if (response->kind_case != SANDSTORM__V1__EXEC_RESPONSE__KIND_NOTICE)
            continue;
        (void)snprintf(out, size, "%s", response->notice->detail);
        return;
    }
}

void starter_cancel(struct starter *starter, uint64_t grace_ms)
{
    Sandstorm__V1__Cancel cancel = SANDSTORM__V1__CANCEL__INIT;
    cancel.grace_ms = grace_ms;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_CANCEL;
    request.cancel = &cancel;
    peer_send(starter->peer, &request.base);
}

const Sandstorm__V1__Outcome *starter_wait(struct starter *starter)
{
    while (!starter->outcome)
        (void)hear(starter);
    return starter->outcome;
}

const Sandstorm__V1__Outcome *starter_run(struct starter *starter,
                                          const Sandstorm__V1__CommandSpec *spec)
{
    starter_open(starter, spec, NULL);
    return starter_wait(starter);
}
