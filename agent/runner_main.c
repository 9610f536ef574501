/* sandstorm-runner: owns the commands of this VM. Reads its settings, then hands over to
 * agent/runner.c; or says whether it could take over from a runner that is there. */
#include "agent/oom.h"
#include "agent/runner.h"
#include "common/config.h"
#include "common/daemon.h"
#include "common/program.h"

#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stddef.h>

#define SPOOL_QUOTA_MIN (1024u * 1024)

struct settings {
    char *socket;
    char *state_dir;
    uint64_t spool_quota;
    char *link_user;
    char *log_level;
    char *log_format;
    bool cgroups;
    struct policy_settings policy;
};

#define POLICY(field) offsetof(struct settings, policy.field)

static const struct config_key keys[] = {
    { "runner_socket", "SANDSTORM_RUNNER_SOCKET", CONFIG_STRING, offsetof(struct settings, socket),
      "/run/sandstorm/runner.sock", 0, 0, "the socket on which the link connects" },
    { "state_dir", "SANDSTORM_RUNNER_STATE_DIR", CONFIG_STRING,
      offsetof(struct settings, state_dir), "/run/sandstorm/runner", 0, 0,
      "where commands are kept for a runner that comes after this one; void after a boot" },
    { "spool_quota", NULL, CONFIG_UINT, offsetof(struct settings, spool_quota), "1073741824",
      SPOOL_QUOTA_MIN, 0,
      "bytes of output that all commands together keep there, at most half of its file system" },
    { "link_user", NULL, CONFIG_STRING, offsetof(struct settings, link_user), NULL, 0, 0,
      "the user that the link runs as; empty means the runner's own" },
    { "cgroups", NULL, CONFIG_BOOL, offsetof(struct settings, cgroups), "true", 0, 0,
      "a control group for each command, where the kernel and the service manager let the runner "
      "make them; without, commands have no limits and are held together by descent" },
    { "allow_users", NULL, CONFIG_STRING, POLICY(allow_users), NULL, 0, 0,
      "users that commands may run as, by name or number with commas between them, and only in "
      "groups that these are members of; empty means any" },
    { "deny_root", NULL, CONFIG_BOOL, POLICY(deny_root), "false", 0, 0,
      "no command runs as root, nor in a group that its user is not a member of" },
    { "max_memory_bytes", NULL, CONFIG_UINT, POLICY(max_memory_bytes), "0", 0, 0,
      "the most memory that a command's processes may have together, also when it does not ask "
      "for a limit; 0 means no ceiling" },
    { "max_cpu_millis", NULL, CONFIG_UINT, POLICY(max_cpu_millis), "0", 0, TREE_CPU_MILLIS_MAX,
      "likewise, thousandths of a CPU; at least 10" },
    { "max_pids", NULL, CONFIG_UINT, POLICY(max_pids), "0", 0, 0,
      "likewise, processes and threads" },
    { "max_commands", NULL, CONFIG_UINT, POLICY(max_commands), "0", 0, RUNNER_COMMANDS_MAX,
      "commands that may run at once; 0 means as many as the runner can hold" },
    { "allow_exec", NULL, CONFIG_BOOL, POLICY(allow_exec), "true", 0, 0,
      "commands may be run at all" },
    { "allow_terminal", NULL, CONFIG_BOOL, POLICY(allow_terminal), "true", 0, 0,
      "commands may have a terminal" },
    { "allow_files", NULL, CONFIG_BOOL, POLICY(allow_files), "true", 0, 0,
      "files may be read and written, by a version that can" },
    { "log_level", "SANDSTORM_LOG_LEVEL", CONFIG_STRING, offsetof(struct settings, log_level),
      "info", 0, 0, "error, warn, info or debug" },
    { "log_format", "SANDSTORM_LOG_FORMAT", CONFIG_STRING, offsetof(struct settings, log_format),
      "auto", 0, 0, "auto, text, json or journal" },
    { 0 },
};

struct arguments {
    const char *config;
    bool check_handover;
    uint64_t handover;
};

static const struct option options[] = {
    { "config", 'c', OPTION_STRING, "FILE", "Settings file, instead of the one below",
      offsetof(struct arguments, config), 0, 0 },
    { "check-handover", 0, OPTION_FLAG, NULL,
      "Only say whether this program could go on with what a running one has written to standard "
      "input; a runner asks this by itself on SIGUSR2, before it executes its program anew",
      offsetof(struct arguments, check_handover), 0, 0 },
    { "handover", 0, OPTION_UINT, "FD", "Go on with it; given by the runner that came before",
      offsetof(struct arguments, handover), 3, INT_MAX },
    { 0 },
};

