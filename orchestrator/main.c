/* sandstorm-orchestrator: the daemon, and the verbs that prepare its state directory. Reads options
 * and settings, then hands over to orchestrator/orchestrator.c or orchestrator/init.c. */
#include "common/config.h"
#include "common/daemon.h"
#include "common/program.h"
#include "common/rpc_diagnose.h"
#include "orchestrator/ca.h"
#include "orchestrator/init.h"
#include "orchestrator/orchestrator.h"
#include "orchestrator/state_verbs.h"
#include "orchestrator/store.h"

#include <stddef.h>
#include <string.h>

#define SETTINGS_FILE "/etc/sandstorm/orchestrator.yaml"

struct settings {
    char *listen;
    char *http_listen;
    char *state_dir;
    char *user;
    char *log_level;
    char *log_format;
    uint64_t heartbeat_us;
    uint64_t offline_slack_us, evict_us, amnesty_us;
    uint64_t output_mib, command_output_mib, output_age_us;
    uint64_t lifetime_us;
    uint64_t window_us;
    uint64_t files;
    bool penalties;
};

static const struct config_key keys[] = {
    { "listen", "SANDSTORM_LISTEN", CONFIG_STRING, offsetof(struct settings, listen), "[::]:5000",
      0, 0, "address and port for agents and clients" },
    { "http_listen", "SANDSTORM_HTTP_LISTEN", CONFIG_STRING, offsetof(struct settings, http_listen),
      NULL, 0, 0,
      "address and port for enrolment, login and health checks (HTTPS); empty means the port after "
      "`listen`" },
    { "state_dir", "SANDSTORM_STATE_DIR", CONFIG_STRING, offsetof(struct settings, state_dir),
      "/var/lib/sandstorm/orchestrator", 0, 0, "what `init` made" },
    { "user", NULL, CONFIG_STRING, offsetof(struct settings, user), NULL, 0, 0,
      "the user to become when started as root; empty means to stay" },
    { "heartbeat_interval", NULL, CONFIG_DURATION, offsetof(struct settings, heartbeat_us), "30s",
      100000, 3600000000, "how often agents report; longer in a large fleet" },
    { "offline_slack", NULL, CONFIG_DURATION, offsetof(struct settings, offline_slack_us), "15s", 0,
      3600000000,
      "how long on top of three heartbeats a sandbox may be silent before it is offline" },
    { "evict_after", NULL, CONFIG_DURATION, offsetof(struct settings, evict_us), "10m", 0,
      31536000000000, "how long a sandbox is offline before it is evicted" },
    { "amnesty", NULL, CONFIG_DURATION, offsetof(struct settings, amnesty_us), "5m", 0, 86400000000,
      "how long after the start no sandbox is judged by its silence" },
    { "output_disk", NULL, CONFIG_UINT, offsetof(struct settings, output_mib), "4096", 64, 1u << 30,
      "MiB of disk for the output of commands; the oldest goes" },
    { "output_of_command", NULL, CONFIG_UINT, offsetof(struct settings, command_output_mib), "64",
      1, 1u << 20, "MiB of output that are kept of one command, the last ones" },
    { "output_age", NULL, CONFIG_DURATION, offsetof(struct settings, output_age_us), "7d", 60000000,
      31536000000000, "how long the output of commands is kept" },
    { "certificate_lifetime", NULL, CONFIG_DURATION, offsetof(struct settings, lifetime_us), "24h",
      10000000, 31536000000000, "how long the certificates of agents and clients are valid" },
    { "renewal_window", NULL, CONFIG_DURATION, offsetof(struct settings, window_us), "7d", 0,
      31536000000000, "how long after its end a certificate can still be renewed" },
    { "source_penalties", NULL, CONFIG_BOOL, offsetof(struct settings, penalties), "true", 0, 0,
      "refuse addresses for a while that keep offering wrong tokens or keys" },
    { "open_files", NULL, CONFIG_UINT, offsetof(struct settings, files), "1024", 64, 1000000,
      "refuse to start with a lower limit of open files; an agent takes one" },
    { "log_level", "SANDSTORM_LOG_LEVEL", CONFIG_STRING, offsetof(struct settings, log_level),
      "info", 0, 0, "error, warn, info or debug" },
    { "log_format", "SANDSTORM_LOG_FORMAT", CONFIG_STRING, offsetof(struct settings, log_format),
      "auto", 0, 0, "auto, text, json or journal" },
    { 0 },
};

struct arguments {
    const char *config;
    const char *state_dir;
    const char *listen;
    const char *http_listen;
    const char *trust_domain;
    struct option_list names;
    bool finish, force;
};

