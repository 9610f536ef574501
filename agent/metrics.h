/* What the kernel says about this VM, for heartbeats: CPU from /proc/stat deltas, memory, disks,
 * load, processes, network, pressure. Reads files, keeps only the previous CPU counters. One
 * thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct metrics_sampler {
    const char *proc;  /* "/proc"; tests point it at a directory of their own */
    const char *disk;  /* a path on the filesystem that is reported */
    const char *state; /* the same for the agent's own files; NULL: not asked about */
    uint64_t cpu_busy, cpu_total;
};

struct metrics_sample {
    uint32_t cpu_basis_points; /* of all CPUs, since the previous sample; 0 for the first */
    uint32_t cpus;
    uint32_t load1_centi;
    uint64_t memory_total_bytes, memory_available_bytes;
    uint64_t disk_total_bytes, disk_free_bytes;
    uint32_t processes;
    uint64_t uptime_s;
    uint64_t network_received_bytes, network_sent_bytes;    /* since boot, without the loopback */
    uint64_t state_disk_total_bytes, state_disk_free_bytes; /* 0 on the same filesystem */
    bool pressure_known;                                    /* else the kernel has none */
    uint32_t cpu_some, memory_some, memory_full, io_some, io_full; /* basis points of 10 s */
};

void metrics_init(struct metrics_sampler *sampler, const char *proc, const char *disk,
                  const char *state);
/* Fills what can be read and leaves the rest zero: a heartbeat goes out even when /proc is odd.
 * The first thing that could not be read is in err, with result -1. */
int metrics_sample(struct metrics_sampler *sampler, struct metrics_sample *ret, struct err *err);
