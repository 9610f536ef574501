/* The audit cannot be written: then nothing new happens, what runs goes on, and all is as before
 * when there is room again. Once on a filesystem that is full, once at a limit of file sizes. */
#include "tests/integration/identity_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define UNWRITABLE "the audit cannot be written"
#define TMPFS      "size=4m,mode=0700"

/* A tmpfs is the state directory, in a mount namespace of the test's own that ends with it. */

static bool mounted;

static void move_into_tmpfs(void)
{
    const char *state = fixture()->state_dir;
    char command[4 * CLUSTER_PATH_MAX];
    service_forget_status(fixture_box()->link);
    MUST(service_stop(fixture()->orchestrator, err));
    cr_assert_eq(rename(state, fixture_path("moved")), 0);
    cr_assert_eq(mkdir(state, 0700), 0);
    cr_assert_eq(mount("tmpfs", state, "tmpfs", MS_NOSUID | MS_NODEV, TMPFS), 0);
    (void)snprintf(command, sizeof(command), "cp -a %s/. %s", fixture_path("moved"), state);
    const struct proc_spec spec = { .argv = (const char *[]){ "sh", "-c", command, NULL } };
    CLEANUP_RESULT struct proc_result copied = { 0 };
    MUST(proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &copied, err));
    cr_assert_eq(copied.status, 0, "%s", copied.err);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(fixture_box(), err));
}

static void start_in_tmpfs(void)
{
    mounted = unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    fixture_start();
    if (mounted)
        move_into_tmpfs();
}

TestSuite(disk_full, .init = start_in_tmpfs, .fini = fixture_stop);
TestSuite(file_limit, .init = fixture_start, .fini = fixture_stop);

static const char *filler(void)
{
    return fixture_path("state/filler");
}

static void fill(void)
{
    static char block[4096];
    CLEANUP_FD int fd = open(filler(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    ssize_t n;
    do
        n = write(fd, block, sizeof(block));
    while (n > 0);
    cr_assert_eq(errno, ENOSPC);
}

/* Everything that would have to be written down. */
static void assert_refused(const char *viewer)
{
    CLEANUP_RESULT struct proc_result exec = CLI("exec", BOX, "--", "touch", fixture_path("ran"));
    cr_expect_neq(exec.status, 0);
    cr_expect(strstr(exec.err, UNWRITABLE), "exec: %s", exec.err);
    cr_expect_neq(access(fixture_path("ran"), F_OK), 0);
    CLEANUP_RESULT struct proc_result list = CLI("ls");
    cr_expect_neq(list.status, 0);
    cr_expect(strstr(list.err, UNWRITABLE), "ls: %s", list.err);
    CLEANUP_RESULT struct proc_result token =
        CLI("token", "create", "--out", fixture_path("no.token"));
    cr_expect_neq(token.status, 0);
    cr_expect(strstr(token.err, UNWRITABLE), "token create: %s", token.err);
    CLEANUP_RESULT struct proc_result client =
        CLI("client", "add", "zoe", "--role", "admin", "--out", fixture_path("no.login"));
    cr_expect_neq(client.status, 0);
    cr_expect(strstr(client.err, UNWRITABLE), "client add: %s", client.err);
    CLEANUP_RESULT struct proc_result revoke = CLI("sandbox", "revoke", BOX);
    cr_expect_neq(revoke.status, 0);
    cr_expect(strstr(revoke.err, UNWRITABLE), "sandbox revoke: %s", revoke.err);
    /* A refusal stays one. */
    CLEANUP_RESULT struct proc_result denied = CLI("exec", BOX, "--identity", viewer, "--", "true");
    cr_expect(strstr(denied.err, "needs the role operator"), "denied: %s", denied.err);
    /* What needs no row goes on. */
    CLEANUP_RESULT struct proc_result self = CLI("whoami");
    cr_expect_eq(self.status, 0, "%s", self.err);
}

static void assert_enrolment_refused(void)
{
    CLEANUP_RESULT struct proc_result run = enroll("late.join", "late");
    cr_expect_neq(run.status, 0);
    /* A stranger is not told why; the log is. */
    cr_expect(strstr(run.err, "the orchestrator cannot do this now"), "enroll: %s", run.err);
    cr_expect_null(strstr(run.err, fixture()->state_dir), "%s", run.err);
    MUST(service_wait_log(fixture()->orchestrator, "a certificate request could not be carried out",
                          PROC_DEADLINE_US, err));
}

static void assert_works(void)
{
    MUST_CLI("exec", BOX, "--", "touch", fixture_path("ran"));
    cr_assert_eq(access(fixture_path("ran"), F_OK), 0);
    MUST_CLI("token", "create", "--out", fixture_path("yes.token"));
    CLEANUP_RESULT struct proc_result run = enroll("late.join", "late");
    cr_assert_eq(run.status, 0, "%s", run.err);
    cr_assert_eq(STORE_NUMBER("SELECT count(*) FROM clients WHERE name = 'zoe'"), 0);
    cr_assert_eq(STORE_NUMBER("SELECT count(*) FROM sandboxes WHERE revoked_ms <> 0"), 0);
    MUST_CLI("audit", "--verify");
}

static void assert_answers(struct fixture_client *client, const char *word)
{
    char line[64], sent[64];
    size_t size = (size_t)snprintf(sent, sizeof(sent), "%s\n", word);
    cr_assert_eq(write(client->in, sent, size), (ssize_t)size);
    fixture_read_line(client->out, line, sizeof(line));
    cr_assert_str_eq(line, word);
}

static void assert_fails_closed(void (*take_room)(void), void (*give_room)(void))
{
    char viewer[CLUSTER_PATH_MAX];
    MUST(cluster_login(fixture(), "vera", "viewer", NULL, viewer, err));
    MUST(cluster_token(fixture(), "late.join", (const char *[]){ "--sandbox", "late", NULL }, err));
    copy_token("late.join", "late.copy");
    CLEANUP_CLIENT struct fixture_client running =
        CLI_START(PIPE_IN | PIPE_OUT, "exec", BOX, "--", "cat");
    assert_answers(&running, "before");
    take_room();
    assert_refused(viewer);
    assert_enrolment_refused();
    assert_answers(&running, "meanwhile");
    MUST(service_check(fixture()->orchestrator, err));
    give_room();
    if (access(fixture_path("late.join"), F_OK) < 0)
        copy_token("late.copy", "late.join");
    assert_works();
    assert_answers(&running, "after");
    close_fd(&running.in);
    cr_assert_eq(fixture_client_wait(&running), 0);
}

static void empty(void)
{
    cr_assert_eq(unlink(filler()), 0);
}

Test(disk_full, refuses_what_is_new_and_keeps_what_runs)
{
    if (!mounted)
        cr_skip_test("no mount namespace of our own here, so no disk that we could fill");
    assert_fails_closed(fill, empty);
}

/* A limit that the log of the database has reached. */

static void set_limit(rlim_t size)
{
    const struct rlimit limit = { size, RLIM_INFINITY };
    pid_t pid = proc_pid(service_proc(fixture()->orchestrator));
    cr_assert_eq(prlimit(pid, RLIMIT_FSIZE, &limit, NULL), 0);
}

static void stop_growth(void)
{
    struct stat st;
    cr_assert_eq(stat(fixture_path("state/orchestrator.db-wal"), &st), 0);
    set_limit((rlim_t)st.st_size);
}

static void allow_growth(void)
{
    set_limit(RLIM_INFINITY);
}

Test(file_limit, refuses_what_is_new_and_keeps_what_runs)
{
    assert_fails_closed(stop_growth, allow_growth);
}
