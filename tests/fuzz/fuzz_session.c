/* The orchestrator's session and exec logic between hostile agents and hostile clients, without a
 * network: two streams of one agent (the newer one takes over) and two clients, each with messages,
 * half-closes, full queues and ends in any order. What is sent to either side must be a message
 * that the other end would take, and every stream must be let go. */
#include "common/loop.h"
#include "orchestrator/exec.h"
#include "orchestrator/orchestrator-internal.h"
#include "orchestrator/relay.h"
#include "orchestrator/session.h"
#include "tests/fuzz/check.h"
#include "tests/unit/ledger_stub.h"
#include "tests/unit/rpc_stub.h"
#include "tests/unit/store_stub.h"

enum { AGENTS = 2, CLIENTS = 2, CALLS = AGENTS + CLIENTS };

void __wrap_log_event(enum log_level level, const char *message, const struct log_field *fields,
                      unsigned count);

void __wrap_log_event(enum log_level level, const char *message, const struct log_field *fields,
                      unsigned count)
{
    (void)level;
    (void)message;
    (void)fields;
    (void)count;
}

static void open_call(struct orchestrator *orchestrator, struct rpc_call *calls, unsigned which)
{
    struct err err;
    struct rpc_call *call = &calls[which];
    if (which < AGENTS) {
        stub_call_init(call, IDENTITY_AGENT, "s", &sandstorm__v1__connect_response__descriptor);
        check(session_open(orchestrator, call, &err) == 0);
    } else {
        stub_call_init(call, IDENTITY_CLIENT, "c", &sandstorm__v1__exec_response__descriptor);
        check(exec_open(orchestrator, call, &err) == 0);
    }
}

static void step(struct orchestrator *orchestrator, struct rpc_call *calls, struct input *input)
{
    uint8_t verb = input_byte(input);
    unsigned which = verb % CALLS;
    struct rpc_call *call = &calls[which];
    size_t size;
    const uint8_t *message;
    switch (verb / CALLS % 8) {
    case 0:
        if (call->handler->half_closed)
            call->handler->half_closed(call->owner);
        break;
    case 1:
        call->full = true;
        /* From here on rows take their time; a full queue and a slow disk come together. */
        stub_audit.late = !stub_audit.late;
        stub_audit.broken = verb & 64;
        stub_store_commit();
        stub_ledger.late = stub_audit.late;
        stub_ledger.broken = stub_audit.broken;
        stub_ledger_commit();
        break;
    case 2:
        call->full = false;
        if (call->handler->writable)
            call->handler->writable(call->owner);
        break;
    case 3:
        stub_call_close(call, verb & 128 ? ERR_NONE : ERR_CANCELLED);
        check(call->released);
        open_call(orchestrator, calls, which);
        break;
    default:
        message = input_block(input, &size);
        call->handler->message(call->owner, message, size);
        break;
    }
    if (!stub_ledger.late)
        stub_ledger_commit();
    for (unsigned i = 0; i < CALLS; i++)
        check(!calls[i].invalid && !calls[i].released);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err;
    static struct loop *loop;
    if (!loop)
        check(loop_new(&loop, &err) == 0);
    struct orchestrator orchestrator = { .loop = loop, .command_output_max = 1024 * 1024 };
    stub_ledger_clear();
    (void)memset(&stub_audit, 0, sizeof(stub_audit));
    (void)memset(&stub_store, 0, sizeof(stub_store));
    check(stub_known_peers(&orchestrator, &err) == 0);
    check(history_new(&orchestrator, &orchestrator.history, &err) == 0);
    struct rpc_call calls[CALLS];
    for (unsigned i = 0; i < CALLS; i++)
        open_call(&orchestrator, calls, i);
    struct input input = { data, size };
    while (input.size > 0)
        step(&orchestrator, calls, &input);
    for (unsigned i = CALLS; i-- > 0;) {
        stub_call_close(&calls[i], ERR_CANCELLED);
        check(calls[i].released);
    }
    /* A row that comes after its client has gone. */
    stub_store_commit();
    check(!stub_store.first);
    for (struct sandbox *one = registry_any(orchestrator.registry); one; one = one->hh.next)
        check(!one->session);
    relays_free(&orchestrator);
    stub_ledger_commit();
    history_free(orchestrator.history);
    stub_peers_free(&orchestrator);
    return 0;
}
