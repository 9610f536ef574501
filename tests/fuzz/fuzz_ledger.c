/* A directory of segments made of arbitrary bytes, and of records that are whole but make no sense:
 * wrong numbers, overlaps, holes, forgetting, batches that cannot be. The ledger starts on it or
 * says why not; what it says is there can be read, is made of runs and covers what it should; it
 * takes more, and has that after a restart. */
#include "common/crc32c.h"
#include "common/log.h"
#include "orchestrator/ledger_log-internal.h"
#include "tests/fuzz/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMANDS 4u
#define FILES    4u
#define PAYLOAD  64u

void __wrap_log_event(enum log_level level, const char *message, const struct log_field *fields,
                      unsigned count);

void __wrap_log_event(enum log_level level, const char *message, const struct log_field *fields,
                      unsigned count)
{
    (void)level;
    (void)message;
    (void)fields;
    (void)count;
}

/* Nobody pulls the plug here, and waiting for the disk would be all that this does. */
int fsync(int fd)
{
    (void)fd;
    return 0;
}

int fdatasync(int fd)
{
    (void)fd;
    return 0;
}

static char directory[] = "/tmp/fuzz-ledger-XXXXXX";
static struct loop *loop;

static void make_directory(void)
{
    struct err err;
    char inside[64];
    check(mkdtemp(directory) && loop_new(&loop, &err) == 0);
    (void)snprintf(inside, sizeof(inside), "%s/ledger", directory);
    check(mkdir(inside, 0700) == 0);
}

static void clear_directory(void)
{
    for (uint32_t number = 0; number < 64; number++) {
        char name[LEDGER_NAME_MAX], path[96];
        ledger_segment_name(number, name);
        (void)snprintf(path, sizeof(path), "%s/ledger/%s", directory, name);
        (void)unlink(path);
    }
}

static struct command_id id_of(unsigned command)
{
    struct command_id id;
    (void)snprintf(id.text, sizeof(id.text), "%08x-0000-4000-8000-000000000000", command);
    return id;
}

/* Files. */

static size_t put_record(uint8_t *out, uint32_t salt, struct input *input)
{
    const struct command_id id = id_of(input_byte(input) % COMMANDS);
    uint8_t how = input_byte(input);
    uint64_t length = input_byte(input);
    struct ledger_record record = { .kind = (enum ledger_record_kind)(how % 6),
                                    .size = how % 6 == LEDGER_RECORD_OUTPUT ? PAYLOAD : 0,
                                    .batch = input_byte(input),
                                    .time_ms = input_byte(input),
                                    .offset = (uint64_t)input_byte(input) * 8,
                                    .id = ledger_id_of(&id) };
    record.end = record.offset + (how & 0x80 ? PAYLOAD - LEDGER_RUN_HEADER : length);
    uint8_t *payload = out + LEDGER_RECORD_HEADER;
    memset(payload, (int)length, PAYLOAD);
    if (how & 0x40)
        ledger_run_pack(payload, LEDGER_STDOUT, PAYLOAD - LEDGER_RUN_HEADER);
    record.checksum = crc32c(0, payload, how & 0x20 ? record.size : 0);
    ledger_record_pack(out, salt, &record);
    return LEDGER_RECORD_HEADER + record.size;
}

