/* sandstorm-agent: the link between this VM and its orchestrator, and the verbs for its identity.
 * Reads its settings, then hands over to agent/link.c, agent/enroll.c or agent/status.c. */
#include "agent/enroll.h"
#include "agent/link.h"
#include "agent/status.h"
#include "common/clock.h"
#include "common/config.h"
#include "common/daemon.h"
#include "common/front_client.h"
#include "common/ids.h"
#include "common/label.h"
#include "common/program.h"
#include "common/rpc_diagnose.h"

#include <stddef.h>
#include <string.h>

#define SETTINGS_FILE    "/etc/sandstorm/agent.yaml"
#define TOKEN_CREDENTIAL "sandstorm.token" /* systemd.exec(5), LoadCredential= */
#define CA_CREDENTIAL    "sandstorm.ca"
#define PATH_MAX_        4096u

struct settings {
    char *endpoint;
    char *enroll_endpoint;
    char *sandbox_id;
    char *vm_id;
    char *identity_dir;
    char *token_file;
    char *ca_file;
    char *ca_fingerprint;
    char *runner_socket;
    char *status_file;
    char *labels;
    char *user;
    char *log_level;
    char *log_format;
};

static const struct config_key keys[] = {
    { "orchestrator_endpoint", "SANDSTORM_ORCHESTRATOR_ENDPOINT", CONFIG_STRING,
      offsetof(struct settings, endpoint), "localhost:5000", 0, 0,
      "where the agent dials, as HOST:PORT" },
    { "enroll_endpoint", "SANDSTORM_ENROLL_ENDPOINT", CONFIG_STRING,
      offsetof(struct settings, enroll_endpoint), NULL, 0, 0,
      "where it enrols (HTTPS); empty means the same host, and the port after it" },
    { "sandbox_id", "SANDSTORM_SANDBOX_ID", CONFIG_STRING, offsetof(struct settings, sandbox_id),
      NULL, 0, 0,
      "the name to enrol as, and what the certificate must say; empty leaves it to the "
      "token" },
    { "vm_id", "SANDSTORM_VM_ID", CONFIG_STRING, offsetof(struct settings, vm_id), NULL, 0, 0,
      "the cloud's name for this VM" },
    { "identity_dir", "SANDSTORM_IDENTITY", CONFIG_STRING, offsetof(struct settings, identity_dir),
      "/var/lib/sandstorm/agent/identity", 0, 0, "holds ca.pem, cert.pem and key.pem" },
    { "token_file", "SANDSTORM_TOKEN_FILE", CONFIG_STRING, offsetof(struct settings, token_file),
      "/etc/sandstorm/join-token", 0, 0,
      "a join token, to enrol with when there is no identity; removed after use" },
    { "ca_file", "SANDSTORM_CA_FILE", CONFIG_STRING, offsetof(struct settings, ca_file), NULL, 0, 0,
      "the orchestrator's CA, to enrol with" },
    { "ca_fingerprint", "SANDSTORM_CA_FINGERPRINT", CONFIG_STRING,
      offsetof(struct settings, ca_fingerprint), NULL, 0, 0,
      "or only its fingerprint, sha256:..." },
    { "runner_socket", "SANDSTORM_RUNNER_SOCKET", CONFIG_STRING,
      offsetof(struct settings, runner_socket), "/run/sandstorm/runner.sock", 0, 0,
      "the runner's socket" },
    { "status_file", "SANDSTORM_STATUS_FILE", CONFIG_STRING, offsetof(struct settings, status_file),
      "/run/sandstorm/agent/status.json", 0, 0, "what `sandstorm-agent status` reads" },
    { "labels", "SANDSTORM_LABELS", CONFIG_STRING, offsetof(struct settings, labels), NULL, 0, 0,
      "what to select this sandbox by, as KEY=VALUE,KEY=VALUE" },
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
    "SANDSTORM_ENROLL_ENDPOINT",
    "Where it enrols; by default the same host, and the port after it",
    "SANDSTORM_SANDBOX_ID",
    "The name to enrol as, which the certificate must be for",
    "SANDSTORM_VM_ID",
    "The cloud's name for this VM",
    "SANDSTORM_IDENTITY",
    "The directory with ca.pem, cert.pem and key.pem",
    "SANDSTORM_TOKEN_FILE",
    "A file with a join token",
    "SANDSTORM_CA_FILE",
    "The orchestrator's CA",
    "SANDSTORM_CA_FINGERPRINT",
    "Its fingerprint, sha256:...",
    "SANDSTORM_RUNNER_SOCKET",
    "The runner's socket",
    "SANDSTORM_STATUS_FILE",
    "What `sandstorm-agent status` reads",
    "SANDSTORM_LABELS",
    "What to select this sandbox by, as KEY=VALUE,KEY=VALUE",
    "SANDSTORM_LOG_LEVEL",
    "error, warn, info or debug",
    "SANDSTORM_LOG_FORMAT",
    "auto, text, json or journal",
    NULL,
};

