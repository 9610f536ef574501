/* What the agent says about its VM: once at registration, then in every heartbeat. The numbers come
 * from agent/metrics.c and, about commands, from the runner's last status. */
#include "agent/link-internal.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/version.h"

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

void link_fill_register(struct link *link, Sandstorm__V1__Register *message,
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
    message->protocol_min = LINK_PROTOCOL;
    message->protocol_max = LINK_PROTOCOL;
    message->info = info;
    message->sent_unix_ms = wall_ms();
    message->link_instance = link->instance;
    message->link_uptime_ms = (monotonic_us() - link->started_us) / 1000;
}

void link_send_heartbeat(struct link *link)
{
    struct metrics_sample sample;
    struct err err;
    if (metrics_sample(&link->metrics, &sample, &err) < 0)
        log_debug("a metric cannot be read", LF_ERR(&err));
    Sandstorm__V1__Metrics metrics = SANDSTORM__V1__METRICS__INIT;
    metrics.cpu_basis_points = sample.cpu_basis_points;
    metrics.cpus = sample.cpus;
    metrics.load1_centi = sample.load1_centi;
    metrics.memory_total_bytes = sample.memory_total_bytes;
    metrics.memory_available_bytes = sample.memory_available_bytes;
    metrics.disk_total_bytes = sample.disk_total_bytes;
    metrics.disk_free_bytes = sample.disk_free_bytes;
    metrics.processes = sample.processes;
    metrics.uptime_s = sample.uptime_s;
    metrics.commands_running = link->runner.commands_running;
    metrics.spool_bytes = link->runner.spool_bytes;

    Sandstorm__V1__Heartbeat heartbeat = SANDSTORM__V1__HEARTBEAT__INIT;
    heartbeat.sequence = ++link->stream.heartbeat_sequence;
    heartbeat.sent_unix_ms = wall_ms();
    heartbeat.metrics = &metrics;
    heartbeat.runner_connected = link_runner_connected(link);
    heartbeat.clock_skew_ms = link->stream.clock_skew_ms;
    heartbeat.certificate_not_after_unix_ms = link->own.not_after_ms;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_HEARTBEAT;
    frame.heartbeat = &heartbeat;

    uint8_t packed[512];
    size_t size = sandstorm__v1__agent_frame__get_packed_size(&frame);
    if (size > sizeof(packed))
        return; /* cannot be: the message has only numbers */
    (void)sandstorm__v1__agent_frame__pack(&frame, packed);
    link_stream_carry(link, &(struct iovec){ packed, size }, 1);
}
