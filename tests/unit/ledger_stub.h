/* A ledger log without a disk, for what stands on orchestrator/ledger.h: blocks in memory, written
 * at once or when the test says so. Defines the functions themselves, so the library's are not
 * linked. */
#pragma once

#include "orchestrator/ledger_log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define STUB_BLOCKS_MAX 4096u

struct stub_block {
    struct command_id id;
    uint64_t offset, end;
    uint8_t *runs;
    size_t size;
};

static struct {
    struct stub_block blocks[STUB_BLOCKS_MAX];
    unsigned count;
    struct ledger_append *first, *last; /* not written yet */
    struct ledger_read *reads;
    bool late, broken;
    uint64_t trimmed; /* below this nothing is kept, of any command */
} stub_ledger;

/* What was handed over is written, or fails; what was asked for is read. */
static inline void stub_ledger_commit(void)
{
    while (stub_ledger.first) {
        struct ledger_append *append = stub_ledger.first;
        stub_ledger.first = append->next;
        append->result = 0;
        if (stub_ledger.broken) {
            append->result = err_set(&append->err, ERR_UNAVAILABLE, "the disk is full");
        } else {
            struct stub_block *block = &stub_ledger.blocks[stub_ledger.count++];
            assert(stub_ledger.count < STUB_BLOCKS_MAX);
            *block = (struct stub_block){ append->id, append->offset, append->end,
                                          malloc(append->size), append->size };
            assert(block->runs);
            (void)memcpy(block->runs, append->runs, append->size);
        }
        append->done(append);
    }
    while (stub_ledger.reads) {
        struct ledger_read *read = stub_ledger.reads;
        stub_ledger.reads = read->next;
        read->done(read);
    }
}

static inline void stub_ledger_clear(void)
{
    for (unsigned i = 0; i < stub_ledger.count; i++)
        free(stub_ledger.blocks[i].runs);
    (void)memset(&stub_ledger, 0, sizeof(stub_ledger));
}

int ledger_log_append(struct ledger_log *log, struct ledger_append *append, struct err *err)
{
    (void)log;
    (void)err;
    append->next = NULL;
    if (stub_ledger.first)
        stub_ledger.last->next = append;
    else
        stub_ledger.first = append;
    stub_ledger.last = append;
    return 0;
}

bool ledger_log_range(const struct ledger_log *log, const struct command_id *id,
                      uint64_t *ret_first, uint64_t *ret_end)
{
    bool found = false;
    (void)log;
    for (unsigned i = 0; i < stub_ledger.count; i++) {
        const struct stub_block *block = &stub_ledger.blocks[i];
        if (strcmp(block->id.text, id->text) != 0 || block->end <= stub_ledger.trimmed)
            continue;
        if (!found)
            *ret_first = block->offset;
        *ret_end = block->end;
        found = true;
    }
    return found;
}

int ledger_log_read(struct ledger_log *log, struct ledger_read *read, struct err *err)
{
    (void)log;
    (void)err;
    read->result = err_set(&read->err, ERR_NOT_FOUND, "nothing is kept");
    for (unsigned i = 0; i < stub_ledger.count; i++) {
        const struct stub_block *block = &stub_ledger.blocks[i];
        if (strcmp(block->id.text, read->id.text) != 0 || block->offset > read->offset ||
            block->end <= read->offset)
            continue;
        /* From the offset on: the stub keeps to whole blocks of one run where it is asked inside.
         */
        const uint8_t *at = block->runs, *end = block->runs + block->size, *data;
        uint64_t offset = block->offset, size;
        enum ledger_kind kind;
        read->size = 0;
        while (ledger_run_next(&at, end, &kind, &size, &data) == 0) {
            uint64_t skip = offset < read->offset ? read->offset - offset : 0;
            offset += size;
            if (skip >= size)
                continue;
            ledger_run_pack(read->out + read->size, kind, size - skip);
            read->size += LEDGER_RUN_HEADER;
            if (data) {
                (void)memcpy(read->out + read->size, data + skip, (size_t)(size - skip));
                read->size += (size_t)(size - skip);
            }
        }
        read->ret_end = block->end;
        read->result = 0;
        break;
    }
    read->next = stub_ledger.reads;
    stub_ledger.reads = read;
    return 0;
}
