/* Writing and trimming a command's file. Made by agent/command_keep.c when a command is, filled by
 * agent/spool.c when memory is full or the command has ended. Layout: one page with the head's
 * record, at POSITION_AT the ledger's position and at END_AT how the command ended; from BLOCKS_AT
 * on records of output that follow each other. The page is there from the beginning, so that only
 * output can fail for want of space. What is trimmed becomes a hole. next: agent/spool_file_load.c
 * reads it after a crash. */
#include "agent/spool_file-internal.h"

#include "common/crc32c.h"
#include "common/failpoint.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* Holes are made in steps: a call costs the same for one block and for sixteen. */
#define PUNCH_STEP (1024u * 1024)
#define PAGE       BLOCKS_AT

static int pwrite_all(int fd, const void *data, size_t size, uint64_t at, struct err *err)
{
    ssize_t n = pwrite(fd, data, size, (off_t)at);
    if (n != (ssize_t)size)
        return err_errno(err, n < 0 ? errno : ENOSPC, "cannot write the file of a command");
    return 0;
}

/* Life. */

int spool_file_new(struct state_dir *state, const struct command_id *id, int fd, uint32_t salt,
                   struct spool_file **ret, struct err *err)
{
    struct spool_file *file = calloc(1, sizeof(*file));
    if (!file)
        return err_nomem(err);
    file->state = state;
    file->id = *id;
    file->fd = fd;
    file->salt = salt;
    file->start = file->punched = file->write_position = BLOCKS_AT;
    *ret = file;
    return 0;
}

int spool_file_create(struct state_dir *state, const struct command_id *id, struct spool_file **ret,
                      struct err *err)
{
    CLEANUP_FD int fd =
        openat(state->fd, id->text, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot note the command in the state directory%s",
                         errno == EEXIST   ? "; what has its name there is not the runner's"
                         : errno == ENOENT ? ", which was removed; restart the runner"
                                           : "");
    if (spool_file_new(state, id, fd, (uint32_t)random_u64(), ret, err) < 0) {
        (void)unlinkat(state->fd, id->text, 0);
        return -1;
    }
    (void)TAKE_FD(fd);
    return 0;
}

void spool_file_free(struct spool_file *file)
{
    if (!file)
        return;
    file->state->used -= file->used;
    close_fd(&file->fd);
    free(file->blocks);
    free(file->cache);
    free(file);
}

void spool_file_remove(struct spool_file *file)
{
    (void)unlinkat(file->state->fd, file->id.text, 0);
}

/* The first page. */

static int write_page(struct spool_file *file, enum record_kind kind, uint64_t at, const void *data,
                      size_t size, struct err *err)
{
    uint8_t bytes[BLOCKS_AT];
    struct record record = { .kind = kind, .size = (uint32_t)size, .salt = file->salt };
    assert(at + sizeof(record) + size <= BLOCKS_AT);
    const struct iovec piece = { (void *)data, size };
    record_seal(&record, NULL, &piece, 1);
    (void)memcpy(bytes, &record, sizeof(record));
    (void)memcpy(bytes + sizeof(record), data, size);
    return pwrite_all(file->fd, bytes, sizeof(record) + size, at, err);
}

int spool_file_set_head(struct spool_file *file, const void *head, size_t size, struct err *err)
{
    if (size > SPOOL_FILE_HEAD_MAX)
        return err_errno(err, E2BIG, "the head of a command's file is too long");
    return write_page(file, RECORD_HEAD, 0, head, size, err);
}

int spool_file_set_end(struct spool_file *file, const void *end, size_t size, struct err *err)
{
    if (size > SPOOL_FILE_END_MAX)
        return err_errno(err, E2BIG, "the end of a command does not fit its file");
    if (write_page(file, RECORD_END, END_AT, end, size, err) < 0)
        return -1;
    file->has_end = true;
    return 0;
}

bool spool_file_has_end(const struct spool_file *file)
{
    return file->has_end;
}

