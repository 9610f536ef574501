/* The runner executes its program anew under commands that do not notice: on SIGUSR2, in the same
 * process, with the link still connected; and refuses where the new program could not go on. */
#include "tests/integration/raw_runner.h"

#define EXITED    SANDSTORM__V1__OUTCOME__RESULT_EXITED
#define CANCELLED SANDSTORM__V1__OUTCOME__RESULT_CANCELLED

static void start_runner(void)
{
    raw_setup();
    raw_new("");
    raw_start();
}

TestSuite(runner_upgrade, .init = start_runner, .fini = raw_teardown);
TestSuite(runner_upgrade_trees, .init = raw_setup, .fini = raw_teardown);
TestSuite(runner_upgrade_refused, .init = raw_setup, .fini = raw_teardown);

enum { UPGRADES = 20, LINES_EACH = 20000 };

/* Prints so many lines for each byte of input, and exits with 7 at its end. */
static void counter(struct raw_command *command, unsigned number)
{
    raw_begin(command, number);
    (void)snprintf(command->script, sizeof(command->script),
                   "echo ran >> %s/count-%u; i=0; while read x; do seq -f %%07.0f $i $((i + %d)); "
                   "i=$((i + %d)); done; exit 7",
                   raw.dir, number, LINES_EACH - 1, LINES_EACH);
    command->stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
}

Test(runner_upgrade, twenty_upgrades_under_load_cost_no_byte_and_no_exit_status)
{
    enum { COMMANDS = 4 };
    struct raw_command commands[COMMANDS] = { { .next = 0 } };
    pid_t pid = proc_pid(service_proc(raw.runner));
    uint64_t end = (uint64_t)UPGRADES * LINES_EACH * RAW_LINE;
    for (unsigned i = 0; i < COMMANDS; i++)
        counter(&commands[i], i);
    raw_welcome(commands, COMMANDS);
    for (unsigned i = 0; i < COMMANDS; i++)
        raw_order_start(&commands[i], NO_LIMIT, 0);
    for (uint64_t turn = 0; turn < UPGRADES; turn++) {
        for (unsigned i = 0; i < COMMANDS; i++)
            raw_input(&commands[i], turn, "\n", 1, turn == UPGRADES - 1);
        /* In the middle of what that makes them print; an order is on its way too. */
        while (commands[0].next < (turn * LINES_EACH + LINES_EACH / 2) * RAW_LINE)
            (void)raw_hear(commands, COMMANDS, NULL);
        for (unsigned i = 0; i < COMMANDS; i++)
            raw_credit(&commands[i], commands[i].next, NO_LIMIT);
        raw_upgrade();
        for (unsigned i = 0; i < COMMANDS; i++)
            while (commands[i].next < (turn + 1) * LINES_EACH * RAW_LINE)
                (void)raw_hear(commands, COMMANDS, NULL);
    }
    for (unsigned i = 0; i < COMMANDS; i++) {
        char name[32];
        while (!commands[i].ended)
            (void)raw_hear(commands, COMMANDS, NULL);
        cr_assert(commands[i].result == EXITED && commands[i].code == 7);
        cr_assert(commands[i].received == end && commands[i].next == end);
        (void)snprintf(name, sizeof(name), "count-%u", i);
        cr_assert_eq(fixture_count_lines(raw_file(name)), 1u);
    }
    cr_assert_eq(raw_count_log("runner goes on"), UPGRADES);
    cr_assert_eq(proc_pid(service_proc(raw.runner)), pid);
}

Test(runner_upgrade, output_that_nobody_took_is_still_there)
{
    struct raw_command commands[2] = {
        { .policy = SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_BLOCK }, { .next = 0 }
    };
    raw_begin(&commands[0], 1);
    raw_begin(&commands[1], 2);
    (void)snprintf(commands[0].script, sizeof(commands[0].script), "%s; touch %s/printed; read x",
                   raw_lines(0, 600000), raw.dir);
    commands[0].stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    (void)snprintf(commands[1].script, sizeof(commands[1].script), "%s; exit 5",
                   raw_lines(0, 1000));
    raw_welcome(commands, 2);
    raw_order_start(&commands[0], 100000, 0);
    raw_order_start(&commands[1], 0, 0);
    raw_wait_path(raw.dir, raw_file("printed"));
    while (commands[1].settled == 0)
        (void)raw_hear(commands, 2, NULL);
    raw_upgrade();
    raw_upgrade();
    raw_attach(&commands[1], 0, NO_LIMIT);
    raw_credit(&commands[0], 50000, NO_LIMIT);
    raw_input(&commands[0], 0, "\n", 1, true);
    while (!commands[0].ended || !commands[1].ended)
        (void)raw_hear(commands, 2, NULL);
    cr_assert_eq(commands[0].received, 600000u * RAW_LINE);
    cr_assert_eq(commands[1].received, 1000u * RAW_LINE);
    cr_assert(commands[1].result == EXITED && commands[1].code == 5);
}

