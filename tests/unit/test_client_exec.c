/* A command as the client library carries it, against a server that breaks off whenever it likes:
 * every byte of output and input once and in order, one start, one result. */
#include "client/client-internal.h"
#include "tests/unit/exec_stub.h"

#include <fcntl.h>
#include <sys/mman.h>

#define ID        "0189f7a2-7f6c-4c1e-9d55-8a1c2f3e4d5b"
#define OUTPUT    300000u
#define PACE_US   1000u
#define NOTES_MAX 65536u

#define OK(call) cr_assert_eq((call), 0, "%s", error.text)
#define CONTAINS(text, part)                                                                       \
    cr_assert(strstr((text), (part)), "\"%s\" lacks \"%s\"", (text), (part))

static struct service service;
static struct sandstorm_client *client;
static struct sandstorm_error error;
static struct sandstorm_exec *exec;
static struct sandstorm_outcome outcome;
static uint64_t taken;
static char notes[NOTES_MAX];
static unsigned attached;

static const struct rpc_method methods[] = {
    { .path = "/sandstorm.v1.CommandService/Exec", .open = stub_exec },
    { .path = NULL },
};

static void set_up(void)
{
    struct err err = { 0 };
    char path[80];
    (void)snprintf(service.dir, sizeof(service.dir), "/tmp/test-exec-XXXXXX");
    cr_assert(mkdtemp(service.dir));
    service.methods = methods;
    service.userdata = &service;
    service_start(&service);
    (void)snprintf(path, sizeof(path), "%s/client", service.dir);
    cr_assert_eq(ca_issue_peer(service.ca, path, IDENTITY_CLIENT, "ann", 3600, &err), 0);
    const struct sandstorm_client_options options = { .endpoint = service.endpoint,
                                                      .identity_dir = path };
    OK(sandstorm_client_new(&options, &client, &error));
    client->pace_us = PACE_US;
    stub_reset();
    stub.output = OUTPUT;
}

static void tear_down(void)
{
    char command[80];
    sandstorm_exec_free(TAKE_PTR(exec));
    sandstorm_client_free(client);
    service_stop(&service);
    loop_timer_free(stub.tick);
    free(stub.got);
    free(stub.spec);
    (void)snprintf(command, sizeof(command), "rm -rf %s", service.dir);
    cr_assert_eq(system(command), 0);
}

/* cppcheck-suppress unknownMacro */
TestSuite(client_exec, .init = set_up, .fini = tear_down, .timeout = 120);

static void on_output(void *userdata, int stream, const void *data, size_t size)
{
    (void)userdata;
    cr_assert_eq(stream, 1);
    for (size_t i = 0; i < size; i++)
        cr_assert_eq(((const uint8_t *)data)[i], stub_byte(taken + i), "byte %llu is another",
                     (unsigned long long)(taken + i));
    taken += size;
}

static void on_notice(void *userdata, const char *text)
{
    (void)userdata;
    size_t used = strlen(notes);
    (void)snprintf(notes + used, sizeof(notes) - used, "%s\n", text);
}

static void on_attached(void *userdata)
{
    (void)userdata;
    attached++;
}

static struct sandstorm_streams streams(int input)
{
    return (struct sandstorm_streams){
        .stdin_fd = input,
        .stdout_fd = -1,
        .stderr_fd = -1,
        .output = on_output,
        .notice = on_notice,
        .attached = on_attached,
    };
}

static struct sandstorm_exec_options plain(int input)
{
    static const char *const argv[] = { "cat", NULL };
    return (struct sandstorm_exec_options){ .spec = { .sandbox = "web-1", .argv = argv },
                                            .streams = streams(input) };
}

static void start(const struct sandstorm_exec_options *options)
{
    taken = 0;
    notes[0] = '\0';
    OK(sandstorm_exec_start(client, options, &exec, &error));
}

static void attach(struct sandstorm_attach_options *options)
{
    options->command_id = ID;
    taken = options->from_end ? stub.begin_at : options->from_offset;
    notes[0] = '\0';
    OK(sandstorm_exec_attach(client, options, &exec, &error));
}

static void assert_whole(void)
{
    OK(sandstorm_exec_wait(exec, &outcome, &error));
    cr_assert_eq(outcome.result, SANDSTORM_RESULT_EXITED);
    cr_assert_eq(outcome.exit_code, STUB_CODE);
    cr_assert_eq(taken, stub.output);
    cr_assert(stub.acknowledged);
}

/* Through thick and thin. */