static void put_file(struct input *input)
{
    static uint8_t file[64 * (LEDGER_RECORD_HEADER + PAYLOAD)];
    uint32_t number = input_byte(input) % 32u;
    unsigned records = input_byte(input) % 32u;
    const struct ledger_record first = { .kind = LEDGER_RECORD_SEGMENT,
                                         .checksum = number * 77 + 5,
                                         .batch = input_byte(input) % 40u,
                                         .offset = number,
                                         .end = number + input_byte(input) % 3u };
    size_t size = LEDGER_RECORD_HEADER;
    ledger_record_pack(file, LEDGER_MAGIC, &first);
    for (unsigned i = 0; i < records; i++)
        size += put_record(file + size, first.checksum, input);
    size_t noise_size;
    const uint8_t *noise = input_block(input, &noise_size);
    noise_size = MIN(noise_size, sizeof(file) - size);
    size_t at = (size_t)input_byte(input) * 16;
    if (at + noise_size <= size && noise_size > 0) /* over what is there, or behind it */
        memcpy(file + at, noise, noise_size);
    else if (noise_size > 0)
        memcpy(file + size, noise, noise_size);
    if (at + noise_size > size)
        size += noise_size;
    char name[LEDGER_NAME_MAX], path[96];
    ledger_segment_name(number, name);
    (void)snprintf(path, sizeof(path), "%s/ledger/%s", directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(fd >= 0 && write(fd, file, size) == (ssize_t)size);
    (void)close(fd);
}

/* What the ledger makes of them. */

static bool done;

static void read_done(struct ledger_read *read)
{
    (void)read;
    done = true;
}

static void append_done(struct ledger_append *append)
{
    (void)append;
    done = true;
}

static void wait_until_done(void)
{
    struct err err;
    for (; !done;)
        check(loop_turn(loop, 1000000, &err) == 0);
    done = false;
}

/* One read, and whether it is what it says. */
static uint64_t read_from(struct ledger_log *log, unsigned command, uint64_t offset)
{
    static uint8_t out[LEDGER_READ_MIN];
    struct ledger_read read = { .id = id_of(command),
                                .offset = offset,
                                .out = out,
                                .capacity = sizeof(out),
                                .done = read_done };
    struct err err;
    check(ledger_log_read(log, &read, &err) == 0);
    wait_until_done();
    check(read.result == 0);
    check(read.ret_end >= offset && read.size <= sizeof(out));
    check(ledger_runs_cover(out, read.size, read.ret_end - offset));
    return read.ret_end;
}

static void read_all(struct ledger_log *log, unsigned command, uint64_t from)
{
    const struct command_id id = id_of(command);
    uint64_t first, end, next;
    if (!ledger_log_range(log, &id, &first, &end))
        return;
    check(first < end);
    while ((next = read_from(log, command, from)) > from)
        from = next;
    check(from >= end);
}

static uint64_t append_some(struct ledger_log *log, unsigned command)
{
    const struct command_id id = id_of(command);
    uint8_t runs[LEDGER_RUN_HEADER + 3] = { 0 };
    uint64_t first, end = 0;
    (void)ledger_log_range(log, &id, &first, &end);
    ledger_run_pack(runs, LEDGER_STDERR, 3);
    struct ledger_append append = { .id = id,
                                    .offset = end,
                                    .end = end + 3,
                                    .runs = runs,
                                    .size = sizeof(runs),
                                    .done = append_done };
    struct err err;
    check(ledger_log_append(log, &append, &err) == 0);
    wait_until_done();
    check(append.result == 0);
    return end + 3;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = { data, size };
    struct err err = { 0 };
    if (!loop)
        make_directory();
    clear_directory();
    unsigned files = 1 + input_byte(&input) % FILES;
    for (unsigned i = 0; i < files; i++)
        put_file(&input);
    const struct ledger_log_config config = { .dir = directory,
                                              .loop = loop,
                                              .total_max = UINT64_C(1) << 20,
                                              .command_max = input_byte(&input) * UINT64_C(16),
                                              .segment_bytes = LEDGER_SEGMENT_MIN };
    struct ledger_log *log;
    check(ledger_log_open(&config, &log, &err) == 0);
    for (unsigned i = 0; i < COMMANDS; i++) {
        read_all(log, i, 0);
        read_all(log, i, input_byte(&input));
    }
    const struct command_id trimmed = id_of(0), forgotten = id_of(1);
    uint64_t first, end;
    if (ledger_log_range(log, &trimmed, &first, &end))
        ledger_log_trim(log, &trimmed, first + input_byte(&input) % (end - first));
    ledger_log_forget(log, &forgotten);
    uint64_t ends[COMMANDS];
    for (unsigned i = 0; i < COMMANDS; i++)
        ends[i] = append_some(log, i);
    ledger_log_free(log);

    check(ledger_log_open(&config, &log, &err) == 0);
    for (unsigned i = 0; i < COMMANDS; i++) {
        const struct command_id id = id_of(i);
        check(ledger_log_range(log, &id, &first, &end) && end == ends[i]);
        read_all(log, i, 0);
    }
    ledger_log_free(log);
    return 0;
}
