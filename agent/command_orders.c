/* What the orchestrator may tell a command that exists: attach, credit, input, signals, cancel,
 * detach, attend. Orders come from agent/runner_orders.c, already unpacked; a refused order changes
 * nothing and is answered in words. */
#include "agent/command-internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>

static bool refuse(struct command_refusal *ret, Sandstorm__V1__RefusalReason reason,
                   const char *detail)
{
    *ret = (struct command_refusal){ reason, detail };
    return false;
}

#define BAD_POSITION SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_BAD_POSITION
#define HAS_ENDED    SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_ENDED
#define UNSUPPORTED  SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNSUPPORTED

/* Its client_gone policy counts while nobody is attached. */
static void set_audience(struct command *command, bool client)
{
    command->client = client;
    if (client)
        loop_timer_stop(command->alone);
    else if (command->state == COMMAND_RUNNING && command->kill_when_alone &&
             !loop_timer_running(command->alone))
        loop_timer_start(command->alone, command->alone_us);
    /* With nobody listening the policy may have become drop_oldest: go on reading. */
    if (command->state != COMMAND_ENDED)
        command_resume_reading(command);
}

bool command_attach(struct command *command, const Sandstorm__V1__Attach *attach,
                    struct command_refusal *ret)
{
    if (attach->from_offset > spool_end(&command->spool))
        return refuse(ret, BAD_POSITION, "the ledger does not reach that offset yet");
    window_init(&command->output, attach->from_offset, MAX(attach->limit, attach->from_offset));
    command->speaking = true;
    set_audience(command, !attach->unattended);
    command->started_due = command->pid > 0;
    command->stdin_due = !command->input.eof || command->input.broken;
    command->ended_due = command->state == COMMAND_ENDED;
    command_changed(command);
    return true;
}

void command_mute(struct command *command)
{
    command->speaking = false;
    command->settled_due = command->state == COMMAND_ENDED;
}

static bool on_attach(struct command *command, const Sandstorm__V1__CommandOrder *order,
                      struct command_refusal *ret)
{
    return command_attach(command, order->attach, ret);
}

static bool on_credit(struct command *command, const Sandstorm__V1__CommandOrder *order,
                      struct command_refusal *ret)
{
    const Sandstorm__V1__Credit *credit = order->credit;
    if (credit->acked > spool_end(&command->spool))
        return refuse(ret, BAD_POSITION, "acknowledged more than there is");
    command->acked = MAX(command->acked, credit->acked);
    spool_trim(&command->spool, credit->acked);
    command_keep_position(command);
    /* An attach may have gone back behind what is now known to have arrived. */
    if (command->output.sent < credit->acked)
        window_init(&command->output, credit->acked, MAX(command->output.limit, credit->acked));
    window_grant(&command->output, credit->limit);
    if (command->state != COMMAND_ENDED)
        command_resume_reading(command);
    command_changed(command);
    return true;
}

static bool on_stdin(struct command *command, const Sandstorm__V1__CommandOrder *order,
                     struct command_refusal *ret)
{
    if (command->state != COMMAND_RUNNING)
        return true; /* nobody reads it; the end record follows or has gone out */
    return command_input(command, order->stdin, ret);
}

static int signal_number(const Sandstorm__V1__Signal *signal)
{
    if (!*signal->name)
        return signal->number >= 1 && signal->number <= (unsigned)SIGRTMAX ? (int)signal->number
                                                                           : -1;
    for (int number = 1; number < NSIG; number++) {
        const char *name = sigabbrev_np(number);
        if (name && strcmp(name, signal->name) == 0)
            return number;
    }
    return -1;
}

static bool on_signal(struct command *command, const Sandstorm__V1__CommandOrder *order,
                      struct command_refusal *ret)
{
    int number = signal_number(order->signal);
    if (number < 0)
        return refuse(ret, UNSUPPORTED, "no such signal; use a name like TERM or a number");
    if (command->state != COMMAND_RUNNING)
        return refuse(ret, HAS_ENDED, "the command has ended");
    bool leader = order->signal->target == SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_LEADER;
    int r = leader ? pidfd_send_signal(command->pidfd, number, NULL, 0)
                   : tree_signal(command->tree, number, NULL);
    command->swept |= r == 0 && !leader && number == SIGKILL;
    return r == 0 || refuse(ret, HAS_ENDED, "none of the command's processes takes the signal");
}

static bool on_resize(struct command *command, const Sandstorm__V1__CommandOrder *order,
                      struct command_refusal *ret)
{
    return command_terminal_resize(command, order->resize, ret);
}

static bool on_cancel(struct command *command, const Sandstorm__V1__CommandOrder *order,
                      struct command_refusal *ret)
{
    if (command->state != COMMAND_RUNNING)
        return refuse(ret, HAS_ENDED, "the command has ended");
    uint64_t grace_ms = MIN(order->cancel->grace_ms, COMMAND_MS_MAX);
    command_cancel(command, grace_ms * 1000, "client asked");
    return true;
}

static bool on_detach(struct command *command, const Sandstorm__V1__CommandOrder *order,
                      struct command_refusal *ret)
{
    (void)order;
    (void)ret;
    set_audience(command, false);
    return true;
}

static bool on_attend(struct command *command, const Sandstorm__V1__CommandOrder *order,
                      struct command_refusal *ret)
{
    (void)order;
    (void)ret;
    set_audience(command, true);
    return true;
}

typedef bool (*order_fn)(struct command *command, const Sandstorm__V1__CommandOrder *order,
                         struct command_refusal *ret);

/* Start and release are the runner's: they make and end commands. */
static const struct {
    Sandstorm__V1__CommandOrder__OrderCase kind;
    order_fn fn;
} orders[] = {
    { SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH, on_attach },
    { SANDSTORM__V1__COMMAND_ORDER__ORDER_CREDIT, on_credit },
    { SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN, on_stdin },
    { SANDSTORM__V1__COMMAND_ORDER__ORDER_SIGNAL, on_signal },
    { SANDSTORM__V1__COMMAND_ORDER__ORDER_RESIZE, on_resize },
    { SANDSTORM__V1__COMMAND_ORDER__ORDER_CANCEL, on_cancel },
    { SANDSTORM__V1__COMMAND_ORDER__ORDER_DETACH, on_detach },
    { SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTEND, on_attend },
};

bool command_order(struct command *command, const Sandstorm__V1__CommandOrder *order,
                   struct command_refusal *ret)
{
    for (size_t i = 0; i < ELEMENTS(orders); i++)
        if (orders[i].kind == order->order_case)
            return orders[i].fn(command, order, ret);
    return refuse(ret, UNSUPPORTED, "this runner does not know that order");
}