Test(client_exec, a_quiet_run_is_one_stream)
{
    const struct sandstorm_exec_options options = plain(-1);
    start(&options);
    assert_whole();
    cr_assert_eq(stub.opens, 1u);
    cr_assert_eq(stub.starts, 1u);
    cr_assert_eq(stub.open.mode, SANDSTORM__V1__EXEC_MODE__EXEC_MODE_CONTROL);
    cr_assert_str_eq(stub.open.id, sandstorm_exec_id(exec));
    cr_assert_str_eq(notes, "");
    cr_assert_eq(attached, 1u);
}

static void turn(void)
{
    struct err err;
    cr_assert_eq(loop_turn(client_loop(client), 1000, &err), 0);
}

/* The server, which has a thread of its own, has done with the last one. */
static void wait_for_no_stream(void)
{
    while (stub.call)
        turn();
}

static void carry(uint64_t seed)
{
    stub_reset();
    stub.seed = seed;
    stub.output = random_below(&seed, OUTPUT);
    stub.has_input = random_below(&seed, 4) > 0;
    stub.input = stub.has_input ? random_below(&seed, 200000) : 0;
    stub.cuts = 1 + (unsigned)random_below(&seed, 12);
    stub.cut_before_start = (unsigned)random_below(&seed, 3);
    stub.cut_before_accepted = (unsigned)random_below(&seed, 3);
    CLEANUP_FD int input = memfd_create("input", MFD_CLOEXEC);
    for (uint64_t i = 0; i < stub.input; i++) {
        uint8_t byte = stub_byte(i + 77);
        cr_assert_eq(write(input, &byte, 1), 1);
    }
    cr_assert_eq(lseek(input, 0, SEEK_SET), 0);
    const struct sandstorm_exec_options options = plain(stub.has_input ? input : -1);
    unsigned early = stub.cut_before_start + stub.cut_before_accepted;
    start(&options);
    OK(sandstorm_exec_wait(exec, &outcome, &error));
    cr_assert_eq(outcome.exit_code, STUB_CODE);
    cr_assert_eq(taken, stub.output, "%llu of %llu", (unsigned long long)taken,
                 (unsigned long long)stub.output);
    cr_assert_eq(stub.starts, 1u, "it ran %u times", stub.starts);
    cr_assert_eq(stub.known_with_spec, 0u);
    cr_assert_eq(stub.with_spec, early + 1, "what is accepted is not started again");
    cr_assert_eq(stub.received, stub.input);
    for (uint64_t i = 0; i < stub.input; i++)
        cr_assert_eq(stub.got[i], stub_byte(i + 77), "input differs at %llu",
                     (unsigned long long)i);
    for (unsigned i = 1; i < MIN(stub.opens, STUB_OPENS); i++)
        cr_assert_geq(stub.opened_at[i], stub.opened_at[i - 1], "it went back");
    sandstorm_exec_free(TAKE_PTR(exec));
    wait_for_no_stream();
}

Test(client_exec, random_cuts_cost_no_byte_either_way_and_start_nothing_twice)
{
    for (uint64_t seed = 1; seed <= 60; seed++)
        carry(seed * 0x9e3779b97f4a7c15u);
}

Test(client_exec, a_slow_reader_keeps_its_place_through_cuts)
{
    int ends[2];
    static uint8_t got[OUTPUT];
    size_t size = 0;
    stub.cuts = 10;
    struct sandstorm_exec_options options = plain(-1);
    cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    options.streams.stdout_fd = ends[1];
    start(&options);
    uint64_t seed = 5;
    while (size < OUTPUT) {
        turn();
        size_t piece = 1 + random_below(&seed, 3000);
        ssize_t n = read(ends[0], got + size, MIN(piece, OUTPUT - size));
        size += n > 0 ? (size_t)n : 0;
        cr_assert_leq(sandstorm_exec_offset(exec), size + 65536u, "taken before it was");
    }
    OK(sandstorm_exec_wait(exec, &outcome, &error));
    for (size_t i = 0; i < OUTPUT; i++)
        cr_assert_eq(got[i], stub_byte(i), "byte %zu", i);
    close_fd(&ends[0]);
    close_fd(&ends[1]);
}

Test(client_exec, it_is_said_when_the_connection_goes_and_when_it_is_back)
{
    const struct sandstorm_exec_options options = plain(-1);
    stub.cuts = 1;
    start(&options);
    assert_whole();
    cr_assert_str_eq(notes,
                     "the connection to the orchestrator was lost; reconnecting, the command goes "
                     "on\nconnected to the orchestrator again\n");
    cr_assert_eq(attached, 1u);
}