static const struct option options[] = {
    { "config", 'c', OPTION_STRING, "FILE", "Settings file, instead of " SETTINGS_FILE,
      offsetof(struct arguments, config), 0, 0 },
    { "state-dir", 's', OPTION_STRING, "DIR", "Where the CA and the store are, over the settings",
      offsetof(struct arguments, state_dir), 0, 0 },
    { "listen", 'l', OPTION_STRING, "ADDRESS", "Address and port to serve on, over the settings",
      offsetof(struct arguments, listen), 0, 0 },
    { "http-listen", 0, OPTION_STRING, "ADDRESS",
      "Address and port of the HTTPS front, over the settings",
      offsetof(struct arguments, http_listen), 0, 0 },
    { "trust-domain", 0, OPTION_STRING, "DOMAIN",
      "init: the domain in every identity, sandstorm.local if not given",
      offsetof(struct arguments, trust_domain), 0, 0 },
    { "name", 'n', OPTION_LIST, "NAME",
      "init: a DNS name or address by which agents and clients reach this orchestrator",
      offsetof(struct arguments, names), 0, 0 },
    { "finish", 0, OPTION_FLAG, NULL,
      "ca rotate: let the old CA go, when every agent and client has renewed",
      offsetof(struct arguments, finish), 0, 0 },
    { "force", 0, OPTION_FLAG, NULL,
      "ca rotate --finish: also before all certificates of the old CA have ended",
      offsetof(struct arguments, force), 0, 0 },
    { 0 },
};

static const struct option_verb verbs[] = {
    { "serve", "", "Serve agents and clients; what happens without a verb" },
    { "init", "", "Make a CA, the server's certificate and a client certificate for the admin" },
    { "fingerprint", "", "Print the CA's fingerprint, by which agents and clients know it" },
    { "ca", "rotate",
      "Begin to replace the CA; with --finish, end it. Stop the orchestrator first" },
    { "recover", "NAME", "Make a new identity for an admin, when all others are lost" },
    { "backup", "FILE", "Save the CA, the server's identity and the database, also while serving" },
    { "restore", "FILE", "Make a state directory of a backup, where there is none" },
    { "repair", "", "Make a new database of what can still be read of a damaged one" },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm-orchestrator init --name orchestrator.example.com",
    "Prepare /var/lib/sandstorm/orchestrator",
    "sandstorm-orchestrator ca rotate",
    "Make a new CA; the old one stays valid until 'ca rotate --finish'",
    "sandstorm-orchestrator backup /backups/$(date +%F)",
    "Save everything in one file, while the orchestrator runs",
    NULL,
};

static const char *const environment[] = {
    "SANDSTORM_LISTEN",
    "Address and port to serve on",
    "SANDSTORM_HTTP_LISTEN",
    "Address and port of the HTTPS front",
    "SANDSTORM_STATE_DIR",
    "Where the CA, the identities and the store are",
    "SANDSTORM_LOG_LEVEL",
    "error, warn, info or debug",
    "SANDSTORM_LOG_FORMAT",
    "auto, text, json or journal",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm-orchestrator",
    .section = 8,
    .summary = "route commands to Sandstorm sandboxes",
    .usage = "[OPTION...] [VERB [ARGUMENT]]",
    .options = options,
    .verbs = verbs,
    .examples = examples,
    .environment = environment,
    .settings_file = SETTINGS_FILE,
    .settings = keys,
};

/* Everything a verb may need. */
struct invocation {
    const struct arguments *arguments;
    const struct settings *settings;
};

static const char *state_dir(const struct invocation *call)
{
    return call->arguments->state_dir ? call->arguments->state_dir : call->settings->state_dir;
}

static int run_serve(const void *userdata, const char *argument, struct err *err)
{
    (void)argument;
    const struct invocation *call = userdata;

    const struct settings *settings = call->settings;
    struct orchestrator_config config = {
        .listen = call->arguments->listen ? call->arguments->listen : settings->listen,
        .http_listen =
            call->arguments->http_listen ? call->arguments->http_listen : settings->http_listen,
        .state_dir = state_dir(call),
        .heartbeat_us = settings->heartbeat_us,
        .offline_slack_us = settings->offline_slack_us,
        .evict_us = settings->evict_us,
        .amnesty_us = settings->amnesty_us,
        .lifetime_s = settings->lifetime_us / 1000000,
        .window_s = settings->window_us / 1000000,
        .penalties = settings->penalties,
        .output_total = settings->output_mib << 20,
        .output_command = settings->command_output_mib << 20,
        .output_age_us = settings->output_age_us,
    };
    struct orchestrator *orchestrator;
    struct endpoint listen;
    char next[ENDPOINT_HOST_MAX + 16];
    if (endpoint_parse(config.listen, &listen, err) < 0)
        return err_wrap(err, "listen");
    if (!config.http_listen) {
        if (endpoint_next(config.listen, next, sizeof(next), err) < 0)
            return err_wrap(err, "http_listen");
        config.http_listen = next;
    }
    if (endpoint_parse(config.http_listen, &listen, err) < 0)
        return err_wrap(err, "http_listen");
    if (program_log(page.program, settings->log_level, settings->log_format, err) < 0 ||
        daemon_prepare(err) < 0 || daemon_raise_files(settings->files, NULL, err) < 0 ||
        daemon_drop_privileges(settings->user, err) < 0 || daemon_hide_memory(err) < 0 ||
        orchestrator_new(&config, &orchestrator, err) < 0)
        return -1;
    int r = orchestrator_run(orchestrator, err);
    orchestrator_free(orchestrator);
    return r;
}

