/* What the agent says about its VM: once at registration, then in every heartbeat. The numbers come
 * from agent/metrics.c and, about commands, from the runner's last status. */
#include "agent/link-internal.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/label.h"
#include "common/utf8.h"
#include "common/version.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#define SMALL_FILE_MAX 16384u

/* The words behind the struct's pointers; static because there is one VM. */
struct words {
    struct utsname uname;
    char kernel[sizeof(((struct utsname *)0)->release) + sizeof(((struct utsname *)0)->sysname)];
    char os[128];
    char boot_id[64];
    char last_error[LINK_ERROR_MAX + 1];
    char names[LABELS_MAX][LABEL_KEY_MAX + 1], values[LABELS_MAX][LABEL_VALUE_MAX + 1];
    Sandstorm__V1__Label labels[LABELS_MAX], *pointers[LABELS_MAX];
};

/* PRETTY_NAME of os-release(5), without its quotes. */
static void read_os(char *out, size_t size)
{
    CLEANUP_FREE char *text = NULL;
    size_t length;
    struct err ignored;
    if (file_read("/etc/os-release", SMALL_FILE_MAX, &text, &length, &ignored) < 0)
        return;
    const char *name = strstr(text, "PRETTY_NAME=");
    if (!name)
        return;
    name += strlen("PRETTY_NAME=");
    name += strspn(name, "\"'");
    (void)snprintf(out, size, "%.*s", (int)strcspn(name, "\"'\n"), name);
}

void link_read_boot_id(char *out, size_t size)
{
    CLEANUP_FREE char *text = NULL;
    size_t length;
    struct err ignored;
    if (file_read("/proc/sys/kernel/random/boot_id", SMALL_FILE_MAX, &text, &length, &ignored) == 0)
        (void)snprintf(out, size, "%.*s", (int)strcspn(text, "\n"), text);
}

static void fill_labels(struct words *words, const char *labels, Sandstorm__V1__SandboxInfo *info)
{
    size_t count = 0;
    while (count < LABELS_MAX && labels_next(&labels, words->names[count], words->values[count])) {
        sandstorm__v1__label__init(&words->labels[count]);
        words->labels[count].name = words->names[count];
        words->labels[count].value = words->values[count];
        words->pointers[count] = &words->labels[count];
        count++;
    }
    info->n_labels = count;
    info->labels = words->pointers;
}

/* What has kept us away until now. A stream that takes over and one that follows a goodbye in good
 * order have nothing to tell. */
static void fill_error(const struct link_stream *stream, struct words *words,
                       Sandstorm__V1__Register *message)
{
    if (!*stream->last_error || stream->orderly)
        return;
    utf8_one_line(stream->last_error, words->last_error, sizeof(words->last_error));
    message->last_error = words->last_error;
    message->last_error_unix_ms = stream->last_error_ms;
}

void link_fill_register(struct link *link, bool taking_over, Sandstorm__V1__Register *message,
                        Sandstorm__V1__SandboxInfo *info)
{
    static struct words words;
    (void)uname(&words.uname);
    (void)snprintf(words.kernel, sizeof(words.kernel), "%s %s", words.uname.sysname,
                   words.uname.release);
    read_os(words.os, sizeof(words.os));
    link_read_boot_id(words.boot_id, sizeof(words.boot_id));

    info->vm_id = (char *)(link->config.enroll->vm_id ? link->config.enroll->vm_id : "");
    info->hostname = words.uname.nodename;
    info->kernel = words.kernel;
    info->os = words.os;
    info->arch = words.uname.machine;
    info->boot_id = words.boot_id;
    info->agent_version = (char *)SANDSTORM_VERSION;
    info->runner_version = link->runner.version;
    fill_labels(&words, link->config.labels, info);
    if (!taking_over)
        fill_error(&link->stream, &words, message);
    message->protocol_min = LINK_PROTOCOL;
    message->protocol_max = LINK_PROTOCOL;
    message->info = info;
    message->sent_unix_ms = wall_ms();
    message->link_instance = link->instance;
    message->link_uptime_ms = (monotonic_us() - link->started_us) / 1000;
}

static void fill_metrics(const struct link *link, const struct metrics_sample *sample,
                         struct link_heartbeat *ret)
{
    Sandstorm__V1__Metrics *metrics = &ret->metrics;
    metrics->cpu_basis_points = sample->cpu_basis_points;
    metrics->cpus = sample->cpus;
    metrics->load1_centi = sample->load1_centi;
    metrics->memory_total_bytes = sample->memory_total_bytes;
    metrics->memory_available_bytes = sample->memory_available_bytes;
    metrics->disk_total_bytes = sample->disk_total_bytes;
    metrics->disk_free_bytes = sample->disk_free_bytes;
    metrics->processes = sample->processes;
    metrics->uptime_s = sample->uptime_s;
    metrics->commands_running = link->runner.commands_running;
    metrics->spool_bytes = link->runner.spool_bytes;
    metrics->network_received_bytes = sample->network_received_bytes;
    metrics->network_sent_bytes = sample->network_sent_bytes;
    metrics->state_disk_total_bytes = sample->state_disk_total_bytes;
    metrics->state_disk_free_bytes = sample->state_disk_free_bytes;
    if (!sample->pressure_known)
        return;
    ret->pressure.cpu_some = sample->cpu_some;
    ret->pressure.memory_some = sample->memory_some;
    ret->pressure.memory_full = sample->memory_full;
    ret->pressure.io_some = sample->io_some;
    ret->pressure.io_full = sample->io_full;
    metrics->pressure = &ret->pressure;
}

void link_fill_heartbeat(struct link *link, const struct metrics_sample *sample,
                         struct link_heartbeat *ret)
{
    sandstorm__v1__agent_frame__init(&ret->frame);
    sandstorm__v1__heartbeat__init(&ret->heartbeat);
    sandstorm__v1__metrics__init(&ret->metrics);
    sandstorm__v1__pressure__init(&ret->pressure);
    fill_metrics(link, sample, ret);
    Sandstorm__V1__Heartbeat *heartbeat = &ret->heartbeat;
    heartbeat->sequence = ++link->stream.heartbeat_sequence;
    heartbeat->sent_unix_ms = wall_ms();
    heartbeat->metrics = &ret->metrics;
    heartbeat->runner_connected = link_runner_connected(link);
    heartbeat->clock_skew_ms = link->stream.clock_skew_ms;
    heartbeat->certificate_not_after_unix_ms = link->own.not_after_ms;
    ret->frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_HEARTBEAT;
    ret->frame.heartbeat = heartbeat;
}

void link_send_heartbeat(struct link *link)
{
    struct metrics_sample sample;
    struct link_heartbeat heartbeat;
    struct err err;
    if (metrics_sample(&link->metrics, &sample, &err) < 0)
        log_debug("a metric cannot be read", LF_ERR(&err));
    link_fill_heartbeat(link, &sample, &heartbeat);
    uint8_t packed[LINK_HEARTBEAT_BYTES];
    size_t size = sandstorm__v1__agent_frame__get_packed_size(&heartbeat.frame);
    assert(size <= sizeof(packed)); /* it has only numbers, and their largest fit */
    (void)sandstorm__v1__agent_frame__pack(&heartbeat.frame, packed);
    link_stream_carry(link, &(struct iovec){ packed, size }, 1);
    link->stream.heartbeat_sent_us = monotonic_us();
}
