/* The options that say what a command is to be like, for the verbs that start one. Main thread. */
#pragma once

#include "cli/cli.h"
#include "cli/units.h"

struct cli_spec_options {
    struct option_list env, rlimits, labels;
    const char *cwd, *user, *group, *umask, *nice, *memory, *cpus, *id;
    uint64_t pids, timeout_us, kill_grace_us, gone_after_us;
    bool best_effort, keep;
};

#define CLI_SPEC_TIME_MAX (365ull * 86400 * 1000000)

#define CLI_SPEC_OPTION(type, member, field, name, letter, kind, argument, help, min, max)         \
    {                                                                                              \
        name, letter, kind, argument, help,                                                        \
            offsetof(type, member) + offsetof(struct cli_spec_options, field), min, max            \
    }
#define CLI_SPEC_OPTIONS(type, member)                                                             \
    CLI_SPEC_OPTION(type, member, env, "env", 'E', OPTION_LIST, "NAME=VALUE",                      \
                    "Set an environment variable", 0, 0),                                          \
        CLI_SPEC_OPTION(type, member, cwd, "cwd", 'C', OPTION_STRING, "DIR",                       \
                        "Start in this directory of the sandbox", 0, 0),                           \
        CLI_SPEC_OPTION(type, member, user, "user", 'u', OPTION_STRING, "USER",                    \
                        "Run as this user of the sandbox, by name or number", 0, 0),               \
        CLI_SPEC_OPTION(type, member, group, "group", 'g', OPTION_STRING, "GROUP",                 \
                        "Run as this group, instead of the user's own", 0, 0),                     \
        CLI_SPEC_OPTION(type, member, umask, "umask", 0, OPTION_STRING, "OCTAL",                   \
                        "Permissions that new files do not get, like 027", 0, 0),                  \
        CLI_SPEC_OPTION(type, member, nice, "nice", 0, OPTION_STRING, "NUMBER",                    \
                        "Niceness, -20 to 19", 0, 0),                                              \
        CLI_SPEC_OPTION(type, member, rlimits, "rlimit", 0, OPTION_LIST, "NAME=SOFT[:HARD]",       \
                        "Set a limit of setrlimit(2), like nofile=1024", 0, 0),                    \
        CLI_SPEC_OPTION(type, member, memory, "memory", 'm', OPTION_STRING, "SIZE",                \
                        "All of its processes get at most so much memory: 512M, 2G", 0, 0),        \
        CLI_SPEC_OPTION(type, member, cpus, "cpus", 0, OPTION_STRING, "NUMBER",                    \
                        "And at most so many CPUs: 1.5", 0, 0),                                    \
        CLI_SPEC_OPTION(type, member, pids, "pids", 0, OPTION_UINT, "COUNT",                       \
                        "And are at most so many", 1, 4194304),                                    \
        CLI_SPEC_OPTION(type, member, best_effort, "best-effort", 0, OPTION_FLAG, NULL,            \
                        "Start also where the kernel cannot enforce these limits, and say so", 0,  \
                        0),                                                                        \
        CLI_SPEC_OPTION(type, member, timeout_us, "timeout", 'T', OPTION_DURATION, "TIME",         \
                        "Kill the command after this long: 500ms, 30s, 15m", 1000,                 \
                        CLI_SPEC_TIME_MAX),                                                        \
        CLI_SPEC_OPTION(type, member, kill_grace_us, "kill-grace", 0, OPTION_DURATION, "TIME",     \
                        "Between TERM and KILL, when it is killed", 1000, CLI_SPEC_TIME_MAX),      \
        CLI_SPEC_OPTION(type, member, labels, "label", 'l', OPTION_LIST, "KEY=VALUE",              \
                        "Label the command, for 'sandstorm ps -l'", 0, 0),                         \
        CLI_SPEC_OPTION(type, member, id, "id", 0, OPTION_STRING, "UUID",                          \
                        "Use this command id; a known one is attached to, not run twice", 0, 0),   \
        CLI_SPEC_OPTION(type, member, keep, "keep", 'k', OPTION_FLAG, NULL,                        \
                        "Let the command go on when no client is attached any more", 0, 0),        \
        CLI_SPEC_OPTION(type, member, gone_after_us, "gone-after", 0, OPTION_DURATION, "TIME",     \
                        "Stop it when no client has been attached for so long", 1000,              \
                        CLI_SPEC_TIME_MAX)

/* What was said, in the library's words. Points into the options and itself: not to be moved. */
struct cli_spec {
    struct sandstorm_spec spec;
    struct sandstorm_rlimit rlimits[OPTION_LIST_MAX];
    char names[OPTION_LIST_MAX][UNITS_RLIMIT_NAME_MAX];
    const char *env[OPTION_LIST_MAX + 1];
    char *labels;
};

/* What becomes of a command whose client is gone is the caller's, unless an option says it. */
int cli_spec_fill(const struct cli_spec_options *options, struct cli_spec *ret,
                  struct err *err) must_use;
void cli_spec_done(struct cli_spec *spec);
#define CLEANUP_SPEC CLEANUP(cli_spec_done)