static void write_position(struct spool_file *file)
{
    struct stored_position stored = { .position = file->position, .start = file->start };
    struct err err;
    stored.crc = crc32c(file->salt, &stored, offsetof(struct stored_position, crc));
    if (pwrite_all(file->fd, &stored, sizeof(stored), POSITION_AT, &err) < 0)
        state_dir_note_failure(file->state, &err);
}

void spool_file_set_position(struct spool_file *file, const struct spool_position *position)
{
    file->position = *position;
    write_position(file);
}

/* Blocks. */

struct spool_block *spool_file_block(const struct spool_file *file, unsigned index)
{
    assert(index < file->count);
    return &file->blocks[(file->first_block + index) % file->capacity];
}

int spool_file_reserve_block(struct spool_file *file)
{
    if (file->count < file->capacity)
        return 0;
    unsigned capacity = file->capacity ? file->capacity * 2 : 16;
    struct spool_block *blocks = malloc(capacity * sizeof(*blocks));
    if (!blocks)
        return -1;
    for (unsigned i = 0; i < file->count; i++)
        blocks[i] = *spool_file_block(file, i);
    free(file->blocks);
    file->blocks = blocks;
    file->capacity = capacity;
    file->first_block = 0;
    return 0;
}

/* Space for it was reserved. */
void spool_file_add_block(struct spool_file *file, uint64_t offset, uint64_t size, uint64_t bytes)
{
    if (file->count == 0) {
        file->first = offset;
        file->start = file->write_position;
    }
    file->count++;
    *spool_file_block(file, file->count - 1) =
        (struct spool_block){ .end = offset + size, .position = file->write_position };
    file->write_position += bytes;
    file->used += bytes;
    file->state->used += bytes;
}

/* A record behind the last one. What a failed write leaves is cut: it may not be read as more than
 * the tail that it is. */
static int write_block(struct spool_file *file, struct record *record, const uint32_t *runs,
                       const struct iovec pieces[2], struct err *err)
{
    struct iovec all[] = {
        { record, sizeof(*record) },
        { (void *)runs, record->runs * sizeof(*runs) },
        pieces[0],
        pieces[1],
    };
    size_t size = 0;
    for (size_t i = 0; i < ELEMENTS(all); i++)
        size += all[i].iov_len;
    record->salt = file->salt;
    record_seal(record, runs, pieces, 2);
    ssize_t n = pwritev(file->fd, all, ELEMENTS(all), (off_t)file->write_position);
    if (n == (ssize_t)size)
        return 0;
    (void)err_errno(err, n < 0 ? errno : ENOSPC, "cannot write output of a command to its file");
    (void)!ftruncate(file->fd, (off_t)file->write_position);
    return -1;
}

int spool_file_append(struct spool_file *file, uint64_t offset, const uint32_t *runs,
                      unsigned run_count, const struct iovec pieces[2], struct err *err)
{
    assert(file->count == 0 || offset == spool_file_end(file));
    struct record record = { .kind = RECORD_OUTPUT, .offset = offset, .runs = run_count };
    record.size = (uint32_t)(pieces[0].iov_len + pieces[1].iov_len);
    assert(record.size > 0 && record.size <= SPOOL_FILE_BLOCK_MAX && run_count <= RECORD_RUNS_MAX);
    uint64_t bytes = sizeof(record) + run_count * sizeof(*runs) + record.size;
    struct state_dir *state = file->state;
    if (bytes > state->quota - MIN(state->used, state->quota))
        return err_errno(err, EDQUOT, "the output that all commands keep fills the spool_quota");
    if (spool_file_reserve_block(file) < 0)
        return err_nomem(err);
    failpoint("runner.spill");
    if (write_block(file, &record, runs, pieces, err) < 0)
        return -1;
    failpoint("runner.spilled");
    spool_file_add_block(file, offset, record.size, bytes);
    return 0;
}

uint64_t spool_file_first(const struct spool_file *file)
{
    return file->count ? file->first : 0;
}

uint64_t spool_file_end(const struct spool_file *file)
{
    return file->count ? spool_file_block(file, file->count - 1)->end : 0;
}

/* Trimming. */

