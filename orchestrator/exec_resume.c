/* The link goes away and comes back; the runner says what it has; every exec of the sandbox is
 * brought into step with it. Called by orchestrator/session.c. What a client asked for in between
 * has waited as due (orchestrator/exec_orders.c) and goes out when the inventory is complete. */
#include "orchestrator/exec-internal.h"

#include <string.h>

void exec_session_lost(struct sandbox *sandbox, bool back_at_once)
{
    sandbox->in_step = sandbox->listing = false;
    struct exec *exec, *next;
    if (back_at_once)
        return;
    HASH_ITER (hh, sandbox->execs, exec, next) {
        if (exec->link_lost)
            continue;
        exec->link_lost = true;
        exec_notice(exec, SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_LINK_LOST,
                    "the sandbox's link is away; the command goes on and its output will follow");
    }
}

void exec_sandbox_gone(struct sandbox *sandbox, const char *why)
{
    struct exec *exec, *next;
    struct err err;
    (void)err_set(&err, ERR_DENIED,
                  "sandbox \"%s\" %s; what its commands do is not known here any more", sandbox->id,
                  why);
    HASH_ITER (hh, sandbox->execs, exec, next)
        exec_fail(exec, &err);
    sandbox->leftover_count = 0;
}

void exec_runner_away(struct sandbox *sandbox)
{
    sandbox->in_step = sandbox->listing = false;
}

void exec_session_writable(struct sandbox *sandbox)
{
    struct exec *exec, *next;
    /* What is small and urgent first: one command's input does not hold up another's cancel. */
    HASH_ITER (hh, sandbox->execs, exec, next)
        exec_flush_orders(exec);
    HASH_ITER (hh, sandbox->execs, exec, next)
        exec_flush(exec);
    /* The next room goes to others first. */
    exec = sandbox->execs;
    if (exec && exec->hh.next) {
        HASH_DEL(sandbox->execs, exec);
        HASH_ADD_KEYPTR(hh, sandbox->execs, exec->id.text, COMMAND_ID_LEN, exec);
    }
}

static int on_position(struct history *history, struct sandbox *sandbox,
                       const Sandstorm__V1__CommandPosition *position, struct err *err)
{
    struct command_id id;
    if (command_id_parse(position->command_id, &id, err) < 0)
        return -1;
    history_listed(history, sandbox, &id);
    struct exec *exec = exec_find(sandbox, &id);
    if (!exec)
        return 0;
    exec->listed = true;
    /* A start of a known id is an attach that also compares the spec. One that has ended is never
     * started, whatever became of the runner. */
    exec->due.start = exec->state == EXEC_PENDING && !exec->result;
    exec->due.attach = !exec->due.start;
    exec->due.cancel = exec->due.cancel || exec->cancelled;
    /* What was sent and not received is sent again, the end of input too. */
    exec->input_sent = MIN(exec->input_sent, position->stdin_received);
    exec_input_at(exec, position->stdin_received, exec->input_taken);
    exec->input_eof_sent = false;
    return 0;
}

/* Not in the inventory: it never arrived, it is gone with the runner that had it, or it ended long
 * ago. */
static void on_missing(struct history *history, struct exec *exec)
{
    struct history_judgement judgement;
    if (exec->result) {
        exec_answer(exec);
        return;
    }
    history_judge(history, exec->sandbox, &exec->id, &judgement);
    switch (judgement.fate) {
    case HISTORY_NOT_RUN:
        exec->due.start = true;
        break;
    case HISTORY_IN_FLIGHT:
        /* Behind the start: the answer tells whether that came to the runner that is there now. */
        exec->due.attach = exec->asking = true;
        break;
    case HISTORY_LOST:
        history_lost(history, &exec->id, &judgement);
        exec_lost(exec, judgement.reason, judgement.detail);
        break;
    }
}

static void bring_into_step(struct history *history, struct sandbox *sandbox)
{
    struct exec *exec, *next;
    HASH_ITER (hh, sandbox->execs, exec, next) {
        if (exec->link_lost) {
            exec->link_lost = false;
            exec_notice(exec, SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_LINK_BACK,
                        "the sandbox's link is back");
        }
        if (!exec->listed && (exec->state == EXEC_PENDING || exec->state == EXEC_RUNNING))
            on_missing(history, exec);
        exec_flush(exec);
    }
    history_inventory_complete(history, sandbox);
    sandbox->rebooted = false;
    exec_flush_leftovers(sandbox);
}

/* Commands that run without a client: their policy for that begins to count. */
static int detach_strays(struct sandbox *sandbox, const Sandstorm__V1__Inventory *inventory,
                         struct err *err)
{
    for (size_t i = 0; i < inventory->n_commands; i++) {
        struct command_id id;
        if (command_id_parse(inventory->commands[i]->command_id, &id, err) < 0)
            return -1;
        if (!inventory->commands[i]->ended && !exec_find(sandbox, &id))
            exec_order_detach(sandbox, &id);
    }
    return 0;
}

int exec_inventory(struct history *history, struct sandbox *sandbox,
                   const Sandstorm__V1__Inventory *inventory, struct err *err)
{
    if (strlen(inventory->runner_instance) > COMMAND_ID_LEN)
        return err_set(err, ERR_PROTOCOL, "the runner's instance is longer than %d characters",
                       COMMAND_ID_LEN);
    if (!sandbox->listing) {
        sandbox->listing = true;
        sandbox->in_step = false;
        for (struct exec *exec = sandbox->execs; exec; exec = exec->hh.next)
            exec->listed = false;
        history_listing(history, sandbox);
    }
    for (size_t i = 0; i < inventory->n_commands; i++)
        if (on_position(history, sandbox, inventory->commands[i], err) < 0)
            return -1;
    if (inventory->complete) {
        sandbox->listing = false;
        sandbox->in_step = true;
        (void)memcpy(sandbox->runner_instance, inventory->runner_instance,
                     strlen(inventory->runner_instance) + 1);
        bring_into_step(history, sandbox);
    }
    return detach_strays(sandbox, inventory, err);
}
