/* The bystander of the protocol tests: a `cat` that has to answer before and after. Uses
 * tests/harness/fixture.c. */
#include "tests/harness/neighbour.h"

static struct fixture_client neighbour;

static void assert_answers(const char *word, size_t size)
{
    char line[64];
    cr_assert_eq(write(neighbour.in, word, size), (ssize_t)size);
    fixture_read_line(neighbour.out, line, sizeof(line));
    cr_assert_arr_eq(line, word, size - 1);
}

void neighbour_start(void)
{
    fixture_start();
    neighbour = CLI_START(PIPE_IN | PIPE_OUT, "exec", BOX, "--id", NEIGHBOUR_ID, "--", "cat");
    assert_answers("before\n", 7);
}

void neighbour_stop(void)
{
    fixture_client_done(&neighbour);
    fixture_stop();
}

void neighbour_assert_well(void)
{
    assert_answers("after\n", 6);
    close_fd(&neighbour.in);
    cr_assert_eq(fixture_client_wait(&neighbour), 0);
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "echo", "served");
    cr_assert_str_eq(run.out, "served\n");
}