static uint64_t block_bytes(const struct spool_file *file, unsigned index)
{
    uint64_t next = file->write_position;
    if (index + 1 < file->count)
        next = spool_file_block(file, index + 1)->position;
    return next - spool_file_block(file, index)->position;
}

/* Nothing is left: begin again at the front. The position is written first, so that a crash in
 * between leaves blocks that nobody asks for and not a position without its blocks. */
static void restart(struct spool_file *file)
{
    file->start = file->punched = file->write_position = BLOCKS_AT;
    write_position(file);
    (void)!ftruncate(file->fd, BLOCKS_AT);
}

static void punch(struct spool_file *file)
{
    /* The page in which the last hole ended was only half free then. */
    uint64_t from = file->punched / PAGE * PAGE;
    write_position(file);
    /* Where a file system cannot make holes the space comes back when all of it was taken. */
    (void)fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
                    (off_t)(file->start - from));
    file->punched = file->start;
}

void spool_file_trim(struct spool_file *file, uint64_t offset)
{
    bool trimmed = false;
    while (file->count > 0 && spool_file_block(file, 0)->end <= offset) {
        uint64_t bytes = block_bytes(file, 0);
        file->first = spool_file_block(file, 0)->end;
        file->start = spool_file_block(file, 0)->position + bytes;
        file->used -= bytes;
        file->state->used -= bytes;
        file->first_block = (file->first_block + 1) % file->capacity;
        file->count--;
        trimmed = true;
    }
    if (!trimmed)
        return;
    if (file->count == 0) {
        free(TAKE_PTR(file->cache));
        restart(file);
    } else if (file->start - file->punched >= PUNCH_STEP) {
        punch(file);
    }
}

/* Reading. */

/* The first block that ends beyond the offset. */
static unsigned find_block(const struct spool_file *file, uint64_t offset)
{
    unsigned low = 0, high = file->count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (spool_file_block(file, middle)->end <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* One block is kept in memory while it is read: that is once for each, in a ledger that is sent
 * from one end to the other. */
static int load_block(struct spool_file *file, unsigned index)
{
    const struct spool_block *block = spool_file_block(file, index);
    size_t bytes = block_bytes(file, index), rest;
    struct err err;
    struct record record;
    if (file->cache && file->cached_end == block->end)
        return 0;
    if (!file->cache)
        file->cache = malloc(BLOCK_BYTES_MAX);
    file->cached_end = 0;
    if (!file->cache || bytes < sizeof(record) || bytes > BLOCK_BYTES_MAX ||
        pread(file->fd, file->cache, bytes, (off_t)block->position) != (ssize_t)bytes)
        return -1;
    (void)memcpy(&record, file->cache, sizeof(record));
    if (record_check(&record, file->salt, &rest, &err) < 0 || rest != bytes - sizeof(record) ||
        record_verify(&record, file->cache + sizeof(record), &err) < 0 ||
        record.size > block->end || record.offset != block->end - record.size)
        return -1;
    file->cached_end = block->end;
    return 0;
}

ssize_t spool_file_peek(struct spool_file *file, uint64_t offset, void *out, size_t max,
                        unsigned *ret_stream, uint64_t *ret_beyond)
{
    unsigned index = find_block(file, offset);
    *ret_beyond = spool_file_block(file, index)->end;
    if (load_block(file, index) < 0)
        return -1;
    struct record record;
    (void)memcpy(&record, file->cache, sizeof(record));
    const uint8_t *table = file->cache + sizeof(record);
    const uint8_t *bytes = table + record.runs * sizeof(uint32_t);
    if (offset < record.offset)
        return -1;
    uint32_t at = (uint32_t)(offset - record.offset), run;
    for (uint32_t i = 0; i < record.runs; i++) {
        (void)memcpy(&run, table + i * sizeof(run), sizeof(run));
        if (RECORD_RUN_END(run) <= at)
            continue;
        if (RECORD_RUN_END(run) > record.size)
            return -1;
        size_t size = MIN(max, RECORD_RUN_END(run) - at);
        (void)memcpy(out, bytes + at, size);
        *ret_stream = RECORD_RUN_STREAM(run);
        return (ssize_t)size;
    }
    return -1;
}