Test(runner_upgrade, a_timeout_goes_on_counting)
{
    struct raw_command command = { .timeout_ms = 1500 };
    raw_begin(&command, 1);
    (void)snprintf(command.script, sizeof(command.script), "exec sleep 600");
    raw_welcome(&command, 1);
    uint64_t from = monotonic_us();
    raw_order_start(&command, NO_LIMIT, 0);
    RAW_UNTIL(&command, command.started > 0);
    raw_upgrade();
    raw_drain(&command);
    cr_assert_eq(command.result, SANDSTORM__V1__OUTCOME__RESULT_TIMED_OUT);
    cr_assert_geq(monotonic_us() - from, 1500000u);
}

/* Reaped or not, at the moment of the upgrade: its status is as it was. */
Test(runner_upgrade, exit_codes_stay_exact)
{
    enum { COMMANDS = 40 };
    static struct raw_command commands[COMMANDS];
    for (unsigned i = 0; i < COMMANDS; i++) {
        raw_begin(&commands[i], i);
        (void)snprintf(commands[i].script, sizeof(commands[i].script), "exit %u", i);
    }
    raw_welcome(commands, COMMANDS);
    for (unsigned i = 0; i < COMMANDS; i++) {
        raw_order_start(&commands[i], NO_LIMIT, 0);
        if (i % 10 == 5)
            raw_upgrade();
    }
    for (unsigned i = 0; i < COMMANDS; i++) {
        while (!commands[i].ended)
            (void)raw_hear(commands, COMMANDS, NULL);
        cr_assert(commands[i].result == EXITED && commands[i].code == i, "%u", i);
    }
}

/* A process that its command left behind still writes, before and after. */
Test(runner_upgrade, a_background_process_is_neither_blocked_nor_killed)
{
    struct raw_command command = { 0 };
    raw_begin(&command, 1);
    (void)snprintf(command.script, sizeof(command.script),
                   "(trap '' HUP; while [ ! -e %s/go ]; do echo x >&2 || exit; sleep 0.01; done; "
                   "head -c 300000 /dev/zero >&2 && touch %s/alive) & exit 0",
                   raw.dir, raw.dir);
    raw_welcome(&command, 1);
    raw_order_start(&command, 0, 0);
    RAW_UNTIL(&command, command.settled > 0);
    raw_upgrade();
    raw_release(&command);
    raw_upgrade();
    raw_touch("go");
    raw_wait_path(raw.dir, raw_file("alive"));
}

Test(runner_upgrade, it_stays_the_same_life)
{
    char before[sizeof(raw.instance)];
    raw_welcome(NULL, 0);
    (void)memcpy(before, raw.instance, sizeof(before));
    raw_upgrade();
    raw_welcome(NULL, 0);
    cr_assert_str_eq(raw.instance, before);
}

Test(runner_upgrade, a_crash_after_it_finds_everything)
{
    struct raw_command commands[2] = { { .next = 0 } };
    raw_begin(&commands[0], 1);
    raw_begin(&commands[1], 2);
    (void)snprintf(commands[0].script, sizeof(commands[0].script), "%s; exit 5",
                   raw_lines(0, 20000));
    (void)snprintf(commands[1].script, sizeof(commands[1].script), "%s; exec sleep 600",
                   raw_lines(0, 20000));
    raw_welcome(commands, 2);
    raw_order_start(&commands[0], 0, 0);
    raw_order_start(&commands[1], 20000 * RAW_LINE, 0);
    while (commands[0].settled == 0 || commands[1].next < 20000 * RAW_LINE)
        (void)raw_hear(commands, 2, NULL);
    raw_upgrade();
    raw_kill();
    raw_welcome(commands, 2);
    for (unsigned i = 0; i < 2; i++) {
        cr_assert(commands[i].listed && commands[i].listed_ended);
        commands[i].received = 0;
        raw_attach(&commands[i], 0, NO_LIMIT);
    }
    while (!commands[0].ended || !commands[1].ended)
        (void)raw_hear(commands, 2, NULL);
    cr_assert(commands[0].result == EXITED && commands[0].code == 5);
    cr_assert_eq(commands[0].received, 20000 * RAW_LINE);
    cr_assert_eq(commands[1].result, SANDSTORM__V1__OUTCOME__RESULT_LOST);
    cr_assert_eq(commands[1].received, 20000 * RAW_LINE);
}

/* Who is in a command's tree. */

