/* What this VM lets be done in it, whatever an orchestrator orders: the runner's own settings. A
 * refusal names the setting. Runner's thread; the settings do not change while it runs. */
#pragma once

#include "agent/command_user.h"
#include "agent/tree.h"
#include "sandstorm/v1/types.pb-c.h"

#define POLICY_USERS_MAX 64u

/* As in the settings file. All zero but the three that allow: nothing is forbidden. */
struct policy_settings {
    char *allow_users; /* names and numbers with commas between them; NULL or "": anybody */
    bool deny_root;
    bool allow_exec, allow_terminal, allow_files;
    uint64_t max_memory_bytes, max_cpu_millis, max_pids; /* 0: no ceiling */
    uint64_t max_commands;
};

struct policy;

int policy_new(const struct policy_settings *settings, struct policy **ret,
               struct err *err) must_use;
void policy_free(struct policy *policy);

/* A NULL policy allows everything. Each of these is -1 with EPERM and words, or EAGAIN where
 * waiting would help. */
int policy_check_count(const struct policy *policy, unsigned running, struct err *err) must_use;
int policy_check_spec(const struct policy *policy, const Sandstorm__V1__CommandSpec *spec,
                      struct err *err) must_use;
int policy_check_user(const struct policy *policy, const struct command_user *user,
                      struct err *err) must_use;
/* The ceiling of a limit, 0: none; and what the setting is called. */
uint64_t policy_ceiling(const struct policy *policy, enum tree_limit limit);
const char *policy_ceiling_setting(enum tree_limit limit);
