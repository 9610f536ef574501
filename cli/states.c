/* A set of states as people write it. Called by cli/cmd_ls.c and cli/cmd_ps.c. */
#include "cli/states.h"

#include "client/sandstorm.h"
#include "common/options.h"

#include <stdio.h>
#include <string.h>

#define STATE_NAME_MAX 16u
#define LIST_MAX       80u

/* "online, suspect and offline" */
static void list_names(const char *const *names, char out[LIST_MAX])
{
    size_t used = 0;
    for (size_t i = 0; names[i] && used < LIST_MAX; i++)
        used += (size_t)snprintf(out + used, LIST_MAX - used, "%s%s",
                                 i == 0         ? ""
                                 : names[i + 1] ? ", "
                                                : " and ",
                                 names[i]);
}

int states_parse(const char *text, const char *const *names, unsigned *ret, struct err *err)
{
    unsigned states = 0;
    while (text && *text) {
        size_t size = strcspn(text, ","), i = 0;
        char name[STATE_NAME_MAX], list[LIST_MAX];
        (void)snprintf(name, sizeof(name), "%.*s", (int)MIN(size, STATE_NAME_MAX - 1), text);
        while (names[i] && strcmp(names[i], name) != 0)
            i++;
        if (!names[i]) {
            const char *near = nearest_name(name, names);
            list_names(names, list);
            return err_set(err, ERR_INVALID, "--state: \"%.64s\" is none%s%s%s; there are %s", name,
                           near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "",
                           list);
        }
        states |= SANDSTORM_STATE_BIT(i + 1);
        text += size + (text[size] == ',');
    }
    if (text && states == 0)
        return err_set(err, ERR_INVALID, "--state is empty; give for example %s,%s", names[0],
                       names[1]);
    *ret = states;
    return 0;
}