/* A child in a session of its own, left to the runner before the upgrade, and one that is not. */
#define FAMILY                                                                                     \
    "(setsid sh -c 'echo orphan; exec sleep 600' &); setsid sh -c 'echo child; exec sleep 600' & " \
    "trap '' TERM; while :; do sleep 600; done"

static void start_family(struct raw_command *command, unsigned number)
{
    raw_begin(command, number);
    (void)snprintf(command->script, sizeof(command->script), FAMILY);
    command->keeps_text = true;
    raw_order_start(command, NO_LIMIT, 0);
    RAW_UNTIL(command, strstr(command->text, "orphan") && strstr(command->text, "child"));
}

/* All of them had its output: the end of that is the end of them all. */
static void expect_killed(struct raw_command *command)
{
    raw_drain(command);
    cr_expect_eq(command->result, CANCELLED);
    cr_expect_eq(command->survivors, 0u);
    cr_expect_not(command->held_open);
}

/* With other settings after it than before it. */
static void kill_after_upgrade(const char *before, const char *after)
{
    struct raw_command command = { 0 };
    raw_new(before);
    raw_start();
    raw_welcome(&command, 1);
    start_family(&command, 1);
    raw_set(after);
    raw_upgrade();
    raw_upgrade();
    cr_assert_eq(raw_count_log("runner goes on"), 2u);
    raw_cancel(&command, 20);
    expect_killed(&command);
}

Test(runner_upgrade_trees, who_is_killed_afterwards_takes_all_children_along)
{
    kill_after_upgrade("", "");
}

Test(runner_upgrade_trees, without_control_groups_they_are_found_too)
{
    kill_after_upgrade("cgroups: false\n", "cgroups: false\n");
}

Test(runner_upgrade_trees, a_tree_keeps_its_control_group_when_there_are_to_be_no_more)
{
    kill_after_upgrade("", "cgroups: false\n");
}

Test(runner_upgrade_trees, a_tree_without_one_stays_so)
{
    kill_after_upgrade("cgroups: false\n", "");
}

Test(runner_upgrade, a_cancel_in_its_grace_is_carried_out)
{
    struct raw_command command = { 0 };
    raw_welcome(&command, 1);
    start_family(&command, 1);
    raw_cancel(&command, 300);
    raw_upgrade();
    expect_killed(&command);
}

/* Nobody but us is the parent of what a command leaves behind. */
Test(runner_upgrade, orphans_are_still_reaped)
{
    struct raw_command command = { .stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM };
    char children[64];
    raw_begin(&command, 1);
    (void)snprintf(command.script, sizeof(command.script),
                   "mkfifo %s/wait; (setsid sh -c 'read x < %s/wait' &); echo go > %s/wait; exit 0",
                   raw.dir, raw.dir, raw.dir);
    raw_welcome(&command, 1);
    raw_upgrade();
    raw_order_start(&command, NO_LIMIT, 0);
    raw_upgrade();
    raw_drain(&command);
    (void)snprintf(children, sizeof(children), "/proc/%1$d/task/%1$d/children",
                   (int)proc_pid(service_proc(raw.runner)));
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    for (;;) {
        CLEANUP_FREE char *text = NULL;
        size_t size;
        MUST(file_read(children, 4096, &text, &size, err));
        if (size == 0)
            break;
        cr_assert_lt(monotonic_us(), deadline, "children stay: %s", text);
        /* Whatever makes the runner turn once more. */
        raw_welcome(&command, 1);
    }
}

/* Terminals. */

static void type(const struct raw_command *command, uint64_t *typed, const char *text, bool eof)
{
    raw_input(command, *typed, text, strlen(text), eof);
    *typed += strlen(text);
}

Test(runner_upgrade, a_shell_in_a_terminal_goes_on)
{
    static struct raw_command command = {
        .terminal = true,
        .keeps_text = true,
        .stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM,
    };
    uint64_t typed = 0;
    raw_begin(&command, 1);
    (void)snprintf(command.script, sizeof(command.script),
                   "PS1='at> ' exec bash --norc --noprofile --noediting -i");
    raw_welcome(&command, 1);
    raw_order_start(&command, NO_LIMIT, 0);
    RAW_UNTIL(&command, strstr(command.text, "at> "));
    type(&command, &typed, "x=be''fore; echo $x-1\n", false);
    RAW_UNTIL(&command, strstr(command.text, "before-1"));
    raw_upgrade();
    type(&command, &typed, "echo $x-$((6 * 7))\n", false);
    RAW_UNTIL(&command, strstr(command.text, "before-42"));
    raw_upgrade();
    /* It is still the terminal of its session: a key interrupts what is in its foreground. */
    type(&command, &typed, "sh -c \"echo be''gun; exec sleep 600\"\n", false);
    RAW_UNTIL(&command, strstr(command.text, "begun"));
    type(&command, &typed, "\003", false);
    type(&command, &typed, "echo code-$?\n", false);
    RAW_UNTIL(&command, strstr(command.text, "code-130"));
    type(&command, &typed, "(exit 7)\n", true);
    raw_drain(&command);
    cr_expect_eq(command.result, EXITED);
    cr_expect_eq(command.code, 7u);
}

