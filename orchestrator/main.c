/* sandstorm-orchestrator: the daemon, and the verbs that prepare its state directory. Reads options
 * and settings, then hands over to orchestrator/orchestrator.c or orchestrator/init.c. */
#include "common/config.h"
#include "common/daemon.h"
#include "common/program.h"
#include "common/rpc_diagnose.h"
#include "orchestrator/ca.h"
#include "orchestrator/init.h"
#include "orchestrator/orchestrator.h"

#include <stddef.h>
#include <string.h>

#define SETTINGS_FILE "/etc/sandstorm/orchestrator.yaml"

struct settings {
    char *listen;
    char *state_dir;
    char *user;
    char *log_level;
    char *log_format;
    uint64_t heartbeat_us;
    uint64_t files;
};

static const struct config_key keys[] = {
    { "listen", "SANDSTORM_LISTEN", CONFIG_STRING, offsetof(struct settings, listen), "[::]:5000",
      0, 0, "address and port for agents and clients" },
    { "state_dir", "SANDSTORM_STATE_DIR", CONFIG_STRING, offsetof(struct settings, state_dir),
      "/var/lib/sandstorm/orchestrator", 0, 0, "what `init` made" },
    { "user", NULL, CONFIG_STRING, offsetof(struct settings, user), NULL, 0, 0,
      "the user to become when started as root; empty means to stay" },
    { "heartbeat_interval", NULL, CONFIG_DURATION, offsetof(struct settings, heartbeat_us), "30s",
      100000, 3600000000, "how often agents report" },
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
    const char *trust_domain;
    const char *out;
    struct option_list names;
    uint64_t ttl_us;
};

static const struct option options[] = {
    { "config", 'c', OPTION_STRING, "FILE", "Settings file, instead of " SETTINGS_FILE,
      offsetof(struct arguments, config), 0, 0 },
    { "state-dir", 's', OPTION_STRING, "DIR",
      "Where the CA and the identities are, over the settings",
      offsetof(struct arguments, state_dir), 0, 0 },
    { "listen", 'l', OPTION_STRING, "ADDRESS", "Address and port to serve on, over the settings",
      offsetof(struct arguments, listen), 0, 0 },
    { "trust-domain", 0, OPTION_STRING, "DOMAIN",
      "init: the domain in every identity, sandstorm.local if not given",
      offsetof(struct arguments, trust_domain), 0, 0 },
    { "name", 'n', OPTION_LIST, "NAME",
      "init: a DNS name or address by which agents and clients reach this orchestrator",
      offsetof(struct arguments, names), 0, 0 },
    { "out", 'o', OPTION_STRING, "DIR", "issue-agent, issue-client: the directory to write",
      offsetof(struct arguments, out), 0, 0 },
    { "ttl", 0, OPTION_DURATION, "TIME",
      "issue-agent, issue-client: how long the certificate is valid, 24h if not given",
      offsetof(struct arguments, ttl_us), 1000000, CA_LIFETIME_S * 1000000 },
    { 0 },
};

static const struct option_verb verbs[] = {
    { "serve", "", "Serve agents and clients; what happens without a verb" },
    { "init", "", "Make a CA, the server's certificate and a client certificate for the admin" },
    { "issue-agent", "SANDBOX", "Sign a certificate for the agent of a sandbox" },
    { "issue-client", "NAME", "Sign a certificate for a client" },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm-orchestrator init --name orchestrator.example.com",
    "Prepare /var/lib/sandstorm/orchestrator",
    "sandstorm-orchestrator issue-agent web-1 --out web-1",
    "Make the identity that the agent in the VM web-1 needs",
    NULL,
};

static const char *const environment[] = {
    "SANDSTORM_LISTEN",
    "Address and port to serve on",
    "SANDSTORM_STATE_DIR",
    "Where the CA and the identities are",
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
    const char *argument; /* what follows the verb, or NULL */
};

static const char *state_dir(const struct invocation *call)
{
    return call->arguments->state_dir ? call->arguments->state_dir : call->settings->state_dir;
}

static uint64_t ttl_s(const struct invocation *call)
{
    return call->arguments->ttl_us ? call->arguments->ttl_us / 1000000 : LEAF_LIFETIME_S;
}

static int run_serve(const struct invocation *call, struct err *err)
{
    const struct settings *settings = call->settings;
    const struct orchestrator_config config = {
        .listen = call->arguments->listen ? call->arguments->listen : settings->listen,
        .state_dir = state_dir(call),
        .heartbeat_ms = settings->heartbeat_us / 1000,
    };
    struct orchestrator *orchestrator;
    struct endpoint listen;
    if (endpoint_parse(config.listen, &listen, err) < 0)
        return err_wrap(err, "listen");
    if (program_log(page.program, settings->log_level, settings->log_format, err) < 0 ||
        daemon_prepare(err) < 0 || daemon_raise_files(settings->files, NULL, err) < 0 ||
        daemon_drop_privileges(settings->user, err) < 0 ||
        orchestrator_new(&config, &orchestrator, err) < 0)
        return -1;
    int r = orchestrator_run(orchestrator, err);
    orchestrator_free(orchestrator);
    return r;
}

