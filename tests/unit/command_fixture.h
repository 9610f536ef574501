/* A command without a runner: the test owns the loop, gives orders and keeps what the command says.
 * Every record is checked for what holds in all tests: offsets follow on, nothing comes after the
 * end. */
#pragma once

#include "agent/command-internal.h"
#include "agent/runner.h"
#include "common/clock.h"
#include "common/wire.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#define BENCH_DEADLINE_US 30000000u
#define BENCH_OUTPUT_MAX  (4u << 20)
#define NO_LIMIT          UINT64_MAX

struct bench {
    struct loop *loop;
    struct forest *forest;
    struct command_host host;
    struct command *command;
    Sandstorm__V1__CommandSpec spec;

    unsigned started, settled;
    bool terminal; /* started said so */
    unsigned settled_code;
    uint64_t settled_end;
    uint64_t next; /* offset of the record that must come next */
    uint8_t *bytes, *streams;
    uint64_t dropped, trimmed; /* bytes that gaps have named */
    unsigned gaps;
    uint64_t stdin_limit, stdin_taken;
    bool stdin_closed;
    ProtobufCMessage *end_frame;
    const Sandstorm__V1__Ended *ended;
};

static inline void bench_changed(void *userdata, struct command *command)
{
    (void)userdata;
    (void)command;
}

static inline void bench_init(struct bench *bench)
{
    struct err err = { 0 };
    (void)signal(SIGPIPE, SIG_IGN);
    *bench = (struct bench){ 0 };
    cr_assert_eq(loop_new(&bench->loop, &err), 0, "%s", err.text);
    const struct forest_config trees = { .subreaper = true };
    cr_assert_eq(forest_new(bench->loop, &trees, &bench->forest, &err), 0, "%s", err.text);
    bench->host = (struct command_host){
        .loop = bench->loop,
        .forest = bench->forest,
        .changed = bench_changed,
        .userdata = bench,
    };
    sandstorm__v1__command_spec__init(&bench->spec);
    bench->bytes = malloc(BENCH_OUTPUT_MAX);
    bench->streams = malloc(BENCH_OUTPUT_MAX);
    cr_assert(bench->bytes && bench->streams);
}

static inline void bench_done(struct bench *bench)
{
    command_free(bench->command);
    forest_free(bench->forest);
    loop_free(bench->loop);
    wire_free(bench->end_frame);
    free(bench->bytes);
    free(bench->streams);
}

static inline void bench_gap(struct bench *bench, const Sandstorm__V1__Gap *gap)
{
    cr_assert_eq(gap->offset, bench->next);
    cr_assert_gt(gap->size, 0u);
    bench->next += gap->size;
    bench->gaps++;
    if (gap->reason == SANDSTORM__V1__GAP_REASON__GAP_REASON_DROPPED)
        bench->dropped += gap->size;
    else
        bench->trimmed += gap->size;
}

static inline void bench_output(struct bench *bench, const Sandstorm__V1__Output *output)
{
    cr_assert_eq(output->offset, bench->next);
    cr_assert(output->data.len > 0 && output->data.len <= WIRE_PAYLOAD_MAX);
    cr_assert_leq(output->offset + output->data.len, BENCH_OUTPUT_MAX);
    (void)memcpy(bench->bytes + output->offset, output->data.data, output->data.len);
    (void)memset(bench->streams + output->offset, (int)output->stream, output->data.len);
    bench->next += output->data.len;
}

/* True when the event keeps the message. */
static inline bool bench_event(struct bench *bench, ProtobufCMessage *message)
{
    const Sandstorm__V1__AgentFrame *frame = (const Sandstorm__V1__AgentFrame *)message;
    cr_assert_eq(frame->kind_case, SANDSTORM__V1__AGENT_FRAME__KIND_EVENT);
    const Sandstorm__V1__CommandEvent *event = frame->event;
    cr_assert_str_eq(event->command_id, command_id(bench->command)->text);
    cr_assert_null(bench->ended, "a record after the end");
    switch (event->event_case) {
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_STARTED:
        cr_assert_gt(event->started->pid, 1);
        bench->started++;
        bench->terminal = event->started->terminal;
        return false;
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_OUTPUT:
        bench_output(bench, event->output);
        return false;
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_GAP:
        bench_gap(bench, event->gap);
        return false;
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_STDIN_CREDIT:
        cr_assert_leq(event->stdin_credit->limit,
                      event->stdin_credit->taken + COMMAND_STDIN_WINDOW);
        bench->stdin_limit = event->stdin_credit->limit;
        bench->stdin_taken = event->stdin_credit->taken;
        bench->stdin_closed = event->stdin_credit->closed;
        return false;
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED:
        bench->settled++;
        bench->settled_end = event->settled->end_offset;
        if (event->settled->outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_EXITED)
            bench->settled_code = event->settled->outcome->exited->code;
        return false;
    default:
        cr_assert_eq(event->event_case, SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED);
        cr_assert_gt(bench->settled, 0u, "ended before it was settled");
        cr_assert_eq(event->ended->end_offset, bench->settled_end);
        cr_assert_eq(event->ended->end_offset, bench->next);
        bench->end_frame = message;
        bench->ended = event->ended;
        return true;
    }
}

