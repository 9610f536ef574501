/* Commands at the process end, with the real daemons: how they end, what they are given, who dies
 * with them. What the command line has no option for is asked for with a spec of the test's own. */
#include "common/clock.h"
#include "tests/harness/starter.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* cppcheck-suppress unknownMacro */
TestSuite(process, .init = fixture_start, .fini = fixture_stop);

#define SPEC SANDSTORM__V1__COMMAND_SPEC__INIT
/* There is no event to wait for; each look starts a process of its own, so this does not spin. */
#define EVENTUALLY(condition)                                                                      \
    do {                                                                                           \
        uint64_t deadline_ = monotonic_us() + PROC_DEADLINE_US;                                    \
        while (!(condition))                                                                       \
            cr_assert_lt(monotonic_us(), deadline_, "never came: %s", #condition);                 \
    } while (0)

#define STEP(name) SANDSTORM__V1__START_STEP__START_STEP_##name

static Sandstorm__V1__CommandSpec shell(const char *script)
{
    Sandstorm__V1__CommandSpec spec = SPEC;
    spec.shell = (char *)script;
    return spec;
}

static void expect_start_failed(const Sandstorm__V1__CommandSpec *spec,
                                Sandstorm__V1__StartStep step, int error, const char *words)
{
    CLEANUP_STARTER struct starter starter;
    const Sandstorm__V1__Outcome *outcome = starter_run(&starter, spec);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_START_FAILED, "result %d",
                 (int)outcome->result_case);
    const Sandstorm__V1__StartFailed *why = outcome->start_failed;
    cr_expect_eq(why->step, step, "step %d: %s", (int)why->step, why->detail);
    cr_expect_eq(why->errno_number, error, "%s: %s", why->errno_name, why->detail);
    cr_expect_str_eq(why->errno_name, strerrorname_np(error));
    cr_expect(strstr(why->detail, words), "%s", why->detail);
    cr_expect_eq(starter.started, 0u);
    cr_expect_eq(outcome->stdout_bytes + outcome->stderr_bytes, 0u);
}

static void expect_exit(const Sandstorm__V1__CommandSpec *spec, unsigned code, const char *out)
{
    CLEANUP_STARTER struct starter starter;
    const Sandstorm__V1__Outcome *outcome = starter_run(&starter, spec);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED, "result %d: %s",
                 (int)outcome->result_case,
                 outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_START_FAILED
                     ? outcome->start_failed->detail
                     : "");
    cr_expect_eq(outcome->exited->code, code, "%u: %s", outcome->exited->code, starter.err);
    cr_expect_str_eq(starter.out, out, "%s", starter.err);
}

/* E1: how it ends. */

Test(process, every_exit_code_is_told_as_it_is)
{
    static const unsigned codes[] = { 0, 1, 2, 124, 125, 126, 127, 128, 137, 143, 254, 255 };
    for (size_t i = 0; i < ELEMENTS(codes); i++) {
        char script[32];
        (void)snprintf(script, sizeof(script), "exit %u", codes[i]);
        const Sandstorm__V1__CommandSpec spec = shell(script);
        expect_exit(&spec, codes[i], "");
    }
}

static const struct {
    int number;
    const char *name;
} fatal[] = {
    { SIGHUP, "HUP" },   { SIGINT, "INT" },   { SIGQUIT, "QUIT" },     { SIGILL, "ILL" },
    { SIGTRAP, "TRAP" }, { SIGABRT, "ABRT" }, { SIGBUS, "BUS" },       { SIGFPE, "FPE" },
    { SIGKILL, "KILL" }, { SIGUSR1, "USR1" }, { SIGSEGV, "SEGV" },     { SIGUSR2, "USR2" },
    { SIGPIPE, "PIPE" }, { SIGALRM, "ALRM" }, { SIGTERM, "TERM" },     { SIGSTKFLT, "STKFLT" },
    { SIGXCPU, "XCPU" }, { SIGXFSZ, "XFSZ" }, { SIGVTALRM, "VTALRM" }, { SIGPROF, "PROF" },
    { SIGPOLL, "POLL" }, { SIGPWR, "PWR" },   { SIGSYS, "SYS" },       { 35, "" },
    { 64, "" },
};

static Sandstorm__V1__CommandSpec without_core(const char *script)
{
    static Sandstorm__V1__Rlimit limit = SANDSTORM__V1__RLIMIT__INIT;
    static Sandstorm__V1__Rlimit *limits[] = { &limit };
    Sandstorm__V1__CommandSpec spec = shell(script);
    limit.name = (char *)"core";
    spec.rlimits = limits;
    spec.n_rlimits = 1;
    return spec;
}

