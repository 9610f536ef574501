/* The command line client: one tree of verbs (cli/verbs.c), a file for each verb or group of them
 * (cli/cmd_*.c), and what the verbs share. Main thread. */
#pragma once

#include "client/sandstorm.h"
#include "common/options.h"

#define CLI_ENDPOINT "localhost:5000"

/* Options of every verb that talks to an orchestrator. */
struct cli_common {
    const char *endpoint;
    const char *identity;
    const char *context;
};

#define CLI_COMMON_OPTION(type, member, field, letter, argument, help)                             \
    {                                                                                              \
#field, letter, OPTION_STRING, argument, help,                                             \
            offsetof(type, member) + offsetof(struct cli_common, field), 0, 0                      \
    }
#define CLI_COMMON_OPTIONS(type, member)                                                           \
    CLI_COMMON_OPTION(type, member, endpoint, 'e', "HOST:PORT",                                    \
                      "The orchestrator, instead of $SANDSTORM_ENDPOINT or the context's"),        \
        CLI_COMMON_OPTION(type, member, identity, 'i', "DIR",                                      \
                          "Where ca.pem, cert.pem and key.pem are, instead of "                    \
                          "$SANDSTORM_IDENTITY or the context's"),                                 \
        CLI_COMMON_OPTION(type, member, context, 0, "NAME",                                        \
                          "Use this login, instead of $SANDSTORM_CONTEXT or the current one")

/* A verb of its own (run), one that cli_run() parses for (act), or a group (verbs). */
struct cli_verb {
    const char *name;
    const char *alias; /* NULL, or a second name, which help does not list */
    const struct option_page *page;
    /* Gets its own name as argv[0]; the result is the exit status. */
    int (*run)(int argc, char **argv);
    /* Gets `size` bytes that the page's options have filled, and the words between them,
     * NULL-ended. The exit status, or -1 and the error. */
    int (*act)(const void *arguments, char **words, struct sandstorm_error *error);
    size_t size;
    unsigned words_min, words_max;
    const struct cli_verb *const *verbs; /* NULL-ended */
};

extern const struct cli_verb cli_root;
extern const struct cli_verb cli_attach, cli_audit, cli_client, cli_context, cli_describe,
    cli_drain, cli_exec, cli_kill, cli_label, cli_login, cli_logs, cli_ls, cli_output, cli_ps,
    cli_rm, cli_sandbox, cli_shell, cli_token, cli_top, cli_undrain, cli_version, cli_wait,
    cli_wait_ready, cli_watch, cli_whoami, cli_why;

/* Finds the verb in the tree and runs it; the exit status. */
int cli_run(const struct cli_verb *verb, int argc, char **argv);
/* Of a verb or a group, with the list of what is below it. */
void cli_help(const struct cli_verb *verb, FILE *out);
void cli_man(const struct cli_verb *verb, FILE *out);
/* The verb whose manual page has this title, "sandstorm-token-create", or NULL. */
const struct cli_verb *cli_find_page(const struct cli_verb *verb, const char *title);

/* With the login that the options, the environment or the current context say, renewed when it is
 * time. */
int cli_connect(const struct cli_common *common, struct sandstorm_client **ret,
                struct sandstorm_error *error);
/* A label set as options of a command line: " --scope env=ci --scope role=web". To be freed; NULL
 * when there is no memory. */
char *cli_label_options(const char *option, const char *labels);
/* One sentence on stderr, made harmless for a terminal. */
void cli_complain(const char *text);
int cli_error(const struct err *err, struct sandstorm_error *ret);

static inline void cli_client_cleanup(struct sandstorm_client **client)
{
    sandstorm_client_free(*client);
}
#define CLEANUP_SANDSTORM CLEANUP(cli_client_cleanup)
