/* The commands in the store: one row for an id for good, one start, one end, and the newest first.
 * A kill loses nothing that was committed. */
#include "store_fixture.h"

#include <signal.h>
#include <sys/wait.h>

static struct store *store;

static void set_up(void)
{
    make_directory();
    store = open_store(NULL);
}

static void tear_down(void)
{
    store_free(store);
    remove_directory();
}

/* cppcheck-suppress unknownMacro */
TestSuite(store_commands, .init = set_up, .fini = tear_down, .timeout = 60);

#define GOT(call) cr_assert_eq((call), 0, "%s", err.text)
#define ROOM      16u

static struct command_record command_of(unsigned number)
{
    struct command_record command = { .ordered_ms = 1000 - (int64_t)number, .digest = { 7 } };
    (void)snprintf(command.id, sizeof(command.id), "%08x-7f0e-4a53-9c55-3d7a1f2e9b10", number);
    (void)snprintf(command.sandbox_id, sizeof(command.sandbox_id), "box-%u", number % 2);
    (void)snprintf(command.ordered_by, sizeof(command.ordered_by), "client/ann");
    (void)snprintf(command.labels, sizeof(command.labels), "env=ci");
    (void)snprintf(command.runner, sizeof(command.runner), "life-1");
    return command;
}

static struct command_record ended(unsigned number, const char *outcome, int64_t ended_ms)
{
    struct command_record command = command_of(number);
    command.started_ms = 40;
    command.pid = 41;
    command.ended_ms = ended_ms;
    command.end_offset = UINT64_MAX;
    command.outcome_size = strlen(outcome);
    (void)memcpy(command.outcome, outcome, command.outcome_size);
    return command;
}

static int put(struct store_tx *tx, void *userdata, struct err *error)
{
    struct command_record command = command_of(*(const unsigned *)userdata);
    return store_command_put(tx, &command, error);
}

static void put_some(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        OK(run(store, put, &i));
}

static int put_and_get(struct store_tx *tx, void *userdata, struct err *error)
{
    (void)userdata;
    (void)error;
    struct command_record command = command_of(1), got;
    memset(&got, 0xff, sizeof(got));
    GOT(store_command_put(tx, &command, &err));
    GOT(store_command_get(tx, command.id, &got, &err));
    cr_assert_str_eq(got.id, command.id);
    cr_assert_str_eq(got.sandbox_id, "box-1");
    cr_assert_str_eq(got.ordered_by, "client/ann");
    cr_assert_str_eq(got.labels, "env=ci");
    cr_assert_str_eq(got.runner, "life-1");
    cr_assert_eq(memcmp(got.digest, command.digest, sizeof(got.digest)), 0);
    cr_assert_eq(got.ordered_ms, 999);
    cr_assert(got.started_ms == 0 && got.pid == 0 && got.ended_ms == 0);
    cr_assert(got.outcome_size == 0 && got.end_offset == 0);
    FAILS(store_command_get(tx, "none", &got, &err), ERR_NOT_FOUND);
    return 0;
}

Test(store_commands, a_command_comes_back_as_it_was)
{
    OK(run(store, put_and_get, NULL));
}

static int put_again(struct store_tx *tx, void *userdata, struct err *error)
{
    (void)userdata;
    (void)error;
    struct command_record command = command_of(1);
    GOT(store_command_put(tx, &command, &err));
    (void)snprintf(command.sandbox_id, sizeof(command.sandbox_id), "elsewhere");
    FAILS(store_command_put(tx, &command, &err), ERR_EXISTS);
    return 0;
}

Test(store_commands, an_id_is_taken_for_good)
{
    OK(run(store, put_again, NULL));
}

