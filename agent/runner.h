/* The runner: the far end of the command protocol. Owns every command of this VM, listens on a unix
 * socket for the one link, and has neither network nor TLS. Root object; one thread. */
#pragma once

#include "common/err.h"

#include <stdint.h>
#include <sys/types.h>

#define RUNNER_COMMANDS_MAX 1024u /* running, or ended and not yet released */
#define RUNNER_PACKET_MAX   (64u * 1024 + 1024)

struct runner;

struct runner_config {
    const char *socket;
    uid_t link_uid; /* the only peer that is listened to, besides root */
};

int runner_new(const struct runner_config *config, struct runner **ret, struct err *err) must_use;
int runner_run(struct runner *runner, struct err *err) must_use;
void runner_free(struct runner *runner);
