/* One command between its runner and those who want something of it. A relay follows the command
 * for itself, whether or not a client is attached: it takes the output and keeps it
 * (orchestrator/ledger.h), knows how it ended, and passes orders down when the runner can take
 * them. There is one for every command that this orchestrator has heard of since it started and
 * that has not ended, and one for every ended command that somebody looks at. Loop thread. */
#pragma once

#include "common/ids.h"
#include "orchestrator/registry.h"
#include "orchestrator/store.h"
#include "sandstorm/v1/link.pb-c.h"

#define RELAY_WINDOW      (512u * 1024) /* output on its way from the runner */
#define RELAY_STDIN_MAX   (64u * 1024)  /* input that the command has not taken yet */
#define RELAY_WRITERS_MAX 16u           /* calls that wait for room for input */
/* A client that was attached before we restarted has this long to come back. */
#define RELAY_RETURN_US 60000000u

struct relay;
struct orchestrator;

/* NULL: there is none. */
struct relay *relay_find(struct orchestrator *orchestrator, const struct command_id *id);
/* An agent speaks of its own commands alone. */
struct relay *relay_find_of(struct sandbox *sandbox, struct orchestrator *orchestrator,
                            const struct command_id *id);
/* One that was written down and is to be started. `spec` is packed, its digest with it; taken over
 * on success. */
int relay_new_start(struct orchestrator *orchestrator, struct sandbox *sandbox,
                    const struct command_id *id, const uint8_t digest[STORE_DIGEST_LEN],
                    uint8_t *spec, size_t size, struct relay **ret, struct err *err) must_use;
/* One that is known, as the store has it; `sandbox` is NULL when it is not there any more. */
int relay_new_known(struct orchestrator *orchestrator, struct sandbox *sandbox,
                    const struct command_record *record, struct relay **ret,
                    struct err *err) must_use;
/* It is known, and the runner may never have got it: then it needs the spec, which is taken over if
 * this is true. */
bool relay_offer_spec(struct relay *relay, const uint8_t digest[STORE_DIGEST_LEN], uint8_t *spec,
                      size_t size);
/* Between these two it is not freed, whoever leaves it. After the second one it may be gone: it is
 * when nothing is left to do and nobody looks. */
void relay_enter(struct relay *relay);
void relay_exit(struct relay *relay);
void relays_free(struct orchestrator *orchestrator);

/* From the sandbox's session. -1: the agent broke the protocol. */
int relay_event(struct relay *relay, const Sandstorm__V1__CommandEvent *event,
                struct err *err) must_use;
int relay_inventory(struct orchestrator *orchestrator, struct sandbox *sandbox,
                    const Sandstorm__V1__Inventory *inventory, struct err *err) must_use;
/* `back_at_once`: another stream of the same link takes over in this moment; nobody need know. */
void relay_session_lost(struct sandbox *sandbox, bool back_at_once);
/* The link is there, its runner is not. */
void relay_runner_away(struct sandbox *sandbox);
void relay_session_writable(struct sandbox *sandbox);
/* The machine behind it does not count any more: its commands go on without us, and nobody hears of
 * them here. `why` as in "was revoked". */
void relay_sandbox_gone(struct sandbox *sandbox, const char *why);
/* How a command ended is written down: the runner may forget it, when its output is safe too. */
void relay_end_written(struct orchestrator *orchestrator, const struct command_id *id);
/* The runner may forget it; now, or when it is in step again. */
void relay_let_go(struct sandbox *sandbox, const struct command_id *id);

/* From those who call by id: orders that go now or not at all, ERR_UNAVAILABLE. */
int relay_signal(struct relay *relay, const Sandstorm__V1__Signal *signal,
                 struct err *err) must_use;
int relay_cancel(struct relay *relay, uint64_t grace_ms, struct err *err) must_use;
/* Input for a command that nobody controls. 1: there is no room now; ask when relay_writer's fn is
 * called. */
struct relay_writer {
    void (*ready)(struct relay_writer *writer, const struct err *gone); /* gone: the relay is */
    struct relay_writer *prev, *next;
};
int relay_write(struct relay *relay, const Sandstorm__V1__WriteStdinRequest *request,
                uint64_t *ret_end, struct err *err) must_use;
int relay_writer_wait(struct relay *relay, struct relay_writer *writer, struct err *err) must_use;
void relay_writer_stop(struct relay *relay, struct relay_writer *writer);

const struct command_id *relay_id(const struct relay *relay);
/* Sends what is due, if the runner can take it. */
void relay_kick(struct relay *relay);
/* What clients are told besides what the store has. */
void relay_describe(const struct relay *relay, Sandstorm__V1__Command *message);
