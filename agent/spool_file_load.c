/* Reading a command's file again: after a crash from what is in it, after a re-exec from what the
 * process that was here before says. A file ends where its records stop making sense; everything
 * before that is as it was written. Called by agent/runner_recover.c and agent/command_handover.c.
 */
#include "agent/spool_file-internal.h"

#include "common/crc32c.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static int read_at(int fd, void *out, size_t size, uint64_t at)
{
    return pread(fd, out, size, (off_t)at) == (ssize_t)size ? 0 : -1;
}

/* The head's salt is taken from the head: it holds for everything behind it. */
static int load_head(struct state_dir *state, const struct command_id *id, int fd,
                     struct spool_file **ret, struct spool_file_content *content, struct err *err)
{
    struct record record;
    size_t rest;
    if (read_at(fd, &record, sizeof(record), 0) < 0)
        return err_set(err, ERR_INVALID, "the file of a command is empty");
    if (record_check(&record, record.salt, &rest, err) < 0)
        return -1;
    if (record.kind != RECORD_HEAD || record.runs > 0 || record.size > SPOOL_FILE_HEAD_MAX)
        return err_set(err, ERR_INVALID, "the file of a command begins with something else");
    CLEANUP_FREE uint8_t *head = malloc(rest + 1);
    if (!head)
        return err_nomem(err);
    if (read_at(fd, head, rest, sizeof(record)) < 0)
        return err_set(err, ERR_INVALID, "the head of a command's file is cut off");
    if (record_verify(&record, head, err) < 0 ||
        spool_file_new(state, id, fd, record.salt, ret, err) < 0)
        return -1;
    content->head = TAKE_PTR(head);
    content->head_size = rest;
    return 0;
}

static bool load_position(struct spool_file *file)
{
    struct stored_position stored;
    if (read_at(file->fd, &stored, sizeof(stored), POSITION_AT) < 0 ||
        stored.crc != crc32c(file->salt, &stored, offsetof(struct stored_position, crc)) ||
        stored.start < BLOCKS_AT || stored.start > INT64_MAX)
        return false;
    file->position = stored.position;
    file->start = file->punched = file->write_position = stored.start;
    return true;
}

/* It is there, or the command has not ended; a torn one is as good as none. */
static int load_end(struct spool_file *file, struct spool_file_content *content, struct err *err)
{
    struct record record;
    size_t size;
    struct err torn;
    if (read_at(file->fd, &record, sizeof(record), END_AT) < 0 ||
        record_check(&record, file->salt, &size, &torn) < 0 || record.kind != RECORD_END ||
        record.runs > 0 || size > SPOOL_FILE_END_MAX)
        return 0;
    CLEANUP_FREE uint8_t *end = malloc(size + 1);
    if (!end)
        return err_nomem(err);
    if (read_at(file->fd, end, size, END_AT + sizeof(record)) < 0 ||
        record_verify(&record, end, &torn) < 0)
        return 0;
    content->end = TAKE_PTR(end);
    content->end_size = size;
    file->has_end = true;
    return 0;
}

/* What lies below the position's first byte was trimmed before the hole was made. */
static int take_block(struct spool_file *file, const struct record *record, struct err *err)
{
    uint64_t bytes = sizeof(*record) + record->runs * sizeof(uint32_t) + record->size;
    if (file->count == 0 && record->offset + record->size <= file->position.first) {
        file->write_position += bytes;
        file->start = file->write_position;
        return 0;
    }
    if (spool_file_reserve_block(file) < 0)
        return err_nomem(err);
    spool_file_add_block(file, record->offset, record->size, bytes);
    return 0;
}

static bool follows_on(const struct spool_file *file, const struct record *record)
{
    if (record->kind != RECORD_OUTPUT || record->size == 0 || record->size > SPOOL_FILE_BLOCK_MAX ||
        record->runs == 0 || record->offset > UINT64_MAX - record->size)
        return false;
    return file->count == 0 || record->offset == spool_file_end(file);
}

