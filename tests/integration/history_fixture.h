/* The history of commands as a client sees it, for the tests of what survives. Criterion; one
 * thread. */
#pragma once

#include "common/clock.h"
#include "sandstorm/v1/control.pb-c.h"
#include "tests/harness/peer.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LIST_COMMANDS "/sandstorm.v1.CommandService/ListCommands"

/* One page, for wire_free(). */
static inline ProtobufCMessage *history_page(const char *identity,
                                             const Sandstorm__V1__ListCommandsRequest *request)
{
    CLEANUP_PEER struct peer *peer = peer_open(identity, LIST_COMMANDS);
    peer_send(peer, &request->base);
    peer_finish(peer);
    ProtobufCMessage *page = peer_receive(peer, &sandstorm__v1__list_commands_response__descriptor);
    if (!page) {
        struct err status = peer_wait_closed(peer);
        cr_assert_fail("%s", status.text);
    }
    return page;
}

/* The command with that id as the admin sees it, for wire_free() of the page; NULL when there is
 * none. */
static inline const Sandstorm__V1__Command *history_get(const char *id, ProtobufCMessage **ret_page)
{
    Sandstorm__V1__ListCommandsRequest request = SANDSTORM__V1__LIST_COMMANDS_REQUEST__INIT;
    request.command_id = (char *)id;
    *ret_page = history_page(fixture()->admin, &request);
    const Sandstorm__V1__ListCommandsResponse *response =
        (const Sandstorm__V1__ListCommandsResponse *)*ret_page;
    cr_assert_leq(response->n_commands, 1u);
    return response->n_commands ? response->commands[0] : NULL;
}

/* Until it is in that state; for wire_free() of the page. */
static inline const Sandstorm__V1__Command *history_wait(const char *id,
                                                         Sandstorm__V1__CommandState state,
                                                         ProtobufCMessage **ret_page)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    for (;;) {
        const Sandstorm__V1__Command *command = history_get(id, ret_page);
        if (command && command->state == state)
            return command;
        cr_assert_lt(monotonic_us(), deadline, "command %s is in state %d, not %d", id,
                     command ? (int)command->state : -1, (int)state);
        wire_free(*ret_page);
    }
}

static inline void history_expect_exit(const char *id, unsigned code)
{
    CLEANUP_WIRE ProtobufCMessage *page = NULL;
    const Sandstorm__V1__Command *command =
        history_wait(id, SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ENDED, &page);
    cr_assert_not_null(command->outcome);
    cr_assert_eq(command->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED, "%s: %d", id,
                 (int)command->outcome->result_case);
    cr_assert_eq(command->outcome->exited->code, code, "%s: %u", id,
                 command->outcome->exited->code);
    cr_assert_gt(command->ended_unix_ms, 0);
    cr_assert_geq(command->ended_unix_ms, command->started_unix_ms);
    cr_assert_geq(command->started_unix_ms, command->ordered_unix_ms);
}

static inline void history_expect_lost(const char *id, Sandstorm__V1__LostReason reason)
{
    CLEANUP_WIRE ProtobufCMessage *page = NULL;
    const Sandstorm__V1__Command *command =
        history_wait(id, SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ENDED, &page);
    cr_assert_not_null(command->outcome);
    cr_assert_eq(command->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_LOST);
    cr_assert_eq(command->outcome->lost->reason, reason, "%s", command->outcome->lost->detail);
}

/* Commands by number, each with its id, a file that counts its runs, one that says that it runs,
 * and a pipe that it waits at. */

struct held {
    char id[40], count[CLUSTER_PATH_MAX + 24], started[CLUSTER_PATH_MAX + 24],
        gate[CLUSTER_PATH_MAX + 24];
    char script[5 * CLUSTER_PATH_MAX];
};

static inline void held_init(struct held *held, unsigned number)
{
    const char *dir = fixture()->dir;
    (void)snprintf(held->id, sizeof(held->id), "%08x-7f6c-4c1e-9d55-8a1c2f3e4d5b", number);
    (void)snprintf(held->count, sizeof(held->count), "%s/count-%u", dir, number);
    (void)snprintf(held->started, sizeof(held->started), "%s/started-%u", dir, number);
    (void)snprintf(held->gate, sizeof(held->gate), "%s/gate-%u", dir, number);
    (void)snprintf(held->script, sizeof(held->script),
                   "echo ran >> %s; touch %s; cat %s; echo said; exit %u", held->count,
                   held->started, held->gate, number);
    cr_assert_eq(mkfifo(held->gate, 0600), 0);
}

static inline struct fixture_client held_start(const struct held *held)
{
    struct fixture_client client =
        CLI_START(0, "exec", BOX, "--id", held->id, "-n", "-c", held->script);
    fixture_wait_file(held->started);
    return client;
}

/* It goes on, to its end. */
static inline void held_open(const struct held *held)
{
    CLEANUP_FD int fd = open(held->gate, O_WRONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
}

static inline void history_restart(void)
{
    MUST(service_kill(fixture()->orchestrator, err));
    service_forget_status(fixture_box()->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(fixture_box(), err));
}