static int run_init(const void *userdata, const char *argument, struct err *err)
{
    (void)argument;
    const struct invocation *call = userdata;

    const struct arguments *arguments = call->arguments;
    const struct init_config config = {
        .state_dir = state_dir(call),
        .trust_domain = arguments->trust_domain ? arguments->trust_domain : "sandstorm.local",
        .names = arguments->names.items,
        .name_count = arguments->names.count,
    };
    if (init_run(&config, err) < 0)
        return -1;
    char fingerprint[INIT_FINGERPRINT_MAX];
    if (init_fingerprint(config.state_dir, fingerprint, err) < 0)
        return -1;
    (void)printf("Made a CA for %s in %s.\n"
                 "Its fingerprint, for agents and clients to know it by: %s\n"
                 "The admin's client identity is %s/clients/admin; keep it secret.\n"
                 "Next: start 'sandstorm-orchestrator', then let a VM join with a token from\n"
                 "'sandstorm token create --identity %s/clients/admin'.\n",
                 config.trust_domain, config.state_dir, fingerprint, config.state_dir,
                 config.state_dir);
    return 0;
}

static int run_fingerprint(const void *userdata, const char *argument, struct err *err)
{
    (void)argument;
    const struct invocation *call = userdata;

    char fingerprint[INIT_FINGERPRINT_MAX];
    if (init_fingerprint(state_dir(call), fingerprint, err) < 0)
        return -1;
    (void)printf("%s\n", fingerprint);
    return 0;
}

static int run_recover(const void *userdata, const char *argument, struct err *err)
{
    const struct invocation *call = userdata;

    if (!argument)
        return err_set(err, ERR_INVALID, "give the admin's name; see --help");
    if (init_recover(state_dir(call), argument, err) < 0)
        return -1;
    (void)printf("\"%s\" is an admin now, whatever it was before; its identity is %s/clients/%s.\n"
                 "Earlier certificates of that name do not count any more. Next: start the "
                 "orchestrator, and use it with --identity.\n",
                 argument, state_dir(call), argument);
    return 0;
}

/* All certificates of the old CA have ended, or could be renewed no more. */
static uint64_t overlap_s(const struct invocation *call)
{
    const struct settings *settings = call->settings;
    return call->arguments->force ? 0 : (settings->lifetime_us + settings->window_us) / 1000000;
}

static int run_ca(const void *userdata, const char *argument, struct err *err)
{
    const struct invocation *call = userdata;

    const char *dir = state_dir(call);
    CLEANUP_STORE struct store *lock = NULL; /* nobody else may be at work there */
    if (!argument || strcmp(argument, "rotate") != 0)
        return err_set(err, ERR_INVALID, "say what to do with the CA: ca rotate");
    if (store_open(dir, NULL, &lock, err) < 0)
        return -1;
    if (call->arguments->finish) {
        if (ca_rotate_finish(dir, overlap_s(call), err) < 0)
            return -1;
        (void)printf("The old CA is gone; the orchestrator's certificate is of the new one. Start "
                     "the orchestrator.\nTokens and images need the new fingerprint: "
                     "'sandstorm-orchestrator fingerprint'.\n");
        return 0;
    }
    if (ca_rotate_begin(dir, err) < 0)
        return -1;
    (void)printf("There is a new CA, and both are trusted. Start the orchestrator: agents and "
                 "clients get the new one as they renew.\nIn %llu h all of them will have: then "
                 "stop it again and run 'sandstorm-orchestrator ca rotate --finish'.\n",
                 (unsigned long long)(overlap_s(call) + 3599) / 3600);
    return 0;
}

static int run_backup(const void *userdata, const char *argument, struct err *err)
{
    return state_verb_backup(state_dir(userdata), argument, err);
}

static int run_restore(const void *userdata, const char *argument, struct err *err)
{
    return state_verb_restore(state_dir(userdata), argument, err);
}

static int run_repair(const void *userdata, const char *argument, struct err *err)
{
    (void)argument;
    return state_verb_repair(state_dir(userdata), err);
}

static const struct program_verb dispatch[] = {
    { "serve", false, run_serve },
    { "init", false, run_init },
    { "fingerprint", false, run_fingerprint },
    { "ca", true, run_ca },
    { "recover", true, run_recover },
    { "backup", true, run_backup },
    { "restore", true, run_restore },
    { "repair", false, run_repair },
    { 0 },
};

int main(int argc, char **argv)
{
    struct arguments arguments = { 0 };
    struct settings settings = { 0 };
    const struct invocation call = { .arguments = &arguments, .settings = &settings };
    struct err err = { 0 };
    const char *verb = NULL, *argument = NULL;
    bool done = false;
    int r = program_words(&page, argc, argv, &arguments, &verb, &argument, &done, &err);
    if (r == 0 && done)
        return 0;
    if (r == 0)
        r = config_load(keys, arguments.config ? arguments.config : SETTINGS_FILE,
                        arguments.config != NULL, &settings, &err);
    if (r == 0)
        r = program_dispatch(dispatch, verb ? verb : "serve", argument, &call, &err);
    config_free(keys, &settings);
    return r < 0 ? program_fail(page.program, &err) : 0;
}
