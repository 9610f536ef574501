/* Where secrets are, after everything that is done with them has been done: in the files that are
 * made for them, readable by their owner alone, and nowhere else. Not in the store, its journal, a
 * log, a command line or an environment. */
#include "tests/harness/joiner.h"

#include "common/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FILE_MAX (64u * 1024 * 1024)
#define SECRETS  8u

static void start(void)
{
    fixture_start_empty_with("heartbeat_interval: 100ms\nsource_penalties: false\n"
                             "log_level: debug\n");
}

TestSuite(secrets, .init = start, .fini = fixture_stop);

/* What must not be found, and the one file below the case's directory that may hold it. */
static struct secret_text {
    char *text;
    const char *file; /* NULL: none */
} secrets[SECRETS];
static unsigned secret_count, files_seen;

static void keep_secret(const char *text, const char *file)
{
    cr_assert_lt(secret_count, SECRETS);
    secrets[secret_count++] = (struct secret_text){ strdup(text), file };
}

/* A token or login key, by the part that nobody may know: the text after its id. */
static void keep_typed(const char *text, const char *file)
{
    const char *last = strrchr(text, '_');
    cr_assert_not_null(last);
    cr_assert_eq(strlen(last + 1), 64);
    keep_secret(last + 1, file);
}

static void forget_secrets(void)
{
    while (secret_count > 0)
        free(secrets[--secret_count].text);
}

/* A line from the middle of a private key. */
static void keep_key(const char *name, const char *file)
{
    CLEANUP_FREE char *text = NULL;
    size_t size;
    MUST(file_read(fixture_path(name), 65536, &text, &size, err));
    char *line = strchr(text, '\n');
    cr_assert_not_null(line);
    line = strchr(line + 1, '\n') + 1;
    line[strcspn(line, "\n")] = '\0';
    cr_assert_gt(strlen(line), 30, "%s", line);
    keep_secret(line, file);
}

static bool holds(const char *data, size_t size, const char *text)
{
    return memmem(data, size, text, strlen(text));
}

static int search_file(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)walk;
    if (type != FTW_F || !S_ISREG(info->st_mode))
        return 0;
    CLEANUP_FREE char *data = NULL;
    size_t size;
    MUST(file_read(path, FILE_MAX, &data, &size, err));
    files_seen++;
    const char *name = path + strlen(fixture()->dir) + 1;
    for (unsigned i = 0; i < secret_count; i++) {
        if (!holds(data, size, secrets[i].text))
            continue;
        cr_assert(secrets[i].file && strcmp(secrets[i].file, name) == 0,
                  "secret %u, of %s, is in %s", i, secrets[i].file ? secrets[i].file : "no file",
                  name);
        cr_assert_eq(info->st_mode & 077, 0, "%s can be read by others", name);
    }
    return 0;
}

/* /proc/PID/`name`, whose size is not known before. */
static void search_proc(pid_t pid, const char *name)
{
    char path[64];
    CLEANUP_FREE char *data = malloc(1u << 20);
    size_t used = 0;
    ssize_t n;
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0, "%s: %m", path);
    while ((n = read(fd, data + used, (1u << 20) - used)) > 0)
        used += (size_t)n;
    cr_assert_gt(used, 0);
    for (unsigned i = 0; i < secret_count; i++)
        cr_assert_not(holds(data, used, secrets[i].text), "secret %u is in %s of %d", i, name, pid);
}

static void search_service(const struct service *service)
{
    pid_t pid = proc_pid(service_proc(service));
    search_proc(pid, "cmdline");
    search_proc(pid, "environ");
}

static void search_everything(void)
{
    files_seen = 0;
    cr_assert_eq(nftw(fixture()->dir, search_file, 16, FTW_PHYS), 0);
    cr_assert_gt(files_seen, 10);
}