struct arguments {
    const char *config;
    const char *endpoint, *enroll_endpoint;
    const char *token_file;
    const char *ca_file, *ca_fingerprint;
    const char *sandbox_id;
    bool json;
};

static const struct option options[] = {
    { "config", 'c', OPTION_STRING, "FILE", "Settings file, instead of " SETTINGS_FILE,
      offsetof(struct arguments, config), 0, 0 },
    { "endpoint", 'e', OPTION_STRING, "HOST:PORT", "The orchestrator, over the settings",
      offsetof(struct arguments, endpoint), 0, 0 },
    { "enroll-endpoint", 0, OPTION_STRING, "HOST:PORT",
      "enroll: its HTTPS front; by default the same host, and the port after it",
      offsetof(struct arguments, enroll_endpoint), 0, 0 },
    { "token-file", 't', OPTION_STRING, "FILE", "enroll: where the join token is",
      offsetof(struct arguments, token_file), 0, 0 },
    { "ca-fingerprint", 0, OPTION_STRING, "SHA256", "enroll: the CA's fingerprint, sha256:...",
      offsetof(struct arguments, ca_fingerprint), 0, 0 },
    { "ca-file", 0, OPTION_STRING, "FILE", "enroll: or the CA itself",
      offsetof(struct arguments, ca_file), 0, 0 },
    { "sandbox", 's', OPTION_STRING, "ID", "enroll: the name to enrol as, if the token allows it",
      offsetof(struct arguments, sandbox_id), 0, 0 },
    { "json", 0, OPTION_FLAG, NULL, "status: as JSON", offsetof(struct arguments, json), 0, 0 },
    { 0 },
};

static const struct option_verb verbs[] = {
    { "serve", "",
      "Connect and stay connected; what happens without a verb. Enrols first when "
      "there is a token and no identity" },
    { "enroll", "", "Get an identity for a join token, now" },
    { "status", "", "Say in words whether this VM is connected, and if not, why" },
    { "prepare-image", "", "Remove what must not be in an image that others are cloned from" },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm-agent enroll --endpoint orchestrator.example.com:5000 --token-file token "
    "--ca-fingerprint sha256:...",
    "Join",
    "sandstorm-agent status",
    "Find out why a VM is offline, on the VM",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm-agent",
    .section = 8,
    .summary = "connect this VM to its Sandstorm orchestrator",
    .usage = "[OPTION...] [VERB]",
    .options = options,
    .verbs = verbs,
    .examples = examples,
    .environment = environment,
    .settings_file = SETTINGS_FILE,
    .settings = keys,
};

/* Settings, options over them, and what follows from both. */
struct invocation {
    struct arguments arguments;
    struct settings settings;
    char front[ENDPOINT_HOST_MAX + 16];
    char token_credential[PATH_MAX_], ca_credential[PATH_MAX_];
    struct enroll_config enroll;
    const char *endpoint;
    bool front_guessed;
};

static const char *either(const char *option, const char *setting)
{
    return option ? option : setting && *setting ? setting : NULL;
}

/* A file that systemd has put there for us, if it has. */
static const char *credential(const char *name, char *path, size_t size)
{
    const char *dir = getenv("CREDENTIALS_DIRECTORY");
    if (!dir || snprintf(path, size, "%s/%s", dir, name) >= (int)size || access(path, R_OK) < 0)
        return NULL;
    return path;
}

static int resolve(struct invocation *call, struct err *err)
{
    const struct arguments *arguments = &call->arguments;
    const struct settings *settings = &call->settings;
    struct enroll_config *enroll = &call->enroll;
    struct endpoint endpoint;
    call->endpoint = either(arguments->endpoint, settings->endpoint);
    if (endpoint_parse(call->endpoint, &endpoint, err) < 0)
        return -1;
    const char *front = either(arguments->enroll_endpoint, settings->enroll_endpoint);
    if (front)
        (void)snprintf(call->front, sizeof(call->front), "%s", front);
    else if (endpoint_next(call->endpoint, call->front, sizeof(call->front), err) < 0)
        return -1;
    call->front_guessed = !front;
    if (endpoint_parse(call->front, &endpoint, err) < 0)
        return err_wrap(err, "enroll_endpoint");
    const char *token =
        credential(TOKEN_CREDENTIAL, call->token_credential, sizeof(call->token_credential));
    const char *ca = credential(CA_CREDENTIAL, call->ca_credential, sizeof(call->ca_credential));
    *enroll = (struct enroll_config){
        .endpoint = call->front,
        .identity_dir = settings->identity_dir,
        .token_file = arguments->token_file ? arguments->token_file
                      : token               ? token
                                            : settings->token_file,
        .ca_file = either(arguments->ca_file, ca ? ca : settings->ca_file),
        .ca_fingerprint = either(arguments->ca_fingerprint, settings->ca_fingerprint),
        .sandbox_id = either(arguments->sandbox_id, settings->sandbox_id),
        .vm_id = either(NULL, settings->vm_id),
        .root = "",
        .timeout_ms = FRONT_TIMEOUT_MS,
    };
    if (enroll->sandbox_id && sandbox_id_check(enroll->sandbox_id, err) < 0)
        return err_wrap(err, "sandbox_id");
    return enroll->vm_id ? vm_id_check(enroll->vm_id, err) : 0;
}

