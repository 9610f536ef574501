/* A command and its file. The id is in the state directory before anything else happens, the
 * process as soon as it exists, how far the ledger went with every read, and the end before anybody
 * is told: so a runner that is killed at any point leaves behind what its successor needs to say
 * the truth. Called by agent/command*.c; next: agent/spool_file.c. */
#include "agent/command-internal.h"

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "sandstorm/runner/kept.pb-c.h"

#include <string.h>

#define RETRY_US 1000000u

static int write_head(struct command *command, struct err *err)
{
    uint8_t packed[SPOOL_FILE_HEAD_MAX];
    Sandstorm__Runner__Head head = SANDSTORM__RUNNER__HEAD__INIT;
    head.command_id = command->id.text;
    head.spec_digest = (ProtobufCBinaryData){ sizeof(command->digest), command->digest };
    head.reserved_unix_us = command->keep.reserved_unix_us;
    head.reserved_boot_us = command->keep.reserved_boot_us;
    head.started_boot_us = command->keep.started_boot_us;
    head.pid = command->pid;
    head.started_unix_us = command->outcome.started_us;
    if (sandstorm__runner__head__get_packed_size(&head) > sizeof(packed))
        return err_errno(err, E2BIG, "the head of a command's file is too long");
    return spool_file_set_head(command->spool.file, packed,
                               sandstorm__runner__head__pack(&head, packed), err);
}

static int reserve(struct command *command, uint64_t spool_bytes, struct err *err)
{
    struct spool_file *file;
    failpoint("runner.reserve");
    if (spool_file_create(command->host.state, &command->id, &file, err) < 0)
        return -1;
    spool_back(&command->spool, command->host.state, file, spool_bytes);
    command->keep.reserved_unix_us = wall_us();
    command->keep.reserved_boot_us = clock_us(CLOCK_BOOTTIME);
    if (write_head(command, err) < 0) {
        spool_file_remove(file);
        spool_file_free(TAKE_PTR(command->spool.file));
        return -1;
    }
    failpoint("runner.reserved");
    return 0;
}

int command_keep_reserve(struct command *command, const Sandstorm__V1__CommandSpec *spec,
                         struct err *err)
{
    uint64_t bytes = spec && spec->spool_bytes ? spec->spool_bytes : SPOOL_COMMAND_DEFAULT;
    bytes = MIN(bytes, SPOOL_COMMAND_MAX);
    if (!command->host.state) {
        command->spool.max = MIN(bytes, SPOOL_BYTES_MAX);
        return 0;
    }
    if (reserve(command, bytes, err) == 0)
        return 0;
    state_dir_note_failure(command->host.state, err);
    return -1;
}

void command_keep_started(struct command *command)
{
    struct err err;
    failpoint("runner.cloned");
    if (!command->spool.file)
        return;
    command->keep.started_boot_us = clock_us(CLOCK_BOOTTIME);
    if (write_head(command, &err) < 0)
        state_dir_note_failure(command->host.state, &err);
}

void command_keep_position(struct command *command)
{
    if (!command->spool.file)
        return;
    const struct spool_position position = {
        .first = spool_first(&command->spool),
        .end = spool_end(&command->spool),
        .acked = command->acked,
        .bytes = { command->pipes[0].bytes, command->pipes[1].bytes },
    };
    spool_file_set_position(command->spool.file, &position);
}

/* The end. */

static int write_end(struct command *command, struct err *err)
{
    CLEANUP_FREE uint8_t *outcome = NULL;
    size_t size;
    if (command_pack_outcome(command, &outcome, &size, err) < 0)
        return -1;
    Sandstorm__Runner__End end = SANDSTORM__RUNNER__END__INIT;
    end.outcome = (ProtobufCBinaryData){ size, outcome };
    end.end_offset = spool_end(&command->spool);
    end.stdin_received = command->input.window.received;
    CLEANUP_FREE uint8_t *packed = malloc(sandstorm__runner__end__get_packed_size(&end));
    if (!packed)
        return err_nomem(err);
    return spool_file_set_end(command->spool.file, packed,
                              sandstorm__runner__end__pack(&end, packed), err);
}

void command_keep_end(struct command *command)
{
    struct err err;
    if (!command->spool.file)
        return;
    /* The output first: where the end is, all of it is too. The end needs no space, and is kept
     * also when the output cannot be. */
    bool flushed = spool_flush(&command->spool, &err) == 0;
    if (!spool_file_has_end(command->spool.file)) {
        failpoint("runner.end");
        command_keep_position(command);
        if (write_end(command, &err) < 0)
            state_dir_note_failure(command->host.state, &err);
        failpoint("runner.ended");
    }
    if (!flushed || !spool_file_has_end(command->spool.file))
        loop_timer_start(command->retry, RETRY_US);
}

void command_forget_file(struct command *command)
{
    failpoint("runner.release");
    if (command->spool.file)
        spool_file_remove(command->spool.file);
}
