/* The inside of a command's file, for agent/spool_file*.c only. */
#pragma once

#include "agent/spool_file.h"

#define POSITION_AT     1536u
#define END_AT          1664u
#define BLOCKS_AT       4096u
#define BLOCK_BYTES_MAX (sizeof(struct record) + RECORD_RUNS_MAX * 4 + SPOOL_FILE_BLOCK_MAX)

struct stored_position {
    struct spool_position position;
    uint64_t start; /* where in the file the first block is */
    uint32_t crc;
};

struct spool_file {
    struct state_dir *state;
    struct command_id id;
    int fd;
    uint32_t salt; /* of this file's checksums: what a command prints cannot be a record of ours */
    struct spool_position position;

    struct spool_block *blocks; /* a ring */
    unsigned capacity, first_block, count;
    uint64_t first; /* offset of the first block's first byte */
    uint64_t start; /* where in the file it is; below it there is nothing of worth */
    uint64_t punched;
    uint64_t write_position;
    uint64_t used; /* bytes of the blocks, which the state directory counts too */
    bool has_end;

    uint8_t *cache; /* the block that was read last */
    uint64_t cached_end;
};

int spool_file_new(struct state_dir *state, const struct command_id *id, int fd, uint32_t salt,
                   struct spool_file **ret, struct err *err) must_use;
struct spool_block *spool_file_block(const struct spool_file *file, unsigned index);
int spool_file_reserve_block(struct spool_file *file) must_use;
void spool_file_add_block(struct spool_file *file, uint64_t offset, uint64_t size, uint64_t bytes);
