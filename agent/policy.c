/* The VM's own word. Settings come from agent/runner_main.c; agent/runner_orders.c and
 * agent/command_prepare.c ask before anything is made. */
#include "agent/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct policy {
    struct policy_settings settings;
    char *users; /* the list, cut at its commas */
    const char *user[POLICY_USERS_MAX];
    unsigned user_count;
};

static const char *const ceilings[TREE_LIMIT_COUNT_] = {
    [TREE_MEMORY] = "max_memory_bytes",
    [TREE_CPU] = "max_cpu_millis",
    [TREE_PIDS] = "max_pids",
};

static int split_users(struct policy *policy, struct err *err)
{
    if (!policy->settings.allow_users || !*policy->settings.allow_users)
        return 0;
    policy->users = strdup(policy->settings.allow_users);
    if (!policy->users)
        return err_nomem(err);
    char *rest = policy->users;
    for (char *name; (name = strsep(&rest, ","));) {
        name += strspn(name, " ");
        name[strcspn(name, " ")] = '\0';
        if (!*name)
            return err_set(err, ERR_INVALID,
                           "the setting \"allow_users\" has an empty name; write \"ann,bob\"");
        if (policy->user_count == POLICY_USERS_MAX)
            return err_set(err, ERR_INVALID, "the setting \"allow_users\" has more than %u names",
                           POLICY_USERS_MAX);
        policy->user[policy->user_count++] = name;
    }
    return 0;
}

int policy_new(const struct policy_settings *settings, struct policy **ret, struct err *err)
{
    struct policy *policy = calloc(1, sizeof(*policy));
    if (!policy)
        return err_nomem(err);
    policy->settings = *settings;
    if (split_users(policy, err) < 0) {
        policy_free(policy);
        return -1;
    }
    policy->settings.allow_users = NULL; /* the caller's */
    *ret = policy;
    return 0;
}

void policy_free(struct policy *policy)
{
    if (!policy)
        return;
    free(policy->users);
    free(policy);
}

static int refuse(const char *setting, const char *what, struct err *err)
{
    return err_errno(err, EPERM, "%s in this sandbox (the runner's setting \"%s\")", what, setting);
}

int policy_check_count(const struct policy *policy, unsigned running, struct err *err)
{
    if (!policy || !policy->settings.max_commands || running < policy->settings.max_commands)
        return 0;
    return err_errno(err, EAGAIN,
                     "%u commands are running, and no more are allowed at once (the runner's "
                     "setting \"max_commands\"); wait for one to end",
                     running);
}

int policy_check_spec(const struct policy *policy, const Sandstorm__V1__CommandSpec *spec,
                      struct err *err)
{
    if (!policy)
        return 0;
    if (!policy->settings.allow_exec)
        return refuse("allow_exec", "commands are not allowed", err);
    if (spec->terminal && !policy->settings.allow_terminal)
        return refuse("allow_terminal", "terminals are not allowed", err);
    for (unsigned i = 0; spec->limits && i < TREE_LIMIT_COUNT_; i++) {
        const uint64_t asked[] = {
            [TREE_MEMORY] = spec->limits->memory_bytes,
            [TREE_CPU] = spec->limits->cpu_millis,
            [TREE_PIDS] = spec->limits->pids,
        };
        uint64_t ceiling = policy_ceiling(policy, (enum tree_limit)i);
        char what[128];
        (void)snprintf(what, sizeof(what), "a limit \"%s\" above %llu is not allowed",
                       tree_limit_name((enum tree_limit)i), (unsigned long long)ceiling);
        if (ceiling && asked[i] > ceiling)
            return refuse(ceilings[i], what, err);
    }
    return 0;
}

static bool is_listed(const struct policy *policy, const struct command_user *user)
{
    char number[16];
    (void)snprintf(number, sizeof(number), "%u", user->uid);
    for (unsigned i = 0; i < policy->user_count; i++)
        if (strcmp(policy->user[i], user->name) == 0 || strcmp(policy->user[i], number) == 0)
            return true;
    return false;
}

int policy_check_user(const struct policy *policy, const struct command_user *user, struct err *err)
{
    if (!policy)
        return 0;
    char what[384];
    (void)snprintf(what, sizeof(what), "running as user \"%.255s\" is not allowed", user->name);
    if (policy->settings.deny_root && user->uid == 0)
        return refuse("deny_root", what, err);
    if (policy->user_count > 0 && !is_listed(policy, user))
        return refuse("allow_users", what, err);
    /* The group of disks or of docker is as good as root. */
    (void)snprintf(what, sizeof(what),
                   "running in a group that user \"%.255s\" is not a member of is not allowed",
                   user->name);
    if ((policy->settings.deny_root || policy->user_count > 0) && !user->in_own_group)
        return refuse(policy->user_count > 0 ? "allow_users" : "deny_root", what, err);
    return 0;
}

uint64_t policy_ceiling(const struct policy *policy, enum tree_limit limit)
{
    if (!policy)
        return 0;
    switch (limit) {
    case TREE_MEMORY:
        return policy->settings.max_memory_bytes;
    case TREE_CPU:
        return policy->settings.max_cpu_millis;
    case TREE_PIDS:
        return policy->settings.max_pids;
    default:
        return 0;
    }
}

const char *policy_ceiling_setting(enum tree_limit limit)
{
    return ceilings[limit];
}
