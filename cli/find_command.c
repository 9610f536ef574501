/* Abbreviated ids. Called by the verbs that are about a command; next: client/commands.c, whose
 * list is looked through. */
#include "cli/find_command.h"

#include "cli/cli.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 3u /* of those that are meant, when there are several */

struct search {
    char prefix[COMMAND_ID_LEN + 1];
    size_t length;
    unsigned matches, looked;
    struct found_command found[SHOWN_MAX];
};

static bool on_command(void *userdata, const struct sandstorm_command *command)
{
    struct search *search = userdata;
    struct err err;
    struct command_id id;
    if (strncmp(command->id, search->prefix, search->length) == 0 &&
        command_id_parse(command->id, &id, &err) == 0) {
        if (search->matches < SHOWN_MAX) {
            struct found_command *found = &search->found[search->matches];
            *found = (struct found_command){ .id = id,
                                             .state = command->state,
                                             .terminal = command->terminal };
            (void)snprintf(found->sandbox, sizeof(found->sandbox), "%s", command->sandbox);
        }
        search->matches++;
    }
    return ++search->looked < FIND_COMMAND_LOOK && search->matches <= SHOWN_MAX;
}

/* Upper case is what some programs make of an id. */
static int take_prefix(const char *word, struct search *search, struct err *err)
{
    size_t length = strlen(word);
    bool good = length >= FIND_COMMAND_MIN && length <= COMMAND_ID_LEN;
    for (size_t i = 0; good && i < length; i++) {
        search->prefix[i] = (char)tolower((unsigned char)word[i]);
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        good = dash ? word[i] == '-' : isxdigit((unsigned char)word[i]) != 0;
    }
    search->length = length;
    if (good)
        return 0;
    return err_set(err, ERR_INVALID,
                   "\"%.64s\" is not the id of a command, nor the first %u characters or more of "
                   "one; 'sandstorm ps -a' lists them",
                   word, FIND_COMMAND_MIN);
}

static int several(const struct search *search, struct err *err)
{
    char list[SHOWN_MAX * (COMMAND_ID_LEN + 2) + 8];
    size_t used = 0;
    for (unsigned i = 0; i < MIN(search->matches, SHOWN_MAX); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
                                 search->found[i].id.text);
    if (search->matches > SHOWN_MAX)
        (void)snprintf(list + used, sizeof(list) - used, ", ...");
    return err_set(err, ERR_INVALID, "several commands begin with \"%s\": %s; write more of the id",
                   search->prefix, list);
}

int find_command(struct sandstorm_client *client, const char *word, struct found_command *ret,
                 struct sandstorm_error *error)
{
    struct search search = { 0 };
    struct err err = { 0 };
    if (take_prefix(word, &search, &err) < 0)
        return cli_error(&err, error);
    const struct sandstorm_commands_options commands = {
        .command_id = search.length == COMMAND_ID_LEN ? search.prefix : NULL,
        .each = on_command,
        .userdata = &search,
    };
    if (sandstorm_commands(client, &commands, error) < 0)
        return -1;
    if (search.matches == 0)
        (void)err_set(&err, ERR_NOT_FOUND,
                      "no command that you may see %s \"%s\"; 'sandstorm ps -a' lists them",
                      commands.command_id ? "has the id" : "begins with", search.prefix);
    else if (search.matches > 1)
        (void)several(&search, &err);
    if (err.code != ERR_NONE)
        return cli_error(&err, error);
    *ret = search.found[0];
    return 0;
}
