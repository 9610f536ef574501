/* Writes the seeds of the fuzz targets that read messages or certificates: wire/, runner/, session/
 * and csr/ below the directory that is named. Run by the build. */
#include "common/csr.h"
#include "common/wire.h"
#include "orchestrator/ca-internal.h"
#include "tests/unit/wire_types.h"

#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>

#define COMMAND "0b0c5a1e-7f0e-4a53-9c55-3d7a1f2e9b10"

static const char *root;
static uint8_t seed[65536];
static size_t seed_size;

static void put_byte(unsigned byte)
{
    seed[seed_size++] = (uint8_t)byte;
}

/* As input_block() of check.h reads it. */
static void put_block(const void *data, size_t size)
{
    put_byte(size & 255);
    put_byte(size >> 8);
    (void)memcpy(seed + seed_size, data, size);
    seed_size += size;
}

static int save(const char *dir, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%s/%s", root, dir, name);
    FILE *file = fopen(path, "w");
    if (!file)
        return -1;
    size_t n = fwrite(seed, 1, seed_size, file);
    int r = fclose(file) == 0 && n == seed_size ? 0 : -1;
    seed_size = 0;
    return r;
}

static int save_wire(const char *name, const ProtobufCMessage *message)
{
    uint8_t packed[4096];
    for (unsigned i = 0; i < ELEMENTS(wire_types); i++)
        if (wire_types[i] == message->descriptor)
            put_byte(i);
    size_t size = protobuf_c_message_pack(message, packed);
    (void)memcpy(seed + seed_size, packed, size);
    seed_size += size;
    return save("wire", name);
}

/* One order to the runner. */
static void put_frame(Sandstorm__V1__OrchestratorFrame *frame)
{
    uint8_t packed[4096];
    put_byte(0);
    put_block(packed, protobuf_c_message_pack(&frame->base, packed));
}

static void put_order(Sandstorm__V1__CommandOrder *order)
{
    Sandstorm__V1__OrchestratorFrame frame = SANDSTORM__V1__ORCHESTRATOR_FRAME__INIT;
    order->command_id = (char *)COMMAND;
    frame.kind_case = SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_ORDER;
    frame.order = order;
    put_frame(&frame);
}

static void put_welcome(void)
{
    Sandstorm__V1__Welcome welcome = SANDSTORM__V1__WELCOME__INIT;
    welcome.epoch = 7;
    Sandstorm__V1__OrchestratorFrame frame = SANDSTORM__V1__ORCHESTRATOR_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_WELCOME;
    frame.welcome = &welcome;
    put_frame(&frame);
}

static void put_start_in(const char *program, Sandstorm__V1__StdinMode mode,
                         Sandstorm__V1__Terminal *terminal)
{
    static uint8_t digest[32];
    char *argv[] = { (char *)program };
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.argv = argv;
    spec.n_argv = 1;
    spec.stdin_mode = mode;
    spec.stdin_data = (ProtobufCBinaryData){ 2, digest };
    spec.terminal = terminal;
    Sandstorm__V1__Attach attach = SANDSTORM__V1__ATTACH__INIT;
    attach.limit = 1000;
    Sandstorm__V1__Start start = SANDSTORM__V1__START__INIT;
    start.spec = &spec;
    start.spec_digest = (ProtobufCBinaryData){ sizeof(digest), digest };
    start.attach = &attach;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_START;
    order.start = &start;
    put_order(&order);
}

static void put_start(const char *program, Sandstorm__V1__StdinMode mode)
{
    put_start_in(program, mode, NULL);
}

/* A process writes, reads or exits, and then the link listens. */
static void put_act(unsigned verb, unsigned amount)
{
    put_byte(2);
    put_byte(0);
    put_byte(verb);
    put_byte(amount);
    put_byte(3);
}

static void put_rest(void)
{
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    credit.acked = 10;
    credit.limit = 1u << 20;
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    input.data = (ProtobufCBinaryData){ 3, (uint8_t *)"abc" };
    input.eof = true;
    Sandstorm__V1__Signal signal = SANDSTORM__V1__SIGNAL__INIT;
    signal.name = (char *)"TERM";
    Sandstorm__V1__Cancel cancel = SANDSTORM__V1__CANCEL__INIT;
    Sandstorm__V1__Detach detach = SANDSTORM__V1__DETACH__INIT;
    Sandstorm__V1__Release release = SANDSTORM__V1__RELEASE__INIT;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_CREDIT;
    order.credit = &credit;
    put_order(&order);
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN;
    order.stdin = &input;
    put_order(&order);
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_SIGNAL;
    order.signal = &signal;
    put_order(&order);
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_CANCEL;
    order.cancel = &cancel;
    put_order(&order);
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_DETACH;
    order.detach = &detach;
    put_order(&order);
    put_act(3, 0);
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE;
    order.release = &release;
    put_order(&order);
}

