/* The command line client: one table of verbs (cli/main.c), a file for each verb. */
#pragma once

#include "client/sandstorm.h"
#include "common/options.h"

#define CLI_ENDPOINT "localhost:5000"

/* Options that every verb has. */
struct cli_common {
    const char *endpoint;
    const char *identity;
};

#define CLI_COMMON_OPTIONS(type, member)                                                           \
    { "endpoint",                                                                                  \
      'e',                                                                                         \
      OPTION_STRING,                                                                               \
      "HOST:PORT",                                                                                 \
      "The orchestrator, instead of $SANDSTORM_ENDPOINT or " CLI_ENDPOINT,                         \
      offsetof(type, member) + offsetof(struct cli_common, endpoint),                              \
      0,                                                                                           \
      0 },                                                                                         \
    {                                                                                              \
        "identity", 'i', OPTION_STRING, "DIR",                                                     \
            "Where ca.pem, cert.pem and key.pem are, instead of $SANDSTORM_IDENTITY",              \
            offsetof(type, member) + offsetof(struct cli_common, identity), 0, 0                   \
    }

/* A verb: gets its own name as argv[0]; the result is the exit status. */
struct cli_verb {
    const char *name;
    const struct option_page *page;
    int (*run)(int argc, char **argv);
};

extern const struct cli_verb cli_exec, cli_ls, cli_version;

int cli_connect(const struct cli_common *common, struct sandstorm_client **ret,
                struct sandstorm_error *error);
/* One sentence on stderr. */
void cli_complain(const char *text);