static int run_serve(const void *userdata, const char *argument, struct err *err)
{
    (void)argument;
    const struct invocation *call = userdata;
    const struct settings *settings = &call->settings;
    CLEANUP_FREE char *labels = NULL;
    if (labels_parse(settings->labels ? settings->labels : "", &labels, err) < 0)
        return err_wrap(err, "the setting labels (SANDSTORM_LABELS) must be like env=ci,role=web");
    const struct link_config config = {
        .endpoint = call->endpoint,
        .runner_socket = settings->runner_socket,
        .status_file = settings->status_file,
        .labels = labels,
        .enroll = &call->enroll,
    };
    struct link *link;
    if (program_log(page.program, settings->log_level, settings->log_format, err) < 0 ||
        daemon_prepare(err) < 0 || daemon_drop_privileges(settings->user, err) < 0 ||
        daemon_hide_memory(err) < 0 || link_new(&config, &link, err) < 0)
        return -1;
    int r = link_run(link, err);
    /* Name servers that do not answer can hold the worker for minutes. Nobody needs what it looks
     * for any more: it goes with the process, and nothing is freed under it. */
    if (!link_free(link))
        _exit(r < 0 ? program_fail(page.program, err) : 0);
    return r;
}

static int run_enroll(const void *userdata, const char *argument, struct err *err)
{
    (void)argument;
    const struct invocation *call = userdata;
    struct rpc_creds creds;
    struct identity identity;
    int64_t not_after = 0;
    if (enroll_run(&call->enroll, err) < 0)
        return call->front_guessed && err->code == ERR_UNAVAILABLE
                   ? err_wrap(err, "enrolment is on the port after the endpoint's, unless "
                                   "--enroll-endpoint says otherwise")
                   : -1;
    if (rpc_creds_load(call->enroll.identity_dir, &creds, err) < 0)
        return -1;
    int r = rpc_creds_identity(&creds, &identity, &not_after, err);
    rpc_creds_clear(&creds);
    if (r < 0)
        return -1;
    (void)printf(
        "This VM is sandbox \"%s\" now. Its identity is in %s; the certificate is valid for "
        "%lld h and renews itself.\n"
        "Next: start sandstorm-runner, and (again, if it runs) sandstorm-agent, with\n"
        "SANDSTORM_ORCHESTRATOR_ENDPOINT=%s in its environment, or in " SETTINGS_FILE
        ":\norchestrator_endpoint: %s\n",
        identity.name, call->enroll.identity_dir,
        (long long)(not_after - wall_ms() / 1000 + 1800) / 3600, call->endpoint, call->endpoint);
    return 0;
}

/* Not connected is not an error of this program, but a script may want to know. */
static int run_status(const void *userdata, const char *argument, struct err *err)
{
    (void)argument;
    const struct invocation *call = userdata;
    struct agent_status status;
    if (status_read(call->settings.status_file, &status, err) < 0)
        return err_wrap(err, "sandstorm-agent has not run here since this VM started; start it");
    bool running = status_running(&status);
    int r = call->arguments.json ? status_print_json(&status, running, stdout)
                                 : status_print(&status, running, wall_ms(), stdout);
    (void)fflush(stdout);
    exit(r);
}

static int run_prepare_image(const void *userdata, const char *argument, struct err *err)
{
    (void)argument;
    const struct invocation *call = userdata;
    struct agent_status status;
    struct err none;
    if (status_read(call->settings.status_file, &status, &none) == 0 && status_running(&status))
        return err_set(err, ERR_PRECONDITION,
                       "sandstorm-agent is running here as process %lld; stop it first",
                       (long long)status.pid);
    return enroll_prepare_image(&call->enroll, call->settings.status_file, err);
}

static const struct program_verb dispatch[] = {
    { "serve", false, run_serve },
    { "enroll", false, run_enroll },
    { "status", false, run_status },
    { "prepare-image", false, run_prepare_image },
    { 0 },
};

int main(int argc, char **argv)
{
    static struct invocation call; /* large, and the link keeps pointers into it */
    struct err err = { 0 };
    const char *verb = NULL, *argument = NULL;
    bool done = false;
    int r = program_words(&page, argc, argv, &call.arguments, &verb, &argument, &done, &err);
    if (r == 0 && done)
        return 0;
    const char *file = call.arguments.config ? call.arguments.config : SETTINGS_FILE;
    if (r == 0)
        r = config_load(keys, file, call.arguments.config != NULL, &call.settings, &err);
    if (r == 0)
        r = resolve(&call, &err);
    if (r == 0)
        r = program_dispatch(dispatch, verb ? verb : "serve", argument, &call, &err);
    config_free(keys, &call.settings);
    return r < 0 ? program_fail(page.program, &err) : 0;
}
