/* A command that an earlier runner had. It has ended: as its file says, or, where the file does not
 * say how, it is lost. It is never run again, and never taken over: what became of its process is
 * the kernel's to tell its parent, and that is gone. Called by agent/runner_recover.c. */
#include "agent/command-internal.h"
#include "agent/leftover.h"

#include "common/clock.h"

#include <stdio.h>
#include <string.h>

/* Everything that was read from a command's file. */
struct kept {
    struct spool_file *file;
    struct spool_file_content content;
    ProtobufCMessage *head;
};

static void kept_done(struct kept *kept)
{
    spool_file_free(kept->file);
    free(kept->content.head);
    free(kept->content.end);
    wire_free(kept->head);
}

static int load(const struct command_host *host, const struct command_id *id, struct kept *ret,
                struct err *err)
{
    const struct spool_position *position = &ret->content.position;
    if (spool_file_load(host->state, id, &ret->file, &ret->content, err) < 0 ||
        wire_unpack(&sandstorm__runner__head__descriptor, ret->content.head, ret->content.head_size,
                    &ret->head, err) < 0)
        return -1;
    const Sandstorm__Runner__Head *head = (const Sandstorm__Runner__Head *)ret->head;
    if (strcmp(head->command_id, id->text) != 0 || head->spec_digest.len != COMMAND_DIGEST_LEN ||
        head->pid < 0 || head->pid > INT32_MAX || position->first > position->end ||
        position->acked > position->end || position->end > INT64_MAX)
        return err_set(err, ERR_INVALID, "the file of a command contradicts itself");
    return 0;
}

/* What is left of it is killed, and that is said. */
static void settle_process(const Sandstorm__Runner__Head *head, char *out, size_t size)
{
    if (head->pid == 0)
        (void)snprintf(out, size,
                       "the runner was restarted while it was about to start the command; whether "
                       "it ran is unknown");
    else if (leftover_kill((pid_t)head->pid, head->reserved_boot_us, head->started_boot_us) ==
             LEFTOVER_KILLED)
        (void)snprintf(out, size,
                       "the runner was restarted while the command ran; its process %d was killed, "
                       "since nobody could hear of its end",
                       (int)head->pid);
    else
        (void)snprintf(out, size,
                       "the runner was restarted while the command ran; its process %d has ended "
                       "since, and how is unknown",
                       (int)head->pid);
}

static int make_lost(struct command *command, const struct kept *kept, struct err *err)
{
    const Sandstorm__Runner__Head *head = (const Sandstorm__Runner__Head *)kept->head;
    char detail[256];
    Sandstorm__V1__Lost lost = SANDSTORM__V1__LOST__INIT;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    settle_process(head, detail, sizeof(detail));
    lost.reason = SANDSTORM__V1__LOST_REASON__LOST_REASON_RUNNER_RESTARTED;
    lost.detail = detail;
    outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_LOST;
    outcome.lost = &lost;
    outcome.started_unix_us = head->started_unix_us;
    outcome.ended_unix_us = wall_us();
    CLEANUP_FREE uint8_t *packed = NULL;
    size_t size;
    if (wire_pack(&outcome.base, &packed, &size, err) < 0)
        return -1;
    return wire_unpack(&sandstorm__v1__outcome__descriptor, packed, size, &command->kept, err);
}

static int restore_end(struct command *command, const struct kept *kept, struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (wire_unpack(&sandstorm__runner__end__descriptor, kept->content.end, kept->content.end_size,
                    &message, err) < 0)
        return -1;
    const Sandstorm__Runner__End *end = (const Sandstorm__Runner__End *)message;
    if (end->end_offset != kept->content.position.end)
        return err_set(err, ERR_INVALID, "the file of a command contradicts itself");
    command->input.window.received = end->stdin_received;
    return wire_unpack(&sandstorm__v1__outcome__descriptor, end->outcome.data, end->outcome.len,
                       &command->kept, err);
}

static void restore_ledger(struct command *command, struct kept *kept)
{
    const struct spool_position *position = &kept->content.position;
    command->acked = position->acked;
    for (size_t i = 0; i < ELEMENTS(command->pipes); i++)
        command->pipes[i].bytes = position->bytes[i];
    spool_back(&command->spool, command->host.state, TAKE_PTR(kept->file), SPOOL_COMMAND_DEFAULT);
    spool_restore(&command->spool, position);
}

static int restore(struct command *command, struct kept *kept, struct err *err)
{
    const Sandstorm__Runner__Head *head = (const Sandstorm__Runner__Head *)kept->head;
    (void)memcpy(command->digest, head->spec_digest.data, sizeof(command->digest));
    command->pid = (pid_t)head->pid;
    command->outcome.started_us = head->started_unix_us;
    command->keep.reserved_unix_us = head->reserved_unix_us;
    command->input.eof = true;
    bool ended = kept->content.end != NULL;
    if ((ended ? restore_end(command, kept, err) : make_lost(command, kept, err)) < 0)
        return -1;
    restore_ledger(command, kept);
    command->state = COMMAND_ENDED;
    command->ended_due = command->settled_due = true;
    command_keep_end(command);
    return 0;
}

int command_load(const struct command_host *host, const struct command_id *id, struct command **ret,
                 struct err *err)
{
    struct kept kept = { 0 };
    struct command *command = NULL;
    int r = load(host, id, &kept, err);
    if (r == 0)
        r = command_new_bare(host, id, &command, err);
    if (r == 0)
        r = restore(command, &kept, err);
    kept_done(&kept);
    if (r < 0)
        command_free(command);
    else
        *ret = command;
    return r;
}

int64_t command_reserved_us(const struct command *command)
{
    return command->keep.reserved_unix_us;
}

bool command_is_lost(const struct command *command)
{
    const Sandstorm__V1__Outcome *outcome = (const Sandstorm__V1__Outcome *)command->kept;
    return outcome && outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_LOST;
}