static int start_and_end(struct store_tx *tx, void *userdata, struct err *error)
{
    (void)userdata;
    (void)error;
    struct command_record command = command_of(1), got;
    GOT(store_command_put(tx, &command, &err));
    GOT(store_command_start(tx, command.id, 20, 21, &err));
    GOT(store_command_start(tx, command.id, 30, 31, &err));
    struct command_record first = ended(1, "first", 50), second = ended(1, "the second", 60);
    GOT(store_command_end(tx, &first, &err));
    GOT(store_command_end(tx, &second, &err));
    GOT(store_command_get(tx, command.id, &got, &err));
    cr_assert_eq(got.started_ms, 20);
    cr_assert_eq(got.pid, 21);
    cr_assert_eq(got.ended_ms, 50);
    cr_assert_eq(got.outcome_size, 5u);
    cr_assert_eq(memcmp(got.outcome, "first", 5), 0);
    cr_assert_eq(got.end_offset, UINT64_MAX);
    FAILS(store_command_start(tx, "none", 1, 1, &err), ERR_NOT_FOUND);
    second = ended(2, "x", 1);
    FAILS(store_command_end(tx, &second, &err), ERR_NOT_FOUND);
    return 0;
}

Test(store_commands, the_first_start_and_the_first_end_stay)
{
    OK(run(store, start_and_end, NULL));
}

static int end_unstarted(struct store_tx *tx, void *userdata, struct err *error)
{
    (void)userdata;
    (void)error;
    struct command_record command = ended(1, "outcome", 50), got;
    GOT(store_command_put(tx, &command, &err));
    GOT(store_command_end(tx, &command, &err));
    GOT(store_command_get(tx, command.id, &got, &err));
    cr_assert_eq(got.started_ms, 40);
    cr_assert_eq(got.pid, 41);
    return 0;
}

Test(store_commands, an_end_brings_a_start_that_was_not_written)
{
    OK(run(store, end_unstarted, NULL));
}

static void expect_list(struct store_tx *tx, const struct command_filter *filter, unsigned max,
                        const char *numbers)
{
    static struct command_record list[ROOM];
    char got[64] = "";
    unsigned count = 0;
    cr_assert_eq(store_command_list(tx, filter, list, max, &count, &err), 0, "%s", err.text);
    for (unsigned i = 0; i < count; i++)
        (void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%ld ",
                       strtol(list[i].id, NULL, 16));
    cr_assert_str_eq(got, numbers);
}

static int list_some(struct store_tx *tx, void *userdata, struct err *error)
{
    (void)userdata;
    (void)error;
    for (unsigned i = 1; i < 4; i++) {
        struct command_record command = ended(i, "outcome", 50);
        GOT(store_command_end(tx, &command, &err));
    }
    struct command_filter filter = { .sandbox_id = "", .id = "" };
    expect_list(tx, &filter, ROOM, "5 4 3 2 1 0 ");
    expect_list(tx, &filter, 2, "5 4 ");
    filter.before = 5; /* the row of command 4 */
    expect_list(tx, &filter, 2, "3 2 ");
    filter.before = 0;
    filter.choice = COMMANDS_OPEN;
    expect_list(tx, &filter, ROOM, "5 4 0 ");
    filter.sandbox_id = "box-1";
    expect_list(tx, &filter, ROOM, "5 ");
    filter.choice = COMMANDS_ENDED;
    expect_list(tx, &filter, ROOM, "3 1 ");
    struct command_record one = command_of(3);
    filter.id = one.id;
    expect_list(tx, &filter, ROOM, "3 ");
    filter.sandbox_id = "box-0";
    expect_list(tx, &filter, ROOM, "");
    filter.id = "";
    filter.sandbox_id = "' OR 1=1 --";
    expect_list(tx, &filter, ROOM, "");
    return 0;
}

Test(store_commands, they_are_listed_newest_first_and_by_what_is_asked_for)
{
    put_some(6);
    OK(run(store, list_some, NULL));
}

static int count_one(void *userdata, const struct command_record *command, struct err *error)
{
    unsigned *count = userdata;
    cr_assert_eq(command->ended_ms, 0);
    if (++*count == 100)
        return err_set(error, ERR_CANCELLED, "enough");
    return 0;
}