/* Every record from the first one on, until one is torn, missing or out of place. */
static int scan(struct spool_file *file, struct err *err)
{
    CLEANUP_FREE uint8_t *rest = malloc(RECORD_BYTES_MAX + RECORD_RUNS_MAX * sizeof(uint32_t));
    if (!rest)
        return err_nomem(err);
    for (;;) {
        struct record record;
        size_t size;
        struct err torn;
        if (read_at(file->fd, &record, sizeof(record), file->write_position) < 0 ||
            record_check(&record, file->salt, &size, &torn) < 0 || !follows_on(file, &record) ||
            read_at(file->fd, rest, size, file->write_position + sizeof(record)) < 0 ||
            record_verify(&record, rest, &torn) < 0)
            break;
        if (take_block(file, &record, err) < 0)
            return -1;
    }
    if (ftruncate(file->fd, (off_t)file->write_position) < 0)
        return err_errno(err, errno, "cannot cut the torn end of a command's file");
    return 0;
}

int spool_file_load(struct state_dir *state, const struct command_id *id, struct spool_file **ret,
                    struct spool_file_content *ret_content, struct err *err)
{
    struct spool_file_content content = { 0 };
    struct spool_file *file = NULL;
    CLEANUP_FD int fd = -1;
    if (state_dir_open_file(state, id->text, &fd, err) < 0 ||
        load_head(state, id, fd, &file, &content, err) < 0) {
        free(content.head);
        return -1;
    }
    (void)TAKE_FD(fd);
    bool known = load_position(file);
    if (load_end(file, &content, err) < 0 || scan(file, err) < 0) {
        free(content.head);
        free(content.end);
        spool_file_free(file);
        return -1;
    }
    /* Without a position the blocks themselves are all that is known. */
    if (!known && file->count > 0)
        file->position = (struct spool_position){ .first = file->first,
                                                  .end = spool_file_end(file),
                                                  .acked = file->first };
    if (file->count > 0)
        file->position.end = MAX(file->position.end, spool_file_end(file));
    content.position = file->position;
    *ret = file;
    *ret_content = content;
    return 0;
}

/* From one life of the process to the next. */

void spool_file_state(const struct spool_file *file, struct spool_file_state *ret)
{
    *ret = (struct spool_file_state){
        .fd = file->fd,
        .salt = file->salt,
        .first = file->first,
        .write_position = file->write_position,
        .has_end = file->has_end,
        .block_count = file->count,
    };
}

unsigned spool_file_blocks(const struct spool_file *file, unsigned from, struct spool_block *out,
                           unsigned max)
{
    unsigned count = MIN(max, file->count - MIN(from, file->count));
    for (unsigned i = 0; i < count; i++)
        out[i] = *spool_file_block(file, from + i);
    return count;
}

int spool_file_adopt(struct state_dir *state, const struct command_id *id,
                     const struct spool_file_state *from, struct spool_file **ret, struct err *err)
{
    struct spool_file *file;
    if (from->write_position < BLOCKS_AT || from->write_position > INT64_MAX)
        return err_set(err, ERR_INVALID, "the file of a command cannot be that long");
    if (spool_file_new(state, id, from->fd, from->salt, &file, err) < 0)
        return -1;
    file->first = from->first;
    file->start = file->punched = file->write_position = from->write_position;
    file->has_end = from->has_end;
    *ret = file;
    return 0;
}

int spool_file_adopt_block(struct spool_file *file, const struct spool_block *block,
                           struct err *err)
{
    uint64_t before = file->count ? spool_file_end(file) : file->first;
    uint64_t from = file->count ? spool_file_block(file, file->count - 1)->position : BLOCKS_AT - 1;
    if (block->end <= before || block->position <= from || block->position >= file->write_position)
        return err_set(err, ERR_INVALID, "the blocks of a command's file are out of order");
    if (spool_file_reserve_block(file) < 0)
        return err_nomem(err);
    if (file->count == 0)
        file->start = file->punched = block->position;
    file->count++;
    *spool_file_block(file, file->count - 1) = *block;
    /* The first one brings the bytes of all: they lie side by side. */
    if (file->count == 1) {
        file->used = file->write_position - block->position;
        file->state->used += file->used;
    }
    return 0;
}
