/* CommandService.Exec for tests of the client: an orchestrator and a runner in one, with one
 * command whose output and input are functions of the offset. Streams come and go, the command
 * stays. Runs on the service's thread; the test writes the script before a call and reads it
 * afterwards. */
#pragma once

#include "common/wire.h"
#include "sandstorm/v1/control.pb-c.h"
#include "tests/unit/client_fixture.h"
#include "tests/unit/random.h"

#define STUB_WINDOW   65536u
#define STUB_INPUT    (512u * 1024)
#define STUB_CODE     7u
#define STUB_PIECE    4000u
#define STUB_OPENS    64u
#define STUB_SEEN_MAX 32u

/* How a stream may end instead of going on. */
enum stub_cut { STUB_CUT_NONE, STUB_CUT_RESET, STUB_CUT_STATUS, STUB_CUT_OK };

static struct {
    /* The script. */
    uint64_t seed;
    uint64_t output, input; /* how much there is, and how much it reads */
    bool has_input, endless;
    _Atomic unsigned cuts;        /* so many streams are cut at random */
    unsigned cut_before_start;    /* so many before anything is known of the command */
    unsigned cut_before_accepted; /* and so many after it was started */
    struct err refuse;            /* answered to an open, when set */
    unsigned refuse_from;         /* the first open that this is so for */
    uint64_t known;               /* the runner says that it has one less than this; 0: all */
    uint64_t begin_at, gap;       /* for from_end; bytes that are missing at the beginning */
    bool terminal, not_enforced, silent;
    /* What was seen. */
    unsigned opens, starts, with_spec, known_with_spec;
    uint64_t opened_at[STUB_OPENS];
    struct {
        char id[40], sandbox[40];
        uint64_t limit, last_bytes;
        int mode;
        bool snapshot, from_end;
    } open;
    char signals[STUB_SEEN_MAX];
    _Atomic unsigned sizes, rows;
    unsigned cancels, inputs;
    uint64_t acked;
    bool acknowledged;
    /* The command. */
    char id[40];
    uint8_t *spec;
    size_t spec_size;
    uint8_t *got; /* its input */
    _Atomic uint64_t received;
    bool eof;
    /* The stream. */
    _Atomic(struct rpc_call *) call;
    struct loop_timer *tick;
    uint64_t sent, limit, pending, stdin_limit;
    bool pending_eof, ended, attached, over;
} stub;

static inline uint8_t stub_byte(uint64_t offset)
{
    return (uint8_t)((offset * 2654435761u) >> 11 ^ offset);
}

static inline void stub_reply(Sandstorm__V1__ExecResponse *response)
{
    (void)!rpc_call_send(stub.call, &response->base, NULL);
}

#define STUB_REPLY(CASE, member, value)                                                            \
    do {                                                                                           \
        Sandstorm__V1__ExecResponse response_ = SANDSTORM__V1__EXEC_RESPONSE__INIT;                \
        response_.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_##CASE;                           \
        response_.member = (value);                                                                \
        stub_reply(&response_);                                                                    \
    } while (0)

static inline void stub_over(enum stub_cut how)
{
    struct err status = { .code = ERR_UNAVAILABLE, .text = "going down" };
    if (stub.over)
        return;
    stub.over = true;
    if (how == STUB_CUT_RESET)
        rpc_call_cancel(stub.call);
    else
        rpc_call_finish(stub.call, how == STUB_CUT_STATUS ? &status : NULL);
}

static inline void stub_say_accepted(bool existed)
{
    Sandstorm__V1__ExecAccepted accepted = SANDSTORM__V1__EXEC_ACCEPTED__INIT;
    Sandstorm__V1__Started started = SANDSTORM__V1__STARTED__INIT;
    char *const limits[] = { (char *)"memory", (char *)"pids" };
    accepted.command_id = stub.id;
    accepted.from_offset = stub.sent;
    accepted.existed = existed;
    STUB_REPLY(ACCEPTED, accepted, &accepted);
    started.terminal = stub.terminal;
    if (stub.not_enforced) {
        started.not_enforced = (char **)limits;
        started.n_not_enforced = 2;
    }
    STUB_REPLY(STARTED, started, &started);
    stub.attached = true;
}

static inline void stub_say_credit(void)
{
    Sandstorm__V1__StdinCredit credit = SANDSTORM__V1__STDIN_CREDIT__INIT;
    credit.received = credit.taken = stub.known ? stub.known - 1 : stub.received;
    credit.next = stub.received + stub.pending;
    credit.limit = stub.stdin_limit = MAX(stub.stdin_limit, stub.received + STUB_WINDOW);
    STUB_REPLY(STDIN_CREDIT, stdin_credit, &credit);
}

