/* The link goes away and comes back; the runner says what it has; every command of the sandbox is
 * brought into step with it. Called by orchestrator/session.c. What clients asked for in between
 * has waited as due (orchestrator/relay_orders.c) and goes out when the inventory is complete.
 * Commands that the runner still has and that ended here long ago go to orchestrator/relay_adopt.c.
 */
#include "orchestrator/relay-internal.h"

#include "orchestrator/exec-internal.h"
#include "orchestrator/relay_adopt.h"
#include "orchestrator/session.h"

#include <string.h>

void relay_session_lost(struct sandbox *sandbox, bool back_at_once)
{
    sandbox->in_step = sandbox->listing = false;
    struct relay *relay, *next;
    if (back_at_once)
        return;
    DL_FOREACH_SAFE (sandbox->relays, relay, next) {
        if (relay->link_lost || relay->state == RELAY_ENDED)
            continue;
        relay->link_lost = true;
        relay_enter(relay);
        relay_notice(relay, SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_LINK_LOST,
                     "the sandbox's link is away; the command goes on and its output will follow");
        relay_exit(relay);
    }
}

void relay_runner_away(struct sandbox *sandbox)
{
    sandbox->in_step = sandbox->listing = false;
}

void relay_session_writable(struct sandbox *sandbox)
{
    struct relay *relay, *next;
    /* What is small and urgent first: one command's input does not hold up another's cancel. */
    DL_FOREACH_SAFE (sandbox->relays, relay, next) {
        relay_enter(relay);
        relay_flush_orders(relay);
        relay_exit(relay);
    }
    DL_FOREACH_SAFE (sandbox->relays, relay, next)
        relay_flush(relay);
    /* The next room goes to others first. */
    relay = sandbox->relays;
    if (relay && relay->next) {
        DL_DELETE(sandbox->relays, relay);
        DL_APPEND(sandbox->relays, relay);
    }
}

static void resume(struct relay *relay, const Sandstorm__V1__CommandPosition *position)
{
    relay->listed = true;
    if (relay->state == RELAY_ENDED)
        return;
    /* A start of a known id is an attach that also compares the spec. One that has ended is never
     * started, whatever became of the runner. */
    relay->due.start = relay->state == RELAY_PENDING && relay->spec && !relay->result;
    relay->due.attach = !relay->due.start;
    relay->due.cancel = relay->due.cancel || relay->cancelled;
    /* A runner that was killed may have lost what it had already sent. */
    relay->listed_end = position->ended ? position->end_offset : UINT64_MAX;
    /* What was sent and not received is sent again, the end of input too. */
    relay->input_sent = MIN(relay->input_sent, position->stdin_received);
    relay_input_at(relay, position->stdin_received, relay->input_taken);
    relay->input_eof_sent = false;
}

static int on_position(struct orchestrator *orchestrator, struct sandbox *sandbox,
                       const Sandstorm__V1__CommandPosition *position, struct err *err)
{
    struct history *history = orchestrator->history;
    struct command_id id;
    struct command_record record;
    if (command_id_parse(position->command_id, &id, err) < 0)
        return -1;
    history_listed(history, sandbox, &id);
    struct relay *relay = relay_find_of(sandbox, orchestrator, &id);
    if (!relay && history_open_record(history, sandbox, &id, &record) &&
        relay_new_known(orchestrator, sandbox, &record, &relay, err) < 0)
        return -1;
    if (relay)
        resume(relay, position);
    else if (position->ended)
        relay_adopt(orchestrator, sandbox, &id);
    return 0;
}

/* Not in the inventory: it never arrived, it is gone with the runner that had it, or it ended long
 * ago. */
static void on_missing(struct history *history, struct relay *relay)
{
    struct history_judgement judgement;
    if (relay->result) {
        relay->unknown_there = true;
        relay_close(relay);
        return;
    }
    history_judge(history, relay->sandbox, &relay->id, &judgement);
    if (judgement.fate == HISTORY_NOT_RUN && relay->spec) {
        relay->due.start = true;
        relay->due.attach = false;
    } else if (judgement.fate == HISTORY_IN_FLIGHT) {
        /* Behind the start: the answer tells whether that came to the runner that is there now. */
        relay->due.attach = relay->asking = true;
    } else {
        relay->unknown_there = true;
        history_lost(history, &relay->id, &judgement);
        relay_lost(relay, &judgement);
    }
}

static void bring_into_step(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    struct relay *relay, *next;
    DL_FOREACH_SAFE (sandbox->relays, relay, next) {
        relay_enter(relay);
        if (relay->link_lost) {
            relay->link_lost = false;
            relay_notice(relay, SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_LINK_BACK,
                         "the sandbox's link is back");
        }
        if (!relay->listed && relay->state != RELAY_ENDED)
            on_missing(orchestrator->history, relay);
        relay_flush(relay);
        relay_exit(relay);
    }
    history_inventory_complete(orchestrator->history, sandbox);
    sandbox->rebooted = false;
    relay_flush_leftovers(sandbox);
}

/* Commands of which nothing is known here: their policy for that begins to count. */
static int detach_strays(struct orchestrator *orchestrator, struct sandbox *sandbox,
                         const Sandstorm__V1__Inventory *inventory, struct err *err)
{
    for (size_t i = 0; i < inventory->n_commands; i++) {
        struct command_id id;
        if (command_id_parse(inventory->commands[i]->command_id, &id, err) < 0)
            return -1;
        if (inventory->commands[i]->ended || relay_find_of(sandbox, orchestrator, &id))
            continue;
        Sandstorm__V1__Detach detach = SANDSTORM__V1__DETACH__INIT;
        Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
        order.command_id = id.text;
        order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_DETACH;
        order.detach = &detach;
        session_order(sandbox->session, &order);
    }
    return 0;
}

int relay_inventory(struct orchestrator *orchestrator, struct sandbox *sandbox,
                    const Sandstorm__V1__Inventory *inventory, struct err *err)
{
    struct relay *relay;
    if (strlen(inventory->runner_instance) > COMMAND_ID_LEN)
        return err_set(err, ERR_PROTOCOL, "the runner's instance is longer than %d characters",
                       COMMAND_ID_LEN);
    if (!sandbox->listing) {
        sandbox->listing = true;
        sandbox->in_step = false;
        DL_FOREACH (sandbox->relays, relay)
            relay->listed = false;
        history_listing(orchestrator->history, sandbox);
    }
    for (size_t i = 0; i < inventory->n_commands; i++)
        if (on_position(orchestrator, sandbox, inventory->commands[i], err) < 0)
            return -1;
    if (inventory->complete) {
        sandbox->listing = false;
        sandbox->in_step = true;
        (void)memcpy(sandbox->runner_instance, inventory->runner_instance,
                     strlen(inventory->runner_instance) + 1);
        bring_into_step(orchestrator, sandbox);
    }
    return detach_strays(orchestrator, sandbox, inventory, err);
}