Test(process, every_fatal_signal_is_told_by_number_and_name)
{
    for (size_t i = 0; i < ELEMENTS(fatal); i++) {
        char script[64];
        (void)snprintf(script, sizeof(script), "kill -%d $$; sleep 100", fatal[i].number);
        const Sandstorm__V1__CommandSpec spec = without_core(script);
        CLEANUP_STARTER struct starter starter;
        const Sandstorm__V1__Outcome *outcome = starter_run(&starter, &spec);
        cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_SIGNALED, "signal %d",
                     fatal[i].number);
        cr_expect_eq(outcome->signaled->signal, (unsigned)fatal[i].number);
        cr_expect_str_eq(outcome->signaled->name, fatal[i].name);
        cr_expect_not(outcome->signaled->core_dumped);
    }
}

/* Whether this machine writes cores is its own business: its setting is the measure. */
Test(process, a_core_dump_is_told)
{
    Sandstorm__V1__CommandSpec spec = without_core("ulimit -c; kill -SEGV $$");
    spec.rlimits[0]->soft = spec.rlimits[0]->hard = 1u << 24;
    spec.cwd = fixture()->dir;
    CLEANUP_STARTER struct starter starter;
    const Sandstorm__V1__Outcome *outcome = starter_run(&starter, &spec);
    spec.rlimits[0]->soft = spec.rlimits[0]->hard = 0;
    CLEANUP_RESULT struct proc_result pattern =
        RUN(NULL, "/bin/cat", "/proc/sys/kernel/core_pattern");
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_SIGNALED);
    cr_expect_eq(outcome->signaled->signal, (unsigned)SIGSEGV);
    if (strcmp(pattern.out, "core\n") == 0)
        cr_expect(outcome->signaled->core_dumped);
}

/* E2, C7, C10: what cannot start. */

static Sandstorm__V1__CommandSpec program(char *path)
{
    static char *argv[1];
    Sandstorm__V1__CommandSpec spec = SPEC;
    argv[0] = path;
    spec.argv = argv;
    spec.n_argv = 1;
    return spec;
}

static char *put_file(const char *name, const char *text, mode_t mode)
{
    static char path[CLUSTER_PATH_MAX + 32];
    (void)snprintf(path, sizeof(path), "%s/%s", fixture()->dir, name);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    return path;
}

static void expect_exec_failure(char *path, int error)
{
    const Sandstorm__V1__CommandSpec spec = program(path);
    expect_start_failed(&spec, STEP(EXEC), error, "cannot run");
}

Test(process, what_cannot_be_executed_fails_at_exec_with_its_errno)
{
    expect_exec_failure((char *)"/no/such/program", ENOENT);
    expect_exec_failure((char *)"no-such-program", ENOENT);
    expect_exec_failure((char *)"/etc/passwd/x", ENOTDIR);
    expect_exec_failure((char *)"/etc/passwd", EACCES);
    expect_exec_failure((char *)"/etc", EACCES);
    expect_exec_failure(put_file("garbage", "neither ELF nor script\n", 0755), ENOEXEC);
    expect_exec_failure(put_file("lost", "#!/no/such/interpreter\n", 0755), ENOENT);
    char name[5000];
    (void)memset(name, 'a', sizeof(name) - 1);
    name[0] = '/';
    name[sizeof(name) - 1] = '\0';
    expect_exec_failure(name, ENAMETOOLONG);
}

Test(process, an_argument_may_be_as_long_as_the_kernel_takes_it)
{
    const size_t max = 128u * 1024; /* MAX_ARG_STRLEN, with its NUL */
    CLEANUP_FREE char *text = malloc(max + 1);
    (void)memset(text, 'x', max);
    text[max] = '\0';
    char *argv[] = { (char *)"/bin/sh", (char *)"-c", (char *)"echo ${#1}", (char *)"sh", text };
    Sandstorm__V1__CommandSpec spec = SPEC;
    spec.argv = argv;
    spec.n_argv = ELEMENTS(argv);
    expect_start_failed(&spec, STEP(EXEC), E2BIG, "cannot run");
    text[max - 1] = '\0';
    expect_exit(&spec, 0, "131071\n");
}

