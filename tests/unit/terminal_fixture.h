/* A command with a terminal, and somebody who types: tests/unit/command_fixture.h with keys. */
#pragma once

#include "tests/unit/command_fixture.h"

/* What a script waits in. It is ready when a program of its own runs: a signal that comes between
 * the shell's fork and exec is caught by what is left of the shell, and forgotten. */
#define REST "sh -c \"echo ready; exec sleep 1000\" & wait"

struct desk {
    struct bench bench;
    Sandstorm__V1__Terminal terminal;
    Sandstorm__V1__TerminalSize size;
    uint64_t typed;
};

static inline void desk_init(struct desk *desk)
{
    bench_init(&desk->bench);
    sandstorm__v1__terminal__init(&desk->terminal);
    sandstorm__v1__terminal_size__init(&desk->size);
    desk->terminal.size = &desk->size;
    desk->typed = 0;
    desk->bench.spec.terminal = &desk->terminal;
    desk->bench.spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
}

static inline void send_keys(struct desk *desk, const void *data, size_t size, bool eof)
{
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    input.offset = desk->typed;
    input.data = (ProtobufCBinaryData){ size, (uint8_t *)data };
    input.eof = eof;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN;
    order.stdin = &input;
    struct command_refusal refusal = { 0 };
    cr_assert(command_order(desk->bench.command, &order, &refusal), "%s", refusal.detail);
    desk->typed += size;
}

static inline void type(struct desk *desk, const char *text)
{
    UNTIL(&desk->bench, desk->bench.stdin_limit >= desk->typed + strlen(text));
    send_keys(desk, text, strlen(text), false);
}

static inline bool resize(struct desk *desk, unsigned rows, unsigned columns,
                          struct command_refusal *ret_refusal)
{
    Sandstorm__V1__TerminalSize size = SANDSTORM__V1__TERMINAL_SIZE__INIT;
    size.rows = rows;
    size.columns = columns;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RESIZE;
    order.resize = &size;
    return command_order(desk->bench.command, &order, ret_refusal);
}

static inline bool saw(const struct desk *desk, const char *text)
{
    return memmem(desk->bench.bytes, desk->bench.next, text, strlen(text)) != NULL;
}

static inline void run_shell(struct desk *desk, const char *text, const char *until)
{
    bench_shell(&desk->bench, text, NO_LIMIT);
    UNTIL(&desk->bench, saw(desk, until));
}

static inline void expect_exit(struct desk *desk, unsigned code)
{
    UNTIL(&desk->bench, desk->bench.ended);
    const Sandstorm__V1__Outcome *outcome = desk->bench.ended->outcome;
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_expect_eq(outcome->exited->code, code, "exit code %u", outcome->exited->code);
}

static inline void expect_run(struct desk *desk, const char *text, const char *output)
{
    bench_shell(&desk->bench, text, NO_LIMIT);
    expect_exit(desk, 0);
    EXPECT_OUTPUT(&desk->bench, output);
}

static inline void ring(void *userdata)
{
    (void)userdata;
}

/* How often the loop turns in a fifth of a second in which nothing happens. */
static inline unsigned count_turns(struct desk *desk)
{
    struct err err = { 0 };
    struct loop_timer *bell;
    unsigned turns = 0;
    cr_assert_eq(loop_timer_new(desk->bench.loop, ring, NULL, &bell, &err), 0, "%s", err.text);
    for (loop_timer_start(bell, 200000); loop_timer_running(bell); turns++)
        cr_assert_eq(loop_turn(desk->bench.loop, UINT64_MAX, &err), 0, "%s", err.text);
    loop_timer_free(bell);
    return turns;
}
