/* POSIX resource limits by name, as a spec has them. Pure; any thread. */
#pragma once

#include "agent/spawn.h"
#include "sandstorm/v1/types.pb-c.h"

#define COMMAND_RLIMITS_MAX 16u /* as many as Linux has */

/* Unknown names, a soft limit above the hard one and a name given twice are refused. */
int command_rlimits_parse(const Sandstorm__V1__CommandSpec *spec,
                          struct spawn_rlimit ret[COMMAND_RLIMITS_MAX], size_t *ret_count,
                          struct err *err) must_use;
