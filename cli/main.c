/* sandstorm: the command line client. Finds the verb and hands over to cli/cmd_*.c. */
#include "cli/cli.h"

#include "common/program.h"

#include <signal.h>
#include <string.h>

static const struct cli_verb *const verbs[] = { &cli_exec, &cli_ls, &cli_version };

static const struct option options[] = { { 0 } };

static const struct option_verb verb_help[] = {
    { "exec", "SANDBOX -- ARGV...", "Run a command in a sandbox" },
    { "ls", "", "List sandboxes" },
    { "version", "", "Print the version" },
    { 0 },
};

static const char *const environment[] = {
    "SANDSTORM_ENDPOINT",
    "The orchestrator, as HOST:PORT; " CLI_ENDPOINT " if not set",
    "SANDSTORM_IDENTITY",
    "The directory with ca.pem, cert.pem and key.pem",
    NULL,
};

static const char *const examples[] = {
    "sandstorm ls",
    "See what is there",
    "sandstorm exec web-1 -- uname -a",
    "Run a command in the sandbox web-1",
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
    .verbs = verb_help,
    .environment = environment,
    .examples = examples,
};

static int unknown_verb(const char *word)
{
    const char *names[ELEMENTS(verbs) + 1] = { 0 };
    for (size_t i = 0; i < ELEMENTS(verbs); i++)
        names[i] = verbs[i]->name;
    const char *near = nearest_name(word, names);
    struct err err;
    (void)err_set(&err, ERR_INVALID, "there is no verb \"%s\"%s%s%s See 'sandstorm --help'.", word,
                  near ? "; did you mean \"" : ".", near ? near : "", near ? "\"?" : "");
    return program_fail(page.program, &err);
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    int unused = 0, rest = 0;
    /* A peer or a reader that is gone is an error to be told, not a reason to vanish. */
    (void)signal(SIGPIPE, SIG_IGN);
    bool done = false;
    /* For the build: the manual page of a verb. */
    for (size_t i = 0; argc == 3 && strcmp(argv[1], "--man") == 0 && i < ELEMENTS(verbs); i++)
        if (strcmp(verbs[i]->name, argv[2]) == 0) {
            options_man(verbs[i]->page, stdout);
            return 0;
        }
    if (program_parse(&page, argc, argv, &unused, &done, &rest, &err) < 0)
        return program_fail(page.program, &err);
    if (done)
        return 0;
    if (rest >= argc) {
        options_help(&page, stderr);
        return 2;
    }
    for (size_t i = 0; i < ELEMENTS(verbs); i++)
        if (strcmp(verbs[i]->name, argv[rest]) == 0)
            return verbs[i]->run(argc - rest, argv + rest);
    if (strcmp(argv[rest], "help") == 0) {
        options_help(&page, stdout);
        return 0;
    }
    return unknown_verb(argv[rest]);
}