/* Hears everything that the command has to say now. */
static inline void bench_listen(struct bench *bench)
{
    static uint8_t packet[RUNNER_PACKET_MAX];
    struct err err = { 0 };
    while (command_has_event(bench->command)) {
        size_t size = command_pack_event(bench->command, packet, sizeof(packet));
        ProtobufCMessage *message;
        cr_assert_eq(
            wire_unpack(&sandstorm__v1__agent_frame__descriptor, packet, size, &message, &err), 0,
            "%s", err.text);
        if (!bench_event(bench, message))
            wire_free(message);
    }
}

/* Runs the loop, listening, until the condition holds. */
#define UNTIL(bench, condition)                                                                    \
    do {                                                                                           \
        uint64_t deadline_ = monotonic_us() + BENCH_DEADLINE_US;                                   \
        for (bench_listen(bench); !(condition); bench_listen(bench)) {                             \
            cr_assert_lt(monotonic_us(), deadline_, "never came: %s", #condition);                 \
            cr_assert_eq(loop_turn((bench)->loop, 100000, NULL), 0);                               \
        }                                                                                          \
    } while (0)

static inline void bench_start(struct bench *bench, uint64_t limit)
{
    struct err err = { 0 };
    static uint8_t digest[COMMAND_DIGEST_LEN] = { 1 };
    struct command_id id;
    cr_assert_eq(command_id_new(&id, &err), 0, "%s", err.text);
    Sandstorm__V1__Start start = SANDSTORM__V1__START__INIT;
    start.spec = &bench->spec;
    start.spec_digest = (ProtobufCBinaryData){ sizeof(digest), digest };
    cr_assert_eq(command_new(&bench->host, &id, &start, &bench->command, &err), 0, "%s", err.text);
    Sandstorm__V1__Attach attach = SANDSTORM__V1__ATTACH__INIT;
    attach.limit = limit;
    struct command_refusal refusal;
    cr_assert(command_attach(bench->command, &attach, &refusal));
}

static inline void bench_shell(struct bench *bench, const char *text, uint64_t limit)
{
    bench->spec.shell = (char *)text;
    bench_start(bench, limit);
}

static inline const Sandstorm__V1__Outcome *bench_run(struct bench *bench, const char *text)
{
    bench_shell(bench, text, NO_LIMIT);
    UNTIL(bench, bench->ended);
    return bench->ended->outcome;
}

/* Begins to listen at another offset, as a client does that comes back. */
static inline bool bench_attach(struct bench *bench, uint64_t offset, uint64_t limit)
{
    Sandstorm__V1__Attach attach = SANDSTORM__V1__ATTACH__INIT;
    attach.from_offset = offset;
    attach.limit = limit;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH;
    order.attach = &attach;
    struct command_refusal refusal = { 0 };
    if (!command_order(bench->command, &order, &refusal)) {
        cr_assert_eq(refusal.reason, SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_BAD_POSITION);
        return false;
    }
    wire_free(TAKE_PTR(bench->end_frame));
    bench->ended = NULL;
    bench->next = offset;
    return true;
}

static inline bool bench_credit(struct bench *bench, uint64_t acked, uint64_t limit)
{
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    credit.acked = acked;
    credit.limit = limit;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_CREDIT;
    order.credit = &credit;
    struct command_refusal refusal = { 0 };
    return command_order(bench->command, &order, &refusal);
}

static inline void bench_detach(struct bench *bench)
{
    Sandstorm__V1__Detach detach = SANDSTORM__V1__DETACH__INIT;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_DETACH;
    order.detach = &detach;
    struct command_refusal refusal = { 0 };
    cr_assert(command_order(bench->command, &order, &refusal));
}

#define EXPECT_OUTPUT(bench, text)                                                                 \
    cr_expect((bench)->next == strlen(text) && memcmp((bench)->bytes, (text), strlen(text)) == 0,  \
              "\"%.*s\", not \"%s\"", (int)(bench)->next, (const char *)(bench)->bytes, (text))