static const char *const environment[] = {
    "SANDSTORM_RUNNER_SOCKET",
    "the socket on which the link connects",
    "SANDSTORM_RUNNER_STATE_DIR",
    "where commands are kept for a runner that comes after this one",
    "SANDSTORM_LOG_LEVEL",
    "error, warn, info or debug",
    "SANDSTORM_LOG_FORMAT",
    "auto, text, json or journal",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm-runner",
    .section = 8,
    .summary = "run commands in this VM for the Sandstorm agent",
    .usage = "[OPTION...]",
    .options = options,
    .environment = environment,
    .settings_file = "/etc/sandstorm/runner.yaml",
    .settings = keys,
};

static int find_link_user(const char *name, uid_t *ret, struct err *err)
{
    if (!name || !*name) {
        *ret = getuid();
        return 0;
    }
    const struct passwd *entry = getpwnam(name);
    if (!entry)
        return err_set(err, ERR_NOT_FOUND,
                       "there is no user \"%s\"; create it or change the setting \"link_user\"",
                       name);
    *ret = entry->pw_uid;
    return 0;
}

/* From running out of memory; and, as root, from debuggers and core files, which would show what
 * commands are given to read. A runner that is not root shares its user with its commands anyway,
 * and they could not change their own /proc/self/oom_score_adj then. */
static int protect(char oom_score_adj[OOM_TEXT_MAX], struct err *err)
{
    oom_protect("/proc/self/oom_score_adj", oom_score_adj);
    return geteuid() == 0 ? daemon_hide_memory(err) : 0;
}

/* The link's user, and the limit of open files as it was before we raise it. */
static int prepare(const struct settings *settings, struct runner_config *config, struct err *err)
{
    const int upgrade = SIGUSR2;
    if (program_log(page.program, settings->log_level, settings->log_format, err) < 0 ||
        daemon_prepare(err) < 0 || loop_signals_block(&upgrade, 1, err) < 0 ||
        find_link_user(settings->link_user, &config->link_uid, err) < 0)
        return -1;
    return daemon_raise_files(RUNNER_COMMANDS_MAX * RUNNER_FILES_PER_COMMAND + 64, &config->files,
                              err);
}

/* What is there in our place after an upgrade: the path, not the file that we run. */
static char *own_program(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0)
        return NULL;
    out[n] = '\0';
    return out;
}

static int serve(const struct arguments *arguments, const struct settings *settings,
                 struct err *err)
{
    char program[PATH_MAX], oom_score_adj[OOM_TEXT_MAX];
    struct runner_config config = {
        .socket = settings->socket,
        .state_dir = settings->state_dir,
        .spool_quota = settings->spool_quota,
        .program = own_program(program, sizeof(program)),
        .settings_file = arguments->config,
        .handover_fd = (int)arguments->handover,
        .forward_logs = true,
        .subreaper = true,
        .cgroups = settings->cgroups,
        .oom_score_adj = oom_score_adj,
        .policy = &settings->policy,
    };
    struct runner *runner;
    if (prepare(settings, &config, err) < 0 || protect(oom_score_adj, err) < 0 ||
        runner_new(&config, &runner, err) < 0)
        return -1;
    int r = runner_run(runner, err);
    runner_free(runner);
    return r;
}

/* What would fail when there is no way back. */
static int check_handover(const struct settings *settings, struct err *err)
{
    uid_t uid;
    struct policy *policy;
    if (find_link_user(settings->link_user, &uid, err) < 0 ||
        policy_new(&settings->policy, &policy, err) < 0)
        return -1;
    policy_free(policy);
    return runner_handover_check(STDIN_FILENO, err);
}

static int run(int argc, char **argv, struct arguments *arguments, struct settings *settings,
               struct err *err)
{
    bool done;
    int rest;
    if (program_parse(&page, argc, argv, arguments, &done, &rest, err) < 0)
        return -1;
    if (done)
        return 0;
    if (rest < argc)
        return err_set(err, ERR_INVALID, "\"%s\" is not expected here; see --help", argv[rest]);
    if (config_load(keys, arguments->config ? arguments->config : page.settings_file,
                    arguments->config != NULL, settings, err) < 0)
        return -1;
    return arguments->check_handover ? check_handover(settings, err)
                                     : serve(arguments, settings, err);
}

int main(int argc, char **argv)
{
    struct arguments arguments = { 0 };
    struct settings settings = { 0 };
    struct err err = { 0 };
    int r = run(argc, argv, &arguments, &settings, &err);
    config_free(keys, &settings);
    return r < 0 ? program_fail(page.program, &err) : 0;
}