static int walk_open(struct store_tx *tx, void *userdata, struct err *error)
{
    (void)error;
    struct command_record command = ended(2, "outcome", 50);
    GOT(store_command_end(tx, &command, &err));
    GOT(store_command_each_open(tx, count_one, userdata, &err));
    cr_assert_eq(*(unsigned *)userdata, 4u);
    *(unsigned *)userdata = 99;
    FAILS(store_command_each_open(tx, count_one, userdata, &err), ERR_CANCELLED);
    return 0;
}

Test(store_commands, those_that_are_open_are_walked_and_the_walk_can_be_ended)
{
    unsigned count = 0;
    put_some(5);
    OK(run(store, walk_open, &count));
}

static int prune(struct store_tx *tx, void *userdata, struct err *error)
{
    (void)userdata;
    (void)error;
    const struct command_filter all = { .sandbox_id = "", .id = "" };
    for (unsigned i = 1; i < 6; i++) {
        struct command_record command = ended(i, "outcome", 100 - i);
        GOT(store_command_end(tx, &command, &err));
    }
    GOT(store_command_prune(tx, 5, 0, &err));
    expect_list(tx, &all, ROOM, "6 5 4 3 2 1 0 ");
    GOT(store_command_prune(tx, 3, 0, &err));
    expect_list(tx, &all, ROOM, "6 5 4 3 0 ");
    GOT(store_command_prune(tx, 3, 97, &err));
    expect_list(tx, &all, ROOM, "6 3 0 ");
    GOT(store_command_prune(tx, 0, INT64_MAX, &err));
    expect_list(tx, &all, ROOM, "6 0 ");
    return 0;
}

Test(store_commands, old_ones_are_forgotten_by_number_and_by_age_but_never_open_ones)
{
    put_some(7);
    OK(run(store, prune, NULL));
}

/* A kill. Each command is put by one job and ended by the next; the parent hears of both when they
 * are committed. */

#define KILL_ROUNDS 6u

static int finish(struct store_tx *tx, void *userdata, struct err *error)
{
    struct command_record command = ended(*(const unsigned *)userdata, "outcome", 50);
    return store_command_end(tx, &command, error);
}

static _Noreturn void write_until_killed(int fd, unsigned from)
{
    struct store *mine = open_store(NULL);
    for (unsigned i = from;; i++) {
        if (run(mine, put, &i) < 0 || write(fd, "p", 1) != 1 || run(mine, finish, &i) < 0 ||
            write(fd, "e", 1) != 1)
            _exit(1);
    }
}

Test(store_commands, a_kill_loses_no_order_and_no_end_that_was_committed)
{
    store_free(store);
    store = NULL;
    unsigned from = 0;
    for (unsigned round = 0; round < KILL_ROUNDS; round++) {
        int pipes[2];
        cr_assert_eq(pipe(pipes), 0);
        pid_t child = fork();
        cr_assert_geq(child, 0);
        if (child == 0) {
            (void)close(pipes[0]);
            write_until_killed(pipes[1], from);
        }
        (void)close(pipes[1]);
        unsigned told_puts = 0, told_ends = 0, heard = 0;
        char what;
        while (read(pipes[0], &what, 1) == 1) {
            told_puts += what == 'p';
            told_ends += what == 'e';
            if (++heard == 1 + round * 13)
                cr_assert_eq(kill(child, SIGKILL), 0);
        }
        int status = 0;
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
        (void)close(pipes[0]);
        store_free(open_store(NULL));
        unsigned puts = (unsigned)raw("SELECT count(*) FROM commands");
        unsigned ends = (unsigned)raw("SELECT count(*) FROM commands WHERE ended_ms = 50 AND"
                                      " outcome = CAST('outcome' AS BLOB)");
        cr_assert(puts >= from + told_puts && puts <= from + told_puts + 1, "%u", puts);
        cr_assert_geq(ends + round, from + told_ends, "%u", ends);
        cr_assert_eq(raw("SELECT count(*) FROM commands WHERE ended_ms <> 0 AND outcome = x''"), 0);
        from = puts;
    }
}
