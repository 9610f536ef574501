/* `sandstorm context`: the logins on this machine. next: cli/context.c. */
#include "cli/context.h"

#include "cli/cli.h"
#include "cli/table.h"
#include "cli/text.h"

#include <stddef.h>

static const struct option no_options[] = { { 0 } };

/* list */

struct list_arguments {
    bool no_headers;
};

static const struct option list_options[] = {
    { "no-headers", 0, OPTION_FLAG, NULL, "Leave the first line out",
      offsetof(struct list_arguments, no_headers), 0, 0 },
    { 0 },
};

static const char *const list_examples[] = {
    "sandstorm context list",
    "The logins on this machine; a star marks the one in use",
    NULL,
};

static const struct option_page list_page = {
    .program = "sandstorm context list",
    .section = 1,
    .summary = "list the logins on this machine",
    .usage = "[OPTION...]",
    .options = list_options,
    .examples = list_examples,
};

static const struct table_column columns[] = {
    { "CURRENT", 7, false, false },
    { "NAME", 0.3, false, false },
    { "ENDPOINT", 0.3, false, false },
    { 0 },
};

static void add_context(void *userdata, const char *name, bool current)
{
    CLEANUP_CONTEXT struct context context = { 0 };
    struct err ignored;
    if (context_load(name, &context, &ignored) == 0)
        table_add(userdata, (const char *[]){ current ? "*" : "", name, context.endpoint });
}

static int act_list(const void *values, char **words, struct sandstorm_error *error)
{
    const struct list_arguments *arguments = values;
    (void)words;
    struct err err = { 0 };
    CLEANUP_TABLE struct table *table = table_new(columns, arguments->no_headers);
    if (context_list(add_context, table, &err) < 0)
        return cli_error(&err, error);
    if (table_is_empty(table))
        (void)fputs("There is no context. 'sandstorm login' makes one.\n", stderr);
    else
        table_print(table);
    return 0;
}

static const struct cli_verb verb_list = {
    .name = "list",
    .alias = "ls",
    .page = &list_page,
    .act = act_list,
    .size = sizeof(struct list_arguments),
};

/* use */

static const char *const use_examples[] = {
    "sandstorm context use staging",
    "Talk to that orchestrator from now on",
    NULL,
};

static const struct option_page use_page = {
    .program = "sandstorm context use",
    .section = 1,
    .summary = "choose the login to use from now on",
    .usage = "NAME",
    .options = no_options,
    .examples = use_examples,
};

static int act_use(const void *values, char **words, struct sandstorm_error *error)
{
    (void)values;
    struct err err = { 0 };
    if (context_use(words[0], &err) < 0)
        return cli_error(&err, error);
    text_print(stdout, "The context is %s now.\n", words[0]);
    return 0;
}

static const struct cli_verb verb_use = {
    .name = "use", .page = &use_page, .act = act_use, .words_min = 1, .words_max = 1
};

static const struct cli_verb *const verbs[] = { &verb_list, &verb_use, NULL };

static const char *const examples[] = {
    "sandstorm context list",
    "The logins on this machine",
    "sandstorm context use staging",
    "Use another one",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm context",
    .section = 1,
    .summary = "the logins on this machine",
    .usage = "VERB [OPTION...]",
    .examples = examples,
};

const struct cli_verb cli_context = { .name = "context", .page = &page, .verbs = verbs };
