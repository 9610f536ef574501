/* The container of a handover: records of agent/record.c one after the other in a memfd. Written
 * and read by agent/runner_handover.c and agent/command_handover.c. */
#include "agent/handover.h"

#include "common/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

int handover_begin(struct handover_out *out, struct err *err)
{
    *out = (struct handover_out){ .fd = memfd_create("handover", MFD_CLOEXEC | MFD_ALLOW_SEALING) };
    return out->fd < 0 ? err_errno(err, errno, "cannot create a memory file") : 0;
}

void handover_done(struct handover_out *out)
{
    close_fd(&out->fd);
    free(out->kept);
    *out = (struct handover_out){ .fd = -1 };
}

static int put(struct handover_out *out, struct record *record, uint32_t run, const void *bytes,
               struct err *err)
{
    const struct iovec pieces[] = {
        { record, sizeof(*record) },
        { &run, record->runs * sizeof(run) },
        { (void *)bytes, record->size },
    };
    size_t size = pieces[0].iov_len + pieces[1].iov_len + pieces[2].iov_len;
    record_seal(record, &run, &pieces[2], 1);
    ssize_t n = writev(out->fd, pieces, ELEMENTS(pieces));
    if (n != (ssize_t)size)
        return err_errno(err, n < 0 ? errno : ENOSPC, "cannot write the handover");
    return 0;
}

int handover_put_bytes(struct handover_out *out, enum record_kind kind, uint64_t offset,
                       unsigned stream, const void *bytes, size_t size, struct err *err)
{
    struct record record = { .kind = kind, .offset = offset, .size = (uint32_t)size };
    record.runs = kind == RECORD_OUTPUT;
    return put(out, &record, RECORD_RUN(size, stream), bytes, err);
}

int handover_put(struct handover_out *out, enum record_kind kind, uint64_t offset,
                 const ProtobufCMessage *message, struct err *err)
{
    CLEANUP_FREE uint8_t *packed = NULL;
    size_t size;
    if (wire_pack(message, &packed, &size, err) < 0)
        return -1;
    return handover_put_bytes(out, kind, offset, 0, packed, size, err);
}

int handover_keep(struct handover_out *out, int fd, struct err *err)
{
    if (fd < 0)
        return 0;
    if (out->count == out->capacity) {
        unsigned capacity = MAX(out->capacity * 2, 64u);
        int *kept = realloc(out->kept, capacity * sizeof(*kept));
        if (!kept)
            return err_nomem(err);
        out->kept = kept;
        out->capacity = capacity;
    }
    out->kept[out->count++] = fd;
    return 0;
}

int handover_end(struct handover_out *out, struct err *err)
{
    if (handover_put_bytes(out, RECORD_DONE, 0, 0, "", 0, err) < 0)
        return -1;
    if (fcntl(out->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return err_errno(err, errno, "cannot seal the handover");
    return 0;
}

int handover_inherit(const struct handover_out *out, bool inherited, struct err *err)
{
    int flags = inherited ? 0 : FD_CLOEXEC;
    int failed = fcntl(out->fd, F_SETFD, flags) < 0 ? errno : 0;
    for (unsigned i = 0; i < out->count; i++)
        if (fcntl(out->kept[i], F_SETFD, flags) < 0)
            failed = errno;
    return failed ? err_errno(err, failed, "cannot keep a descriptor open") : 0;
}

int handover_map(int fd, struct handover_in *ret, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot look at the handover");
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return err_set(err, ERR_INVALID, "that is no handover");
    uint8_t *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return err_errno(err, errno, "cannot read the handover");
    *ret = (struct handover_in){ data, data, data + st.st_size };
    return 0;
}

void handover_unmap(struct handover_in *in)
{
    if (in->data)
        (void)munmap((void *)in->data, (size_t)(in->end - in->data));
    in->data = NULL;
}

int handover_next(struct handover_in *in, struct handover_record *ret, struct err *err)
{
    struct handover_record record = { 0 };
    size_t left = (size_t)(in->end - in->at), rest;
    if (left < sizeof(record.header))
        return err_set(err, ERR_INVALID, "the handover ends too early");
    (void)memcpy(&record.header, in->at, sizeof(record.header));
    if (record_check(&record.header, 0, &rest, err) < 0)
        return -1;
    if (rest > left - sizeof(record.header))
        return err_set(err, ERR_INVALID, "the handover ends too early");
    const uint8_t *at = in->at + sizeof(record.header);
    if (record_verify(&record.header, at, err) < 0)
        return -1;
    bool output = record.header.kind == RECORD_OUTPUT;
    if (record.header.runs != (output ? 1 : 0))
        return err_set(err, ERR_INVALID, "the handover is in an order that makes no sense");
    if (output) {
        uint32_t run;
        (void)memcpy(&run, at, sizeof(run));
        record.stream = RECORD_RUN_STREAM(run);
    }
    record.bytes = at + record.header.runs * sizeof(uint32_t);
    in->at = at + rest;
    *ret = record;
    return 0;
}
