/* A terminal through the whole system, by the API alone: what a client types on an Exec stream, and
 * what it gets to see. */
#include "tests/harness/peer.h"

#include "sandstorm/v1/control.pb-c.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define SEEN_MAX (1u << 20)

TestSuite(terminal, .init = fixture_start, .fini = fixture_stop);

/* Somebody who sits at it. */
struct typist {
    struct peer *peer;
    uint8_t *seen;
    size_t seen_size;
    uint64_t typed, may_type;
    bool started, terminal;
    char refused[256]; /* the last notice of a refusal */
    bool link_lost, link_back;
    ProtobufCMessage *end;
    const Sandstorm__V1__Outcome *outcome;
};

static void typist_done(struct typist *typist)
{
    peer_free(typist->peer);
    wire_free(typist->end);
    free(typist->seen);
}
#define CLEANUP_TYPIST CLEANUP(typist_done)

struct sitting {
    const char *shell, *type, *user;
    unsigned rows, columns;
    bool kill_when_gone, no_terminal;
};

static struct typist sit_down(const struct sitting *sitting)
{
    struct typist typist = {
        .peer = peer_open(fixture()->admin, "/sandstorm.v1.CommandService/Exec"),
        .seen = malloc(SEEN_MAX),
    };
    cr_assert_not_null(typist.seen);
    Sandstorm__V1__TerminalSize size = SANDSTORM__V1__TERMINAL_SIZE__INIT;
    size.rows = sitting->rows;
    size.columns = sitting->columns;
    Sandstorm__V1__Terminal terminal = SANDSTORM__V1__TERMINAL__INIT;
    terminal.size = &size;
    if (sitting->type)
        terminal.type = (char *)sitting->type;
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.shell = (char *)sitting->shell;
    spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    spec.terminal = sitting->no_terminal ? NULL : &terminal;
    if (sitting->user)
        spec.user = (char *)sitting->user;
    spec.kill_grace_ms = 1;
    if (sitting->kill_when_gone)
        spec.client_gone = SANDSTORM__V1__CLIENT_GONE_POLICY__CLIENT_GONE_POLICY_KILL_AFTER;
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    open.sandbox_id = (char *)BOX;
    open.spec = &spec;
    open.limit = SEEN_MAX;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    peer_send(typist.peer, &request.base);
    return typist;
}

static void note(struct typist *typist, const Sandstorm__V1__ExecNotice *notice)
{
    if (notice->kind == SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_REFUSED)
        (void)snprintf(typist->refused, sizeof(typist->refused), "%s", notice->detail);
    typist->link_lost |=
        notice->kind == SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_LINK_LOST;
    typist->link_back |=
        notice->kind == SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_LINK_BACK;
}

/* Takes one answer; none within the deadline of the peer ends the case. */
static void look(struct typist *typist)
{
    ProtobufCMessage *message =
        peer_receive(typist->peer, &sandstorm__v1__exec_response__descriptor);
    cr_assert_not_null(message, "%s", peer_wait_closed(typist->peer).text);
    const Sandstorm__V1__ExecResponse *response = (const Sandstorm__V1__ExecResponse *)message;
    switch (response->kind_case) {
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_STARTED:
        typist->started = true;
        typist->terminal = response->started->terminal;
        break;
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_OUTPUT:
        cr_assert_eq(response->output->offset, typist->seen_size);
        cr_assert_eq(response->output->stream, SANDSTORM__V1__STREAM__STREAM_STDOUT);
        cr_assert_lt(typist->seen_size + response->output->data.len, SEEN_MAX);
        (void)memcpy(typist->seen + typist->seen_size, response->output->data.data,
                     response->output->data.len);
        typist->seen_size += response->output->data.len;
        break;
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_STDIN_CREDIT:
        typist->may_type = MAX(typist->may_type, response->stdin_credit->limit);
        break;
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_NOTICE:
        note(typist, response->notice);
        break;
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_ENDED:
        typist->end = message;
        typist->outcome = response->ended->outcome;
        return;
    default:
        break;
    }
    wire_free(message);
}

