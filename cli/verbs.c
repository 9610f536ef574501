/* The tree of verbs, its root's page, and nothing else: cli/main.c runs it, and the tests walk it.
 * Groups hang their own verbs below them, in cli/cmd_*.c. */
#include "cli/cli.h"

static const struct option options[] = { { 0 } };

static const struct cli_verb *const verbs[] = {
    &cli_attach, &cli_audit,   &cli_client,  &cli_context, &cli_describe,   &cli_drain,
    &cli_exec,   &cli_kill,    &cli_label,   &cli_login,   &cli_logs,       &cli_ls,
    &cli_output, &cli_ps,      &cli_rm,      &cli_sandbox, &cli_shell,      &cli_token,
    &cli_top,    &cli_undrain, &cli_version, &cli_wait,    &cli_wait_ready, &cli_watch,
    &cli_whoami, &cli_why,     NULL,
};

static const char *const environment[] = {
    "SANDSTORM_ENDPOINT",
    "The orchestrator, as HOST:PORT; else the current context's, else " CLI_ENDPOINT,
    "SANDSTORM_IDENTITY",
    "The directory with ca.pem, cert.pem and key.pem; else the current context's",
    "SANDSTORM_CONTEXT",
    "The login to use, instead of the current one; 'sandstorm context list' shows them",
    "SANDSTORM_LOGIN_KEY",
    "The key for 'sandstorm login'",
    "XDG_CONFIG_HOME",
    "Where sandstorm/contexts is; ~/.config if not set",
    NULL,
};

static const char *const examples[] = {
    "sandstorm login orchestrator.example.com:5000 --key-file key --ca-fingerprint sha256:...",
    "Log in once; an admin makes the key with 'sandstorm client add'",
    "sandstorm ls",
    "See what is there",
    "sandstorm exec web-1 -- uname -a",
    "Run a command in the sandbox web-1",
    "sandstorm shell web-1",
    "Open a shell there",
    "sandstorm why web-1",
    "Why it cannot, and what to do",
    "sandstorm exec --help",
    "All about one verb",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm",
    .section = 1,
    .summary = "run commands in VMs without SSH",
    .usage = "VERB [OPTION...] [ARGUMENT...]",
    .options = options,
    .environment = environment,
    .examples = examples,
};

const struct cli_verb cli_root = { .name = "sandstorm", .page = &page, .verbs = verbs };