Test(secrets, are_nowhere_but_in_the_files_made_for_them)
{
    struct sandbox_processes *box = NULL;
    char identity[CLUSTER_PATH_MAX];
    /* A session: join, log in, run, refuse, revoke. */
    MUST(cluster_add_sandbox(fixture(), BOX, &box, err));
    CLEANUP_FREE char *used = joiner_read(BOX ".token");
    MUST(service_set_env(box->link, "SANDSTORM_LOG_LEVEL=debug", err));
    MUST(service_set_env(box->runner, "SANDSTORM_LOG_LEVEL=debug", err));
    MUST(sandbox_start_runner(box, err));
    MUST(sandbox_start_link(box, err));
    MUST(cluster_token(fixture(), "open.token", NULL, err));
    CLEANUP_FREE char *open = joiner_read("open.token"), *gone = JOIN_TOKEN("--ttl", "1h");
    char id[16];
    joiner_secret_id(gone, id);
    CLEANUP_RESULT struct proc_result revoked = CLI("token", "revoke", id);
    cr_assert_eq(revoked.status, 0, "%s", revoked.err);
    cr_assert_eq(joiner_try(gone, "").code, ERR_UNAUTHENTICATED);
    cr_assert_eq(joiner_try(used, "").code, ERR_UNAUTHENTICATED);
    MUST(cluster_login(fixture(), "op", "operator", NULL, identity, err));
    CLEANUP_FREE char *login = joiner_read("op.login");
    CLEANUP_RESULT struct proc_result run =
        CLI("exec", BOX, "--identity", identity, "--", "echo", "served");
    cr_assert_str_eq(run.out, "served\n", "%s", run.err);
    keep_typed(used, NULL);
    keep_typed(gone, NULL);
    keep_typed(open, "open.token");
    keep_typed(login, "op.login");
    keep_key(BOX "/key.pem", BOX "/key.pem");
    keep_key("state/ca/ca-key.pem", "state/ca/ca-key.pem");
    keep_key("state/server/key.pem", "state/server/key.pem");
    keep_key("state/clients/admin/key.pem", "state/clients/admin/key.pem");
    search_everything();
    search_service(fixture()->orchestrator);
    search_service(box->link);
    search_service(box->runner);
    /* What a command of the sandbox sees of its makers is not more. */
    CLEANUP_RESULT struct proc_result env = CLI("exec", BOX, "--", "env");
    for (unsigned i = 0; i < secret_count; i++)
        cr_assert_not(holds(env.out, env.out_size, secrets[i].text));
    /* And with the write-ahead log in the database. */
    MUST(service_stop(fixture()->orchestrator, err));
    search_everything();
    MUST(cluster_start_orchestrator(fixture(), err));
    forget_secrets();
}

Test(secrets, are_printed_once_and_to_nobody_who_did_not_ask)
{
    MUST(cluster_token(fixture(), "one.token", NULL, err));
    CLEANUP_FREE char *token = joiner_read("one.token");
    struct stat info;
    cr_assert_eq(stat(fixture_path("one.token"), &info), 0);
    cr_assert_eq(info.st_mode & 07777, 0600);
    const char *secret = strrchr(token, '_') + 1;
    CLEANUP_RESULT struct proc_result list = CLI("token", "list");
    cr_assert_null(strstr(list.out, secret));
    CLEANUP_RESULT struct proc_result rows = CLI("audit", "-o", "json");
    cr_assert_null(strstr(rows.out, secret));
    /* A file that is there already is not overwritten, and no token is made for it. */
    CLEANUP_RESULT struct proc_result again =
        CLI("token", "create", "--out", fixture_path("one.token"));
    cr_assert_neq(again.status, 0);
    CLEANUP_FREE char *still = joiner_read("one.token");
    cr_assert_str_eq(still, token);
}

/* A build with sanitizers never dumps core, and switches that off in its children too. */
#ifndef SANDSTORM_SANITIZED
/* Whether it leaves a core dump behind when it is told to end with one. */
static bool dumps_core(struct proc *proc)
{
    int status;
    MUST(proc_signal(proc, SIGABRT, err));
    MUST(proc_wait(proc, PROC_DEADLINE_US, &status, err));
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %#x", (unsigned)status);
    return WCOREDUMP(status);
}

static void assert_dumps_nothing(struct service *service)
{
    int status;
    cr_assert_not(dumps_core(service_proc(service)), "%s", service_name(service));
    MUST(service_wait_ended(service, &status, err));
}

Test(secrets, are_not_in_core_dumps)
{
    const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
    cr_assert_eq(setrlimit(RLIMIT_CORE, &unlimited), 0, "%m");
    cr_assert_eq(chdir(fixture()->dir), 0);
    const struct proc_spec other = { (const char *const[]){ "sleep", "600", NULL }, NULL, -1, -1,
                                     -1 };
    CLEANUP_PROC struct proc *proc = NULL;
    MUST(proc_start(&other, &proc, err));
    if (!dumps_core(proc))
        cr_skip_test("nothing dumps core on this machine");
    struct sandbox_processes *box = NULL;
    MUST(cluster_add_sandbox(fixture(), BOX, &box, err));
    MUST(sandbox_start_runner(box, err));
    MUST(service_stop(fixture()->orchestrator, err));
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_start_link(box, err));
    assert_dumps_nothing(box->link);
    assert_dumps_nothing(fixture()->orchestrator);
    MUST(cluster_start_orchestrator(fixture(), err));
}
#endif