static int make_terminal(void)
{
    Sandstorm__V1__TerminalSize size = SANDSTORM__V1__TERMINAL_SIZE__INIT;
    size.rows = 24;
    Sandstorm__V1__Terminal terminal = SANDSTORM__V1__TERMINAL__INIT;
    terminal.size = &size;
    terminal.type = (char *)"vt100";
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RESIZE;
    order.resize = &size;
    put_welcome();
    put_start_in("true", SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM, &terminal);
    put_act(0, 255);
    put_order(&order);
    put_rest();
    return save("runner", "terminal");
}

static int make_runner(void)
{
    int r = make_terminal();
    put_welcome();
    put_start("true", SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM);
    put_act(0, 255);
    put_rest();
    put_start("true", SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM);
    put_byte(3);
    r |= save("runner", "life");
    put_welcome();
    put_start("false", SANDSTORM__V1__STDIN_MODE__STDIN_MODE_UNSPECIFIED);
    put_byte(3);
    r |= save("runner", "start-failed");
    put_welcome();
    put_start("cat", SANDSTORM__V1__STDIN_MODE__STDIN_MODE_INLINE);
    put_act(1, 1);
    put_act(3, 9);
    put_welcome();
    put_byte(3);
    return r | save("runner", "inline");
}

/* One message to one of the four calls of fuzz_session.c. */
static void put_call(unsigned which, const ProtobufCMessage *message)
{
    uint8_t packed[4096];
    put_byte(which + 4u * 4u);
    put_block(packed, protobuf_c_message_pack(message, packed));
}

static void put_agent_frame(Sandstorm__V1__AgentFrame *frame)
{
    Sandstorm__V1__AgentFrame *frames[] = { frame };
    Sandstorm__V1__ConnectRequest request = SANDSTORM__V1__CONNECT_REQUEST__INIT;
    request.frames = frames;
    request.n_frames = 1;
    put_call(0, &request.base);
}

static void put_register(void)
{
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    info.hostname = (char *)"h";
    Sandstorm__V1__Register frame = SANDSTORM__V1__REGISTER__INIT;
    frame.protocol_min = frame.protocol_max = 1;
    frame.info = &info;
    Sandstorm__V1__AgentFrame agent = SANDSTORM__V1__AGENT_FRAME__INIT;
    agent.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER;
    agent.register_ = &frame;
    put_agent_frame(&agent);
}

static void put_open(uint64_t limit)
{
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.shell = (char *)"true";
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    open.sandbox_id = (char *)"s";
    open.command_id = (char *)COMMAND;
    open.spec = &spec;
    open.limit = limit;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    put_call(2, &request.base);
}

static void put_event(Sandstorm__V1__CommandEvent *event)
{
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    event->command_id = (char *)COMMAND;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_EVENT;
    frame.event = event;
    put_agent_frame(&frame);
}

static void put_events(void)
{
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    Sandstorm__V1__StdinCredit credit = SANDSTORM__V1__STDIN_CREDIT__INIT;
    credit.limit = 65536;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_STDIN_CREDIT;
    event.stdin_credit = &credit;
    put_event(&event);
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    input.data = (ProtobufCBinaryData){ 3, (uint8_t *)"abc" };
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_STDIN;
    request.stdin = &input;
    put_call(2, &request.base);
    Sandstorm__V1__Output output = SANDSTORM__V1__OUTPUT__INIT;
    output.stream = SANDSTORM__V1__STREAM__STREAM_STDOUT;
    output.data = (ProtobufCBinaryData){ 3, (uint8_t *)"abc" };
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_OUTPUT;
    event.output = &output;
    put_event(&event);
    Sandstorm__V1__Exited exited = SANDSTORM__V1__EXITED__INIT;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_EXITED;
    outcome.exited = &exited;
    Sandstorm__V1__Ended ended = SANDSTORM__V1__ENDED__INIT;
    ended.outcome = &outcome;
    ended.end_offset = 3;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED;
    event.ended = &ended;
    put_event(&event);
}

static void put_logs(void)
{
    Sandstorm__V1__LogField field = SANDSTORM__V1__LOG_FIELD__INIT;
    Sandstorm__V1__LogField *fields[] = { &field };
    field.name = (char *)"command";
    field.value = (char *)COMMAND;
    Sandstorm__V1__LogLine line = SANDSTORM__V1__LOG_LINE__INIT;
    Sandstorm__V1__LogLine *lines[] = { &line };
    line.time_unix_us = 1;
    line.level = SANDSTORM__V1__LOG_LEVEL__LOG_LEVEL_WARN;
    line.origin = (char *)"runner";
    line.message = (char *)"m";
    line.fields = fields;
    line.n_fields = 1;
    Sandstorm__V1__Logs logs = SANDSTORM__V1__LOGS__INIT;
    logs.lines = lines;
    logs.n_lines = 1;
    logs.dropped = 2;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_LOGS;
    frame.logs = &logs;
    put_agent_frame(&frame);
}