static int run_init(const struct invocation *call, struct err *err)
{
    const struct arguments *arguments = call->arguments;
    const struct init_config config = {
        .state_dir = state_dir(call),
        .trust_domain = arguments->trust_domain ? arguments->trust_domain : "sandstorm.local",
        .names = arguments->names.items,
        .name_count = arguments->names.count,
    };
    if (init_run(&config, err) < 0)
        return -1;
    (void)printf("Made a CA for %s in %s.\n"
                 "The admin's client identity is %s/clients/admin; keep it secret.\n"
                 "Next: sandstorm-orchestrator issue-agent SANDBOX --out DIR --state-dir %s\n",
                 config.trust_domain, config.state_dir, config.state_dir, config.state_dir);
    return 0;
}

static int need(const struct invocation *call, const char *what, struct err *err)
{
    if (!call->argument)
        return err_set(err, ERR_INVALID, "give the %s; see --help", what);
    if (!call->arguments->out)
        return err_set(err, ERR_INVALID, "say where to write the identity with --out DIR");
    return 0;
}

static int run_issue_agent(const struct invocation *call, struct err *err)
{
    if (need(call, "sandbox's name", err) < 0 ||
        init_issue_agent(state_dir(call), call->argument, call->arguments->out, ttl_s(call), err) <
            0)
        return -1;
    (void)printf("Wrote the identity of sandbox \"%s\" to %s, valid for %llu h.\n"
                 "Copy it to /var/lib/sandstorm/agent/identity on its VM, or where identity_dir "
                 "says.\n",
                 call->argument, call->arguments->out,
                 (unsigned long long)(ttl_s(call) + 3599) / 3600);
    return 0;
}

static int run_issue_client(const struct invocation *call, struct err *err)
{
    if (need(call, "client's name", err) < 0 ||
        init_issue_client(state_dir(call), call->argument, call->arguments->out, ttl_s(call), err) <
            0)
        return -1;
    (void)printf("Wrote the identity of client \"%s\" to %s, valid for %llu h.\n"
                 "Use it with SANDSTORM_IDENTITY.\n",
                 call->argument, call->arguments->out,
                 (unsigned long long)(ttl_s(call) + 3599) / 3600);
    return 0;
}

static const struct {
    const char *name;
    bool takes_argument;
    int (*run)(const struct invocation *call, struct err *err);
} dispatch[] = {
    { "serve", false, run_serve },
    { "init", false, run_init },
    { "issue-agent", true, run_issue_agent },
    { "issue-client", true, run_issue_client },
};

static int run_verb(const char *verb, const struct invocation *call, struct err *err)
{
    const char *names[ELEMENTS(dispatch) + 1] = { 0 };
    for (size_t i = 0; i < ELEMENTS(dispatch); i++) {
        names[i] = dispatch[i].name;
        if (strcmp(dispatch[i].name, verb) != 0)
            continue;
        if (call->argument && !dispatch[i].takes_argument)
            return err_set(err, ERR_INVALID, "\"%s\" is not expected after %s", call->argument,
                           verb);
        return dispatch[i].run(call, err);
    }
    const char *near = nearest_name(verb, names);
    return err_set(err, ERR_INVALID, "there is no verb \"%s\"%s%s%s See --help.", verb,
                   near ? "; did you mean \"" : ".", near ? near : "", near ? "\"?" : "");
}

/* Options may stand before the verb, after it, and after its argument. */
static int parse(int argc, char **argv, struct arguments *arguments, const char **ret_verb,
                 const char **ret_argument, bool *ret_done, struct err *err)
{
    const char *words[2] = { NULL, NULL };
    unsigned count = 0;
    int at = 0;
    for (;;) {
        int rest;
        if (program_parse(&page, argc - at, argv + at, arguments, ret_done, &rest, err) < 0)
            return -1;
        if (*ret_done)
            return 0;
        at += rest;
        if (at >= argc)
            break;
        if (count == ELEMENTS(words))
            return err_set(err, ERR_INVALID, "\"%s\" is not expected here; see --help", argv[at]);
        words[count++] = argv[at];
    }
    *ret_verb = words[0] ? words[0] : "serve";
    *ret_argument = words[1];
    return 0;
}

int main(int argc, char **argv)
{
    struct arguments arguments = { 0 };
    struct settings settings = { 0 };
    struct invocation call = { .arguments = &arguments, .settings = &settings };
    struct err err = { 0 };
    const char *verb = NULL;
    bool done = false;
    int r = parse(argc, argv, &arguments, &verb, &call.argument, &done, &err);
    if (r == 0 && done)
        return 0;
    if (r == 0)
        r = config_load(keys, arguments.config ? arguments.config : SETTINGS_FILE,
                        arguments.config != NULL, &settings, &err);
    if (r == 0)
        r = run_verb(verb, &call, &err);
    config_free(keys, &settings);
    return r < 0 ? program_fail(page.program, &err) : 0;
}
