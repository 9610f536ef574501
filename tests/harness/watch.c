/* Keeps what WatchSandboxes tells. Used by the tests of a fleet's states; next:
 * tests/harness/peer.c, which has the connection. */
#include "tests/harness/watch.h"

#include "common/clock.h"

#include <stdio.h>
#include <string.h>

#define WATCH_METHOD "/sandstorm.v1.SandboxService/WatchSandboxes"

struct watch {
    struct peer *peer;
    struct watch_sandbox sandboxes[WATCH_SANDBOXES_MAX];
    unsigned count;
    bool current;
};

static struct watch_sandbox *entry(struct watch *watch, const char *id)
{
    unsigned i = 0;
    while (i < watch->count && strcmp(watch->sandboxes[i].id, id) != 0)
        i++;
    if (i == watch->count) {
        cr_assert_lt(i, WATCH_SANDBOXES_MAX, "too many sandboxes to watch");
        watch->count++;
        (void)snprintf(watch->sandboxes[i].id, sizeof(watch->sandboxes[i].id), "%s", id);
    }
    return &watch->sandboxes[i];
}

static void take(struct watch *watch, const Sandstorm__V1__WatchSandboxesResponse *told)
{
    if (told->kind == SANDSTORM__V1__WATCH_KIND__WATCH_KIND_CURRENT)
        watch->current = true;
    if (!told->sandbox || !*told->sandbox->id)
        return;
    struct watch_sandbox *sandbox = entry(watch, told->sandbox->id);
    if (told->kind == SANDSTORM__V1__WATCH_KIND__WATCH_KIND_SANDBOX) {
        sandbox->state = told->sandbox->state;
        sandbox->state_ms = told->sandbox->state_unix_ms;
        sandbox->seen_ms = told->sandbox->last_seen_unix_ms;
        sandbox->ever |= 1u << sandbox->state;
    }
}

/* One message, or none within that time. */
static void receive(struct watch *watch, uint64_t timeout_us)
{
    CLEANUP_WIRE ProtobufCMessage *message = peer_receive_within(
        watch->peer, &sandstorm__v1__watch_sandboxes_response__descriptor, timeout_us);
    if (message)
        take(watch, (const Sandstorm__V1__WatchSandboxesResponse *)message);
    else if (peer_is_closed(watch->peer))
        cr_assert_fail("the watch has ended: %s", peer_wait_closed(watch->peer).text);
}

/* Until then something must come. */
static void receive_before(struct watch *watch, uint64_t deadline, const char *what)
{
    uint64_t now = monotonic_us();
    cr_assert_lt(now, deadline, "%s within the deadline", what);
    receive(watch, deadline - now);
}

struct watch *watch_open(void)
{
    struct watch *watch = calloc(1, sizeof(*watch));
    cr_assert_not_null(watch);
    watch->peer = peer_open(fixture()->admin, WATCH_METHOD);
    Sandstorm__V1__WatchSandboxesRequest request = SANDSTORM__V1__WATCH_SANDBOXES_REQUEST__INIT;
    peer_send(watch->peer, &request.base);
    peer_finish(watch->peer);
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    while (!watch->current)
        receive_before(watch, deadline, "not told what there is");
    return watch;
}

void watch_free(struct watch *watch)
{
    if (!watch)
        return;
    peer_free(watch->peer);
    free(watch);
}

struct watch_sandbox watch_wait(struct watch *watch, const char *id,
                                Sandstorm__V1__SandboxState state)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    while (entry(watch, id)->state != state)
        receive_before(watch, deadline, "a sandbox is not in the state that it should be in");
    return *entry(watch, id);
}

void watch_wait_count(struct watch *watch, const char *prefix, Sandstorm__V1__SandboxState state,
                      unsigned count)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    while (watch_count(watch, prefix, state) != count) {
        char what[96];
        (void)snprintf(what, sizeof(what), "%u instead of %u sandboxes are in state %d",
                       watch_count(watch, prefix, state), count, (int)state);
        receive_before(watch, deadline, what);
    }
}

void watch_for(struct watch *watch, uint64_t us)
{
    uint64_t end = monotonic_us() + us;
    for (uint64_t now = monotonic_us(); now < end; now = monotonic_us())
        receive(watch, end - now);
}

unsigned watch_count(const struct watch *watch, const char *prefix,
                     Sandstorm__V1__SandboxState state)
{
    unsigned count = 0;
    for (unsigned i = 0; i < watch->count; i++)
        count += watch->sandboxes[i].state == state &&
                 strncmp(watch->sandboxes[i].id, prefix, strlen(prefix)) == 0;
    return count;
}

unsigned watch_count_ever(const struct watch *watch, const char *prefix,
                          Sandstorm__V1__SandboxState state)
{
    unsigned count = 0;
    for (unsigned i = 0; i < watch->count; i++)
        count += (watch->sandboxes[i].ever & 1u << state) &&
                 strncmp(watch->sandboxes[i].id, prefix, strlen(prefix)) == 0;
    return count;
}

void watch_forget(struct watch *watch)
{
    for (unsigned i = 0; i < watch->count; i++)
        watch->sandboxes[i].ever = 1u << watch->sandboxes[i].state;
}
