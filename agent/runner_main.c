/* sandstorm-runner: owns the commands of this VM. Reads its settings, then hands over to
 * agent/runner.c. */
#include "agent/runner.h"
#include "common/config.h"
#include "common/daemon.h"
#include "common/program.h"

#include <pwd.h>
#include <stddef.h>

/* Three pipes, a pidfd and a file for each command. */
#define RUNNER_FILES_NEEDED (RUNNER_COMMANDS_MAX * 5 + 64)
#define SPOOL_QUOTA_MIN     (1024u * 1024)

struct settings {
    char *socket;
    char *state_dir;
    uint64_t spool_quota;
    char *link_user;
    char *log_level;
    char *log_format;
};

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
    { "log_level", "SANDSTORM_LOG_LEVEL", CONFIG_STRING, offsetof(struct settings, log_level),
      "info", 0, 0, "error, warn, info or debug" },
    { "log_format", "SANDSTORM_LOG_FORMAT", CONFIG_STRING, offsetof(struct settings, log_format),
      "auto", 0, 0, "auto, text, json or journal" },
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
    .options = program_options,
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

static int serve(const void *userdata, struct err *err)
{
    const struct settings *settings = userdata;
    struct runner_config config = {
        .socket = settings->socket,
        .state_dir = settings->state_dir,
        .spool_quota = settings->spool_quota,
        .forward_logs = true,
    };
    struct runner *runner;
    if (program_log(page.program, settings->log_level, settings->log_format, err) < 0 ||
        daemon_prepare(err) < 0 || find_link_user(settings->link_user, &config.link_uid, err) < 0 ||
        daemon_raise_files(RUNNER_FILES_NEEDED, &config.files, err) < 0 ||
        runner_new(&config, &runner, err) < 0)
        return -1;
    int r = runner_run(runner, err);
    runner_free(runner);
    return r;
}

int main(int argc, char **argv)
{
    struct settings settings = { 0 };
    return program_main(&page, argc, argv, &settings, serve);
}