#define LOOK_UNTIL(typist, condition)                                                              \
    do {                                                                                           \
        while (!(condition))                                                                       \
            look(typist);                                                                          \
    } while (0)

static bool saw(const struct typist *typist, const char *text)
{
    return memmem(typist->seen, typist->seen_size, text, strlen(text)) != NULL;
}

static void send_keys(struct typist *typist, const void *data, size_t size, bool eof)
{
    LOOK_UNTIL(typist, typist->may_type >= typist->typed + size);
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    input.offset = typist->typed;
    input.data = (ProtobufCBinaryData){ size, (uint8_t *)data };
    input.eof = eof;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_STDIN;
    request.stdin = &input;
    peer_send(typist->peer, &request.base);
    typist->typed += size;
}

static void type(struct typist *typist, const char *text)
{
    send_keys(typist, text, strlen(text), false);
}

static void resize(struct typist *typist, unsigned rows, unsigned columns)
{
    Sandstorm__V1__TerminalSize size = SANDSTORM__V1__TERMINAL_SIZE__INIT;
    size.rows = rows;
    size.columns = columns;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_RESIZE;
    request.resize = &size;
    peer_send(typist->peer, &request.base);
}

static void assert_exited(struct typist *typist, unsigned code)
{
    LOOK_UNTIL(typist, typist->outcome);
    cr_assert_eq(typist->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_assert_eq(typist->outcome->exited->code, code, "exit code %u",
                 typist->outcome->exited->code);
    cr_assert_eq(typist->outcome->stdout_bytes, typist->seen_size);
    cr_assert_eq(typist->outcome->stderr_bytes, 0u);
}

Test(terminal, it_has_the_size_and_the_type_that_were_asked_for)
{
    CLEANUP_TYPIST struct typist typist =
        sit_down(&(struct sitting){ .shell = "stty size; echo $TERM >&2; exit 3",
                                    .type = "screen-256color",
                                    .rows = 33,
                                    .columns = 111 });
    assert_exited(&typist, 3);
    cr_assert(typist.started && typist.terminal);
    cr_assert(saw(&typist, "33 111\r\nscreen-256color\r\n"));
}

Test(terminal, it_belongs_to_the_user_who_runs_in_it)
{
    if (geteuid() != 0)
        cr_skip_test("only root runs commands as somebody else");
    CLEANUP_TYPIST struct typist typist = sit_down(&(struct sitting){
        .shell = "id -un; test -O $(tty) && exec > $(tty) && echo mine", .user = "nobody" });
    assert_exited(&typist, 0);
    cr_assert(saw(&typist, "nobody\r\nmine\r\n"));
}

Test(terminal, control_c_kills_what_runs_in_it)
{
    CLEANUP_TYPIST struct typist typist =
        sit_down(&(struct sitting){ .shell = "echo ready; exec sleep 1000" });
    LOOK_UNTIL(&typist, saw(&typist, "ready\r\n"));
    type(&typist, "\003");
    LOOK_UNTIL(&typist, typist.outcome);
    cr_assert_eq(typist.outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_SIGNALED);
    cr_assert_eq(typist.outcome->signaled->signal, (unsigned)SIGINT);
}

Test(terminal, the_last_of_many_sizes_is_the_one_it_has)
{
    CLEANUP_TYPIST struct typist typist =
        sit_down(&(struct sitting){ .shell = "echo ready; read line; stty size" });
    LOOK_UNTIL(&typist, saw(&typist, "ready\r\n"));
    for (unsigned i = 1; i <= 10000; i++)
        resize(&typist, i % 200, i % 300);
    resize(&typist, 40, 132);
    type(&typist, "\n");
    assert_exited(&typist, 0);
    cr_assert(saw(&typist, "\n40 132\r\n"));
}

Test(terminal, an_impossible_size_is_refused_and_changes_nothing)
{
    CLEANUP_TYPIST struct typist typist =
        sit_down(&(struct sitting){ .shell = "echo ready; read line; stty size" });
    LOOK_UNTIL(&typist, saw(&typist, "ready\r\n"));
    resize(&typist, UINT32_MAX, 80);
    LOOK_UNTIL(&typist, *typist.refused);
    fixture_assert_contains(typist.refused, "65,535");
    type(&typist, "\n");
    assert_exited(&typist, 0);
    cr_assert(saw(&typist, "\n24 80\r\n"));
}

Test(terminal, a_command_without_one_cannot_be_resized)
{
    CLEANUP_TYPIST struct typist typist =
        sit_down(&(struct sitting){ .shell = "read line", .no_terminal = true });
    resize(&typist, 40, 132);
    LOOK_UNTIL(&typist, *typist.refused);
    fixture_assert_contains(typist.refused, "no terminal");
    type(&typist, "\n");
    assert_exited(&typist, 0);
}

Test(terminal, a_client_that_says_no_more_ends_the_input)
{
    CLEANUP_TYPIST struct typist typist = sit_down(&(struct sitting){ .shell = "cat; exit 4" });
    type(&typist, "hello\n");
    LOOK_UNTIL(&typist, saw(&typist, "hello\r\nhello\r\n"));
    send_keys(&typist, "", 0, true);
    assert_exited(&typist, 4);
}

Test(terminal, every_byte_passes_both_ways)
{
    static const char ready[] = "ready";
    CLEANUP_TYPIST struct typist typist =
        sit_down(&(struct sitting){ .shell = "stty raw -echo; printf ready; exec head -c 131072" });
    LOOK_UNTIL(&typist, saw(&typist, ready));
    uint8_t bytes[256];
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    for (unsigned i = 0; i < 512; i++)
        send_keys(&typist, bytes, sizeof(bytes), false);
    assert_exited(&typist, 0);
    cr_assert_eq(typist.seen_size, strlen(ready) + 131072);
    for (size_t i = 0; i < 131072; i++)
        cr_assert_eq(typist.seen[strlen(ready) + i], i % 256, "byte %zu", i);
}

Test(terminal, a_killed_link_costs_neither_a_key_nor_a_byte_nor_a_size)
{
    CLEANUP_TYPIST struct typist typist = sit_down(
        &(struct sitting){ .shell = "echo ready; while read line && [ \"$line\" != end ]; do"
                                    " echo \"<$line>\"; done; stty size" });
    LOOK_UNTIL(&typist, saw(&typist, "ready\r\n"));
    MUST(service_kill(fixture_box()->link, err));
    LOOK_UNTIL(&typist, typist.link_lost);
    type(&typist, "typed into nothing\n");
    resize(&typist, 40, 132);
    MUST(sandbox_start_link(fixture_box(), err));
    LOOK_UNTIL(&typist, saw(&typist, "<typed into nothing>\r\n"));
    cr_assert(typist.link_back);
    type(&typist, "end\n");
    assert_exited(&typist, 0);
    cr_assert(saw(&typist, "\n40 132\r\n"));
}

Test(terminal, a_shell_whose_client_is_gone_for_good_hangs_up_with_its_jobs)
{
    CLEANUP_TYPIST struct typist typist = sit_down(&(struct sitting){
        .shell = "PS1='prompt> ' exec bash --norc --noprofile -i", .kill_when_gone = true });
    LOOK_UNTIL(&typist, saw(&typist, "prompt> "));
    /* One that the shell hangs up, and one that does not care, nor about TERM. */
    type(&typist, "sleep 1000 & j=$!; (trap '' HUP TERM; exec sleep 1000) & echo pids=$$=$j=$!=\n");
    /* Not the echo, which has no numbers. */
    const char *pids = NULL;
    int shell = 0, job = 0, stubborn = 0;
    while (!pids || sscanf(pids, "\npids=%d=%d=%d=", &shell, &job, &stubborn) != 3) {
        look(&typist);
        typist.seen[typist.seen_size] = '\0';
        pids = strstr((const char *)typist.seen, "\npids=");
    }
    peer_free(TAKE_PTR(typist.peer));
    fixture_wait_gone(shell);
    fixture_wait_gone(job);
    fixture_wait_gone(stubborn);
}