Test(process, arguments_and_variables_that_make_no_sense_are_refused)
{
    char *empty[] = { (char *)"" };
    Sandstorm__V1__CommandSpec spec = SPEC;
    spec.argv = empty;
    spec.n_argv = 1;
    expect_start_failed(&spec, STEP(SPEC), EINVAL, "argv[0] is empty");
    static const char *const names[] = { "", "=", "A=B" };
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        Sandstorm__V1__EnvVar variable = SANDSTORM__V1__ENV_VAR__INIT;
        Sandstorm__V1__EnvVar *env[] = { &variable };
        variable.name = (char *)names[i];
        spec = shell("true");
        spec.env = env;
        spec.n_env = 1;
        expect_start_failed(&spec, STEP(SPEC), EINVAL, "environment variable 1");
    }
}

static void expect_cwd_failure(const char *cwd, Sandstorm__V1__StartStep step, int error)
{
    Sandstorm__V1__CommandSpec spec = shell("true");
    spec.cwd = (char *)cwd;
    expect_start_failed(&spec, step, error, "working directory");
}

Test(process, a_directory_that_cannot_be_entered_fails_at_cwd_with_its_errno)
{
    expect_cwd_failure("tmp", STEP(SPEC), EINVAL);
    expect_cwd_failure("/no/such/directory", STEP(CWD), ENOENT);
    expect_cwd_failure("/etc/passwd", STEP(CWD), ENOTDIR);
    /* A descriptor of the runner's is none of the child's. */
    expect_cwd_failure("/proc/self/fd/3/..", STEP(CWD), ENOENT);
    char path[5000];
    (void)memset(path, '/', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    expect_cwd_failure(path, STEP(CWD), ENAMETOOLONG);
}

/* C12: variables that a loader, a shell or the runner itself might heed. */
Test(process, dangerous_variables_are_the_commands_alone)
{
    static const char *const pairs[][2] = {
        { "LD_PRELOAD", "/no/such/library.so" },
        { "LD_LIBRARY_PATH", "/no/such" },
        { "BASH_ENV", "/no/such" },
        { "IFS", "x" },
        { "NOTIFY_SOCKET", "/no/such" },
        { "SANDSTORM_RUNNER_SOCKET", "/no/such" },
    };
    Sandstorm__V1__EnvVar variables[ELEMENTS(pairs)];
    Sandstorm__V1__EnvVar *env[ELEMENTS(pairs)];
    for (size_t i = 0; i < ELEMENTS(pairs); i++) {
        sandstorm__v1__env_var__init(&variables[i]);
        variables[i].name = (char *)pairs[i][0];
        variables[i].value = (char *)pairs[i][1];
        env[i] = &variables[i];
    }
    Sandstorm__V1__CommandSpec spec = shell("echo $LD_LIBRARY_PATH 2>/dev/null");
    spec.env = env;
    spec.n_env = ELEMENTS(env);
    expect_exit(&spec, 0, "/no/such\n");
    /* An empty PATH finds nothing, for this command. */
    Sandstorm__V1__EnvVar path = SANDSTORM__V1__ENV_VAR__INIT;
    path.name = (char *)"PATH";
    env[0] = &path;
    spec = program((char *)"true");
    spec.env = env;
    spec.n_env = 1;
    expect_start_failed(&spec, STEP(EXEC), ENOENT, "cannot run");
    spec = program((char *)"true");
    expect_exit(&spec, 0, "");
}

/* C11, C14, E6, E10: what it is given. */

Test(process, a_user_and_its_groups_by_name_and_number)
{
    Sandstorm__V1__CommandSpec spec = shell("id -u; id -g; id -G; pwd");
    spec.user = (char *)"nobody";
    expect_exit(&spec, 0, "65534\n65534\n65534\n/\n");
    spec.user = (char *)"65534";
    spec.group = (char *)"tty";
    expect_exit(&spec, 0, "65534\n5\n5\n/\n");
    spec.user = (char *)"3000000000";
    spec.group = (char *)"3000000001";
    expect_exit(&spec, 0, "3000000000\n3000000001\n3000000001\n/\n");
    spec.user = (char *)"root";
    spec.group = (char *)"";
    spec.cwd = (char *)"/";
    expect_exit(&spec, 0, "0\n0\n0\n/\n");
}

Test(process, users_that_are_nobody_are_refused)
{
    char long_name[10000];
    (void)memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    const struct {
        const char *name;
        int error;
    } users[] = {
        { "no-such-user", ENOENT }, { "-1", EINVAL },       { "4294967295", EINVAL },
        { "4294967296", EINVAL },   { "12345678", ENOENT }, { "root ", ENOENT },
        { long_name, EINVAL },
    };
    for (size_t i = 0; i < ELEMENTS(users); i++) {
        Sandstorm__V1__CommandSpec spec = shell("id");
        spec.user = (char *)users[i].name;
        expect_start_failed(&spec, STEP(USER), users[i].error, "");
    }
}

Test(process, umask_niceness_and_limits)
{
    Sandstorm__V1__CommandSpec spec = without_core("umask; nice; ulimit -n; ulimit -Hn");
    spec.umask_choice_case = SANDSTORM__V1__COMMAND_SPEC__UMASK_CHOICE_UMASK;
    spec.umask = 077;
    spec.nice = 3;
    spec.rlimits[0]->name = (char *)"nofile";
    spec.rlimits[0]->soft = 123;
    spec.rlimits[0]->hard = 456;
    spec.user = (char *)"nobody";
    expect_exit(&spec, 0, "0077\n3\n123\n456\n");
}

Test(process, descriptors_terminal_and_memory_score_are_as_they_should_be)
{
    Sandstorm__V1__CommandSpec spec =
        shell("for f in /proc/$$/fd/*; do if [ -e $f ]; then printf '%s ' ${f##*/}; fi; done; "
              "cat /proc/self/oom_score_adj; (: </dev/tty) 2>/dev/null || echo no tty; "
              "cut -d' ' -f6 /proc/$$/stat | grep -qx $$ && echo own session");
    expect_exit(&spec, 0, "0 1 2 0\nno tty\nown session\n");
    char path[64], score[16] = "";
    (void)snprintf(path, sizeof(path), "/proc/%d/oom_score_adj",
                   (int)proc_pid(service_proc(fixture_box()->runner)));
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_gt(read(fd, score, sizeof(score) - 1), 0);
    cr_expect_leq(strtol(score, NULL, 10), 0);
}

static void start_without_umask(void)
{
    (void)umask(0);
    fixture_start();
}

TestSuite(process_umask, .init = start_without_umask, .fini = fixture_stop);

Test(process_umask, what_the_runner_makes_is_private_whatever_its_umask)
{
    struct stat st;
    cr_assert_eq(stat(fixture_box()->socket, &st), 0);
    cr_expect_eq(st.st_mode & 0777, 0600u, "%o", st.st_mode);
}

/* Limits of the tree: on this machine, whichever that is. */

Test(process, a_limit_is_enforced_or_refused_or_named)
{
    Sandstorm__V1__Limits limits = SANDSTORM__V1__LIMITS__INIT;
    Sandstorm__V1__CommandSpec spec = shell("exit 4");
    spec.limits = &limits;
    limits.pids = 20;
    limits.mode = SANDSTORM__V1__LIMIT_MODE__LIMIT_MODE_BEST_EFFORT;
    CLEANUP_STARTER struct starter starter;
    const Sandstorm__V1__Outcome *outcome = starter_run(&starter, &spec);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    bool enforced = outcome->n_not_enforced == 0;
    cr_expect_str_eq(starter.not_enforced, enforced ? "" : "pids");
    limits.mode = SANDSTORM__V1__LIMIT_MODE__LIMIT_MODE_REQUIRE;
    if (enforced)
        expect_exit(&spec, 4, "");
    else
        expect_start_failed(&spec, STEP(LIMITS), ENOTSUP, "\"pids\"");
    limits.mode = SANDSTORM__V1__LIMIT_MODE__LIMIT_MODE_UNSPECIFIED;
    if (!enforced)
        expect_start_failed(&spec, STEP(LIMITS), ENOTSUP, "\"pids\"");
}

/* C16: signals. */

Test(process, a_signal_goes_to_the_leader_or_to_all)
{
    const Sandstorm__V1__CommandSpec spec =
        shell("trap 'echo leader' USR1; setsid sh -c 'trap \"echo child\" USR1; echo up; "
              "while :; do sleep 0.05; done' & "
              "while [ -z \"$n\" ]; do wait; done");
    CLEANUP_STARTER struct starter starter;
    starter_open(&starter, &spec, NULL);
    starter_await_line(&starter);
    starter_signal(&starter, "USR1", SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_LEADER);
    while (!strstr(starter.out, "leader\n"))
        starter_await_more(&starter);
    cr_expect_null(strstr(starter.out, "child"));
    starter_signal(&starter, "USR1", SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_TREE);
    while (!strstr(starter.out, "child\n"))
        starter_await_more(&starter);
    starter_signal(&starter, "KILL", SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_TREE);
    const Sandstorm__V1__Outcome *outcome = starter_wait(&starter);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_SIGNALED);
    cr_expect_eq(outcome->signaled->signal, (unsigned)SIGKILL);
    cr_expect_eq(outcome->survivors, 0u);
}

