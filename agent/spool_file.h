/* A command's file in the state directory: a head that says which command and which process it is,
 * how far its ledger went, output that did not stay in memory, and how it ended. Making the file is
 * what reserves the id, so it exists before the process does. Space goes back to the file system as
 * output is trimmed. Runner's thread. */
#pragma once

#include "agent/record.h"
#include "agent/state_dir.h"

#include <stdbool.h>

#define SPOOL_FILE_HEAD_MAX  1500u
#define SPOOL_FILE_END_MAX   2400u
#define SPOOL_FILE_BLOCK_MAX (64u * 1024) /* bytes of output in one record */

struct spool_file;

/* Where a ledger stands, as of the last read or acknowledgement. */
struct spool_position {
    uint64_t first, end, acked;
    uint64_t bytes[2]; /* of stdout and stderr */
};

/* ERR_EXISTS when the name is taken, by whatever. */
int spool_file_create(struct state_dir *state, const struct command_id *id, struct spool_file **ret,
                      struct err *err) must_use;
/* Reads it all and cuts what is torn. The caller gets what was written: *ret_head and *ret_end are
 * allocated, and *ret_end is NULL where the command has not ended. */
struct spool_file_content {
    uint8_t *head, *end;
    size_t head_size, end_size;
    struct spool_position position;
};
int spool_file_load(struct state_dir *state, const struct command_id *id, struct spool_file **ret,
                    struct spool_file_content *ret_content, struct err *err) must_use;
/* Closes it; the file stays. */
void spool_file_free(struct spool_file *file);
/* Forgets the command: the name goes, and the space with the last descriptor. */
void spool_file_remove(struct spool_file *file);

/* Written over the head that was there; the size may differ. */
int spool_file_set_head(struct spool_file *file, const void *head, size_t size,
                        struct err *err) must_use;
void spool_file_set_position(struct spool_file *file, const struct spool_position *position);

/* One block of the ledger, which must begin where the last one ended. Nothing has changed when it
 * fails: no space, no quota, a bad disk. */
int spool_file_append(struct spool_file *file, uint64_t offset, const uint32_t *runs,
                      unsigned run_count, const struct iovec pieces[2], struct err *err) must_use;
/* Takes no space that could be missing. */
int spool_file_set_end(struct spool_file *file, const void *end, size_t size,
                       struct err *err) must_use;
bool spool_file_has_end(const struct spool_file *file);

/* The blocks that are held: [first, end), and 0 and 0 when there are none. `first` may lie below
 * what was trimmed to, by less than a block. */
uint64_t spool_file_first(const struct spool_file *file);
uint64_t spool_file_end(const struct spool_file *file);
/* Copies bytes of one run. When the block cannot be read any more: -1, and *ret_beyond is where the
 * next one begins. `offset` must be held. */
ssize_t spool_file_peek(struct spool_file *file, uint64_t offset, void *out, size_t max,
                        unsigned *ret_stream, uint64_t *ret_beyond);
/* Lets go of the blocks that end at or below `offset`. */
void spool_file_trim(struct spool_file *file, uint64_t offset);

/* For a successor of this process: the descriptor, and what a load would find out. */
struct spool_block {
    uint64_t end;      /* in the ledger */
    uint64_t position; /* in the file */
};
struct spool_file_state {
    int fd;
    uint32_t salt;
    uint64_t first, write_position;
    bool has_end;
    unsigned block_count;
};
void spool_file_state(const struct spool_file *file, struct spool_file_state *ret);
/* At most `max` blocks from the one with that number on. */
unsigned spool_file_blocks(const struct spool_file *file, unsigned from, struct spool_block *out,
                           unsigned max);
/* The blocks follow with spool_file_adopt_block(), in order. Owns the descriptor when it succeeds.
 */
int spool_file_adopt(struct state_dir *state, const struct command_id *id,
                     const struct spool_file_state *from, struct spool_file **ret,
                     struct err *err) must_use;
int spool_file_adopt_block(struct spool_file *file, const struct spool_block *block,
                           struct err *err) must_use;
