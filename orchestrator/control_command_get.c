/* CommandService.GetCommand and WaitCommand: one command as it is now, or when it has ended. Those
 * who wait are woken when an end is in the store (orchestrator/history_store.c); nobody polls. */
#include "orchestrator/control_command.h"

#include "common/clock.h"
#include "common/wire.h"
#include "orchestrator/command_lookup.h"
#include "orchestrator/command_wait.h"
#include "orchestrator/history.h"
#include "orchestrator/ledger_log.h"
#include "orchestrator/orchestrator-internal.h"
#include "orchestrator/relay.h"

#include <string.h>
#include <utlist.h>

#define WAIT_LOOK_US 1000000u /* how often one looks whether its caller is still there */

/* Describing. */

int command_item_fill(struct orchestrator *orchestrator, struct command_item *item, struct err *err)
{
    struct command_record *record = &item->record;
    Sandstorm__V1__Command *message = &item->message;
    struct command_id id;
    sandstorm__v1__command__init(message);
    message->id = record->id;
    message->sandbox_id = record->sandbox_id;
    message->state = item->state;
    message->ordered_by = record->ordered_by;
    message->ordered_unix_ms = record->ordered_ms;
    message->started_unix_ms = record->started_ms;
    message->ended_unix_ms = record->ended_ms;
    message->pid = record->pid;
    message->end_offset = record->end_offset;
    message->n_labels = label_messages_fill(&item->labels, record->labels);
    message->labels = item->labels.pointers;
    (void)memcpy(id.text, record->id, sizeof(id.text));
    const struct relay *relay = relay_find(orchestrator, &id);
    if (relay)
        relay_describe(relay, message);
    else
        (void)ledger_log_range(orchestrator->ledgers, &id, &message->stored_from,
                               &message->stored_to);
    if (record->ended_ms && wire_unpack(&sandstorm__v1__outcome__descriptor, record->outcome,
                                        record->outcome_size, &item->outcome, err) < 0)
        return err_wrap(err, "the outcome of command %s in the store", record->id);
    message->outcome = (Sandstorm__V1__Outcome *)item->outcome;
    return 0;
}

void command_item_done(struct command_item *item)
{
    wire_free(TAKE_PTR(item->outcome));
}

struct description {
    struct orchestrator *orchestrator;
    command_described done;
    void *userdata;
};

static void on_looked_up(void *userdata, const struct command_record *record,
                         struct sandbox *sandbox, const struct err *failed)
{
    struct description *description = userdata;
    struct command_item item = { 0 };
    struct err err = { 0 };
    (void)sandbox;
    if (!failed) {
        item.record = *record;
        item.state = history_state(description->orchestrator, record);
        if (command_item_fill(description->orchestrator, &item, &err) < 0) {
            err.code = ERR_INTERNAL;
            failed = &err;
        }
    }
    description->done(description->userdata, &item, failed);
    command_item_done(&item);
    free(description);
}

int control_command_describe(struct orchestrator *orchestrator, const struct identity *peer,
                             const char *command_id, command_described done, void *userdata,
                             struct err *err)
{
    struct description *description = calloc(1, sizeof(*description));
    if (!description)
        return err_nomem(err);
    *description = (struct description){ orchestrator, done, userdata };
    if (command_look_up(orchestrator, peer, command_id, on_looked_up, description, err) == 0)
        return 0;
    free(description);
    return -1;
}

/* Getting. */

static void on_got(void *userdata, struct command_item *item, const struct err *failed)
{
    struct rpc_ticket *ticket = userdata;
    Sandstorm__V1__GetCommandResponse response = SANDSTORM__V1__GET_COMMAND_RESPONSE__INIT;
    response.command = &item->message;
    if (failed)
        rpc_ticket_fail(ticket, failed);
    else
        rpc_ticket_reply(ticket, &response.base);
}

int control_get_command(void *userdata, struct rpc_ticket *ticket, const ProtobufCMessage *message,
                        struct err *err)
{
    const Sandstorm__V1__GetCommandRequest *request =
        (const Sandstorm__V1__GetCommandRequest *)message;
    return control_command_describe(userdata, rpc_ticket_peer(ticket), request->command_id, on_got,
                                    ticket, err);
}

/* Waiting. */

struct wait_call {
    struct command_wait wait;
    struct orchestrator *orchestrator;
    struct rpc_ticket *ticket;
    struct loop_timer *timer;
    uint64_t deadline_us;
    bool looking, woken;
};

