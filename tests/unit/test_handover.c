/* What a runner leaves for the program that it becomes: read back as it was written, refused when
 * it is of another version, out of order, or cut anywhere. */
#include "agent/runner-internal.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)

struct blob {
    uint8_t *bytes;
    size_t size;
};

static void put_header(struct handover_out *out, uint64_t version)
{
    struct err err = { 0 };
    Sandstorm__Runner__Handover header = SANDSTORM__RUNNER__HANDOVER__INIT;
    header.instance = (char *)"12345678-7f0e-4a53-9c55-3d7a1f2e9b10";
    OK(handover_put(out, RECORD_HANDOVER, version, &header.base, &err));
}

/* An ended command with a ledger of five bytes. */
static void put_command(struct handover_out *out)
{
    struct err err = { 0 };
    uint8_t digest[COMMAND_DIGEST_LEN] = { 1 }, outcome[] = { 0x0a, 0x02, 0x08, 0x07 };
    Sandstorm__Runner__Pipe pipe = SANDSTORM__RUNNER__PIPE__INIT, *pipes[] = { &pipe, &pipe };
    Sandstorm__Runner__Command message = SANDSTORM__RUNNER__COMMAND__INIT;
    pipe.fd = -1;
    message.command_id = (char *)"22345678-7f0e-4a53-9c55-3d7a1f2e9b10";
    message.spec_digest = (ProtobufCBinaryData){ sizeof(digest), digest };
    message.state = COMMAND_ENDED;
    message.pidfd = message.input_fd = message.file_fd = message.slave_fd = -1;
    message.timeout_left_us = message.kill_left_us = message.drain_left_us = UINT64_MAX;
    message.alone_left_us = message.patience_left_us = UINT64_MAX;
    message.output = pipes;
    message.n_output = 2;
    message.outcome = (ProtobufCBinaryData){ sizeof(outcome), outcome };
    OK(handover_put(out, RECORD_COMMAND, 0, &message.base, &err));
    OK(handover_put_bytes(out, RECORD_OUTPUT, 0, 1, "bytes", 5, &err));
}

static struct blob take(struct handover_out *out, bool ended)
{
    struct err err = { 0 };
    struct stat st;
    if (ended)
        OK(handover_end(out, &err));
    cr_assert_eq(fstat(out->fd, &st), 0);
    struct blob blob = { malloc((size_t)st.st_size), (size_t)st.st_size };
    cr_assert_eq(pread(out->fd, blob.bytes, blob.size, 0), (ssize_t)blob.size);
    handover_done(out);
    return blob;
}

static struct blob whole(uint64_t version)
{
    struct err err = { 0 };
    struct handover_out out;
    OK(handover_begin(&out, &err));
    put_header(&out, version);
    put_command(&out);
    return take(&out, true);
}

Test(handover, what_is_whole_is_accepted)
{
    struct err err = { 0 };
    struct blob blob = whole(HANDOVER_VERSION);
    OK(runner_handover_check_bytes(blob.bytes, blob.size, &err));
    free(blob.bytes);
}

Test(handover, one_of_a_newer_runner_is_refused_in_words)
{
    struct err err = { 0 };
    struct blob blob = whole(HANDOVER_VERSION + 1);
    cr_assert_eq(runner_handover_check_bytes(blob.bytes, blob.size, &err), -1);
    cr_expect_eq(err.code, ERR_UNIMPLEMENTED);
    cr_expect_not_null(strstr(err.text, "has version 2 and this program knows 1"), "%s", err.text);
    free(blob.bytes);
}

Test(handover, one_that_is_cut_or_changed_anywhere_is_refused)
{
    struct err err = { 0 };
    struct blob blob = whole(HANDOVER_VERSION);
    for (size_t size = 0; size < blob.size; size++)
        cr_assert_eq(runner_handover_check_bytes(blob.bytes, size, &err), -1, "%zu", size);
    for (size_t i = 0; i < blob.size; i++) {
        blob.bytes[i] ^= 0x40;
        cr_assert_eq(runner_handover_check_bytes(blob.bytes, blob.size, &err), -1, "%zu", i);
        blob.bytes[i] ^= 0x40;
    }
    OK(runner_handover_check_bytes(blob.bytes, blob.size, &err));
    free(blob.bytes);
}

static void expect_out_of_order(struct handover_out *out, bool ended)
{
    struct err err = { 0 };
    struct blob blob = take(out, ended);
    cr_expect_eq(runner_handover_check_bytes(blob.bytes, blob.size, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID);
    free(blob.bytes);
}

Test(handover, records_out_of_order_are_refused)
{
    struct err err = { 0 };
    struct handover_out out;
    OK(handover_begin(&out, &err));
    put_command(&out);
    expect_out_of_order(&out, true);
    OK(handover_begin(&out, &err));
    put_header(&out, HANDOVER_VERSION);
    OK(handover_put_bytes(&out, RECORD_OUTPUT, 0, 1, "bytes", 5, &err));
    expect_out_of_order(&out, true);
    OK(handover_begin(&out, &err));
    put_header(&out, HANDOVER_VERSION);
    OK(handover_put_bytes(&out, RECORD_DONE, 0, 0, "", 0, &err));
    put_command(&out);
    expect_out_of_order(&out, false);
    OK(handover_begin(&out, &err));
    put_header(&out, HANDOVER_VERSION);
    put_header(&out, HANDOVER_VERSION);
    expect_out_of_order(&out, true);
}

Test(handover, nothing_can_be_changed_once_it_is_done)
{
    struct err err = { 0 };
    struct handover_out out;
    OK(handover_begin(&out, &err));
    put_header(&out, HANDOVER_VERSION);
    OK(handover_end(&out, &err));
    cr_expect_eq(pwrite(out.fd, "x", 1, 0), -1);
    cr_expect_eq(ftruncate(out.fd, 0), -1);
    handover_done(&out);
}

Test(handover, descriptors_outlive_execve_only_while_they_are_meant_to)
{
    struct err err = { 0 };
    struct handover_out out;
    int fds[2];
    cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
    OK(handover_begin(&out, &err));
    OK(handover_keep(&out, fds[0], &err));
    OK(handover_keep(&out, -1, &err));
    cr_expect_eq(out.count, 1u);
    OK(handover_inherit(&out, true, &err));
    cr_expect_eq(fcntl(fds[0], F_GETFD), 0);
    cr_expect_eq(fcntl(fds[1], F_GETFD), FD_CLOEXEC);
    OK(handover_inherit(&out, false, &err));
    cr_expect_eq(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
    cr_expect_eq(fcntl(out.fd, F_GETFD), FD_CLOEXEC);
    handover_done(&out);
    close_fd(&fds[0]);
    close_fd(&fds[1]);
}
