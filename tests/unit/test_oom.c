/* Whom the kernel ends first: the score that commands get instead of the runner's. */
#include "agent/oom.h"
#include "agent/spawn.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static void expect(const char *before, const char *after, const char *childs)
{
    char path[] = "/tmp/test-oom-XXXXXX", text[32] = "", score[OOM_TEXT_MAX];
    CLEANUP_FD int fd = mkstemp(path);
    cr_assert_eq(write(fd, before, strlen(before)), (ssize_t)strlen(before));
    oom_protect(path, score);
    cr_assert_gt(pread(fd, text, sizeof(text) - 1, 0), 0);
    cr_expect_eq(strncmp(text, after, strlen(after)), 0, "%s", text);
    cr_expect_str_eq(score, childs);
    (void)unlink(path);
}

Test(oom, the_runner_is_protected_and_its_commands_are_not)
{
    expect("0\n", "-900", "0");
    expect("500\n", "-900", "500");
}

Test(oom, a_protection_that_the_service_manager_gave_is_not_handed_on)
{
    expect("-950\n", "-950", "0");
    expect("-900\n", "-900", "0");
}

Test(oom, who_may_not_be_protected_goes_on)
{
    char score[OOM_TEXT_MAX] = "x";
    oom_protect("/nonexistent/oom_score_adj", score);
    cr_expect_str_eq(score, "");
}