/* Giving up. */

Test(client_exec, a_refusal_is_final_and_nothing_was_started)
{
    const struct sandstorm_exec_options options = plain(-1);
    (void)err_set(&stub.refuse, ERR_UNAVAILABLE, "sandbox \"web-1\" is offline");
    start(&options);
    cr_assert_eq(sandstorm_exec_wait(exec, &outcome, &error), -1);
    cr_assert_str_eq(error.text, "sandbox \"web-1\" is offline");
    cr_assert_eq(error.code, SANDSTORM_UNAVAILABLE);
    cr_assert_not(sandstorm_exec_may_run(exec));
    cr_assert_eq(stub.opens, 1u);
}

Test(client_exec, a_refusal_after_an_unanswered_start_leaves_a_doubt)
{
    const struct sandstorm_exec_options options = plain(-1);
    stub.cut_before_accepted = 1;
    stub.refuse_from = 1;
    (void)err_set(&stub.refuse, ERR_DENIED, "not any more");
    start(&options);
    cr_assert_eq(sandstorm_exec_wait(exec, &outcome, &error), -1);
    CONTAINS(error.text, "it is not known whether command ");
    CONTAINS(error.text, "not any more");
    cr_assert(sandstorm_exec_may_run(exec));
}

Test(client_exec, who_is_taken_over_from_is_told_and_does_not_come_back)
{
    const struct sandstorm_exec_options options = plain(-1);
    stub.endless = true;
    start(&options);
    while (!attached)
        turn();
    stub.refuse_from = 1;
    (void)err_set(&stub.refuse, ERR_PRECONDITION, "another client has attached to it");
    stub_cut_soon(&service);
    cr_assert_eq(sandstorm_exec_wait(exec, &outcome, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_PRECONDITION);
    CONTAINS(error.text, "another client has attached to it");
    CONTAINS(error.text, "is unknown");
    cr_assert_eq(stub.opens, 2u);
}

Test(client_exec, it_gives_up_when_nobody_is_there_for_too_long)
{
    struct sandstorm_exec_options options = plain(-1);
    stub.endless = true;
    stub.cuts = 1;
    stub.refuse_from = 1;
    (void)err_set(&stub.refuse, ERR_UNAVAILABLE, "the orchestrator is stopping; try again");
    options.streams.give_up_after_ms = 1000;
    start(&options);
    cr_assert_eq(sandstorm_exec_wait(exec, &outcome, &error), -1);
    CONTAINS(error.text, "is unknown");
    cr_assert(sandstorm_exec_may_run(exec));
    cr_assert_gt(stub.opens, 2u);
}

Test(client_exec, an_endpoint_where_nobody_is_is_an_error_at_once)
{
    struct sandstorm_client *other;
    char path[80];
    (void)snprintf(path, sizeof(path), "%s/client", service.dir);
    const struct sandstorm_client_options where = { .endpoint = "127.0.0.1:1",
                                                    .identity_dir = path };
    OK(sandstorm_client_new(&where, &other, &error));
    const struct sandstorm_exec_options options = plain(-1);
    OK(sandstorm_exec_start(other, &options, &exec, &error));
    cr_assert_eq(sandstorm_exec_wait(exec, &outcome, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_UNAVAILABLE);
    cr_assert_not(sandstorm_exec_may_run(exec));
    cr_assert_str_eq(notes, "");
    sandstorm_exec_free(TAKE_PTR(exec));
    sandstorm_client_free(other);
}

/* Certificates. */

static unsigned renewals;

static void renew(void *userdata)
{
    struct err err;
    char path[80];
    (void)userdata;
    renewals++;
    (void)snprintf(path, sizeof(path), "%s/client", service.dir);
    cr_assert_eq(system("rm -rf /tmp/test-exec-*/client.pending"), 0);
    (void)remove(path);
    cr_assert_eq(ca_issue_peer(service.ca, path, IDENTITY_CLIENT, "ann", 3600, &err), 0, "%s",
                 err.text);
}

Test(client_exec, a_certificate_that_has_ended_is_renewed_and_the_command_goes_on)
{
    const struct sandstorm_exec_options options = plain(-1);
    client->renew = renew;
    client->not_after_s = 1; /* as if it had ended long ago */
    stub.cuts = 1;
    start(&options);
    assert_whole();
    cr_assert_eq(renewals, 1u);
    cr_assert_gt(client->not_after_s, 1);
}

Test(client_exec, who_is_not_known_any_more_and_has_nothing_new_to_show_is_out)
{
    const struct sandstorm_exec_options options = plain(-1);
    stub.endless = true;
    stub.cuts = 1;
    stub.refuse_from = 1;
    (void)err_set(&stub.refuse, ERR_UNAUTHENTICATED, "it was revoked");
    start(&options);
    cr_assert_eq(sandstorm_exec_wait(exec, &outcome, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_UNAUTHENTICATED);
    cr_assert_eq(stub.opens, 2u);
}

/* What goes to the command. */

Test(client_exec, what_comes_while_there_is_no_stream_waits_for_the_next_one)
{
    struct sandstorm_exec_options options = plain(-1);
    options.spec.terminal = true;
    options.spec.rows = 24;
    options.spec.columns = 80;
    stub.endless = true;
    start(&options);
    /* Not even sent yet. */
    OK(sandstorm_exec_resize(exec, 30, 100, &error));
    while (!stub.sizes)
        turn();
    cr_assert_eq(stub.rows, 30u);
    stub_cut_soon(&service);
    while (!strstr(notes, "lost"))
        turn();
    OK(sandstorm_exec_signal(exec, "INT", &error));
    assert_whole();
    cr_assert_eq(stub.opens, 2u);
    cr_assert_str_eq(stub.signals, "INT");
    cr_assert_eq(stub.sizes, 2u, "the size is said again");
}

Test(client_exec, a_cancel_is_an_order_too)
{
    const struct sandstorm_exec_options options = plain(-1);
    stub.endless = true;
    start(&options);
    OK(sandstorm_exec_cancel(exec, &error));
    assert_whole();
    cr_assert_eq(stub.cancels, 1u);
    cr_assert_eq(sandstorm_exec_cancel(exec, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_PRECONDITION);
}

static size_t typed(void *userdata, void *data, size_t size)
{
    char *text = data;
    (void)userdata;
    /* "-" is for us, "+" becomes two. */
    size_t left = 0;
    for (size_t i = 0; i < size; i++)
        if (text[i] != '-')
            text[left++] = text[i];
    if (left > 0 && text[left - 1] == '+')
        text[left++] = '+';
    return left;
}

Test(client_exec, a_filter_takes_out_and_puts_in)
{
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    struct sandstorm_exec_options options = plain(ends[0]);
    options.streams.typed = typed;
    stub.has_input = true;
    start(&options);
    static const char *const pieces[] = { "-", "a-b+", "-c-" };
    for (size_t i = 0, sent = 0; i < ELEMENTS(pieces); i++) {
        cr_assert_eq(write(ends[1], pieces[i], strlen(pieces[i])), (ssize_t)strlen(pieces[i]));
        sent += i == 1 ? 4 : i == 2;
        while (stub.received < sent)
            turn();
    }
    close_fd(&ends[1]);
    assert_whole();
    cr_assert_eq(stub.received, 5u);
    cr_assert_arr_eq(stub.got, "ab++c", 5);
    close_fd(&ends[0]);
}

static size_t leave(void *userdata, void *data, size_t size)
{
    (void)userdata;
    (void)data;
    sandstorm_exec_detach(exec);
    return size;
}

Test(client_exec, a_detach_from_within_leaves_the_command_alone)
{
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    cr_assert_eq(write(ends[1], "x", 1), 1);
    struct sandstorm_exec_options options = plain(ends[0]);
    options.streams.typed = leave;
    stub.has_input = stub.endless = true;
    start(&options);
    cr_assert_eq(sandstorm_exec_wait(exec, &outcome, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_CANCELLED);
    CONTAINS(error.text, "detached");
    cr_assert_eq(stub.inputs, 0u);
    close_fd(&ends[0]);
    close_fd(&ends[1]);
}

/* Attaching. */

Test(client_exec, an_attach_says_only_the_id_and_goes_on_where_it_was_asked_to)
{
    struct sandstorm_attach_options options = { .from_offset = 1000, .streams = streams(-1) };
    stub.cuts = 3;
    attach(&options);
    assert_whole();
    cr_assert_eq(stub.with_spec, 0u);
    cr_assert_str_eq(stub.open.sandbox, "");
    cr_assert_str_eq(stub.open.id, ID);
    cr_assert_eq(stub.opened_at[0], 1000u);
}

Test(client_exec, an_attach_from_the_end_gives_credit_when_it_knows_where_that_is)
{
    struct sandstorm_attach_options options = { .from_end = true,
                                                .last_bytes = 4096,
                                                .streams = streams(-1) };
    stub.begin_at = OUTPUT - 4000;
    stub.cuts = 0;
    attach(&options);
    assert_whole();
    cr_assert(stub.open.from_end);
    cr_assert_eq(stub.open.last_bytes, 4096u);
    cr_assert_eq(stub.open.limit, 0u);
}

Test(client_exec, from_the_end_is_an_offset_after_a_reconnect)
{
    struct sandstorm_attach_options options = { .from_end = true,
                                                .last_bytes = 100000,
                                                .streams = streams(-1) };
    stub.begin_at = OUTPUT - 100000;
    stub.cuts = 2;
    attach(&options);
    assert_whole();
    cr_assert_not(stub.open.from_end);
}

Test(client_exec, a_snapshot_ends_without_a_result)
{
    struct sandstorm_attach_options options = { .watch = true,
                                                .snapshot = true,
                                                .streams = streams(-1) };
    stub.endless = true;
    attach(&options);
    OK(sandstorm_exec_wait(exec, &outcome, &error));
    cr_assert_eq(outcome.result, SANDSTORM_RESULT_UNKNOWN);
    cr_assert_eq(taken, OUTPUT);
    cr_assert(stub.open.snapshot);
    cr_assert_eq(stub.open.mode, SANDSTORM__V1__EXEC_MODE__EXEC_MODE_WATCH);
}

Test(client_exec, a_watcher_sends_nothing)
{
    CLEANUP_FD int input = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    struct sandstorm_attach_options options = { .watch = true, .streams = streams(input) };
    stub.has_input = stub.eof = true;
    attach(&options);
    cr_assert_eq(sandstorm_exec_signal(exec, "INT", &error), -1);
    cr_assert_eq(error.code, SANDSTORM_INVALID);
    cr_assert_eq(sandstorm_exec_resize(exec, 1, 1, &error), -1);
    cr_assert_eq(sandstorm_exec_cancel(exec, &error), -1);
    assert_whole();
    cr_assert_eq(stub.inputs, 0u);
    cr_assert_str_eq(stub.signals, "");
}

Test(client_exec, input_of_an_attach_goes_behind_what_is_there)
{
    CLEANUP_FD int input = memfd_create("input", MFD_CLOEXEC);
    cr_assert_eq(write(input, "more", 4), 4);
    cr_assert_eq(lseek(input, 0, SEEK_SET), 0);
    struct sandstorm_attach_options options = { .streams = streams(input) };
    stub.has_input = true;
    stub.received = 1000;
    stub.known = 1 + 400; /* the rest is under way */
    attach(&options);
    assert_whole();
    cr_assert_eq(stub.received, 1004u);
    cr_assert_arr_eq(stub.got + 1000, "more", 4);
}

Test(client_exec, what_is_gone_is_counted_and_said)
{
    struct sandstorm_attach_options options = { .streams = streams(-1) };
    stub.gap = 700;
    options.command_id = ID;
    OK(sandstorm_exec_attach(client, &options, &exec, &error));
    taken = 700;
    assert_whole();
    cr_assert_eq(outcome.gap_bytes, 700u);
    CONTAINS(notes, "700 bytes of output were let go");
}

Test(client_exec, the_result_has_all_that_the_sandbox_says)
{
    struct sandstorm_exec_options options = plain(-1);
    stub.not_enforced = true;
    start(&options);
    assert_whole();
    cr_assert_eq(outcome.survivors, 2u);
    cr_assert_eq(outcome.peak_memory_bytes, 14u);
    cr_assert_eq(outcome.user_us, 11u);
    cr_assert_eq(outcome.system_us, 12u);
    cr_assert_eq(outcome.max_rss_bytes, 13u);
    cr_assert_str_eq(outcome.not_enforced, "memory, pids");
    CONTAINS(notes, "does not enforce these limits: memory, pids");
}

Test(client_exec, an_id_that_is_none_is_refused_before_anything_is_sent)
{
    struct sandstorm_exec_options options = plain(-1);
    options.spec.command_id = "x";
    cr_assert_eq(sandstorm_exec_start(client, &options, &exec, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_INVALID);
    struct sandstorm_attach_options other = { .command_id = "../x", .streams = streams(-1) };
    cr_assert_eq(sandstorm_exec_attach(client, &other, &exec, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_INVALID);
    cr_assert_eq(stub.opens, 0u);
}
