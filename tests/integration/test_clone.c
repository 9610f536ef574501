/* Copies of a machine: two links with one key, an identity that woke up on another machine, and an
 * image that is prepared so that neither happens. */
#include "tests/harness/joiner.h"

#include "common/clock.h"
#include "common/file.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void start(void)
{
    fixture_start_with("heartbeat_interval: 100ms\nsource_penalties: false\n");
}

TestSuite(clone, .init = start, .fini = fixture_stop);

static void copy_dir(const char *from, const char *to)
{
    CLEANUP_RESULT struct proc_result run = RUN(NULL, "cp", "-a", from, to);
    cr_assert_eq(run.status, 0, "%s", run.err);
}

/* A second machine with the box's identity, its own runner and no token. */
static struct sandbox_processes *make_copy(const char *name)
{
    struct sandbox_processes *copy = NULL;
    MUST(cluster_add_sandbox(fixture(), name, &copy, err));
    cr_assert_eq(unlink(copy->token), 0);
    copy_dir(fixture_box()->identity, copy->identity);
    return copy;
}

/* Two with one key. */

#define DUPLICATE "duplicate_link: two agents are alive with one key"

static bool has_event(const char *text)
{
    CLEANUP_RESULT struct proc_result run = CLI("describe", BOX);
    return strstr(run.out, text);
}

/* What tells a clone from a restart: the older one was heard of while the newer one lived. The
 * older one beats ten times a second; the newer one cannot shake hands before the orchestrator goes
 * on. */
static void start_beside(struct sandbox_processes *newer)
{
    MUST(service_signal(fixture()->orchestrator, SIGSTOP, err));
    MUST(service_start(newer->link, err));
    MUST(service_wait_log(newer->link, "agent starting", PROC_DEADLINE_US, err));
    fixture_wait_time(wall_ms() / 1000 + 1);
    MUST(service_signal(fixture()->orchestrator, SIGCONT, err));
    MUST(sandbox_wait_online(newer, err));
}

Test(clone, of_two_machines_with_one_key_the_newer_wins_and_everybody_is_told)
{
    struct sandbox_processes *box = fixture_box(), *copy = make_copy("copy");
    MUST(sandbox_start_runner(copy, err));
    start_beside(copy);
    MUST(service_wait_log(box->link, "a newer link with this identity has connected",
                          PROC_DEADLINE_US, err));
    fixture_assert_contains(service_status(copy->link), "online as \"" BOX "\"");
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-c", "echo $PPID");
    cr_assert_eq(strtol(run.out, NULL, 10), (long)proc_pid(service_proc(copy->runner)));
    /* On a busy machine the newer one may be read before what the older one had sent; then the
     * loser comes back, and the other one is heard all the time. */
    struct sandbox_processes *loser = box;
    for (unsigned i = 0; i < 10 && !has_event(DUPLICATE); i++) {
        MUST(service_kill(loser->link, err));
        service_forget_status(loser->link);
        start_beside(loser);
        loser = loser == box ? copy : box;
    }
    cr_assert(has_event(DUPLICATE));
    cr_assert_geq(AUDIT_COUNT("\"sandbox.duplicate_link\"", "\"" BOX "\""), 1);
}

Test(clone, a_restarted_link_is_no_clone)
{
    struct sandbox_processes *box = fixture_box();
    MUST(service_kill(box->link, err));
    MUST(sandbox_start_link(box, err));
    MUST(service_stop(box->link, err));
    MUST(sandbox_start_link(box, err));
    CLEANUP_RESULT struct proc_result seen = CLI("describe", BOX);
    cr_assert_null(strstr(seen.out, "duplicate_link"), "%s", seen.out);
}

/* A command of the one, and then the other connects: what the client gets is the beginning of what
 * the command wrote, and never a byte of anybody else's. */
Test(clone, the_output_of_two_clones_never_mixes)
{
    struct sandbox_processes *copy = make_copy("copy");
    MUST(sandbox_start_runner(copy, err));
    CLEANUP_CLIENT struct fixture_client client = CLI_START(PIPE_OUT | PIPE_ERR, "exec", BOX, "-c",
                                                            "i=0; while :; do echo old $i; "
                                                            "i=$((i+1)); sleep 0.005; done");
    char line[64], expected[64];
    unsigned next = 0;
    for (; next < 10; next++) {
        (void)snprintf(expected, sizeof(expected), "old %u", next);
        fixture_read_line(client.out, line, sizeof(line));
        cr_assert_str_eq(line, expected);
    }
    MUST(sandbox_start_link(copy, err));
    CLEANUP_RESULT struct proc_result run =
        CLI("exec", BOX, "-c", "for i in $(seq 200); do echo new $i; done");
    cr_assert_eq(run.status, 0, "%s", run.err);
    cr_assert_null(strstr(run.out, "old"));
    /* Whatever the first client still gets is the next line of its own command; its end it hears
     * from the machine that has the name now, which does not know the command. */
    size_t size;
    CLEANUP_FREE char *rest = fixture_read_all(client.out, &size);
    cr_assert_null(strstr(rest, "new"));
    char *lines = rest;
    for (const char *one = strsep(&lines, "\n"); one && lines; one = strsep(&lines, "\n")) {
        (void)snprintf(expected, sizeof(expected), "old %u", next++);
        cr_assert_str_eq(one, expected);
    }
    cr_assert_eq(fixture_client_wait(&client), 255);
    CLEANUP_FREE char *notes = fixture_read_all(client.err, &size);
    fixture_assert_contains(notes, "lost");
}

/* An identity that woke up elsewhere. */