static void wait_free(struct wait_call *wait)
{
    command_wait_stop(&wait->orchestrator->command_waits, &wait->wait);
    wait->orchestrator->command_wait_count--;
    loop_timer_free(wait->timer);
    free(wait);
}

static void wait_fail(struct wait_call *wait, const struct err *why)
{
    rpc_ticket_fail(wait->ticket, why);
    wait_free(wait);
}

static void look(struct wait_call *wait);

static void on_seen(void *userdata, struct command_item *item, const struct err *failed)
{
    struct wait_call *wait = userdata;
    Sandstorm__V1__WaitCommandResponse response = SANDSTORM__V1__WAIT_COMMAND_RESPONSE__INIT;
    wait->looking = false;
    if (failed) {
        wait_fail(wait, failed);
    } else if (item->record.ended_ms) {
        response.command = &item->message;
        rpc_ticket_reply(wait->ticket, &response.base);
        wait_free(wait);
    } else if (wait->woken) {
        look(wait); /* it ended while we looked */
    }
}

static void look(struct wait_call *wait)
{
    struct err err = { 0 };
    wait->looking = true;
    wait->woken = false;
    if (control_command_describe(wait->orchestrator, rpc_ticket_peer(wait->ticket),
                                 wait->wait.id.text, on_seen, wait, &err) == 0)
        return;
    wait->looking = false;
    wait_fail(wait, &err);
}

static void on_ended(struct command_wait *ended)
{
    struct wait_call *wait = CONTAINER_OF(ended, struct wait_call, wait);
    wait->woken = true;
    if (!wait->looking)
        look(wait);
}

static void on_time(void *userdata)
{
    struct wait_call *wait = userdata;
    uint64_t now = monotonic_us();
    struct err err;
    if (wait->looking) {
        loop_timer_start(wait->timer, WAIT_LOOK_US); /* the answer is on its way */
    } else if (rpc_ticket_gone(wait->ticket)) {
        (void)err_set(&err, ERR_CANCELLED, "the caller has gone");
        wait_fail(wait, &err);
    } else if (now < wait->deadline_us) {
        loop_timer_start(wait->timer, MIN(wait->deadline_us - now, WAIT_LOOK_US));
    } else {
        (void)err_set(&err, ERR_TIMEOUT, "command %s has not ended yet; ask again",
                      wait->wait.id.text);
        wait_fail(wait, &err);
    }
}

void control_command_stop(struct orchestrator *orchestrator)
{
    struct command_wait *each, *next;
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the orchestrator is stopping; ask again");
    DL_FOREACH_SAFE (orchestrator->command_waits, each, next) {
        struct wait_call *wait = CONTAINER_OF(each, struct wait_call, wait);
        if (wait->looking)
            wait->deadline_us = 0; /* its answer comes, or its time is over */
        else
            wait_fail(wait, &err);
    }
}

int control_wait_command(void *userdata, struct rpc_ticket *ticket, const ProtobufCMessage *message,
                         struct err *err)
{
    const Sandstorm__V1__WaitCommandRequest *request =
        (const Sandstorm__V1__WaitCommandRequest *)message;
    struct orchestrator *orchestrator = userdata;
    struct command_id id;
    if (command_id_parse(request->command_id, &id, err) < 0)
        return -1;
    if (orchestrator->command_wait_count >= CONTROL_COMMAND_WAITS_MAX)
        return err_set(err, ERR_EXHAUSTED, "%u calls wait for commands already; try again later",
                       CONTROL_COMMAND_WAITS_MAX);
    if (request->timeout_ms > CONTROL_READY_MAX_MS)
        return err_set(err, ERR_INVALID, "wait for at most %u s; ask again then",
                       CONTROL_READY_MAX_MS / 1000);
    struct wait_call *wait = calloc(1, sizeof(*wait));
    if (!wait)
        return err_nomem(err);
    if (loop_timer_new(orchestrator->loop, on_time, wait, &wait->timer, err) < 0) {
        free(wait);
        return -1;
    }
    uint64_t timeout_ms = request->timeout_ms ? request->timeout_ms : CONTROL_READY_MS;
    wait->orchestrator = orchestrator;
    wait->ticket = ticket;
    wait->wait.id = id;
    wait->wait.ended = on_ended;
    wait->deadline_us = monotonic_us() + timeout_ms * 1000;
    command_wait_start(&orchestrator->command_waits, &wait->wait);
    orchestrator->command_wait_count++;
    loop_timer_start(wait->timer, MIN(timeout_ms * 1000, WAIT_LOOK_US));
    look(wait);
    return 0;
}