/* `pattern` in /proc/PID/status. */
static bool status_has(pid_t pid, const char *pattern)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
    CLEANUP_RESULT struct proc_result result = RUN(NULL, "/bin/grep", "-qE", pattern, path);
    return result.status == 0;
}

Test(process, a_command_can_be_stopped_and_continued)
{
    /* It has no child: one that is stopped between vfork and execve holds its parent. */
    Sandstorm__V1__CommandSpec spec = shell("trap 'echo done; exit 0' USR1; echo up; read x");
    spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    CLEANUP_STARTER struct starter starter;
    starter_open(&starter, &spec, NULL);
    starter_await_line(&starter);
    starter_signal(&starter, "STOP", SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_TREE);
    EVENTUALLY((starter_listen(&starter, 20000), status_has(starter.pid, "^State:.T")));
    starter_signal_number(&starter, SIGUSR1); /* waits for it to go on */
    starter_signal_number(&starter, SIGCONT);
    cr_expect_eq(starter_wait(&starter)->exited->code, 0u);
    cr_expect_str_eq(starter.out, "up\ndone\n");
}

Test(process, numbers_that_are_no_signals_are_refused)
{
    static const unsigned bad[] = { 65, 0x7fffffff, 0xffffffff };
    char words[256];
    const Sandstorm__V1__CommandSpec spec = shell("echo up; exec sleep 1000");
    CLEANUP_STARTER struct starter starter;
    starter_open(&starter, &spec, NULL);
    starter_await_line(&starter);
    for (size_t i = 0; i < ELEMENTS(bad); i++) {
        starter_signal_number(&starter, bad[i]);
        starter_await_refusal(&starter, words, sizeof(words));
        cr_expect(strstr(words, "signal"), "%s", words);
    }
    starter_signal(&starter, "SIGTERM", SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_TREE);
    starter_await_refusal(&starter, words, sizeof(words));
    starter_signal(&starter, "TERM", SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_LEADER);
    cr_expect_eq(starter_wait(&starter)->signaled->signal, (unsigned)SIGTERM);
}