/* The identity as it would be if it had been made on another machine than this one. */
static void move_to_another_machine(const char *identity)
{
    char path[CLUSTER_PATH_MAX + 32];
    (void)snprintf(path, sizeof(path), "%s/machine.json", identity);
    CLEANUP_FREE char *text = NULL;
    size_t size;
    MUST(file_read(path, 65536, &text, &size, err));
    char *value = strstr(text, "\"machine_id\"");
    value = value ? strchr(value + sizeof("\"machine_id\"") - 1, '"') : NULL;
    if (!value || value[1] == '"')
        cr_skip_test("this machine has no machine id");
    value[1] = value[1] == 'a' ? 'b' : 'a';
    MUST(file_write_atomic(path, text, size, 0600, err));
}

Test(clone, an_identity_of_another_machine_is_not_used)
{
    struct sandbox_processes *box = fixture_box(), *copy = make_copy("copy");
    move_to_another_machine(copy->identity);
    MUST(sandbox_start_runner(copy, err));
    MUST(service_start(copy->link, err));
    int status = 0;
    MUST(service_wait_ended(copy->link, &status, err));
    cr_assert_neq(status, 0);
    const char *log = service_log(copy->link);
    cr_assert_geq(fixture_count_text(log, "was made on another machine: the machine id differs"),
                  1);
    cr_assert_geq(fixture_count_text(log, "there is no join token"), 1);
    cr_assert_geq(fixture_count_text(log, "sandstorm token create"), 1);
    /* The one that it was copied from did not notice. */
    cr_assert_eq(fixture_count_text(service_log(box->link), "newer link"), 0);
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-c", "echo $PPID");
    cr_assert_eq(strtol(run.out, NULL, 10), (long)proc_pid(service_proc(box->runner)));
}

Test(clone, a_clone_with_a_token_becomes_a_sandbox_of_its_own)
{
    struct sandbox_processes *box = fixture_box(), *copy = make_copy("copy");
    move_to_another_machine(copy->identity);
    MUST(cluster_token(fixture(), "copy.token", NULL, err));
    MUST(sandbox_start_runner(copy, err));
    MUST(sandbox_start_link(copy, err));
    cr_assert_geq(fixture_count_text(service_log(copy->link),
                                     "this VM is a copy of another one; its identity is not used"),
                  1);
    fixture_assert_contains(service_status(copy->link), "online as \"vm-");
    cr_assert_neq(access(copy->token, F_OK), 0);
    CLEANUP_RESULT struct proc_result ours = RUN(NULL, "cat", fixture_path(BOX "/key.pem"));
    CLEANUP_RESULT struct proc_result theirs = RUN(NULL, "cat", fixture_path("copy/key.pem"));
    cr_assert_str_neq(ours.out, theirs.out);
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-c", "echo $PPID");
    cr_assert_eq(strtol(run.out, NULL, 10), (long)proc_pid(service_proc(box->runner)));
    CLEANUP_RESULT struct proc_result seen = CLI("describe", BOX);
    cr_assert_null(strstr(seen.out, "duplicate_link"), "%s", seen.out);
}

/* Images. */

static struct proc_result prepare_image(const struct sandbox_processes *sandbox)
{
    char identity[CLUSTER_PATH_MAX + 32], token[CLUSTER_PATH_MAX + 32],
        status[CLUSTER_PATH_MAX + 32];
    (void)snprintf(identity, sizeof(identity), "SANDSTORM_IDENTITY=%s", sandbox->identity);
    (void)snprintf(token, sizeof(token), "SANDSTORM_TOKEN_FILE=%s", sandbox->token);
    (void)snprintf(status, sizeof(status), "SANDSTORM_STATUS_FILE=%s", sandbox->status);
    return RUN(((const char *[]){ identity, token, status, NULL }),
               cluster_program("sandstorm-agent"), "prepare-image");
}

Test(clone, prepare_image_removes_what_must_not_be_copied_and_nothing_else)
{
    struct sandbox_processes *box = fixture_box();
    MUST(service_stop(box->link, err));
    MUST(cluster_token(fixture(), BOX ".token", NULL, err));
    cr_assert_eq(mkdir(fixture_path(BOX ".pending"), 0700), 0);
    fixture_touch(BOX ".pending/key.pem");
    fixture_touch("keep");
    CLEANUP_RESULT struct proc_result run = prepare_image(box);
    cr_assert_eq(run.status, 0, "%s", run.err);
    fixture_assert_contains(run.out, box->identity);
    fixture_assert_contains(run.out, box->token);
    cr_assert_neq(access(box->identity, F_OK), 0);
    cr_assert_neq(access(box->token, F_OK), 0);
    cr_assert_neq(access(box->status, F_OK), 0);
    cr_assert_neq(access(fixture_path(BOX ".pending"), F_OK), 0);
    cr_assert_eq(access(fixture_path("keep"), F_OK), 0);
    cr_assert_eq(access(service_log(box->link), F_OK), 0);
    cr_assert_eq(access(box->socket, F_OK), 0);
    /* Again: there is nothing, and that is fine. */
    CLEANUP_RESULT struct proc_result again = prepare_image(box);
    cr_assert_eq(again.status, 0, "%s", again.err);
    /* What was an agent is now a VM that needs a token. */
    int status = 0;
    MUST(service_start(box->link, err));
    MUST(service_wait_ended(box->link, &status, err));
    cr_assert_neq(status, 0);
}

Test(clone, prepare_image_leaves_a_directory_alone_that_holds_something_else)
{
    struct sandbox_processes *box = fixture_box();
    MUST(service_stop(box->link, err));
    fixture_touch(BOX "/precious");
    CLEANUP_RESULT struct proc_result run = prepare_image(box);
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, "precious");
    cr_assert_eq(access(fixture_path(BOX "/precious"), F_OK), 0);
    cr_assert_eq(access(fixture_path(BOX "/key.pem"), F_OK), 0);
}
