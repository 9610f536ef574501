/* The verbs for a fleet as a person uses them, against the real daemons: a sandbox is waited for,
 * watched, drained, explained when it is away, and forgotten; and an orchestrator that restarts
 * ends no watch. */
#include "tests/harness/fixture.h"

#include <signal.h>
#include <string.h>

/* Offline after 1.1 s of silence, evicted a second later. */
static void start_fast(void)
{
    fixture_start_with("heartbeat_interval: 200ms\noffline_slack: 500ms\nevict_after: 1s\n"
                       "amnesty: 0s\n");
}

/* cppcheck-suppress unknownMacro */
TestSuite(fleet_cli, .init = start_fast, .fini = fixture_stop);

/* Lines until one has the text. */
static void read_until(int fd, const char *text)
{
    char line[512];
    do
        fixture_read_line(fd, line, sizeof(line));
    while (!strstr(line, text));
}

Test(fleet_cli, exec_waits_for_a_sandbox_that_is_still_coming)
{
    struct sandbox_processes *late = NULL;
    MUST(cluster_add_sandbox(fixture(), "late", &late, err));
    MUST(service_start(late->link, err));
    MUST(service_wait_status(late->link, "connected to", PROC_DEADLINE_US, err));
    CLEANUP_RESULT struct proc_result brief = CLI("wait-ready", "late", "--timeout", "300ms");
    cr_assert_eq(brief.status, 1);
    fixture_assert_contains(brief.err, "sandstorm why late");
    CLEANUP_RESULT struct proc_result why = CLI("why", "late");
    cr_assert_eq(why.status, 1);
    fixture_assert_contains(why.out, "1. Its agent is connected, but the runner beside it is not");
    CLEANUP_CLIENT struct fixture_client waiting =
        CLI_START(PIPE_OUT, "exec", "--wait", "1m", "late", "--", "echo", "there");
    MUST(sandbox_start_runner(late, err));
    read_until(waiting.out, "there");
    cr_assert_eq(fixture_client_wait(&waiting), 0);
    CLEANUP_RESULT struct proc_result ready = CLI("why", "late");
    cr_assert_eq(ready.status, 0, "%s", ready.out);
}

Test(fleet_cli, a_watch_tells_of_a_silent_sandbox_and_of_its_return)
{
    /* When most of a fleet is silent, nobody is evicted. */
    (void)fixture_add("other");
    CLEANUP_CLIENT struct fixture_client watch = CLI_START(PIPE_OUT, "watch", BOX);
    read_until(watch.out, "box                   online");
    MUST(service_kill(fixture_box()->link, err));
    read_until(watch.out, "-> offline");
    CLEANUP_RESULT struct proc_result away = CLI("why", BOX);
    cr_assert_eq(away.status, 1);
    fixture_assert_contains(away.out, "box cannot run commands: it is ");
    fixture_assert_contains(away.out, "1. ");
    read_until(watch.out, "-> evicted");
    CLEANUP_RESULT struct proc_result list = CLI("ls", "-o", "name"),
                                      all = CLI("ls", "-a", "--no-headers");
    cr_assert_str_eq(list.out, "other\n");
    fixture_assert_contains(all.out, "evicted");
    MUST(sandbox_start_link(fixture_box(), err));
    read_until(watch.out, "-> online");
    MUST(proc_signal(watch.proc, SIGINT, err));
    cr_assert_eq(fixture_client_wait(&watch), 0);
}

Test(fleet_cli, a_watch_outlives_a_restart_of_the_orchestrator)
{
    CLEANUP_CLIENT struct fixture_client watch = CLI_START(PIPE_OUT | PIPE_ERR, "watch");
    read_until(watch.out, "online");
    MUST(service_kill(fixture()->orchestrator, err));
    read_until(watch.err, "sandstorm: ");
    MUST(cluster_start_orchestrator(fixture(), err));
    read_until(watch.err, "the orchestrator is back");
    CLEANUP_RESULT struct proc_result ready = CLI("wait-ready", BOX, "--timeout", "1m");
    cr_assert_eq(ready.status, 0, "%s", ready.err);
    CLEANUP_RESULT struct proc_result label = CLI("label", BOX, "env=ci");
    cr_assert_eq(label.status, 0, "%s", label.err);
    read_until(watch.out, "labels (none) -> env=ci");
    MUST(proc_signal(watch.proc, SIGTERM, err));
    cr_assert_eq(fixture_client_wait(&watch), 128 + SIGTERM);
}