/* Settings. */

Test(runner_upgrade, settings_are_read_anew)
{
    struct raw_command commands[2] = { { .next = 0 } };
    counter(&commands[0], 0);
    raw_begin(&commands[1], 1);
    (void)snprintf(commands[1].script, sizeof(commands[1].script), "true");
    raw_welcome(commands, 2);
    raw_order_start(&commands[0], NO_LIMIT, 0);
    RAW_UNTIL(&commands[0], commands[0].started > 0);
    raw_set("allow_exec: false\n");
    raw_upgrade();
    raw_order_start(&commands[1], NO_LIMIT, 0);
    while (!commands[1].ended)
        (void)raw_hear(commands, 2, NULL);
    cr_expect_eq(commands[1].result, SANDSTORM__V1__OUTCOME__RESULT_START_FAILED);
    cr_expect_eq(commands[1].step, SANDSTORM__V1__START_STEP__START_STEP_POLICY);
    /* What runs was allowed when it began. */
    raw_input(&commands[0], 0, "\n", 1, true);
    raw_drain(&commands[0]);
    cr_expect(commands[0].result == EXITED && commands[0].code == 7);
}

/* The program in its place is another one, which cannot. */
Test(runner_upgrade_refused, a_program_that_cannot_go_on_leaves_the_old_one_running)
{
    struct raw_command command = { 0 };
    char copy[160], text[256];
    (void)snprintf(copy, sizeof(copy), "%s/sandstorm-runner", raw.dir);
    CLEANUP_RESULT struct proc_result copied =
        RUN(NULL, "cp", cluster_program("sandstorm-runner"), copy);
    cr_assert_eq(copied.status, 0);
    raw_new("");
    MUST(service_set_argument(raw.runner, 0, copy, err));
    raw_start();
    counter(&command, 1);
    raw_welcome(&command, 1);
    raw_order_start(&command, NO_LIMIT, 0);
    raw_input(&command, 0, "\n", 1, false);
    RAW_UNTIL(&command, command.next == LINES_EACH * RAW_LINE);
    (void)snprintf(text, sizeof(text),
                   "#!/bin/sh\n[ \"$1\" = --check-handover ] && exit 3\ntouch %s/executed\n",
                   raw.dir);
    MUST(file_write_atomic(copy, text, strlen(text), 0755, err));
    raw_upgrade();
    cr_assert_eq(raw_count_log("the runner goes on as it is"), 1u);
    cr_assert_eq(raw_count_log("cannot take over"), 1u);
    raw_input(&command, 1, "\n", 1, true);
    raw_drain(&command);
    cr_assert(command.result == EXITED && command.code == 7);
    cr_assert_eq(command.received, 2 * LINES_EACH * RAW_LINE);
    cr_assert_eq(access(raw_file("executed"), F_OK), -1);
}

/* With settings that it cannot begin with it could only end, and every command with it. */
Test(runner_upgrade_refused, settings_that_make_no_sense_leave_the_old_one_running)
{
    struct raw_command command = { 0 };
    raw_new("");
    raw_start();
    counter(&command, 1);
    raw_welcome(&command, 1);
    raw_order_start(&command, NO_LIMIT, 0);
    raw_set("no_such_setting: 1\n");
    raw_upgrade();
    raw_set("link_user: nobody-at-all\n");
    raw_upgrade();
    cr_assert_eq(raw_count_log("the runner goes on as it is"), 2u);
    raw_input(&command, 0, "\n", 1, true);
    raw_drain(&command);
    cr_assert(command.result == EXITED && command.code == 7);
}

Test(runner_upgrade_refused, what_is_no_handover_is_refused_in_words)
{
    static const char *const inputs[] = { "", "x",
                                          "a handover that was never one at all, was it?" };
    for (unsigned i = 0; i < ELEMENTS(inputs); i++) {
        char shell[512];
        (void)snprintf(shell, sizeof(shell),
                       "printf '%s' > %s/blob; exec %s --check-handover < %s/blob", inputs[i],
                       raw.dir, cluster_program("sandstorm-runner"), raw.dir);
        CLEANUP_RESULT struct proc_result result = RUN(NULL, "sh", "-c", shell);
        cr_expect_neq(result.status, 0);
        fixture_assert_contains(result.err, "handover");
    }
}
