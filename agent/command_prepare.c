/* All that is decided about a command before it exists: its spec is sound, this VM's policy allows
 * it, its user is there, its limits can be kept. agent/command.c asks; what cannot be honoured is
 * refused with the step that refuses it. next: agent/spawn.c. */
#include "agent/command-internal.h"

#include <errno.h>

/* A limit that somebody insists on: the client, unless it said best effort, or the VM's owner. */
static bool is_required(const struct command *command, const Sandstorm__V1__Limits *limits,
                        enum tree_limit limit)
{
    return policy_ceiling(command->host.policy, limit) > 0 ||
           limits->mode != SANDSTORM__V1__LIMIT_MODE__LIMIT_MODE_BEST_EFFORT;
}

static int refuse_limit(const struct command *command, enum tree_limit limit, bool asked,
                        struct err *err)
{
    const char *why = forest_why_not(command->host.forest);
    if (asked)
        return err_errno(err, ENOTSUP, "this sandbox cannot enforce the limit \"%s\": %s",
                         tree_limit_name(limit), why);
    return err_errno(
        err, ENOTSUP,
        "this sandbox cannot enforce the runner's setting \"%s\": %s; until it can, or "
        "the setting is removed, it runs no commands",
        policy_ceiling_setting(limit), why);
}

static int choose_limits(struct command *command, const Sandstorm__V1__Limits *limits,
                         struct command_exec *exec, struct err *err)
{
    const Sandstorm__V1__Limits none = SANDSTORM__V1__LIMITS__INIT;
    limits = limits ? limits : &none;
    const uint64_t asked[] = {
        [TREE_MEMORY] = limits->memory_bytes,
        [TREE_CPU] = limits->cpu_millis,
        [TREE_PIDS] = limits->pids,
    };
    for (unsigned i = 0; i < TREE_LIMIT_COUNT_; i++) {
        enum tree_limit limit = (enum tree_limit)i;
        uint64_t value = asked[i] ? asked[i] : policy_ceiling(command->host.policy, limit);
        if (!value)
            continue;
        exec->limits[i] = value;
        if (forest_enforces(command->host.forest) & 1u << i)
            continue;
        if (is_required(command, limits, limit))
            return refuse_limit(command, limit, asked[i] > 0, err);
        exec->limits[i] = 0;
        command->not_enforced |= 1u << i;
    }
    return 0;
}

int command_prepare(struct command *command, const Sandstorm__V1__CommandSpec *spec,
                    struct command_exec *exec, enum spawn_step *ret_step, struct err *err)
{
    *ret_step = SPAWN_STEP_SPEC;
    if (command_spec_check(spec, err) < 0)
        return -1;
    *ret_step = SPAWN_STEP_POLICY;
    if (policy_check_spec(command->host.policy, spec, err) < 0)
        return -1;
    *ret_step = SPAWN_STEP_USER;
    if (command_user_find(spec->user, spec->group, &exec->user, err) < 0)
        return -1;
    *ret_step = SPAWN_STEP_POLICY;
    if (policy_check_user(command->host.policy, &exec->user, err) < 0)
        return -1;
    *ret_step = SPAWN_STEP_SPEC;
    if (command_spec_exec(spec, &command->id, exec, err) < 0)
        return -1;
    *ret_step = SPAWN_STEP_LIMITS;
    return choose_limits(command, spec->limits, exec, err);
}

/* The tree that the command's processes will be in. A limit that the kernel refuses after all is
 * treated as one that it does not have. */
int command_plant(struct command *command, const Sandstorm__V1__CommandSpec *spec,
                  const struct command_exec *exec, enum spawn_step *ret_step, struct err *err)
{
    *ret_step = SPAWN_STEP_CGROUP;
    if (tree_new(command->host.forest, &command->id, &command->tree, err) < 0)
        return -1;
    *ret_step = SPAWN_STEP_LIMITS;
    for (unsigned i = 0; i < TREE_LIMIT_COUNT_; i++) {
        enum tree_limit limit = (enum tree_limit)i;
        if (!exec->limits[i] || tree_set_limit(command->tree, limit, exec->limits[i], err) == 0)
            continue;
        if (!spec->limits || is_required(command, spec->limits, limit))
            return -1;
        command->not_enforced |= 1u << i;
    }
    return 0;
}

/* What the child is told; points into `exec` and the host. */
void command_request(const struct command *command, struct command_exec *exec,
                     struct spawn_request *ret)
{
    const struct rlimit *files = command->host.files;
    bool has_files = false;
    for (size_t i = 0; i < exec->rlimit_count; i++)
        has_files |= exec->rlimits[i].resource == RLIMIT_NOFILE;
    /* The runner's own is raised, and nobody's business. */
    if (files && !has_files)
        exec->rlimits[exec->rlimit_count++] =
            (struct spawn_rlimit){ RLIMIT_NOFILE, "nofile", *files };
    exec->spawn_user = (struct spawn_user){
        .uid = exec->user.uid,
        .gid = exec->user.gid,
        .groups = exec->user.groups,
        .group_count = (size_t)exec->user.group_count,
    };
    *ret = (struct spawn_request){
        .argv = exec->argv,
        .environment = exec->environment,
        .path = exec->path,
        .cwd = exec->cwd,
        .cwd_or_root = exec->cwd_or_root,
        .cgroup = tree_cgroup_fd(command->tree),
        .rlimits = exec->rlimits,
        .rlimit_count = exec->rlimit_count,
        .nice = exec->nice ? &exec->nice : NULL,
        .umask = exec->has_umask ? &exec->umask : NULL,
        .oom_score_adj = command->host.oom_score_adj,
        .user = exec->user.changes ? &exec->spawn_user : NULL,
    };
}
