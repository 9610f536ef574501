/* The one place that knows how a record lies in a file. Used by agent/spool_file.c for a command's
 * file and by agent/handover.c for what a runner hands to its successor. */
#include "agent/record.h"

#include "common/crc32c.h"

#include <stddef.h>

/* "SSR1": another layout gets another number. */
#define RECORD_MAGIC 0x31525353u

static uint32_t sum_header(const struct record *record)
{
    const size_t from = offsetof(struct record, kind);
    return crc32c(record->salt, (const uint8_t *)record + from, sizeof(*record) - from);
}

void record_seal(struct record *record, const uint32_t *runs, const struct iovec *pieces,
                 unsigned count)
{
    record->magic = RECORD_MAGIC;
    uint32_t crc = sum_header(record);
    if (record->runs > 0)
        crc = crc32c(crc, runs, record->runs * sizeof(*runs));
    for (unsigned i = 0; i < count; i++)
        crc = crc32c(crc, pieces[i].iov_base, pieces[i].iov_len);
    record->crc = crc;
}

int record_check(const struct record *record, uint32_t salt, size_t *ret_rest, struct err *err)
{
    if (record->magic != RECORD_MAGIC || record->salt != salt || record->size > RECORD_BYTES_MAX ||
        record->runs > RECORD_RUNS_MAX)
        return err_set(err, ERR_INVALID, "that is no record");
    *ret_rest = record->runs * sizeof(uint32_t) + record->size;
    return 0;
}

int record_verify(const struct record *record, const void *rest, struct err *err)
{
    size_t size = record->runs * sizeof(uint32_t) + record->size;
    if (crc32c(sum_header(record), rest, size) != record->crc)
        return err_set(err, ERR_INVALID, "the checksum of a record does not match");
    return 0;
}