Test(fleet_cli, a_sandbox_is_labelled_selected_drained_and_forgotten)
{
    CLEANUP_RESULT struct proc_result label = CLI("label", BOX, "env=ci", "gpu=a100");
    cr_assert_str_eq(label.out, "box: env=ci,gpu=a100\n");
    CLEANUP_RESULT struct proc_result fewer = CLI("label", BOX, "gpu-");
    cr_assert_str_eq(fewer.out, "box: env=ci\n");
    CLEANUP_RESULT struct proc_result fits = CLI("ls", "-l", "env=ci,!gpu", "-o", "name"),
                                      none = CLI("ls", "-l", "gpu", "-o", "name");
    cr_assert_str_eq(fits.out, "box\n");
    cr_assert_str_eq(none.out, "");
    CLEANUP_RESULT struct proc_result drained = CLI("drain", BOX), refused = CLI("why", BOX),
                                      list = CLI("ls");
    cr_assert_eq(drained.status, 0);
    cr_assert_eq(refused.status, 1);
    fixture_assert_contains(refused.out, "sandstorm undrain box");
    fixture_assert_contains(list.out, "online,draining");
    CLEANUP_RESULT struct proc_result undrained = CLI("undrain", BOX);
    cr_assert_str_eq(undrained.out, "box takes commands again.\n");
    CLEANUP_RESULT struct proc_result connected = CLI("rm", BOX),
                                      forced = CLI("rm", "--force", BOX),
                                      gone = CLI("describe", BOX);
    cr_assert_eq(connected.status, 1);
    fixture_assert_contains(connected.err, "--force");
    cr_assert_eq(forced.status, 0, "%s", forced.err);
    cr_assert_eq(gone.status, 1);
}

Test(fleet_cli, commands_are_listed_and_the_log_follows_them)
{
    CLEANUP_CLIENT struct fixture_client logs =
        CLI_START(PIPE_OUT, "logs", BOX, "-f", "-o", "json");
    CLEANUP_RESULT struct proc_result killed = CLI("exec", BOX, "-c", "kill -9 $$");
    cr_assert_eq(killed.status, 137);
    read_until(logs.out, "command ended");
    MUST(proc_signal(logs.proc, SIGINT, err));
    cr_assert_eq(fixture_client_wait(&logs), 0);
    CLEANUP_CLIENT struct fixture_client running =
        CLI_START(PIPE_IN | PIPE_OUT, "exec", BOX, "-c", "echo go; read x; exit 5");
    read_until(running.out, "go");
    CLEANUP_RESULT struct proc_result now = CLI("ps", "--no-headers"), all = CLI("ps", BOX, "-a");
    fixture_assert_contains(now.out, "running");
    cr_assert(!strstr(now.out, "ended"), "%s", now.out);
    fixture_assert_contains(all.out, "killed by KILL");
    close_fd(&running.in);
    cr_assert_eq(fixture_client_wait(&running), 5);
    CLEANUP_RESULT struct proc_result none = CLI("ps"), ended = CLI("ps", "-a", "-n", "1");
    fixture_assert_contains(none.err, "No command runs");
    fixture_assert_contains(ended.out, "exit 5");
}

Test(fleet_cli, top_shows_what_was_measured)
{
    CLEANUP_CLIENT struct fixture_client top = CLI_START(PIPE_OUT, "top", "-n", "2");
    read_until(top.out, "1 sandbox, 1 online");
    read_until(top.out, BOX);
    /* The second, with a heartbeat that came meanwhile. */
    read_until(top.out, "1 sandbox, 1 online");
    cr_assert_eq(fixture_client_wait(&top), 0);
}
