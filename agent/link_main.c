/* sandstorm-agent: the link between this VM and its orchestrator. Reads its settings, then hands
 * over to agent/link.c. */
#include "agent/link.h"
#include "common/config.h"
#include "common/daemon.h"
#include "common/ids.h"
#include "common/program.h"

#include <stddef.h>

struct settings {
    char *endpoint;
    char *sandbox_id;
    char *vm_id;
    char *identity_dir;
    char *runner_socket;
    char *user;
    char *log_level;
    char *log_format;
};

static const struct config_key keys[] = {
    { "orchestrator_endpoint", "SANDSTORM_ORCHESTRATOR_ENDPOINT", CONFIG_STRING,
      offsetof(struct settings, endpoint), "localhost:5000", 0, 0,
      "where the agent dials, as HOST:PORT" },
    { "sandbox_id", "SANDSTORM_SANDBOX_ID", CONFIG_STRING, offsetof(struct settings, sandbox_id),
      NULL, 0, 0, "what the certificate must say; empty means whatever it says" },
    { "vm_id", "SANDSTORM_VM_ID", CONFIG_STRING, offsetof(struct settings, vm_id), NULL, 0, 0,
      "the cloud's name for this VM" },
    { "identity_dir", "SANDSTORM_IDENTITY", CONFIG_STRING, offsetof(struct settings, identity_dir),
      "/var/lib/sandstorm/agent/identity", 0, 0, "holds ca.pem, cert.pem and key.pem" },
    { "runner_socket", "SANDSTORM_RUNNER_SOCKET", CONFIG_STRING,
      offsetof(struct settings, runner_socket), "/run/sandstorm/runner.sock", 0, 0,
      "the runner's socket" },
    { "user", NULL, CONFIG_STRING, offsetof(struct settings, user), NULL, 0, 0,
      "the user to become when started as root; empty means to stay" },
    { "log_level", "SANDSTORM_LOG_LEVEL", CONFIG_STRING, offsetof(struct settings, log_level),
      "info", 0, 0, "error, warn, info or debug" },
    { "log_format", "SANDSTORM_LOG_FORMAT", CONFIG_STRING, offsetof(struct settings, log_format),
      "auto", 0, 0, "auto, text, json or journal" },
    { 0 },
};

static const char *const environment[] = {
    "SANDSTORM_ORCHESTRATOR_ENDPOINT",
    "Where the agent dials, as HOST:PORT",
    "SANDSTORM_SANDBOX_ID",
    "The sandbox that the certificate must be for",
    "SANDSTORM_VM_ID",
    "The cloud's name for this VM",
    "SANDSTORM_IDENTITY",
    "The directory with ca.pem, cert.pem and key.pem",
    "SANDSTORM_RUNNER_SOCKET",
    "The runner's socket",
    "SANDSTORM_LOG_LEVEL",
    "error, warn, info or debug",
    "SANDSTORM_LOG_FORMAT",
    "auto, text, json or journal",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm-agent",
    .section = 8,
    .summary = "connect this VM to its Sandstorm orchestrator",
    .usage = "[OPTION...]",
    .options = program_options,
    .environment = environment,
    .settings_file = "/etc/sandstorm/agent.yaml",
    .settings = keys,
};

static int serve(const void *userdata, struct err *err)
{
    const struct settings *settings = userdata;
    const struct link_config config = {
        .endpoint = settings->endpoint,
        .identity_dir = settings->identity_dir,
        .runner_socket = settings->runner_socket,
        .sandbox_id = settings->sandbox_id,
        .vm_id = settings->vm_id ? settings->vm_id : "",
    };
    struct link *link;
    if (program_log(page.program, settings->log_level, settings->log_format, err) < 0 ||
        (*config.vm_id && vm_id_check(config.vm_id, err) < 0) || daemon_prepare(err) < 0 ||
        daemon_drop_privileges(settings->user, err) < 0 || link_new(&config, &link, err) < 0)
        return -1;
    int r = link_run(link, err);
    link_free(link);
    return r;
}

int main(int argc, char **argv)
{
    struct settings settings = { 0 };
    return program_main(&page, argc, argv, &settings, serve);
}
