/* What a relay tells the runner. Called when a client wants something (orchestrator/exec.c), when
 * there is room or output on disk, and when the agent came back (orchestrator/relay_resume.c); goes
 * down through orchestrator/session.c. An order is noted as due first and sent when the runner is
 * in step and its stream has room, so that nothing is lost while the link is away and nothing piles
 * up when it is slow. */
#include "orchestrator/relay-internal.h"

#include "common/clock.h"
#include "orchestrator/exec-internal.h"
#include "orchestrator/session.h"

#include <string.h>

/* Small records fill the runner's spool by their number, not by their bytes. */
#define GRANT_RECORDS 512u
/* So much more is on disk: worth telling the runner, which can let go of it. */
#define ACK_BYTES (256u * 1024)

bool relay_can_send(const struct relay *relay)
{
    const struct sandbox *sandbox = relay->sandbox;
    return sandbox && sandbox->session && sandbox->in_step && session_writable(sandbox->session);
}

void relay_pass(struct relay *relay, Sandstorm__V1__CommandOrder *order)
{
    order->command_id = relay->id.text;
    session_order(relay->sandbox->session, order);
}

static bool drops_oldest(const struct relay *relay)
{
    const Sandstorm__V1__Started *started = relay_started(relay);
    return started &&
           started->output_policy == SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_DROP_OLDEST;
}

static bool blocks(const struct relay *relay)
{
    const Sandstorm__V1__Started *started = relay_started(relay);
    return started && started->output_policy == SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_BLOCK;
}

/* How far the runner may go: a window beyond what has come, no more than memory can hold until the
 * disk has it, and at the pace of the client that controls the command, unless what is too old may
 * go. Without a client a command that is to block does so when so much is kept that nobody has
 * seen. */
static uint64_t output_limit(const struct relay *relay)
{
    uint64_t end = ledger_end(relay->ledger);
    uint64_t limit = MIN(end + RELAY_WINDOW, ledger_durable(relay->ledger) + LEDGER_MEMORY_MAX);
    if (drops_oldest(relay))
        return limit;
    if (relay->controller)
        return MIN(limit, exec_limit(relay->controller));
    return blocks(relay) ? MIN(limit, relay->taken + relay->orchestrator->command_output_max)
                         : limit;
}

/* What was granted once stays granted: records may be on their way. */
static void fill_attach(struct relay *relay, Sandstorm__V1__Attach *attach)
{
    uint64_t end = ledger_end(relay->ledger);
    relay->granted = MAX(relay->granted, MAX(output_limit(relay), end));
    attach->from_offset = MIN(end, relay->listed_end);
    relay->listed_end = UINT64_MAX;
    attach->limit = relay->granted;
    attach->unattended = !relay->attended;
    /* An attach acknowledges nothing, and what acknowledged it before may have been lost. */
    relay->due.credit = ledger_durable(relay->ledger) > 0;
    relay->records = 0;
}

/* Whoever was attached before we restarted is on its way back, for all that we know. */
static bool is_attended(const struct relay *relay)
{
    return relay->controller || monotonic_us() < relay->return_until_us;
}

static void send_start(struct relay *relay)
{
    CLEANUP_WIRE ProtobufCMessage *spec = NULL;
    struct err err;
    relay->due.start = false;
    if (wire_unpack(&sandstorm__v1__command_spec__descriptor, relay->spec, relay->spec_size, &spec,
                    &err) < 0) {
        relay_fail(relay, &err);
        return;
    }
    relay->attended = is_attended(relay);
    history_sent(relay->orchestrator->history, relay->sandbox, &relay->id);
    Sandstorm__V1__Attach attach = SANDSTORM__V1__ATTACH__INIT;
    fill_attach(relay, &attach);
    Sandstorm__V1__Start start = SANDSTORM__V1__START__INIT;
    start.spec = (Sandstorm__V1__CommandSpec *)spec;
    start.spec_digest = (ProtobufCBinaryData){ sizeof(relay->digest), relay->digest };
    start.attach = &attach;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_START;
    order.start = &start;
    relay_pass(relay, &order);
}

static void send_attach(struct relay *relay)
{
    relay->due.attach = relay->due.audience = false;
    relay->attended = is_attended(relay);
    Sandstorm__V1__Attach attach = SANDSTORM__V1__ATTACH__INIT;
    fill_attach(relay, &attach);
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH;
    order.attach = &attach;
    relay_pass(relay, &order);
}

static void send_credit(struct relay *relay)
{
    relay->due.credit = false;
    relay->records = 0;
    relay->granted = MAX(relay->granted, output_limit(relay));
    relay->acked = ledger_durable(relay->ledger);
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    credit.acked = relay->acked;
    credit.limit = relay->granted;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_CREDIT;
    order.credit = &credit;
    relay_pass(relay, &order);
}

static void send_audience(struct relay *relay)
{
    Sandstorm__V1__Attend attend = SANDSTORM__V1__ATTEND__INIT;
    Sandstorm__V1__Detach detach = SANDSTORM__V1__DETACH__INIT;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    bool attended = is_attended(relay);
    relay->due.audience = false;
    if (attended == relay->attended)
        return;
    relay->attended = attended;
    if (attended) {
        order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTEND;
        order.attend = &attend;
    } else {
        order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_DETACH;
        order.detach = &detach;
    }
    relay_pass(relay, &order);
}

