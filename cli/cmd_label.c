/* `sandstorm label`: the labels of a sandbox that operators give it; scopes and selectors go by
 * them. next: client/fleet.c. */
#include "cli/cli.h"
#include "cli/text.h"

#include "common/label.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define CHANGES_MAX LABELS_MAX

struct arguments {
    struct cli_common common;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { 0 },
};

static const char *const examples[] = {
    "sandstorm label web-1 env=prod role=web",
    "Give it two labels, or change them",
    "sandstorm label web-1 canary-",
    "Take one away",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm label",
    .section = 1,
    .summary = "give a sandbox labels, or take them away",
    .usage = "[OPTION...] SANDBOX KEY=VALUE|KEY-...",
    .options = options,
    .examples = examples,
};

struct changes {
    char *set;                           /* in the form of common/label.h */
    const char *remove[CHANGES_MAX + 1]; /* names, NULL-ended */
    char names[CHANGES_MAX][LABEL_KEY_MAX + 1];
    unsigned removed;
};

static void changes_done(struct changes *changes)
{
    free(changes->set);
}

static int parse_removal(struct changes *changes, const char *word, struct err *err)
{
    size_t size = strlen(word) - 1;
    char *name = changes->names[changes->removed];
    if (size > LABEL_KEY_MAX)
        return err_set(err, ERR_INVALID, "\"%.80s\" is too long for a label's name", word);
    (void)snprintf(name, LABEL_KEY_MAX + 1, "%.*s", (int)size, word);
    if (label_check(name, "x", err) < 0)
        return err_wrap(err, "\"%.80s\"", word);
    changes->remove[changes->removed++] = name;
    return 0;
}

static int parse_changes(char **words, struct changes *changes, struct err *err)
{
    for (; *words; words++) {
        const char *word = *words;
        size_t size = strlen(word);
        bool removal = size > 1 && word[size - 1] == '-' && !strchr(word, '=');
        if (!removal && !strchr(word, '='))
            return err_set(
                err, ERR_INVALID,
                "\"%.80s\" is no change: write KEY=VALUE to set a label, KEY- to take it "
                "away",
                word);
        if ((removal ? parse_removal(changes, word, err)
                     : labels_add_text(&changes->set, word, err)) < 0)
            return -1;
    }
    char key[LABEL_KEY_MAX + 1], value[LABEL_VALUE_MAX + 1];
    const char *position = changes->set ? changes->set : "";
    while (labels_next(&position, key, value))
        for (unsigned i = 0; i < changes->removed; i++)
            if (strcmp(changes->remove[i], key) == 0)
                return err_set(err, ERR_INVALID,
                               "\"%s\" is both set and taken away; decide for one", key);
    return 0;
}

static void on_labelled(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    (void)userdata;
    text_print(stdout, "%s: %s\n", sandbox->id, *sandbox->labels ? sandbox->labels : "no labels");
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    struct err err = { 0 };
    CLEANUP(changes_done) struct changes changes = { 0 };
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    if (parse_changes(words + 1, &changes, &err) < 0)
        return cli_error(&err, error);
    return cli_connect(&arguments->common, &client, error) < 0
               ? -1
               : sandstorm_sandbox_label(client, words[0], changes.set, changes.remove, on_labelled,
                                         NULL, error);
}

const struct cli_verb cli_label = {
    .name = "label",
    .page = &page,
    .act = act,
    .size = sizeof(struct arguments),
    .words_min = 2,
    .words_max = 1 + CHANGES_MAX,
};