/* C17: times. */

Test(process, times_that_make_no_sense_are_refused)
{
    static const uint64_t bad[] = { 365ull * 86400 * 1000 + 1, 1ull << 63, UINT64_MAX };
    for (size_t i = 0; i < ELEMENTS(bad); i++) {
        Sandstorm__V1__CommandSpec spec = shell("true");
        spec.timeout_ms = bad[i];
        expect_start_failed(&spec, STEP(SPEC), EINVAL, "longer than a year");
        spec.timeout_ms = 0;
        spec.kill_grace_ms = bad[i];
        expect_start_failed(&spec, STEP(SPEC), EINVAL, "longer than a year");
    }
    Sandstorm__V1__CommandSpec spec = shell("exit 3");
    spec.timeout_ms = 365ull * 86400 * 1000;
    spec.kill_grace_ms = 365ull * 86400 * 1000;
    expect_exit(&spec, 3, "");
}

/* E3: nothing is left of what has ended. */

static unsigned count_files(pid_t pid)
{
    char path[64];
    unsigned count = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}

/* Living or dead. */
static bool has_children(pid_t parent)
{
    char pattern[64];
    (void)snprintf(pattern, sizeof(pattern), "grep -qE '^PPid:.%d$' /proc/[0-9]*/status", parent);
    CLEANUP_RESULT struct proc_result result = RUN(NULL, "/bin/sh", "-c", pattern);
    return result.status == 0;
}

Test(process, many_short_commands_leave_no_zombie_and_no_descriptor)
{
    const char *asked = getenv("SANDSTORM_TEST_COMMANDS");
    unsigned long total = asked ? strtoul(asked, NULL, 10) : 300;
    pid_t runner = proc_pid(service_proc(fixture_box()->runner));
    const Sandstorm__V1__CommandSpec spec =
        shell("(sh -c 'true' & exit 0) & (setsid true &) ; exit 0");
    expect_exit(&spec, 0, "");
    unsigned before = count_files(runner);
    for (unsigned long i = 0; i < total; i++)
        expect_exit(&spec, 0, "");
    EVENTUALLY(!has_children(runner));
    cr_expect_leq(count_files(runner), before + 2, "descriptors leak");
}