static void send_signal(struct relay *relay)
{
    relay->due.signal = false;
    Sandstorm__V1__Signal signal = SANDSTORM__V1__SIGNAL__INIT;
    signal.name = relay->due.signal_name;
    signal.number = relay->due.signal_number;
    signal.target = relay->due.signal_target;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_SIGNAL;
    order.signal = &signal;
    relay_pass(relay, &order);
}

static void send_resize(struct relay *relay)
{
    relay->due.resize = false;
    Sandstorm__V1__TerminalSize size = SANDSTORM__V1__TERMINAL_SIZE__INIT;
    size.rows = relay->due.rows;
    size.columns = relay->due.columns;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RESIZE;
    order.resize = &size;
    relay_pass(relay, &order);
}

static void send_cancel(struct relay *relay)
{
    relay->due.cancel = false;
    Sandstorm__V1__Cancel cancel = SANDSTORM__V1__CANCEL__INIT;
    cancel.grace_ms = relay->due.grace_ms;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_CANCEL;
    order.cancel = &cancel;
    relay_pass(relay, &order);
}

/* All of it. */

static bool orders_due(const struct relay *relay)
{
    const struct relay_due *due = &relay->due;
    return due->start || due->attach || due->credit || due->audience || due->signal ||
           due->resize || due->cancel;
}

/* The next order, in the order in which the runner must see them. */
static void send_next_order(struct relay *relay)
{
    const struct relay_due *due = &relay->due;
    const struct {
        bool due;
        void (*send)(struct relay *relay);
    } orders[] = {
        { due->start, send_start },   { due->attach, send_attach },
        { due->credit, send_credit }, { due->audience, send_audience },
        { due->signal, send_signal }, { due->resize, send_resize },
        { due->cancel, send_cancel },
    };
    for (size_t i = 0; i < ELEMENTS(orders); i++)
        if (orders[i].due) {
            orders[i].send(relay);
            return;
        }
}

static bool alive(const struct relay *relay)
{
    return relay->state != RELAY_ENDED;
}

void relay_flush_orders(struct relay *relay)
{
    while (alive(relay) && orders_due(relay) && relay_can_send(relay))
        send_next_order(relay);
}

void relay_flush(struct relay *relay)
{
    relay_enter(relay);
    relay_flush_orders(relay);
    while (alive(relay) && !orders_due(relay) && relay_input_due(relay) && relay_can_send(relay))
        relay_send_input(relay);
    /* Its requests wait until what it asked for before is on its way. */
    if (relay->controller && alive(relay))
        exec_pace(relay->controller, orders_due(relay) || relay_input_due(relay));
    relay_exit(relay);
}

void relay_grant(struct relay *relay)
{
    uint64_t end = ledger_end(relay->ledger), durable = ledger_durable(relay->ledger);
    bool low = relay->granted < end + RELAY_WINDOW / 2;
    if (!alive(relay))
        return;
    if ((low && output_limit(relay) > relay->granted) || durable >= relay->acked + ACK_BYTES ||
        (durable > relay->acked && relay->records >= GRANT_RECORDS)) {
        relay->due.credit = true;
        relay_flush(relay);
    }
}

/* From calls by id. */

static int check_reachable(const struct relay *relay, struct err *err)
{
    if (!alive(relay) || relay->result)
        return err_set(err, ERR_PRECONDITION, "command %s has ended", relay->id.text);
    if (relay->due.start || !relay_can_send(relay))
        return err_set(
            err, ERR_UNAVAILABLE,
            "the sandbox of command %s is away or busy; try again, or see 'sandstorm why "
            "%s'",
            relay->id.text, relay->sandbox ? relay->sandbox->id : "SANDBOX");
    return 0;
}

int relay_signal(struct relay *relay, const Sandstorm__V1__Signal *signal, struct err *err)
{
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    Sandstorm__V1__Signal copy = *signal;
    if (strlen(signal->name) >= RELAY_SIGNAL_MAX)
        return err_set(err, ERR_INVALID, "there is no signal with such a long name");
    if (check_reachable(relay, err) < 0)
        return -1;
    copy.base.n_unknown_fields = 0;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_SIGNAL;
    order.signal = &copy;
    relay_pass(relay, &order);
    return 0;
}

int relay_cancel(struct relay *relay, uint64_t grace_ms, struct err *err)
{
    if (check_reachable(relay, err) < 0)
        return -1;
    relay->due.cancel = relay->cancelled = true;
    relay->due.grace_ms = grace_ms;
    relay_flush(relay);
    return 0;
}

/* Commands that are over. */

static void order_release(struct sandbox *sandbox, struct command_id *id)
{
    Sandstorm__V1__Release release = SANDSTORM__V1__RELEASE__INIT;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.command_id = id->text;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE;
    order.release = &release;
    session_order(sandbox->session, &order);
}

void relay_let_go(struct sandbox *sandbox, const struct command_id *id)
{
    /* Full: the runner keeps the oldest, and lists it in its next inventory. */
    if (sandbox->leftover_count == REGISTRY_LEFTOVERS_MAX) {
        sandbox->leftover_count--;
        (void)memmove(&sandbox->leftovers[0], &sandbox->leftovers[1],
                      sandbox->leftover_count * sizeof(sandbox->leftovers[0]));
    }
    sandbox->leftovers[sandbox->leftover_count++] = *id;
    relay_flush_leftovers(sandbox);
}

void relay_flush_leftovers(struct sandbox *sandbox)
{
    if (!sandbox->session || !sandbox->in_step)
        return;
    for (unsigned i = 0; i < sandbox->leftover_count; i++)
        order_release(sandbox, &sandbox->leftovers[i]);
    sandbox->leftover_count = 0;
}