/* It has ended, and its end record has not come. */
static void put_settled(void)
{
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    Sandstorm__V1__Exited exited = SANDSTORM__V1__EXITED__INIT;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_EXITED;
    outcome.exited = &exited;
    Sandstorm__V1__Settled settled = SANDSTORM__V1__SETTLED__INIT;
    settled.outcome = &outcome;
    settled.end_offset = 3;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED;
    event.settled = &settled;
    put_event(&event);
}

static void put_unknown(void)
{
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    Sandstorm__V1__Refusal refusal = SANDSTORM__V1__REFUSAL__INIT;
    refusal.reason = SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNKNOWN_COMMAND;
    refusal.order = SANDSTORM__V1__ORDER_KIND__ORDER_KIND_ATTACH;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_REFUSAL;
    event.refusal = &refusal;
    put_event(&event);
}

static int make_session(void)
{
    put_register();
    put_open(1000);
    put_events();
    int r = save("session", "life");
    put_register();
    put_open(0);
    put_byte(3 * 4); /* the agent is cut and comes back */
    put_register();
    put_events();
    r |= save("session", "cut");
    put_register();
    put_open(1000);
    put_settled();
    put_byte(3 * 4 + 2); /* the client is cut and comes back */
    put_open(1000);
    put_unknown();
    r |= save("session", "again");
    put_register();
    put_logs();
    return r | save("session", "logs");
}

static int make_wire(void)
{
    int r = 0;
    for (unsigned i = 0; i < ELEMENTS(wire_types); i++) {
        put_byte(i);
        r |= save("wire", wire_types[i]->short_name);
    }
    Sandstorm__V1__EnvVar variable = SANDSTORM__V1__ENV_VAR__INIT;
    Sandstorm__V1__EnvVar *env[] = { &variable };
    variable.name = (char *)"NAME";
    char *argv[] = { (char *)"ls", (char *)"-l" };
    Sandstorm__V1__Limits limits = SANDSTORM__V1__LIMITS__INIT;
    limits.memory_bytes = 1u << 30;
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.argv = argv;
    spec.n_argv = 2;
    spec.env = env;
    spec.n_env = 1;
    spec.limits = &limits;
    spec.nice = -5;
    spec.umask_choice_case = SANDSTORM__V1__COMMAND_SPEC__UMASK_CHOICE_UMASK;
    spec.umask = 022;
    return r | save_wire("spec", &spec.base);
}

/* The modes of fuzz_csr.c: the text as it is, then what is in it, as it is and signed anew. */
static int save_pem(unsigned kind, const char *name, const char *label, const char *pem)
{
    static const char *const forms[] = { "text", "der", "signed" };
    static const unsigned modes[] = { 0, 2, 6 };
    unsigned char *der = NULL;
    long size = 0;
    if (cert_pem_block(pem, strlen(pem), label, &der, &size, NULL) < 0)
        return -1;
    int r = 0;
    for (unsigned i = 0; i < ELEMENTS(modes); i++) {
        char file[64];
        const size_t bytes = modes[i] ? (size_t)size : strlen(pem);
        put_byte(kind | modes[i]);
        (void)memcpy(seed + seed_size, modes[i] ? (const char *)der : pem, bytes);
        seed_size += bytes;
        (void)snprintf(file, sizeof(file), "%s-%s", name, forms[i]);
        r |= save("csr", file);
    }
    OPENSSL_free(der);
    return r;
}

static int save_leaf(const struct ca_leaf *leaf, const char *name)
{
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *root_cert = NULL, *cert = NULL;
    CLEANUP_BIO BIO *bio = NULL;
    CLEANUP_FREE char *pem = NULL;
    time_t now = time(NULL);
    if (cert_key_new(&key, NULL) < 0 || ca_x509_root(key, "a.b", now, &root_cert, NULL) < 0 ||
        ca_x509_leaf(leaf, key, root_cert, key, now, &cert, NULL) < 0 ||
        cert_pem_from_cert(cert, &bio, NULL) < 0 || cert_bio_text(bio, &pem, NULL) < 0)
        return -1;
    return save_pem(1, name, PEM_STRING_X509, pem);
}

static int make_csr(void)
{
    static const char *const names[] = { "localhost", "127.0.0.1" };
    const struct ca_leaf peer = { .common_name = "Sandstorm agent",
                                  .usage = "clientAuth",
                                  .uri = "spiffe://a.b/agent/web-1",
                                  .lifetime_s = 60 };
    const struct ca_leaf server = { .common_name = "Sandstorm orchestrator",
                                    .usage = "serverAuth",
                                    .names = names,
                                    .name_count = ELEMENTS(names),
                                    .lifetime_s = 60 };
    CLEANUP_KEY_PEM char *key = NULL;
    CLEANUP_FREE char *csr = NULL;
    if (csr_key_new(&key, NULL) < 0 || csr_new(key, &csr, NULL) < 0)
        return -1;
    return save_pem(0, "request", PEM_STRING_X509_REQ, csr) | save_leaf(&peer, "peer") |
           save_leaf(&server, "server");
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    root = argv[1];
    return make_wire() | make_runner() | make_session() | make_csr() ? 1 : 0;
}