static inline void stub_say_output(uint64_t size)
{
    static uint8_t bytes[STUB_PIECE];
    Sandstorm__V1__Output output = SANDSTORM__V1__OUTPUT__INIT;
    output.offset = stub.sent;
    output.stream = SANDSTORM__V1__STREAM__STREAM_STDOUT;
    for (uint64_t i = 0; i < size; i++)
        bytes[i] = stub_byte(stub.sent + i);
    output.data = (ProtobufCBinaryData){ size, bytes };
    stub.sent += size;
    STUB_REPLY(OUTPUT, output, &output);
}

static inline void stub_say_gap(void)
{
    Sandstorm__V1__Gap gap = SANDSTORM__V1__GAP__INIT;
    gap.offset = stub.sent;
    gap.size = stub.gap - stub.sent;
    gap.reason = SANDSTORM__V1__GAP_REASON__GAP_REASON_TRIMMED;
    stub.sent = stub.gap;
    STUB_REPLY(GAP, gap, &gap);
}

static inline void stub_say_ended(void)
{
    Sandstorm__V1__Ended ended = SANDSTORM__V1__ENDED__INIT;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    Sandstorm__V1__Exited exited = SANDSTORM__V1__EXITED__INIT;
    Sandstorm__V1__Usage usage = SANDSTORM__V1__USAGE__INIT;
    char *const limits[] = { (char *)"memory", (char *)"pids" };
    exited.code = STUB_CODE;
    outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_EXITED;
    outcome.exited = &exited;
    usage.user_us = 11;
    usage.system_us = 12;
    usage.max_rss_bytes = 13;
    outcome.usage = &usage;
    outcome.survivors = 2;
    outcome.peak_memory_bytes = 14;
    outcome.not_enforced = (char **)limits;
    outcome.n_not_enforced = 2;
    ended.outcome = &outcome;
    ended.end_offset = stub.output;
    stub.ended = true;
    STUB_REPLY(ENDED, ended, &ended);
}

/* One step of whatever is possible now. */
static inline void stub_step(void *userdata)
{
    (void)userdata;
    if (stub.over || !stub.call)
        return;
    bool may_end = stub.sent == stub.output && !stub.endless && (!stub.has_input || stub.eof);
    uint64_t room =
        stub.limit > stub.sent ? MIN(stub.limit, stub.output) - MIN(stub.sent, stub.output) : 0;
    loop_timer_start(stub.tick, 0);
    if (stub.cuts > 0 && random_below(&stub.seed, 12) == 0) {
        stub.cuts--;
        stub_over((enum stub_cut)(1 + random_below(&stub.seed, 3)));
    } else if (stub.sent < stub.gap) {
        stub_say_gap();
    } else if (stub.pending > 0 || stub.pending_eof) {
        /* It reaches the runner: until then it is lost with the stream. */
        stub.received += stub.pending;
        stub.pending = 0;
        stub.eof = stub.eof || stub.pending_eof;
        stub.pending_eof = false;
        stub_say_credit();
    } else if (room > 0) {
        uint64_t size = 1 + random_below(&stub.seed, STUB_PIECE);
        stub_say_output(MIN(room, size));
    } else if (stub.open.snapshot && stub.sent == stub.output) {
        stub_over(STUB_CUT_OK);
    } else if (may_end && !stub.ended) {
        stub_say_ended();
    } else if (stub.cuts == 0 || stub.ended) {
        loop_timer_stop(stub.tick); /* the next message goes on */
    }
}

static inline void stub_on_open(const Sandstorm__V1__ExecOpen *open)
{
    uint64_t at = open->from_end ? stub.begin_at : open->from_offset;
    stub.opened_at[stub.opens % STUB_OPENS] = at;
    stub.opens++;
    (void)snprintf(stub.open.id, sizeof(stub.open.id), "%s", open->command_id);
    (void)snprintf(stub.open.sandbox, sizeof(stub.open.sandbox), "%s", open->sandbox_id);
    stub.open.limit = open->limit;
    stub.open.last_bytes = open->last_bytes;
    stub.open.mode = open->mode;
    stub.open.snapshot = open->snapshot;
    stub.open.from_end = open->from_end;
    stub.with_spec += open->spec != NULL;
    if (stub.refuse.code != ERR_NONE && stub.opens > stub.refuse_from) {
        stub.over = true;
        rpc_call_finish(stub.call, &stub.refuse);
        return;
    }
    if (stub.cut_before_start > 0) {
        stub.cut_before_start--;
        stub_over(STUB_CUT_RESET);
        return;
    }
    bool existed = *stub.id;
    if (open->spec) {
        uint8_t *spec = NULL;
        size_t size = 0;
        (void)!wire_pack(&open->spec->base, &spec, &size, NULL);
        /* The same one again, byte for byte, or it would be a conflict. */
        bool same = !existed || (size == stub.spec_size && memcmp(spec, stub.spec, size) == 0 &&
                                 strcmp(open->command_id, stub.id) == 0);
        stub.known_with_spec += stub.acked > 0 || !same;
        stub.starts += !existed;
        free(stub.spec);
        stub.spec = spec;
        stub.spec_size = size;
    }
    (void)snprintf(stub.id, sizeof(stub.id), "%s", open->command_id);
    if (stub.cut_before_accepted > 0) {
        stub.cut_before_accepted--;
        stub_over(STUB_CUT_RESET);
        return;
    }
    stub.sent = at;
    stub.limit = open->limit;
    stub_say_accepted(existed);
    if (stub.has_input && !stub.silent)
        stub_say_credit();
}

static inline void stub_on_stdin(const Sandstorm__V1__Stdin *input)
{
    uint64_t have = stub.received + stub.pending, end = input->offset + input->data.len;
    stub.inputs++;
    if (input->offset > have || end > stub.stdin_limit || end > STUB_INPUT) {
        struct err why = { .code = ERR_INVALID, .text = "input with a hole, or without credit" };
        stub.over = true;
        rpc_call_finish(stub.call, &why);
        return;
    }
    uint64_t known = MIN(have - input->offset, input->data.len);
    (void)memcpy(stub.got + have, input->data.data + known, input->data.len - known);
    stub.pending += input->data.len - known;
    stub.pending_eof = stub.pending_eof || input->eof;
}

static inline void stub_on_request(const Sandstorm__V1__ExecRequest *request)
{
    switch (request->kind_case) {
    case SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN:
        stub_on_open(request->open);
        break;
    case SANDSTORM__V1__EXEC_REQUEST__KIND_CREDIT:
        stub.limit = MAX(stub.limit, request->credit->limit);
        stub.acked = MAX(stub.acked, request->credit->acked);
        if (stub.ended && request->credit->acked == stub.output) {
            stub.acknowledged = true;
            stub_over(STUB_CUT_OK);
        }
        break;
    case SANDSTORM__V1__EXEC_REQUEST__KIND_STDIN:
        stub_on_stdin(request->stdin);
        break;
    case SANDSTORM__V1__EXEC_REQUEST__KIND_SIGNAL:
        (void)strncat(stub.signals, request->signal->name,
                      sizeof(stub.signals) - strlen(stub.signals) - 1);
        stub.endless = false; /* that ends it */
        break;
    case SANDSTORM__V1__EXEC_REQUEST__KIND_RESIZE:
        stub.sizes++;
        stub.rows = request->resize->rows;
        break;
    case SANDSTORM__V1__EXEC_REQUEST__KIND_CANCEL:
        stub.cancels++;
        stub.endless = false;
        break;
    default:
        break;
    }
}

static inline void stub_message(void *owner, const uint8_t *data, size_t size)
{
    if (owner != stub.call)
        return;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (!stub.over &&
        wire_unpack(&sandstorm__v1__exec_request__descriptor, data, size, &message, NULL) == 0)
        stub_on_request((const Sandstorm__V1__ExecRequest *)message);
    if (!stub.over)
        loop_timer_start(stub.tick, 0);
}

static inline void stub_half_closed(void *owner)
{
    (void)owner;
}

static inline void stub_closed(void *owner, const struct err *status)
{
    (void)status;
    rpc_call_release(owner);
    if (stub.call == owner)
        stub.call = NULL;
}

static inline int stub_exec(void *userdata, struct rpc_call *call, struct err *err)
{
    static const struct rpc_call_handler handler = { .message = stub_message,
                                                     .half_closed = stub_half_closed,
                                                     .closed = stub_closed };
    struct service *service = userdata;
    if (!stub.tick && loop_timer_new(service->loop, stub_step, NULL, &stub.tick, err) < 0)
        return -1;
    stub.call = call;
    stub.over = stub.ended = stub.attached = stub.pending_eof = false;
    stub.pending = 0;
    stub.stdin_limit = 0;
    rpc_call_bind(call, &handler, call);
    return 0;
}

static inline void stub_go_on(struct loop_post *post)
{
    (void)post;
    if (stub.call)
        loop_timer_start(stub.tick, 0);
}

/* From the test's thread, while a stream is up: cuts it soon, although nothing else happens. */
static inline void stub_cut_soon(struct service *service)
{
    static struct loop_post post = { .fn = stub_go_on };
    stub.cuts = 1;
    loop_post(service->loop, &post);
}

/* No stream may be up. */
static inline void stub_reset(void)
{
    free(stub.spec);
    uint8_t *got = stub.got ? stub.got : malloc(STUB_INPUT);
    struct loop_timer *tick = stub.tick;
    (void)memset(&stub, 0, sizeof(stub));
    stub.got = got;
    stub.tick = tick;
    stub.seed = 1;
}
